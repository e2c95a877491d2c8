//! What any worker does for all of them: reaps, makes and drops partitions, fires schedules. Each service is idempotent and needs no leader: two workers may do it at once.

pub mod schedules;

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::{info, warn};

use crate::retry::jittered;
use crate::store::{Retention, SWEEP_ROWS, Store};

/// How often, and how long things are kept.
#[derive(Debug, Clone)]
pub struct MaintenanceConfig {
    /// How often expired leases are looked for. A dead worker's jobs wait for a lease and so long.
    pub reap_every: Duration,
    /// Finished jobs and their attempts are dropped, a day at a time, when they are so many days old.
    pub retention: Retention,
}

impl Default for MaintenanceConfig {
    fn default() -> Self {
        Self { reap_every: Duration::from_secs(3), retention: Retention::default() }
    }
}

/// How often partitions are made and dropped: much more often than the days they lie ready for.
const PARTITIONS_EVERY: Duration = Duration::from_secs(3600);

/// Runs until `running` turns false.
pub async fn run(store: Store, config: MaintenanceConfig, running: watch::Receiver<bool>) {
    tokio::join!(clean_up(&store, &config, running.clone()), schedules::run(&store, running));
}

async fn clean_up(store: &Store, config: &MaintenanceConfig, mut running: watch::Receiver<bool>) {
    let mut partitions_due = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(jittered(config.reap_every)) => (),
            _ended = running.wait_for(|running| !running) => return,
        }
        reap(store).await;
        until_few("sweeping", || store.sweep()).await;
        if Instant::now() >= partitions_due {
            partitions_due = Instant::now() + PARTITIONS_EVERY;
            match store.maintain_partitions(config.retention).await {
                Ok(done) => done.iter().for_each(|what| info!("partitions: {what}")),
                Err(cause) => warn!("{cause:#}"),
            }
            until_few("dropping what is unused", || store.drop_unused()).await;
        }
    }
}

/// Calls until a call finds less than it may take.
async fn until_few<F: Future<Output = anyhow::Result<i64>>>(doing: &str, call: impl Fn() -> F) {
    loop {
        match call().await {
            Ok(count) if count < SWEEP_ROWS => return,
            Ok(count) => info!(count, "{doing}"),
            Err(cause) => return warn!("{cause:#}"),
        }
    }
}

/// Reaps until a call finds nothing more.
async fn reap(store: &Store) {
    loop {
        match store.reap().await {
            Ok(reaped) if reaped.is_empty() => return,
            Ok(reaped) => {
                for job in reaped {
                    info!(job_id = %job.job_id, state = job.state, "reaped: its lease ran out");
                }
            }
            Err(cause) => return warn!("{cause:#}"),
        }
    }
}
