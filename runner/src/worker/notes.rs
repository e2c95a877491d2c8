//! Writes what runs leave behind while they go on: checkpoints, how far they are, and their logs so far. Once a second,
//! one statement for all runs of this worker, and none while there is nothing. A log is passed on only of runs that go
//! on for a while: that of a short one is written when it is settled, and costs nothing besides.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::warn;

use super::Shared;
use crate::job::JobId;
use crate::outcome::Noted;
use crate::retry::jittered;
use crate::sandbox::RunControl;
use crate::settlement::Settlement;
use crate::store::{Note, is_transient};

/// How often. What a worker that dies takes with it is so old at most, and so is what somebody sees who watches.
const EVERY: Duration = Duration::from_secs(1);
/// How long a run goes on before anything but its checkpoint is written.
const YOUNG: Duration = Duration::from_secs(1);
/// What one statement carries at most: runs and bytes.
const BATCH: (usize, usize) = (1_000, 4 << 20);
/// The first and the longest wait after a checkpoint could not be written that a run ended with.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// Writes until `running` turns false.
pub async fn run(shared: Arc<Shared>, mut running: watch::Receiver<bool>) {
    let mut goes_on = true;
    while goes_on {
        goes_on = tokio::select! {
            () = tokio::time::sleep(jittered(EVERY)) => true,
            _ended = running.wait_for(|running| !running) => false,
        };
        write_all(&shared).await;
    }
}

async fn write_all(shared: &Shared) {
    let mut runs: Vec<(JobId, i32, RunControl)> = shared.held.runs();
    let mut ended = shared.held.take_ended();
    loop {
        let batch = take_batch(&mut runs);
        if batch.is_empty() && ended.is_empty() {
            return;
        }
        let notes: Vec<Note> = batch.iter().map(|(note, _)| note.clone()).collect();
        if let Err(cause) = shared.store.note(&notes, &ended).await {
            warn!("{cause:#}; trying again in {} ms", EVERY.as_millis());
            shared.held.still_ended(ended);
            return;
        }
        for (note, control) in &batch {
            control.notes().written(&note.noted);
        }
        ended.clear();
    }
}

/// Takes runs until a statement is full; leaves those with nothing to write out.
fn take_batch(runs: &mut Vec<(JobId, i32, RunControl)>) -> Vec<(Note, RunControl)> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while batch.len() < BATCH.0
        && bytes < BATCH.1
        && let Some((job_id, lease_no, control)) = runs.pop()
    {
        let noted: Option<Noted> =
            if control.age() < YOUNG { control.notes().unwritten_checkpoint() } else { control.notes().unwritten() };
        if let Some(noted) = noted {
            bytes += noted.weight();
            batch.push((Note { job_id, lease_no, noted }, control));
        }
    }
    batch
}

/// Writes what a run saved last, before its job is given back: whoever runs it next goes on from there.
pub async fn write_last(shared: &Shared, job_id: JobId, lease_no: i32, control: &RunControl, settlement: &Settlement) {
    let comes_back = match settlement {
        Settlement::Fail { .. } | Settlement::Snooze { .. } | Settlement::Release { .. } => true,
        Settlement::Complete { .. } | Settlement::Bury { .. } | Settlement::FinishCancel => false,
    };
    let Some(noted) = control.notes().unwritten_checkpoint().filter(|_| comes_back) else { return };
    let note = [Note { job_id, lease_no, noted }];
    let mut retry = RETRY.0;
    loop {
        match shared.store.note(&note, &[]).await {
            Ok(()) => return control.notes().written(&note[0].noted),
            // For as long as the lease holds; then it is somebody else's job.
            Err(cause) if is_transient(&cause) && shared.held.holds(job_id) && !control.is_stopped() => {
                warn!(%job_id, "{cause:#}; saving the checkpoint again in {} ms", retry.as_millis());
            }
            Err(cause) => return warn!(%job_id, "the last checkpoint is lost: {cause:#}"),
        }
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_with_nothing_to_write_are_left_out() {
        let mut runs = vec![(JobId(1), 1, RunControl::new()), (JobId(2), 1, RunControl::new())];
        assert!(take_batch(&mut runs).is_empty() && runs.is_empty());
    }
}
