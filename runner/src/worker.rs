//! A worker: claims jobs, runs them in the sandbox, keeps their leases and settles them.
//!
//! Guests run on a runtime of their own, so that no guest can starve a heartbeat. On the other one run the claimer, the
//! heartbeat, the settler and maintenance. A job goes
//!
//! ```text
//! claimer -> Dispatched -> slot (on the guests' runtime) -> Report -> settler
//! ```
//!
//! and stays in `Held`, which the heartbeat extends, from its claim until its settlement is answered. What it leaves
//! behind while it runs (a checkpoint, its progress, its log so far) `notes` writes once a second.

mod attempt;
mod claimer;
mod counters;
mod heartbeat;
mod held;
mod modules;
mod notes;
mod queues;
mod secrets;
mod settler;
mod shares;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use crate::maintenance::{self, MaintenanceConfig};
use crate::outcome::Stop;
use crate::sandbox::Sandbox;
use crate::secrets::Keyring;
use crate::store::{Database, Listener, Store, WorkerId};
pub use counters::Counters;
use held::Held;
use modules::Modules;
pub use queues::Queues;
use secrets::SecretValues;
use shares::Shares;

/// How a worker behaves. Every field has a default.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The queues it serves.
    pub queues: Queues,
    /// How many jobs run at once.
    pub slots: usize,
    /// For how long a job is claimed; extended by heartbeat at a third of it.
    pub lease: Duration,
    /// How long running jobs may go on after the first signal to stop.
    pub drain: Duration,
    /// How long a guest that was asked to cancel may go on.
    pub cancel_grace: Duration,
    /// The longest wait between two looks into the queue when nobody notifies.
    pub poll: Duration,
    /// Another way to the same database for LISTEN, which a pooler in transaction mode eats.
    pub listen: Option<Database>,
    pub maintenance: MaintenanceConfig,
    /// What opens the secrets that modules were granted; None: nothing does.
    pub keyring: Option<Keyring>,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            queues: Queues::in_order(["default"]),
            slots: 8,
            lease: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(5),
            poll: Duration::from_secs(2),
            listen: None,
            maintenance: MaintenanceConfig::default(),
            keyring: None,
        }
    }
}

impl WorkerConfig {
    /// A shorter lease would be lost to an ordinary hiccup of the database.
    pub const MIN_LEASE: Duration = Duration::from_secs(1);

    fn validate(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.queues.names().is_empty(), "a worker serves at least one queue");
        anyhow::ensure!(self.slots > 0, "a worker has at least one slot");
        anyhow::ensure!(
            self.lease >= Self::MIN_LEASE,
            "lease of {} ms is below the least of {} ms",
            self.lease.as_millis(),
            Self::MIN_LEASE.as_millis()
        );
        Ok(())
    }

    /// A guest is stopped so long before its lease can run out: time to stop it, and for clocks that tick unevenly.
    fn lease_margin(&self) -> Duration {
        (self.lease / 5).min(Duration::from_secs(3))
    }
}

/// How far a worker has been asked to stop. Each stage includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Run,
    /// Claim nothing more, give back what has not started, let running jobs end within `drain`.
    Drain,
    /// Interrupt running jobs and give them back.
    Interrupt,
}

/// What all parts of a worker share.
struct Shared {
    config: WorkerConfig,
    store: Store,
    sandbox: Sandbox,
    id: WorkerId,
    held: Held,
    modules: Modules,
    secrets: SecretValues,
    shares: Shares,
    counters: Arc<Counters>,
}

