//! Runs jobs natively, without wasm and without a worker: `cargo test` is all it takes.
//!
//! A job stays an ordinary function, so a test may just call it with `&MockContext::new()`. [`run`] goes the way that a
//! real payload goes, through JSON on both sides.
//!
//! ```
//! use leasehold_guest::prelude::*;
//! use leasehold_guest::testing::{self, MockContext, json};
//!
//! #[job]
//! fn double(ctx: &Context, number: u32) -> Result<u32, Failure> {
//!     info!("attempt {}", ctx.attempt());
//!     number.checked_mul(2).or_dead("doubling")
//! }
//!
//! let mock = MockContext::new().with_attempt(3);
//! assert_eq!(double(&mock, 21), Ok(42));
//! assert_eq!(mock.log_text(), "info attempt 3\n");
//!
//! assert_eq!(testing::run(double, &mock, json!(21)), Ok(json!(42)));
//! let failure = testing::run(double, &mock, json!("many")).unwrap_err();
//! assert!(failure.message().unwrap().contains("expected u32 at line 1 column 6"));
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

pub use serde_json::{Value, json};

use crate::context::Job;
use crate::http::{Request, Response};
use crate::{Context, Failure, FollowUp, Input, Level, Output, Raw, export, host};

/// Runs a job as the worker would, JSON to JSON.
///
/// # Errors
/// The job's failure, or [`Failure::Dead`] where the payload does not fit.
///
/// # Panics
/// When the job returns [`Raw`] bytes that are not JSON; [`run_raw`] takes those.
#[track_caller]
pub fn run<I: Input, O: Output, E: Into<Failure>>(
    job: impl FnOnce(&Context, I) -> Result<O, E>,
    mock: &MockContext,
    payload: Value,
) -> Result<Value, Failure> {
    let result = run_raw(job, mock, payload.to_string())?;
    Ok(serde_json::from_slice(&result).expect("the result is not JSON; use run_raw"))
}

/// Runs a job as the worker would, bytes to bytes.
///
/// # Errors
/// The job's failure, or [`Failure::Dead`] where the payload does not fit.
pub fn run_raw<I: Input, O: Output, E: Into<Failure>>(
    job: impl FnOnce(&Context, I) -> Result<O, E>,
    mock: &MockContext,
    payload: impl Into<Raw>,
) -> Result<Vec<u8>, Failure> {
    export::handle(job, mock, payload.into().0)
}

/// A [`Context`] for tests, which also keeps the lines that the job logs. `&mock` goes wherever `&Context` is wanted.
///
/// Starts as job 1 of module "test" in queue "default" of tenant "test", at the first of 5 attempts, with 30 s of time.
#[derive(Debug)]
pub struct MockContext(Context);

impl MockContext {
    /// See the type for its values.
    #[allow(clippy::new_without_default)] // nobody wants to guess what a default run is
    pub fn new() -> Self {
        let job = Job {
            id: 1,
            tenant: "test".to_owned(),
            module: "test".to_owned(),
            queue: "default".to_owned(),
            attempt: 1,
            max_attempts: 5,
            timeout: Duration::from_secs(30),
        };
        Self(Context::new(job, host::Handle(Rc::default())))
    }

    /// Another job id than 1.
    pub fn with_id(mut self, id: u64) -> Self {
        self.0.job_mut().id = id;
        self
    }

