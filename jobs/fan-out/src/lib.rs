//! Puts in one job for each of a list of payloads, as whoever splits work into parts does. They are there if and only if this
//! job is done.
//!
//! Example payload: `{"module": "noop", "payloads": ["{\"part\": 1}", "{\"part\": 2}"]}`

use std::time::Duration;

use leasehold_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    /// The module whose jobs they are.
    module: String,
    /// One for each job: the text of its payload.
    payloads: Vec<String>,
    /// Not before so long after this job was done.
    #[serde(default)]
    delay_ms: u64,
    /// With this word in front of their numbers the jobs are unique: run twice, this job puts them in once.
    unique: Option<String>,
    /// Fails after it has put them in, which then are not there.
    #[serde(default)]
    then_fail: bool,
}

#[derive(Serialize)]
struct Output {
    jobs: usize,
}

#[job]
fn fan_out(ctx: &Context, input: Input) -> Result<Output, Failure> {
    for (number, payload) in input.payloads.iter().enumerate() {
        let mut job = FollowUp::raw(&input.module, payload.as_str()).with_delay(Duration::from_millis(input.delay_ms));
        if let Some(word) = &input.unique {
            job = job.with_unique_key(format!("{word}-{number}"));
        }
        ctx.enqueue(job)?;
    }
    info!("asked for {} jobs of {}", input.payloads.len(), input.module);
    if input.then_fail {
        return Err(Failure::dead("failing after all, as asked"));
    }
    Ok(Output { jobs: input.payloads.len() })
}

#[cfg(test)]
mod tests {
    use leasehold_guest::testing::{self, MockContext, json};

    use super::fan_out;

    #[test]
    fn each_payload_becomes_a_job() {
        let mock = MockContext::new();
        let payload = json!({ "module": "noop", "payloads": ["1", "[2]"], "unique": "part" });
        assert_eq!(testing::run(fan_out, &mock, payload), Ok(json!({ "jobs": 2 })));
        let jobs = mock.enqueued();
        assert_eq!(
            jobs.iter().map(|job| (job.module(), job.payload())).collect::<Vec<_>>(),
            [("noop", b"1".as_slice()), ("noop", b"[2]".as_slice())]
        );
    }

    #[test]
    fn more_than_was_granted_is_dead() {
        let mock = MockContext::new().with_follow_ups(1);
        let payload = json!({ "module": "noop", "payloads": ["1", "2"] });
        let failure = testing::run(fan_out, &mock, payload).expect_err("one was granted");
        assert_eq!(failure.message(), Some("this run has asked for 2 jobs; the limit is 1"));
    }
}
