//! Panics on its first attempts and then succeeds, as jobs do whose trouble passes.
//!
//! Example payload: `{"panics": 2}`

use leasehold_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    /// On how many attempts, from the first, the job panics.
    panics: u32,
}

#[derive(Serialize)]
struct Output {
    /// The attempt that got through.
    attempt: u32,
}

#[job]
fn flaky(ctx: &Context, input: Input) -> Result<Output, Failure> {
    let attempt = ctx.attempt();
    assert!(attempt > input.panics, "attempt {attempt} of the {} that panic", input.panics);
    info!("attempt {attempt} gets through");
    Ok(Output { attempt })
}

#[cfg(test)]
mod tests {
    use leasehold_guest::testing::{self, MockContext, json};

    use super::flaky;

    #[test]
    fn the_first_attempt_after_the_panics_gets_through() {
        let mock = MockContext::new().with_attempt(3);
        assert_eq!(testing::run(flaky, &mock, json!({ "panics": 2 })), Ok(json!({ "attempt": 3 })));
        assert_eq!(mock.log_text(), "info attempt 3 gets through\n");
    }

    #[test]
    #[should_panic(expected = "attempt 2 of the 2 that panic")]
    fn an_earlier_one_panics() {
        let _ = testing::run(flaky, &MockContext::new().with_attempt(2), json!({ "panics": 2 }));
    }
}