    /// Another tenant than "test".
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.0.job_mut().tenant = tenant.into();
        self
    }

    /// Another module name than "test".
    pub fn with_module(mut self, module: impl Into<String>) -> Self {
        self.0.job_mut().module = module.into();
        self
    }

    /// Another queue than "default".
    pub fn with_queue(mut self, queue: impl Into<String>) -> Self {
        self.0.job_mut().queue = queue.into();
        self
    }

    /// Another attempt than the first. Attempts are counted from 1.
    pub fn with_attempt(mut self, attempt: u32) -> Self {
        self.0.job_mut().attempt = attempt;
        self
    }

    /// Another number of attempts than 5.
    pub fn with_max_attempts(mut self, max_attempts: u32) -> Self {
        self.0.job_mut().max_attempts = max_attempts;
        self
    }

    /// Another timeout than 30 s.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.0.job_mut().timeout = timeout;
        self
    }

    /// As if the run had started so much earlier, for jobs that look at [`Context::time_left`].
    pub fn with_elapsed(mut self, elapsed: Duration) -> Self {
        self.0.set_elapsed(elapsed);
        self
    }

    /// As if somebody had asked to cancel the job.
    pub fn with_cancel_requested(self) -> Self {
        self.with_cancel_requested_after(0)
    }

    /// As if somebody asked to cancel the job while it runs: the first `looks` calls of [`Context::cancel_requested`]
    /// still say no.
    pub fn with_cancel_requested_after(self, looks: u32) -> Self {
        self.0.host.0.looks_before_cancel.set(Some(looks));
        self
    }

    /// As if the module had been granted another number of follow-up jobs than 10.
    pub fn with_follow_ups(self, limit: u32) -> Self {
        self.0.host.0.follow_up_limit.set(limit);
        self
    }

    /// The jobs that the job put in, with this context. A worker puts them in only when the run ends well.
    pub fn enqueued(&self) -> Vec<FollowUp> {
        self.0.host.0.follow_ups.borrow().clone()
    }

    /// As if an earlier attempt had saved this.
    pub fn with_checkpoint(self, bytes: impl Into<Vec<u8>>) -> Self {
        *self.0.host.0.checkpoint.borrow_mut() = Some(bytes.into());
        self
    }

    /// As if the module had been granted a checkpoint of another size than 64 KiB.
    pub fn with_checkpoint_limit(self, bytes: usize) -> Self {
        self.0.host.0.checkpoint_limit.set(bytes);
        self
    }

    /// As if the module had been given this value at upload.
    pub fn with_config(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.host.0.config.borrow_mut().insert(key.into(), value.into());
        self
    }

    /// As if the module had been granted a secret with this value.
    pub fn with_secret(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.host.0.secrets.borrow_mut().insert(name.into(), value.into());
        self
    }

    /// Answers the job's requests, which would go out one by one, redirects too. Without it, none is allowed.
    pub fn with_http(self, answer: impl Fn(&Request) -> Result<Response, Failure> + 'static) -> Self {
        *self.0.host.0.http.borrow_mut() = Answers(Some(Rc::new(answer)));
        self
    }

    /// The requests that the job sent, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.0.host.0.requests.borrow().clone()
    }

    /// What the job saved last, with this context.
    pub fn checkpoint_bytes(&self) -> Option<Vec<u8>> {
        self.0.host.0.checkpoint.borrow().clone()
    }

    /// The progress that the job showed, in order.
    pub fn progress_shown(&self) -> Vec<(f32, String)> {
        self.0.host.0.progress.borrow().clone()
    }

    /// The lines that were logged on this thread with this context.
    pub fn log(&self) -> Vec<LogLine> {
        self.0.host.0.lines.borrow().clone()
    }

    /// The same as one text, each line with its level in front.
    pub fn log_text(&self) -> String {
        self.0.host.0.lines.borrow().iter().fold(String::new(), |mut text, line| {
            writeln!(text, "{} {}", line.level, line.message).expect("a String takes everything");
            text
        })
    }
}

impl Deref for MockContext {
    type Target = Context;

    // The log macros are not told a context, so the mock that was used last on this thread gets the lines.
    fn deref(&self) -> &Context {
        CURRENT.set(Some(Rc::clone(&self.0.host.0)));
        &self.0
    }
}

/// A line that a job logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How loud.
    pub level: Level,
    /// What it says.
    pub message: String,
}

