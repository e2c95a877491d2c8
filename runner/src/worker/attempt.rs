//! One attempt, as a pipeline: look up the module, make it ready, run it under the lease, decide, report. A slot does this for
//! one job after another.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};
use tracing::{error, warn};

use super::claimer::Room;
use super::{Shared, Stage, notes};
use crate::job::{Claim, JobId, Limits};
use crate::outcome::{Failure, FailureKind, Outcome, Run, Stop};
use crate::sandbox::{JobInput, LoadError, PrepareError, RunControl};
use crate::secrets::Secrets;
use crate::settlement::{HOST_FAULT_DELAY, Settlement, decide};
use crate::store::{ClaimedJob, Report};

/// A claimed job on its way to a slot.
pub struct Dispatched {
    pub job: ClaimedJob,
    pub control: RunControl,
}

/// Runs jobs until no more can come.
pub async fn slot(
    shared: Arc<Shared>,
    jobs: async_channel::Receiver<Dispatched>,
    reports: mpsc::Sender<Report>,
    room: Arc<Room>,
    stage: watch::Receiver<Stage>,
) {
    while let Ok(dispatched) = jobs.recv().await {
        let (job_id, lease_no, tenant) = (dispatched.job.id, dispatched.job.lease_no, dispatched.job.tenant);
        let waiting_for_exit = *stage.borrow() >= Stage::Drain;
        shared.counters.running.fetch_add(1, Relaxed);
        let attempt = std::panic::AssertUnwindSafe(attempt(&shared, dispatched, waiting_for_exit)).catch_unwind();
        let report = attempt.await.unwrap_or_else(|_panic| {
            error!(%job_id, "the worker panicked around a run; the job is given back");
            let fault = host_fault("the worker panicked around the run".into());
            let settlement = Settlement::Release { fault: Some(fault), delay: HOST_FAULT_DELAY };
            Report::unrun(job_id, lease_no, settlement)
        });
        shared.shares.end(tenant, report.usage.cpu);
        room.leave();
        shared.counters.running.fetch_sub(1, Relaxed);
        shared.counters.finished.fetch_add(1, Relaxed);
        if reports.send(report).await.is_err() {
            // Only after a panic of the settler; the lease runs out and the job is reaped.
            error!(%job_id, "nobody settles any more");
        }
    }
}

async fn attempt(shared: &Shared, dispatched: Dispatched, waiting_for_exit: bool) -> Report {
    let Dispatched { job, control } = dispatched;
    let (job_id, lease_no) = (job.id, job.lease_no);
    let unrun = |settlement| Report::unrun(job_id, lease_no, settlement);
    if waiting_for_exit {
        return unrun(Settlement::Release { fault: None, delay: Duration::ZERO });
    }

    let known = match shared.modules.version(job.tenant, job.module_id, job.version).await {
        Ok(Some(known)) => known,
        Ok(None) => {
            let message = format!("version {} of the module was removed", job.version);
            return unrun(Settlement::Bury { failure: failure(FailureKind::Link, message) });
        }
        Err(cause) => return unrun(release(job_id, &cause)),
    };
    let claim = claim(job, &known.version, &known.tenant_name);
    let prepared = tokio::select! {
        // First, since most modules are at hand.
        biased;
        prepared = shared.modules.prepared(claim.tenant, &claim.module) => prepared,
        // Compiling takes longer than a deploy has patience; it goes on for the next who wants the module.
        stop = control.wait_for_stop() => {
            let settlement = decide(&claim, Outcome::Stopped(stop), control.cancel_requested(), rand::random());
            return unrun(settlement);
        }
    };
    if let Ok(prepared) = &prepared
        && lease_no > 1
        && prepared.asks_for_checkpoint()
    {
        match shared.store.checkpoint(job_id, lease_no).await {
            Ok(Some(checkpoint)) => control.notes().begin_with(checkpoint),
            Ok(None) => {}
            Err(cause) => return unrun(release(job_id, &cause)),
        }
    }
    let secrets = match shared.secrets.get(claim.tenant, &claim.module.grants.secrets).await {
        Ok(secrets) => secrets,
        Err(cause) => return unrun(release(job_id, &cause)),
    };
    let run = match prepared {
        Ok(prepared) => shared.sandbox.run(&prepared, input(&claim, &secrets), &claim.limits, &control).await,
        // The system refused something to the worker: no fault of the module's.
        Err(cause @ LoadError::Prepare(PrepareError::Host(_))) => return unrun(release(job_id, &cause.into())),
        Err(LoadError::Prepare(refused)) => {
            let outcome = Outcome::Failed(failure(FailureKind::Link, refused.to_string()));
            Run::unrun(outcome)
        }
        Err(cause @ (LoadError::Fetch(_) | LoadError::Digest { .. } | LoadError::Abandoned)) => {
            return unrun(release(job_id, &cause.into()));
        }
    };
    if run.outcome == Outcome::Stopped(Stop::LeaseLost) {
        warn!(%job_id, lease_no, "stopped: the lease is lost or about to run out");
    }
    let settlement = decide(&claim, run.outcome, control.cancel_requested(), rand::random());
    notes::write_last(shared, job_id, lease_no, &control, &settlement).await;
    Report { job_id, lease_no, settlement, usage: run.usage, log: run.log, follow_ups: run.follow_ups }
}

fn claim(job: ClaimedJob, version: &Arc<crate::job::ModuleVersion>, tenant_name: &str) -> Claim {
    Claim {
        tenant: job.tenant,
        tenant_name: tenant_name.to_owned(),
        job_id: job.id,
        queue: job.queue,
        module: version.clone(),
        payload: job.payload,
        attempt: job.attempt.unsigned_abs(),
        max_attempts: job.max_attempts.unsigned_abs(),
        retry: job.retry.policy_or(&version.retry),
        limits: Limits { timeout: job.timeout.unwrap_or(version.limits.timeout), ..version.limits },
        lease_no: job.lease_no,
    }
}

fn input<'a>(claim: &'a Claim, secrets: &'a Arc<Secrets>) -> JobInput<'a> {
    JobInput {
        id: claim.job_id,
        tenant: &claim.tenant_name,
        module: &claim.module.name,
        queue: &claim.queue,
        attempt: claim.attempt,
        max_attempts: claim.max_attempts,
        payload: &claim.payload,
        deterministic: None,
        grants: &claim.module.grants,
        secrets,
    }
}

fn release(job_id: JobId, cause: &anyhow::Error) -> Settlement {
    warn!(%job_id, "given back: {cause:#}");
    Settlement::Release { fault: Some(host_fault(format!("{cause:#}"))), delay: HOST_FAULT_DELAY }
}

fn host_fault(message: String) -> Failure {
    failure(FailureKind::Host, message)
}

fn failure(kind: FailureKind, message: String) -> Failure {
    Failure { kind, message, backtrace: None, delay: None }
}
