//! Computes for so many rounds, a nanosecond or two each: a job that costs exactly as much as one wants.
//!
//! Example payload: `1000000`

use leasehold_guest::prelude::*;

#[job]
fn spin(_ctx: &Context, rounds: u64) -> Result<u64, Failure> {
    Ok((0..rounds).fold(88_172_645_463_325_252, xorshift))
}

/// Nothing that a compiler could do for all rounds at once.
fn xorshift(state: u64, _round: u64) -> u64 {
    let state = state ^ (state << 13);
    let state = state ^ (state >> 7);
    state ^ (state << 17)
}

#[cfg(test)]
mod tests {
    use leasehold_guest::testing::{self, MockContext, json};

    #[test]
    fn each_round_changes_the_answer() {
        let of = |rounds| testing::run(super::spin, &MockContext::new(), json!(rounds)).expect("a number");
        assert_eq!(of(0), json!(88_172_645_463_325_252_u64));
        assert_ne!(of(1), of(2));
    }
}