/// What stands behind a mock context in the place of the worker.
#[derive(Debug)]
pub(crate) struct Recorder {
    lines: RefCell<Vec<LogLine>>,
    /// How often the answer is still no; `None`: always.
    looks_before_cancel: Cell<Option<u32>>,
    follow_ups: RefCell<Vec<FollowUp>>,
    follow_up_limit: Cell<u32>,
    checkpoint: RefCell<Option<Vec<u8>>>,
    checkpoint_limit: Cell<usize>,
    progress: RefCell<Vec<(f32, String)>>,
    config: RefCell<BTreeMap<String, String>>,
    secrets: RefCell<BTreeMap<String, String>>,
    http: RefCell<Answers>,
    requests: RefCell<Vec<Request>>,
}

type Answer = dyn Fn(&Request) -> Result<Response, Failure>;

/// Who answers requests.
#[derive(Default, Clone)]
struct Answers(Option<Rc<Answer>>);

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Answers" } else { "None" })
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            lines: RefCell::default(),
            looks_before_cancel: Cell::default(),
            follow_ups: RefCell::default(),
            follow_up_limit: Cell::new(10),
            checkpoint: RefCell::default(),
            checkpoint_limit: Cell::new(64 << 10),
            progress: RefCell::default(),
            config: RefCell::default(),
            secrets: RefCell::default(),
            http: RefCell::default(),
            requests: RefCell::default(),
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Recorder>>> = const { RefCell::new(None) };
}

impl Recorder {
    pub(crate) fn add_to_current(level: Level, message: &str) {
        CURRENT.with_borrow(|current| {
            if let Some(recorder) = current {
                recorder.lines.borrow_mut().push(LogLine { level, message: message.to_owned() });
            }
        });
    }

    pub(crate) fn enqueue(&self, job: FollowUp) -> Result<(), String> {
        let (mut jobs, limit) = (self.follow_ups.borrow_mut(), self.follow_up_limit.get());
        if jobs.len() >= limit as usize {
            return Err(format!("this run has asked for {} jobs; the limit is {limit}", jobs.len() + 1));
        }
        jobs.push(job);
        Ok(())
    }

    pub(crate) fn save_checkpoint(&self, bytes: &[u8]) -> Result<(), String> {
        let (size, limit) = (bytes.len(), self.checkpoint_limit.get());
        if size > limit {
            return Err(format!(
                "checkpoint of {size} bytes exceeds the limit of {limit} bytes; save less or raise --checkpoint"
            ));
        }
        *self.checkpoint.borrow_mut() = Some(bytes.to_vec());
        Ok(())
    }

    pub(crate) fn load_checkpoint(&self) -> Option<Vec<u8>> {
        self.checkpoint.borrow().clone()
    }

    pub(crate) fn send(&self, request: &Request) -> Result<Response, Failure> {
        self.requests.borrow_mut().push(request.clone());
        // The answer may use the context again.
        let answers = self.http.borrow().clone();
        let Some(answer) = answers.0 else {
            return Err(Failure::dead(format_args!(
                "the request to {} is not granted to this module; it is granted at upload: module push --allow-http URL",
                request.url()
            )));
        };
        answer(request)
    }

    pub(crate) fn config(&self, key: &str) -> Option<String> {
        self.config.borrow().get(key).cloned()
    }

    pub(crate) fn secret(&self, name: &str) -> Result<String, Failure> {
        self.secrets.borrow().get(name).cloned().ok_or_else(|| {
            Failure::dead(format_args!(
                "secret {name} is not granted to this module; it is granted at upload: module push --secret {name}"
            ))
        })
    }

    pub(crate) fn progress(&self, fraction: f32, message: &str) -> bool {
        self.progress.borrow_mut().push((fraction, message.to_owned()));
        self.cancel_requested()
    }

