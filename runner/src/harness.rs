//! The worker's sandbox without a queue, for whoever writes a module: one run of it, or a folder of cases with what is
//! expected of each. `leasehold run`, `test`, `replay` and `module check --trial` are faces of this; a Rust test uses it
//! directly:
//!
//! ```no_run
//! use leasehold::harness::{Ending, Harness, Job};
//! use serde_json::json;
//!
//! # fn main() -> anyhow::Result<()> {
//! let harness = Harness::open("target/wasm32-wasip2/release/hello.wasm")?;
//!
//! let tried = harness.try_once(&Job::json(&json!({ "name": "world" })));
//! assert_eq!(tried.result_json()?, json!({ "greeting": "hello, world" }));
//!
//! let last = Job { attempt: 5, ..Job::json(&json!({ "name": "" })) };
//! let tried = harness.try_once(&last);
//! assert_eq!(tried.ending, Ending::Dead);
//! assert_eq!(tried.failure().map(|failure| failure.message.as_str()), Some("nobody to greet"));
//!
//! // Or all that `leasehold test hello.wasm cases/` would run.
//! harness.test("cases")?.assert_passed();
//! # Ok(())
//! # }
//! ```

mod case;
mod check;
mod diff;
mod flame;
mod junit;
mod suite;
mod usage;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use crate::job::{Deterministic, JobId, Limits, ModuleKind};
use crate::outcome::{Failure, FailureKind, OnFailure, Outcome, Run};
use crate::retry::RetryPolicy;
use crate::sandbox::{JobInput, PrepareError, Prepared, Profile, RunControl, Sandbox, SandboxConfig};

pub use case::{Case, CaseError, load as load_cases};
pub use check::Problem;
pub use flame::flame_graph;
pub use junit::junit;
pub use suite::{CaseReport, Report, TestOptions};
pub use usage::{Advice, advice};

/// A module, ready to be run here. Cheap to clone.
#[derive(Clone)]
pub struct Harness {
    sandbox: Sandbox,
    name: String,
    /// A worker takes a module that cannot be prepared too, and buries its jobs.
    module: Result<Prepared, PrepareError>,
}

/// Why there is nothing to run.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("reading {file}: {error}; build the module first, or check the path")]
    Unreadable { file: String, error: std::io::Error },
    /// These bytes are no module at all.
    #[error("{name}: {error}")]
    NotAModule { name: String, error: PrepareError },
    /// Says nothing about the module.
    #[error(transparent)]
    Host(#[from] anyhow::Error),
}

impl Harness {
    /// Compiles a module from a file, in this process, with room for 64 runs at once of 1 GiB each.
    pub fn open(file: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(file.as_ref(), &SandboxConfig::default())
    }

    /// The same in a sandbox of other dimensions.
    pub fn open_with(file: &Path, config: &SandboxConfig) -> Result<Self, OpenError> {
        let bytes =
            std::fs::read(file).map_err(|error| OpenError::Unreadable { file: file.display().to_string(), error })?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        Self::from_bytes(&name, &bytes, config)
    }

    /// The same from a module's bytes.
    pub fn from_bytes(name: &str, bytes: &[u8], config: &SandboxConfig) -> Result<Self, OpenError> {
        let sandbox = Sandbox::new(config)?;
        let module = sandbox.prepare(bytes);
        match module {
            Err(PrepareError::Host(_)) => Err(OpenError::Host(module.err().expect("it is an error").into())),
            Err(error) if error.is_no_module() => Err(OpenError::NotAModule { name: name.to_owned(), error }),
            module => Ok(Self { sandbox, name: name.to_owned(), module }),
        }
    }

    /// What its file is called, without the ending.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn kind(&self) -> Option<ModuleKind> {
        self.module.as_ref().ok().map(Prepared::kind)
    }

    /// Runs a job once, until it ends. Not to be called by a task of tokio, which may call `run`.
    ///
    /// # Panics
    /// When this process cannot have a timer, or is a task of tokio.
    pub fn try_once(&self, job: &Job) -> Tried {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be had");
        runtime.block_on(self.run(job, &RunControl::new()))
    }

    /// Runs a job once. By `control` it can be stopped.
    pub async fn run(&self, job: &Job, control: &RunControl) -> Tried {
        let run = match &self.module {
            Ok(module) => {
                let input = self.input(job, module, control);
                self.sandbox.run(module, input, &job.limits, control).await
            }
            Err(error) => refused(error),
        };
        Tried::of(run, job)
    }

    /// The same, and what its fuel went into. For a harness that was opened for it (`SandboxConfig::profiling`).
    pub async fn run_profiled(&self, job: &Job, control: &RunControl) -> (Tried, Profile) {
        let (run, profile) = match &self.module {
            Ok(module) => {
                let input = self.input(job, module, control);
                self.sandbox.run_profiled(module, input, &job.limits, control).await
            }
            Err(error) => (refused(error), Profile::default()),
        };
        (Tried::of(run, job), profile)
    }

    fn input<'a>(&'a self, job: &'a Job, module: &Prepared, control: &RunControl) -> JobInput<'a> {
        if job.cancel_requested {
            control.request_cancel();
        }
        job.input(&self.name, module.kind())
    }
}

