//! Settles runs in batches. There is no timer: one statement takes all that are pending, the next takes what came meanwhile, so
//! a lone job is settled at once and a flood fills batches.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{error, info, warn};

use super::Shared;
use super::claimer::RequeueHint;
use crate::outcome::{Failure, FailureKind};
use crate::settlement::{HOST_FAULT_DELAY, Settled, Settlement};
use crate::store::{Batch, Report, is_transient};

/// How many runs may wait to be settled before slots wait too.
pub const PENDING: usize = 4_096;
/// The most runs that one statement settles: past this a batch gains nothing more.
const BATCH: usize = 1_000;
/// The most bytes that one statement carries, so that a batch of large results fits into memory on both sides.
const BATCH_BYTES: usize = 16 << 20;
/// The first and the longest wait after a failed settlement.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// Settles until every sender is gone and nothing is pending.
pub async fn run(shared: Arc<Shared>, mut reports: mpsc::Receiver<Report>, requeued: Arc<RequeueHint>) {
    let mut pending = Vec::new();
    while reports.recv_many(&mut pending, BATCH).await > 0 {
        while !pending.is_empty() {
            let batch = take_batch(&mut pending);
            settle(&shared, batch, &requeued).await;
        }
    }
}

/// As many as fit into a statement, one at least.
fn take_batch(pending: &mut Vec<Report>) -> Vec<Report> {
    let mut bytes = 0;
    let fitting = pending.iter().take_while(|report| {
        bytes += report.bytes();
        bytes <= BATCH_BYTES
    });
    let count = fitting.count().max(1);
    pending.drain(..count).collect()
}

async fn settle(shared: &Shared, reports: Vec<Report>, requeued: &RequeueHint) {
    let mut batches = Batch::sort(reports);
    let mut retry = RETRY.0;
    while let Some(mut batch) = batches.pop() {
        match shared.store.settle(shared.id, &batch).await {
            Ok(answers) => {
                count(shared, &batch.reports, &answers);
                if batch.reports.iter().any(|report| comes_back(&report.settlement)) {
                    requeued.ring();
                }
                forget(shared, &batch.reports);
            }
            Err(cause) if is_transient(&cause) => {
                // For as long as it takes: past the lease the settlement still counts, until somebody has reaped the job.
                warn!(count = batch.reports.len(), "{cause:#}; settling again in {} ms", retry.as_millis());
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(RETRY.1);
                batches.push(batch);
            }
            // One row that the database refuses must not keep the others: halve until it stands alone.
            Err(_) if batch.reports.len() > 1 => batches.extend(batch.halve()),
            Err(cause) => {
                let mut report = batch.reports.pop().expect("a batch is never empty");
                error!(job_id = %report.job_id, "cannot be settled as it is: {cause:#}");
                if matches!(report.settlement, Settlement::Release { .. }) {
                    // Even the plain release was refused. The lease runs out and the job is reaped, which counts as a crash.
                    shared.held.forsake(report.job_id, report.lease.number);
                    continue;
                }
                let message = format!("the outcome could not be stored: {cause:#}");
                let fault = Failure { kind: FailureKind::Host, message, backtrace: None, delay: None };
                report.settlement = Settlement::Release { fault: Some(fault), delay: HOST_FAULT_DELAY };
                report.log = Default::default();
                batches.extend(Batch::sort(vec![report]));
            }
        }
    }
}

fn count(shared: &Shared, reports: &[Report], answers: &[Settled]) {
    for (report, settled) in reports.iter().zip(answers) {
        match settled {
            Settled::Yes => shared.counters.settled.fetch_add(1, Relaxed),
            Settled::LeaseLost => {
                info!(job_id = %report.job_id, lease_no = report.lease.number, "lease lost; nothing was written");
                shared.counters.leases_lost.fetch_add(1, Relaxed)
            }
        };
    }
}

fn comes_back(settlement: &Settlement) -> bool {
    match settlement {
        Settlement::Fail { .. } | Settlement::Snooze { .. } | Settlement::Release { .. } => true,
        Settlement::Complete { .. } | Settlement::Bury { .. } | Settlement::FinishCancel => false,
    }
}

fn forget(shared: &Shared, batch: &[Report]) {
    shared.held.remove(batch.iter().map(|report| (report.job_id, report.lease.number)));
}