    pub(crate) fn cancel_requested(&self) -> bool {
        let left = self.looks_before_cancel.get();
        self.looks_before_cancel.set(left.map(|looks| looks.saturating_sub(1)));
        left == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{info, warn};

    fn probe(ctx: &Context, name: String) -> Result<(u64, String), Failure> {
        info!("hello {name}");
        warn!("{}", "careful");
        Ok((ctx.id(), format!("{}/{}/{}", ctx.tenant(), ctx.module(), ctx.queue())))
    }

    #[test]
    fn the_mock_tells_what_it_was_told() {
        let mock = MockContext::new().with_id(7).with_tenant("acme").with_module("mailer").with_queue("bulk");
        assert_eq!(run(probe, &mock, json!("you")), Ok(json!([7, "acme/mailer/bulk"])));
    }

    #[test]
    fn lines_go_to_the_mock_that_was_used_last() {
        let (first, second) = (MockContext::new(), MockContext::new());
        probe(&first, "first".to_owned()).expect("the job is fine");
        probe(&second, "second".to_owned()).expect("the job is fine");
        assert_eq!(first.log_text(), "info hello first\nwarn careful\n");
        assert_eq!(second.log()[0], LogLine { level: Level::Info, message: "hello second".to_owned() });
    }

    #[test]
    fn attempts_count_up_to_the_last() {
        let at = |attempt| MockContext::new().with_max_attempts(3).with_attempt(attempt);
        assert!(!at(1).is_last_attempt() && !at(2).is_last_attempt() && at(3).is_last_attempt());
        assert_eq!((at(2).attempt(), at(2).max_attempts()), (2, 3));
    }

    #[test]
    fn time_runs_out() {
        let minute = Duration::from_secs(60);
        let mock = MockContext::new().with_timeout(minute).with_elapsed(minute / 2);
        assert_eq!(mock.timeout(), minute);
        assert!(mock.time_left() <= minute / 2 && mock.time_left() > minute / 4);
        assert_eq!(mock.with_elapsed(minute * 2).time_left(), Duration::ZERO);
    }

    #[test]
    fn follow_up_jobs_are_kept_up_to_the_limit() {
        let mock = MockContext::new().with_follow_ups(1);
        let job = FollowUp::new("mail", &json!({ "to": "ann" })).expect("it is JSON").with_queue("bulk");
        assert_eq!(mock.enqueue(job.clone()), Ok(()));
        let refused = mock.enqueue(FollowUp::raw("mail", "x")).expect_err("one is all");
        assert_eq!(refused.message(), Some("this run has asked for 2 jobs; the limit is 1"));
        assert_eq!(mock.enqueued(), [job]);
        assert_eq!(mock.enqueued()[0].payload(), br#"{"to":"ann"}"#);
    }

    #[test]
    fn config_and_secrets_are_those_that_were_given() {
        let mock = MockContext::new().with_config("url", "http://x").with_secret("token", "very secret");
        assert_eq!(
            (mock.config("url"), mock.secret("token")),
            (Ok("http://x".to_owned()), Ok("very secret".to_owned()))
        );
        assert_eq!(mock.find_config("other"), None);
        let refused = mock.config("other").expect_err("it was not given");
        assert!(refused.message().is_some_and(|message| message.contains("--config other=VALUE")));
        let refused = mock.secret("other").expect_err("it was not granted");
        assert!(refused.message().is_some_and(|message| message.contains("--secret other")));
    }

    #[test]
    fn checkpoints_have_a_limit() {
        let mock = MockContext::new().with_checkpoint_limit(2);
        assert_eq!(mock.checkpoint().save(&7), Ok(()));
        assert_eq!(mock.checkpoint().load(), Ok(Some(7)));
        assert!(
            mock.checkpoint()
                .save(&700)
                .is_err_and(|failure| failure.message().is_some_and(|text| text.contains("3 bytes")))
        );
        assert!(mock.checkpoint().load::<String>().is_err());
    }

    #[test]
    fn a_cancel_comes_when_it_was_asked_for() {
        assert!(!MockContext::new().cancel_requested());
        assert!(MockContext::new().with_cancel_requested().cancel_requested());
        let later = MockContext::new().with_cancel_requested_after(2);
        let answers = [(); 4].map(|()| later.cancel_requested());
        assert_eq!(answers, [false, false, true, true]);
    }
}