/// What becomes of a job whose module cannot be prepared: a worker buries it.
fn refused(error: &PrepareError) -> Run {
    Run::unrun(Outcome::Failed(Failure {
        kind: FailureKind::Link,
        message: error.to_string(),
        backtrace: None,
        delay: None,
    }))
}

/// A job as a worker would have claimed it.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub tenant: String,
    /// None: the name of the module's file.
    pub module: Option<String>,
    pub queue: String,
    /// Counted from 1, this run included.
    pub attempt: u32,
    pub max_attempts: u32,
    /// None: `{}`, and nothing for a WASI program.
    pub payload: Option<Vec<u8>>,
    pub limits: Limits,
    /// Other ends for kinds of failures than usual, as `--on` sets them.
    pub on_failure: Vec<(FailureKind, OnFailure)>,
    /// As if somebody had asked to cancel it.
    pub cancel_requested: bool,
    /// None: the clock and the random numbers of the machine.
    pub deterministic: Option<Deterministic>,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            id: JobId(1),
            tenant: "local".to_owned(),
            module: None,
            queue: "default".to_owned(),
            attempt: 1,
            max_attempts: 5,
            payload: None,
            limits: Limits::default(),
            on_failure: Vec::new(),
            cancel_requested: false,
            deterministic: None,
        }
    }
}

impl Job {
    /// One with this payload, as JSON.
    pub fn json(payload: &Value) -> Self {
        Self::bytes(payload.to_string())
    }

    /// One with these bytes as its payload.
    pub fn bytes(payload: impl Into<Vec<u8>>) -> Self {
        Self { payload: Some(payload.into()), ..Self::default() }
    }

    fn input<'a>(&'a self, file_name: &'a str, kind: ModuleKind) -> JobInput<'a> {
        let default: &[u8] = match kind {
            ModuleKind::Component => b"{}",
            ModuleKind::Command => b"",
        };
        JobInput {
            id: self.id,
            tenant: &self.tenant,
            module: self.module.as_deref().unwrap_or(file_name),
            queue: &self.queue,
            attempt: self.attempt,
            max_attempts: self.max_attempts,
            payload: self.payload.as_deref().unwrap_or(default),
            deterministic: self.deterministic,
        }
    }
}

/// What a worker would do with a job after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Done,
    /// Queued again with backoff.
    Fail,
    Dead,
    /// Queued again, the attempt not counted.
    Snooze,
    /// The run was stopped from outside.
    Stopped,
}

impl Ending {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Fail => "fail",
            Self::Dead => "dead",
            Self::Snooze => "snooze",
            Self::Stopped => "stopped",
        }
    }
}

/// A run, and what a worker would do next.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    pub run: Run,
    pub ending: Ending,
    /// How long the job would wait before its next run, without jitter.
    pub delay: Option<Duration>,
}

impl Tried {
    fn of(run: Run, job: &Job) -> Self {
        let (ending, delay) = match &run.outcome {
            Outcome::Done { .. } => (Ending::Done, None),
            Outcome::Snoozed { delay } => (Ending::Snooze, Some(*delay)),
            Outcome::Stopped(_) => (Ending::Stopped, None),
            Outcome::Failed(failure) => {
                let chosen = job.on_failure.iter().rev().find(|(kind, _)| *kind == failure.kind).map(|(_, end)| *end);
                match chosen.unwrap_or(failure.kind.default_on_failure()) {
                    OnFailure::Fail if job.attempt < job.max_attempts => {
                        let backoff = RetryPolicy::default().delay(job.attempt, 0.5);
                        (Ending::Fail, Some(failure.delay.unwrap_or(backoff)))
                    }
                    OnFailure::Fail | OnFailure::Dead => (Ending::Dead, None),
                }
            }
        };
        Self { run, ending, delay }
    }

    /// The result's bytes, where the job is done.
    pub fn result(&self) -> Option<&[u8]> {
        match &self.run.outcome {
            Outcome::Done { result } => Some(result),
            Outcome::Failed(_) | Outcome::Snoozed { .. } | Outcome::Stopped(_) => None,
        }
    }

    /// The result as JSON.
    pub fn result_json(&self) -> anyhow::Result<Value> {
        let result = self.result().with_context(|| format!("there is no result: {}", self.in_short()))?;
        serde_json::from_slice(result).context("the result is not JSON")
    }

    pub fn failure(&self) -> Option<&Failure> {
        match &self.run.outcome {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Done { .. } | Outcome::Snoozed { .. } | Outcome::Stopped(_) => None,
        }
    }

    /// How it ended, in a line.
    pub fn in_short(&self) -> String {
        match &self.run.outcome {
            Outcome::Done { .. } => "done".to_owned(),
            Outcome::Failed(failure) => {
                format!("{} ({}: {})", self.ending.as_str(), failure.kind, failure.message)
            }
            Outcome::Snoozed { delay } => format!("snooze for {}", humantime::format_duration(*delay)),
            Outcome::Stopped(stop) => stop.to_string(),
        }
    }
}
