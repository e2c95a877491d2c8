//! `leasehold replay`: an attempt of a job once more, on this machine: the module's bytes, the payload and the settings come from
//! the database, and nothing is written there.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;

use super::run::{as_json, bad_use, print_text};
use super::{Common, FAILURE, print};
use crate::harness::{Harness, Job, OpenError, Tried};
use crate::job::{Deterministic, JobId};
use crate::outcome::{FailureKind, clean_text};
use crate::sandbox::{RunControl, SandboxConfig};
use crate::store::AttemptToReplay;

/// Run an attempt of a job again, on this machine.
///
/// The module is fetched by its digest, with the payload, the limits and the settings of that attempt, and run in the same sandbox. The
/// job itself does not notice. Its clock begins when the attempt began and its random numbers come from the job's id and the lease, so
/// that each replay is the same run. What the attempt had and this has not: its own random numbers, and how long things took.
///
/// Exits with 0 when it ends as it did then, and with 1 when it does not.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(value_name = "JOB_ID")]
    id: i64,
    /// The lease of the attempt, as job show lists them [default: the last attempt that failed, else the last one]
    #[arg(long, value_name = "N")]
    lease: Option<i32>,
    /// Another build of the module: with debug information, say, so that the backtrace has files and lines, or with the mistake mended
    #[arg(long, value_name = "FILE.wasm")]
    module: Option<PathBuf>,
    /// Random numbers from another seed
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// This machine's own clock and random numbers
    #[arg(long, conflicts_with = "seed")]
    live: bool,
    #[command(flatten)]
    common: Common,
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let then = args.common.store()?.attempt_to_replay(JobId(args.id), args.lease).await?;
    let job = Job {
        id: JobId(args.id),
        tenant: then.tenant.clone(),
        module: Some(then.module.clone()),
        queue: then.queue.clone(),
        attempt: then.attempt,
        max_attempts: then.max_attempts,
        payload: Some(then.payload.clone()),
        limits: then.limits,
        on_failure: then.on_failure.clone(),
        cancel_requested: false,
        deterministic: (!args.live).then(|| Deterministic {
            starts_at: then.started_at,
            seed: args.seed.unwrap_or_else(|| seed_of(args.id, then.lease_no)),
        }),
    };
    let config = SandboxConfig { slots: 1, memory_bytes: job.limits.memory_bytes, ..SandboxConfig::default() };
    let (name, bytes, other) = (then.module.clone(), then.bytes.clone(), args.module);
    let opening = tokio::task::spawn_blocking(move || match other {
        Some(file) => Harness::open_with(&file, &config),
        None => Harness::from_bytes(&name, &bytes, &config),
    });
    let harness = match opening.await.context("compiling")? {
        Ok(harness) => harness,
        Err(OpenError::Host(error)) => return Err(error),
        Err(error) => return Ok(bad_use(&error.to_string())),
    };
    let tried = harness.run(&job, &RunControl::new()).await;
    let same = ends_as(&then, &tried);
    if args.common.json {
        print::json(&json!({
            "job": args.id, "lease": then.lease_no, "attempt": then.attempt, "module": then.module, "version": then.version,
            "then": {
                "outcome": then.outcome, "failure_kind": then.failure_kind, "message": then.message, "backtrace": then.backtrace,
            },
            "now": as_json(&tried, &job.limits),
            "deterministic": job.deterministic,
            "same": same,
        }))?;
    } else {
        let what = format!("attempt {} (lease {}) of job {}", then.attempt, then.lease_no, args.id);
        let of = format!("module {} version {} of tenant {}", then.module, then.version, then.tenant);
        eprintln!("{what}, {of}, was: {}", clean_text(told(&then).as_bytes()));
        print_text(&tried, &job.limits)?;
        match same {
            true => eprintln!("it ended as it did then"),
            false => eprintln!(
                "it did NOT end as it did then; what differs may be random numbers (try --seed), times (try --live), or the machine"
            ),
        }
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::from(FAILURE) })
}

/// No secret: a replay shall be the same each time.
fn seed_of(job: i64, lease_no: i32) -> u64 {
    (job.cast_unsigned() << 16) ^ u64::from(lease_no.unsigned_abs())
}

fn told(then: &AttemptToReplay) -> String {
    match (&then.failure_kind, &then.message) {
        (Some(kind), Some(message)) => format!("{} ({kind}: {message})", then.outcome),
        (Some(kind), None) => format!("{} ({kind})", then.outcome),
        (None, _) => then.outcome.clone(),
    }
}

/// Whether it came to the same: the same failure with the same words, or no failure both times.
fn ends_as(then: &AttemptToReplay, now: &Tried) -> bool {
    match (then.failure_kind.as_deref(), now.failure()) {
        (Some(kind), Some(failure)) => {
            // How long it took is in the message of this one.
            let says_time = failure.kind == FailureKind::Timeout;
            kind == failure.kind.as_str() && (says_time || then.message.as_deref() == Some(failure.message.as_str()))
        }
        (None, None) => then.outcome == now.ending.as_str() || then.outcome == "running",
        (Some(_), None) | (None, Some(_)) => false,
    }
}
