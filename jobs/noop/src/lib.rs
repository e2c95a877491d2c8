//! Returns its payload, whatever it is: what a run costs when the job itself does nothing.
//!
//! Example payload: `anything`

use leasehold_guest::prelude::*;

#[job]
fn noop(_ctx: &Context, payload: Raw) -> Result<Raw, Failure> {
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use leasehold_guest::testing::{self, MockContext};

    #[test]
    fn every_byte_comes_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(testing::run_raw(super::noop, &MockContext::new(), bytes.clone()), Ok(bytes));
    }
}