/// Runs a worker until `stage` says to stop, and everything it started has ended. `guests` is the runtime for guests.
pub async fn run(
    config: WorkerConfig,
    store: Store,
    sandbox: Sandbox,
    guests: Handle,
    mut stage: watch::Receiver<Stage>,
    counters: Arc<Counters>,
) -> anyhow::Result<()> {
    config.validate()?;
    store.check_schema().await?;
    let id = store.register_worker(config.queues.names(), config.slots).await?;
    counters.started(config.slots, config.lease);
    info!(
        worker = id.0,
        queues = config.queues.names().join(","),
        slots = config.slots,
        lease_ms = config.lease.as_millis() as u64,
        "worker started"
    );
    let shared = Arc::new(Shared {
        modules: Modules::new(store.clone(), sandbox.clone()),
        secrets: SecretValues::new(store.clone(), config.keyring.clone()),
        config,
        store: store.clone(),
        sandbox,
        id,
        held: Held::default(),
        shares: Shares::default(),
        counters,
    });

    let (notices, heard) = mpsc::unbounded_channel();
    let to_listen = shared.config.listen.clone().unwrap_or_else(|| store.database().clone());
    let listener = tokio::spawn(Listener::new(to_listen, store.clone()).run(notices));
    let (beat_now, beat_asked) = mpsc::channel(1);
    let (stop_beating, beating) = watch::channel(true);
    let heartbeat = tokio::spawn(heartbeat::run(shared.clone(), beat_asked, beating.clone()));
    let notes = tokio::spawn(notes::run(shared.clone(), beating.clone()));
    let maintenance = tokio::spawn(maintenance::run(store.clone(), shared.config.maintenance.clone(), beating));

    let (dispatch, dispatched) = async_channel::unbounded();
    let (reports, reported) = mpsc::channel(settler::PENDING);
    let claimer = claimer::Claimer::new(shared.clone(), dispatch, heard, beat_now);
    let settler = tokio::spawn(settler::run(shared.clone(), reported, claimer.requeue_hint()));
    let slots: Vec<_> = (0..shared.config.slots)
        .map(|_| {
            guests.spawn(attempt::slot(
                shared.clone(),
                dispatched.clone(),
                reports.clone(),
                claimer.room(),
                stage.clone(),
            ))
        })
        .collect();
    let claiming = tokio::spawn(claimer.run(stage.clone()));

    // Running: until somebody asks to stop, or the claimer ends by itself, which only a bug can make it do.
    let claimed = claiming.await;
    let asked = *stage.borrow();
    if asked == Stage::Run {
        warn!("the claimer ended by itself");
    }
    info!(stage = ?asked, running = shared.held.running(), "draining");

    // Draining: the claimer is gone and with it the only sender, so each slot ends after its job. Waiting jobs are
    // given back by the slots, which see the stage. Heartbeats go on all the while.
    let all_ended = async {
        for slot in slots {
            if let Err(error) = slot.await {
                warn!("a slot ended with {error}");
            }
        }
    };
    tokio::pin!(all_ended);
    let patience = async {
        tokio::select! {
            () = tokio::time::sleep(shared.config.drain) => (),
            _asked = stage.wait_for(|stage| *stage >= Stage::Interrupt) => (),
        }
    };
    tokio::select! {
        () = &mut all_ended => (),
        () = patience => {
            info!(running = shared.held.running(), "interrupting");
            shared.held.stop_all(Stop::Shutdown);
            all_ended.await;
        }
    }

    // The slots held the other senders of reports; the settler ends when it has sent the last. Without the database it
    // would not end: past a lease, others have reaped what is left.
    drop(reports);
    let mut settler = settler;
    match tokio::time::timeout(shared.config.lease, &mut settler).await {
        Ok(ended) => ended.context("the settler")?,
        Err(_) => {
            settler.abort();
            warn!(count = shared.held.running(), "not settled within a lease; these jobs are left to be reaped");
        }
    }
    let _ = stop_beating.send(false);
    heartbeat.await.context("the heartbeat")?;
    notes.await.context("the writer of notes")?;
    maintenance.await.context("maintenance")?;
    listener.await.context("the listener")?;
    store.retire_worker(id, &shared.held.take_closed()).await?;
    let counters = &shared.counters;
    info!(
        worker = id.0,
        finished = counters.finished.load(Relaxed),
        settled = counters.settled.load(Relaxed),
        leases_lost = counters.leases_lost.load(Relaxed),
        "worker stopped"
    );
    claimed.context("the claimer")
}
