//! Settles runs in batches. There is no timer: one statement takes all that are pending, the next takes what came meanwhile, so
//! a lone job is settled at once and a flood fills batches.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::Shared;
use crate::outcome::{Failure, FailureKind};
use crate::settlement::{HOST_FAULT_DELAY, Settled, Settlement};
use crate::store::{Batch, Report, is_locked, is_refused_follow_up, is_transient};

/// How many runs may wait to be settled before slots wait too.
pub const PENDING: usize = 4_096;
/// The most runs that one statement settles: past this a batch gains nothing more.
const BATCH: usize = 1_000;
/// The most bytes that one statement carries, so that a batch of large results fits into memory on both sides.
const BATCH_BYTES: usize = 16 << 20;
/// The first and the longest wait after a failed settlement.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// How often it is looked whether a job that somebody held is free.
const LOCKED_RETRY: Duration = Duration::from_secs(1);
/// How many runs may wait for such jobs, and how many bytes they may hold. What is more is left to be reaped and runs again.
const LOCKED: (usize, usize) = (1_000, 64 << 20);

/// Settles until every sender is gone and nothing is pending.
pub async fn run(shared: Arc<Shared>, mut reports: mpsc::Receiver<Report>, requeued: Arc<Notify>) {
    let (mut pending, mut locked) = (Vec::new(), Vec::new());
    let (mut open, mut look_again) = (true, Instant::now());
    while open || !locked.is_empty() {
        tokio::select! {
            received = reports.recv_many(&mut pending, BATCH), if open => open = received > 0,
            () = tokio::time::sleep_until(look_again), if !locked.is_empty() => {
                pending.extend(freed(&shared, &mut locked).await);
                look_again = Instant::now() + LOCKED_RETRY;
            }
        }
        while !pending.is_empty() {
            let batch = take_batch(&mut pending);
            let met = settle(&shared, batch, &requeued).await;
            if !met.is_empty() {
                look_again = Instant::now() + LOCKED_RETRY;
                park(&shared, &mut locked, met);
            }
        }
    }
}

/// Puts runs aside whose jobs somebody holds.
fn park(shared: &Shared, locked: &mut Vec<Report>, met: Vec<Report>) {
    warn!(count = met.len(), "an open transaction holds jobs that have ended; they are settled when it lets go");
    for report in met {
        let bytes: usize = locked.iter().map(Report::bytes).sum();
        if locked.len() < LOCKED.0 && bytes + report.bytes() <= LOCKED.1 {
            locked.push(report);
        } else {
            error!(job_id = %report.job_id, "too many wait for an open transaction; this one is left to be reaped");
            shared.held.forsake(report.job_id, report.lease_no);
        }
    }
}

/// Takes out what can be settled by now.
async fn freed(shared: &Shared, locked: &mut Vec<Report>) -> Vec<Report> {
    match shared.store.free_of_locks(locked.iter().map(|report| report.job_id)).await {
        Ok(free) => locked.extract_if(.., |report| free.contains(&report.job_id)).collect(),
        Err(cause) => {
            warn!("{cause:#}");
            Vec::new()
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

/// Answers the runs whose jobs somebody holds; all others are settled.
async fn settle(shared: &Shared, reports: Vec<Report>, requeued: &Notify) -> Vec<Report> {
    let mut batches = Batch::sort(reports);
    let mut locked = Vec::new();
    let mut retry = RETRY.0;
    while let Some(mut batch) = batches.pop() {
        match shared.store.settle(shared.id, &batch).await {
            Ok(answers) => {
                count(shared, &batch.reports, &answers);
                if batch.reports.iter().any(|report| comes_back(&report.settlement)) {
                    requeued.notify_one();
                }
                forget(shared, &batch.reports);
            }
            Err(cause) if is_locked(&cause) || is_transient(&cause) => {
                if is_locked(&cause) {
                    let [free, met] = part_from_locked(shared, batch).await;
                    let found = !met.reports.is_empty();
                    locked.extend(met.reports);
                    batch = free;
                    if found {
                        batches.extend(Some(batch).filter(|batch| !batch.reports.is_empty()));
                        continue;
                    }
                }
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
                    shared.held.forsake(report.job_id, report.lease_no);
                    continue;
                }
                if is_refused_follow_up(&cause) {
                    // What the guest asked for cannot be had, and the next run would ask for it again.
                    let message = format!("{cause:#}");
                    let failure = Failure { kind: FailureKind::FollowUp, message, backtrace: None, delay: None };
                    report.settlement = Settlement::Bury { failure };
                } else {
                    let message = format!("the outcome could not be stored: {cause:#}");
                    let fault = Failure { kind: FailureKind::Host, message, backtrace: None, delay: None };
                    report.settlement = Settlement::Release { fault: Some(fault), delay: HOST_FAULT_DELAY };
                    report.log = Default::default();
                }
                report.follow_ups = Vec::new();
                batches.extend(Batch::sort(vec![report]));
            }
        }
    }
    locked
}

/// A producer that cancels a running job holds its row until the end of its transaction, which must not hold up the others.
async fn part_from_locked(shared: &Shared, batch: Batch) -> [Batch; 2] {
    let free = shared.store.free_of_locks(batch.reports.iter().map(|report| report.job_id)).await;
    if let Err(cause) = &free {
        warn!("{cause:#}");
    }
    batch.partition(|report| free.as_ref().map_or(true, |free| free.contains(&report.job_id)))
}

fn count(shared: &Shared, reports: &[Report], answers: &[Settled]) {
    for (report, settled) in reports.iter().zip(answers) {
        match settled {
            Settled::Yes => shared.counters.settled(&report.settlement, &report.usage),
            Settled::LeaseLost => {
                info!(job_id = %report.job_id, lease_no = report.lease_no, "lease lost; nothing was written");
                shared.counters.leases_lost.fetch_add(1, Relaxed);
            }
        }
    }
}

fn comes_back(settlement: &Settlement) -> bool {
    match settlement {
        Settlement::Fail { .. } | Settlement::Snooze { .. } | Settlement::Release { .. } => true,
        Settlement::Complete { .. } | Settlement::Bury { .. } | Settlement::FinishCancel => false,
    }
}

fn forget(shared: &Shared, batch: &[Report]) {
    shared.held.remove(batch.iter().map(|report| (report.job_id, report.lease_no)));
}
