//! Waits, like a job that waits for somebody else's service, and can fail on its first attempts: 1000 of these with a
//! pause of 2 ms, one of which fails twice, are a good first load for a queue.
//!
//! Example payload: `{"ms": 2}` or `{"ms": 2, "fails": 2, "after_ms": 50}`

use std::time::Duration;

use leasehold_guest::prelude::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    /// How long to wait, in milliseconds.
    ms: u64,
    /// How many attempts, from the first, ask for another one afterwards.
    #[serde(default)]
    fails: u32,
    /// After how many milliseconds they want it; without this, the retry policy decides.
    after_ms: Option<u64>,
}

#[derive(Serialize)]
struct Output {
    attempt: u32,
    waited_ms: u64,
}

#[job]
fn pause(ctx: &Context, input: Input) -> Result<Output, Failure> {
    std::thread::sleep(Duration::from_millis(input.ms));
    let attempt = ctx.attempt();
    if attempt <= input.fails {
        let message = format!("attempt {attempt} of the {} that fail", input.fails);
        return Err(match input.after_ms {
            Some(after_ms) => Failure::retry_after(message, Duration::from_millis(after_ms)),
            None => Failure::retry(message),
        });
    }
    Ok(Output { attempt, waited_ms: input.ms })
}

#[cfg(test)]
mod tests {
    use leasehold_guest::testing::{self, MockContext, json};

    use super::*;

    #[test]
    fn it_waits_and_is_done() {
        let before = std::time::Instant::now();
        let result = testing::run(pause, &MockContext::new(), json!({ "ms": 2 }));
        assert_eq!(result, Ok(json!({ "attempt": 1, "waited_ms": 2 })));
        assert!(before.elapsed() >= Duration::from_millis(2));
    }

    #[test]
    fn it_fails_as_often_as_it_was_told_to() {
        let payload = json!({ "ms": 0, "fails": 2, "after_ms": 50 });
        let at = |attempt| testing::run(pause, &MockContext::new().with_attempt(attempt), payload.clone());
        assert_eq!(at(1), Err(Failure::retry_after("attempt 1 of the 2 that fail", Duration::from_millis(50))));
        assert_eq!(at(2), Err(Failure::retry_after("attempt 2 of the 2 that fail", Duration::from_millis(50))));
        assert_eq!(at(3), Ok(json!({ "attempt": 3, "waited_ms": 0 })));
    }

    #[test]
    fn without_a_delay_the_policy_decides() {
        let result = testing::run(pause, &MockContext::new(), json!({ "ms": 0, "fails": 1 }));
        assert_eq!(result, Err(Failure::retry("attempt 1 of the 1 that fail")));
    }

    #[test]
    fn a_misspelled_field_is_named() {
        let failure = testing::run(pause, &MockContext::new(), json!({ "ms": 0, "fail": 1 }));
        let failure = failure.expect_err("there is no such field");
        assert!(failure.message().is_some_and(|message| message.contains("unknown field `fail`")), "{failure}");
    }
}
