//! Between the contract in wit/job.wit and a job function. The macro's code calls [`handle`] on every target and
//! [`run`] on wasm; both are here so that what it generates stays a few lines.

use crate::{Context, Failure, Input, Output};

/// The result's bytes, or why there is none.
pub type Answer = Result<Vec<u8>, Failure>;

/// Payload to input, job, output to result: the same on wasm and in a native test.
pub fn handle<I: Input, O: Output, E: Into<Failure>>(
    job: impl FnOnce(&Context, I) -> Result<O, E>,
    context: &Context,
    payload: Vec<u8>,
) -> Answer {
    let input = I::from_payload(payload)?;
    job(context, input).map_err(Into::into)?.into_result()
}

#[cfg(target_family = "wasm")]
pub use wasm::{GuestAnswer, run};

#[cfg(target_family = "wasm")]
mod wasm {
    use std::time::Duration;

    use super::{Answer, handle};
    use crate::bindings::leasehold::job::types;
    use crate::context::Job;
    use crate::{Context, Failure, Input, Level, Output, host, log};

    /// What the generated `run` of the contract answers.
    pub type GuestAnswer = Result<Vec<u8>, types::Failure>;

    /// The export's body.
    pub fn run<I: Input, O: Output, E: Into<Failure>>(
        job: impl FnOnce(&Context, I) -> Result<O, E>,
        about: types::Job,
        payload: Vec<u8>,
    ) -> GuestAnswer {
        log_panics();
        let about = Job {
            id: about.id,
            tenant: about.tenant,
            module: about.module,
            queue: about.queue,
            attempt: about.attempt,
            max_attempts: about.max_attempts,
            timeout: Duration::from_millis(about.timeout_ms),
        };
        let context = Context::new(about, host::Handle);
        let answer: Answer = handle(job, &context, payload);
        answer.map_err(|failure| match failure {
            Failure::Retry { message, delay } => {
                types::Failure::Retry(types::Retry { message, delay_ms: delay.map(millis) })
            }
            Failure::Dead { message } => types::Failure::Dead(message),
            Failure::Snooze { delay } => types::Failure::Snooze(millis(delay)),
        })
    }

    /// Whole milliseconds, rounded up: a job that waits 300 µs does not want to spin.
    fn millis(delay: Duration) -> u64 {
        u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// A panic ends in a bare `unreachable`. Its message goes into the log instead of to stderr, which some targets
    /// do not have, so that the failure shows it.
    fn log_panics() {
        std::panic::set_hook(Box::new(|panic| {
            let message = panic.payload_as_str().unwrap_or("no message");
            match panic.location() {
                Some(place) => log::write(Level::Error, format_args!("panicked at {place}: {message}")),
                None => log::write(Level::Error, format_args!("panicked: {message}")),
            }
        }));
    }
}
