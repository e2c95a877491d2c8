//! Keeps the leases. A third of a lease after the last time, one statement extends all claims of this worker and answers what
//! was lost and what somebody wants cancelled. It goes on through a drain, until the last job is settled.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::Shared;
use crate::job::JobId;
use crate::outcome::Stop;
use crate::retry::jittered;
use crate::store::Beat;

/// Beats until `beating` turns false, and at once when asked.
pub async fn run(shared: Arc<Shared>, mut asked: mpsc::Receiver<()>, mut beating: watch::Receiver<bool>) {
    let usual = shared.config.lease / 3;
    let mut wait = usual;
    let mut interrupts = JoinSet::new();
    let mut asks = true;
    loop {
        tokio::select! {
            () = tokio::time::sleep(jittered(wait)) => (),
            ask = asked.recv(), if asks => asks = ask.is_some(),
            _ended = beating.wait_for(|beating| !beating) => break,
            Some(_ended) = interrupts.join_next() => continue,
        }
        wait = match beat(&shared, &mut interrupts).await {
            Ok(()) => usual,
            Err(cause) => {
                warn!("{cause:#}; the leases hold for a while");
                usual / 10
            }
        };
    }
    interrupts.shutdown().await;
}

async fn beat(shared: &Arc<Shared>, interrupts: &mut JoinSet<()>) -> anyhow::Result<()> {
    let held = shared.held.snapshot();
    let sent = Instant::now();
    let answer = shared.store.heartbeat(shared.id, &held.claims, &held.closed, shared.config.lease, &held.jobs).await;
    let (lost, wanted): (HashSet<_>, HashSet<_>) = match answer {
        Ok(Beat { lost, cancel }) => (lost.into_iter().collect(), cancel.into_iter().collect()),
        Err(cause) => {
            shared.held.still_closed(held.closed);
            return Err(cause);
        }
    };
    shared.counters.beaten();
    // From before it was sent, so this end can only be too early.
    shared.held.extend(&held.jobs, sent + shared.config.lease - shared.config.lease_margin());
    // Under the lease number that was asked about: the job may have come back here under a newer one meanwhile. And one that
    // was settled meanwhile shows as lost, which hurts nobody.
    for leased in held.jobs.iter().filter(|(id, _)| lost.contains(id)) {
        shared.held.stop(*leased, Stop::LeaseLost);
    }
    for leased in held.jobs.iter().filter(|(id, _)| wanted.contains(id)) {
        cancel(shared, interrupts, *leased);
    }
    Ok(())
}

/// Asks, waits out the grace period, interrupts.
fn cancel(shared: &Arc<Shared>, interrupts: &mut JoinSet<()>, leased: (JobId, i32)) {
    let Some(control) = shared.held.cancel(leased) else { return };
    info!(job_id = %leased.0, grace_ms = shared.config.cancel_grace.as_millis() as u64, "asked to cancel");
    let grace = shared.config.cancel_grace;
    interrupts.spawn(async move {
        tokio::time::sleep(grace).await;
        control.stop(Stop::Cancelled);
    });
}
