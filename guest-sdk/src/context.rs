//! What a job may know of its run, and what it may ask of its worker. Who it is is told once, at the start; all else
//! goes back to the worker.

use std::time::Duration;
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
use std::time::Instant;

use crate::http::Http;
use crate::{Checkpoint, Failure, FollowUp, host};

/// The run that a job is in: which job, which attempt, how much time.
///
/// The worker makes it; a test gets one from [`testing::MockContext`](crate::testing::MockContext).
#[derive(Debug)]
pub struct Context {
    job: Job,
    // wasm32-unknown-unknown has no clock: asking it for the time panics.
    #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
    started: Instant,
    pub(crate) host: host::Handle,
}

/// The contract's record `job`, in the types of Rust.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub id: u64,
    pub tenant: String,
    pub module: String,
    pub queue: String,
    pub attempt: u32,
    pub max_attempts: u32,
    pub timeout: Duration,
}

impl Context {
    pub(crate) fn new(job: Job, host: host::Handle) -> Self {
        Self {
            job,
            #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
            started: Instant::now(),
            host,
        }
    }

    /// The job's id. It is the same on each attempt, so it serves as an idempotency key towards other services.
    pub fn id(&self) -> u64 {
        self.job.id
    }

    /// Whose job it is.
    pub fn tenant(&self) -> &str {
        &self.job.tenant
    }

    /// The name under which this module was uploaded.
    pub fn module(&self) -> &str {
        &self.job.module
    }

    /// The queue that the job was put into.
    pub fn queue(&self) -> &str {
        &self.job.queue
    }

    /// Which attempt this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.job.attempt
    }

    /// The attempt at which a failure is final.
    pub fn max_attempts(&self) -> u32 {
        self.job.max_attempts
    }

    /// Whether a retry now would bury the job: the last chance to leave something useful behind.
    pub fn is_last_attempt(&self) -> bool {
        self.job.attempt >= self.job.max_attempts
    }

    /// How long this run may take, in wall-clock time from its start. After that the worker interrupts it.
    pub fn timeout(&self) -> Duration {
        self.job.timeout
    }

    /// How much of [`timeout`](Self::timeout) is left, zero once it is over. Not on wasm32-unknown-unknown, which has
    /// no clock.
    #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
    pub fn time_left(&self) -> Duration {
        self.job.timeout.saturating_sub(self.started.elapsed())
    }

    /// Whether somebody asked to cancel this job. A long job looks now and then, and ends in its own way (`dead`, say)
    /// within the grace period; one that does not look is interrupted after it.
    pub fn cancel_requested(&self) -> bool {
        self.host.cancel_requested()
    }

    /// Puts in another job of the same tenant, if and only if this run ends well: both are written in one transaction,
    /// so a run that fails, is cancelled or loses its worker puts in nothing. That the job can be put in (its module
    /// exists, its queue's name is one) is judged when this run has ended; where it cannot, this job is dead with the
    /// reason.
    ///
    /// # Errors
    /// [`Failure::Dead`] where this run may put in no more jobs; the message says which limit it met.
    pub fn enqueue(&self, job: FollowUp) -> Result<(), Failure> {
        self.host.enqueue(job).map_err(Failure::dead)
    }

    /// What this job keeps for its next attempt: where it was when it failed, was interrupted or lost its worker.
    pub fn checkpoint(&self) -> Checkpoint<'_> {
        Checkpoint(&self.host)
    }

    /// Says how far this run is, 0.0 to 1.0, and what it is at, for those who look at the job. The last call counts,
    /// and calling often costs little. Answers what [`cancel_requested`](Self::cancel_requested) does: a loop that
    /// shows its progress needs no second question.
    pub fn progress(&self, fraction: f32, message: impl AsRef<str>) -> bool {
        self.host.progress(fraction, message.as_ref())
    }

    /// Sends HTTP requests to where the module was granted it at upload: `module push --allow-http
    /// https://api.example.com`.
    pub fn http(&self) -> Http<'_> {
        Http(&self.host)
    }

    /// A value that the module was given at upload: `module push --config KEY=VALUE`.
    ///
    /// # Errors
    /// [`Failure::Dead`] where it was not; the message names the flag.
    pub fn config(&self, key: &str) -> Result<String, Failure> {
        self.find_config(key).ok_or_else(|| {
            Failure::dead(format_args!(
                "config value {key} is not set; it is given at upload: module push --config {key}=VALUE"
            ))
        })
    }

    /// The same where the module can do without.
    pub fn find_config(&self, key: &str) -> Option<String> {
        self.host.config(key)
    }

    /// The value of one of the tenant's secrets, where the module was granted it at upload: `module push --secret
    /// NAME`. The worker takes the exact value out of the log, the result and messages of failures; a job that encodes
    /// or splits it shows it to whoever can read those.
    ///
    /// # Errors
    /// [`Failure::Dead`] where it was not granted; [`Failure::Retry`] where nobody has set it yet, or this worker
    /// cannot open it.
    pub fn secret(&self, name: &str) -> Result<String, Failure> {
        self.host.secret(name)
    }

    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn job_mut(&mut self) -> &mut Job {
        &mut self.job
    }

    /// Pretends that the run started earlier by so much.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn set_elapsed(&mut self, elapsed: Duration) {
        self.started = Instant::now().checked_sub(elapsed).expect("a test's run started after the machine did");
    }
}
