//! A worker in this process.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::measure::{QUEUE, bar};
use crate::cli::worker::{Options, run_with};
use crate::store::Store;
use crate::worker::{Counters, Stage};

/// How often it is looked what the worker has settled.
const LOOK: Duration = Duration::from_millis(5);

pub struct Running {
    stage: watch::Sender<Stage>,
    pub counters: Arc<Counters>,
    worker: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub fn start(store: &Store, slots: usize) -> Self {
        let options = Options { queues: vec![(QUEUE.into(), None)], slots, ..Options::default() };
        let (stage, stages) = watch::channel(Stage::Run);
        let counters = Arc::<Counters>::default();
        let (store, counted) = (store.clone(), counters.clone());
        let worker = tokio::spawn(async move { run_with(&options, store, stages, counted).await });
        Self { stage, counters, worker }
    }

    /// How many runs are settled so far.
    pub fn settled(&self) -> u64 {
        self.counters.settled.load(Relaxed)
    }

    /// Waits until so many runs more are settled than were at its start.
    pub async fn until_settled(&self, count: u64) -> anyhow::Result<()> {
        self.times_of(&[count]).await?;
        Ok(())
    }

    /// When so many runs were settled, for each of these growing counts.
    pub async fn times_of(&self, counts: &[u64]) -> anyhow::Result<Vec<Instant>> {
        let bar = bar(counts.last().copied().unwrap_or(0), "draining");
        let mut times = Vec::new();
        while times.len() < counts.len() {
            let settled = self.counters.settled.load(Relaxed);
            bar.set_position(settled);
            if settled >= counts[times.len()] {
                times.push(Instant::now());
                continue;
            }
            anyhow::ensure!(!self.worker.is_finished(), "the worker ended early");
            tokio::time::sleep(LOOK).await;
        }
        bar.finish_and_clear();
        Ok(times)
    }

    pub async fn until_idle(&self, store: &Store) -> anyhow::Result<()> {
        while store.bench_waiting(QUEUE).await? > 0 {
            anyhow::ensure!(!self.worker.is_finished(), "the worker ended early");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        let _ = self.stage.send(Stage::Drain);
        self.worker.await?
    }
}
