//! What is written about a run, once. `decide` is pure; the store sends its answer, and SQL moves the row only where the
//! lease number still matches.

use std::time::Duration;

use crate::job::Claim;
use crate::outcome::{Failure, FailureKind, OnFailure, Outcome, Stop};

/// One row of the state machine to take.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// running -> done
    Complete { result: Vec<u8> },
    /// running -> queued after the delay, or dead when this was the last attempt
    Fail { failure: Failure, delay: Duration },
    /// running -> dead
    Bury { failure: Failure },
    /// running -> queued after the delay, the attempt given back
    Snooze { delay: Duration },
    /// running -> queued after the delay, the attempt given back. With a fault of the host it counts as a crash.
    Release { fault: Option<Failure>, delay: Duration },
    /// running -> cancelled
    FinishCancel,
}

impl Settlement {
    /// What metrics call each.
    pub const NAMES: [&str; 6] = ["complete", "fail", "bury", "snooze", "release", "cancel"];

    /// The place among `NAMES`.
    pub fn index(&self) -> usize {
        match self {
            Self::Complete { .. } => 0,
            Self::Fail { .. } => 1,
            Self::Bury { .. } => 2,
            Self::Snooze { .. } => 3,
            Self::Release { .. } => 4,
            Self::FinishCancel => 5,
        }
    }

    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Fail { failure, .. } | Self::Bury { failure } => Some(failure),
            Self::Release { fault, .. } => fault.as_ref(),
            Self::Complete { .. } | Self::Snooze { .. } | Self::FinishCancel => None,
        }
    }
}

/// What became of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Yes,
    /// The lease number did not match: another worker owns the job, or it was settled before. Nothing was written.
    LeaseLost,
}

/// How long a job waits after a fault of the worker's own: long enough that a full pool or a broken disk is not hammered,
/// short enough that another worker takes it soon.
pub const HOST_FAULT_DELAY: Duration = Duration::from_secs(1);

/// The shortest snooze. It costs no attempt, so without this a guest could keep a worker and the database busy for ever.
pub const MIN_SNOOZE: Duration = Duration::from_millis(100);

/// Which row of the state machine a run's outcome takes. `random` in 0.0..1.0 spreads the backoff.
pub fn decide(claim: &Claim, outcome: Outcome, cancel_requested: bool, random: f64) -> Settlement {
    match outcome {
        // It was done before it could be stopped.
        Outcome::Done { result } => Settlement::Complete { result },
        // Where the lease is lost, nothing of this is written. Where it was only about to be, because no heartbeat got
        // through, the job need not wait until it runs out.
        Outcome::Stopped(Stop::LeaseLost) => {
            let message = "stopped before its lease ran out: the worker had no answer from the database".into();
            let fault = Failure { kind: FailureKind::Crash, message, backtrace: None, delay: None };
            Settlement::Release { fault: Some(fault), delay: HOST_FAULT_DELAY }
        }
        Outcome::Stopped(Stop::Cancelled) => Settlement::FinishCancel,
        Outcome::Stopped(Stop::Shutdown) => Settlement::Release { fault: None, delay: Duration::ZERO },
        // A guest that saw the wish and ended in its own way has been cancelled, whatever it called that.
        Outcome::Failed(_) | Outcome::Snoozed { .. } if cancel_requested => Settlement::FinishCancel,
        Outcome::Snoozed { delay } => Settlement::Snooze { delay: delay.max(MIN_SNOOZE) },
        Outcome::Failed(failure) if failure.kind == FailureKind::Host => {
            Settlement::Release { fault: Some(failure), delay: HOST_FAULT_DELAY }
        }
        Outcome::Failed(failure) => match on_failure(claim, failure.kind) {
            OnFailure::Dead => Settlement::Bury { failure },
            OnFailure::Fail => {
                let delay = failure.delay.unwrap_or_else(|| claim.retry.delay(claim.attempt, random));
                Settlement::Fail { failure, delay }
            }
        },
    }
}

fn on_failure(claim: &Claim, kind: FailureKind) -> OnFailure {
    let own = claim.module.on_failure.iter().find(|(overridden, _)| *overridden == kind);
    own.map_or(kind.default_on_failure(), |(_, end)| *end)
}
