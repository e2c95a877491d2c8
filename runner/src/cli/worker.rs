//! `leasehold worker`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use super::compile::CompilerArgs;
use super::{DatabaseArgs, parse};
use crate::http::Server;
use crate::maintenance::MaintenanceConfig;
use crate::sandbox::{Sandbox, SandboxConfig};
use crate::store::{Database, Retention, Store};
use crate::worker::{self, Counters, Queues, Stage, WorkerConfig};

/// How many connections a worker needs at once: the claimer, the settler, the heartbeat, maintenance, and a few for looking
/// up modules. The listener has one more of its own.
pub(super) const CONNECTIONS: usize = 8;

/// Run jobs until told to stop.
///
/// SIGTERM or Ctrl-C drains: nothing more is claimed, running jobs may end within --drain, then they are interrupted and given
/// back without costing an attempt. A second signal interrupts at once.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(flatten)]
    pub options: Options,
}

/// What a worker can be told, whoever starts it.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// A queue to serve; may be given several times. Earlier ones come first among jobs of equal priority, or, where each has a
    /// weight (--queue mail=3 --queue reports=1), each has its share
    #[arg(long = "queue", value_name = "QUEUE[=WEIGHT]", default_value = "default", value_parser = parse::queue)]
    pub queues: Vec<(String, Option<u32>)>,
    /// How many jobs run at once
    #[arg(long, default_value_t = 8)]
    pub slots: usize,
    /// For how long a job is claimed; kept up by heartbeat while it runs
    #[arg(long, value_parser = parse::duration, default_value = "30s")]
    pub lease: Duration,
    /// How long running jobs may go on after a signal to stop
    #[arg(long, value_parser = parse::duration, default_value = "30s")]
    pub drain: Duration,
    /// How long a job that was asked to cancel may go on
    #[arg(long, value_parser = parse::duration, default_value = "5s")]
    pub cancel_grace: Duration,
    /// The same database, by a way that LISTEN survives, when --database-url leads through a pooler in transaction mode
    #[arg(long, value_name = "URL", value_parser = Database::parse, hide_default_value = true)]
    pub listen_url: Option<Database>,
    /// The most memory that any module's limit may give a run
    #[arg(long, value_parser = parse::bytes, default_value = "1GiB")]
    pub max_memory: u64,
    /// How often expired leases are looked for
    #[arg(long, value_parser = parse::duration, default_value = "3s")]
    pub reap_every: Duration,
    /// How many days finished jobs are kept
    #[arg(long, value_name = "DAYS", default_value_t = Retention::default().days, value_parser = clap::value_parser!(i32).range(1..))]
    pub retention_days: i32,
    /// How many days jobs are kept that are done, where that is fewer
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(i32).range(1..))]
    pub retention_done_days: Option<i32>,
    /// Answer HTTP here, like 127.0.0.1:9464: /health, /metrics of this worker, /metrics/queues of all jobs. Whoever reaches it may ask
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,
    #[command(flatten)]
    pub compiler: CompilerArgs,
}

impl Default for Options {
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct OnlyOptions {
            #[command(flatten)]
            options: Options,
        }
        <OnlyOptions as clap::Parser>::parse_from(["worker"]).options
    }
}

impl Options {
    pub fn config(&self) -> WorkerConfig {
        let retention = Retention { days: self.retention_days, done_days: self.retention_done_days };
        WorkerConfig {
            queues: self.queues(),
            slots: self.slots,
            lease: self.lease,
            drain: self.drain,
            cancel_grace: self.cancel_grace,
            maintenance: MaintenanceConfig { reap_every: self.reap_every, retention },
            listen: self.listen_url.clone(),
            ..WorkerConfig::default()
        }
    }

    fn queues(&self) -> Queues {
        if self.queues.iter().all(|(_, weight)| weight.is_none()) {
            return Queues::in_order(self.queues.iter().map(|(name, _)| name.clone()));
        }
        Queues::by_weight(self.queues.iter().map(|(name, weight)| (name.clone(), weight.unwrap_or(1))))
    }

    pub fn sandbox(&self) -> anyhow::Result<Sandbox> {
        let slots = u32::try_from(self.slots).with_context(|| format!("{} slots are too many", self.slots))?;
        Sandbox::new(&SandboxConfig {
            slots,
            memory_bytes: self.max_memory,
            compiler: self.compiler.compiler()?,
            profiling: false,
        })
    }
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let store = Store::new(Database::parse(&args.database.database_url)?, CONNECTIONS)?;
    let stage = stage_by_signals()?;
    run_with(&args.options, store, stage, Arc::default()).await
}

/// A worker with a guests' runtime of its own, which ends with it.
pub async fn run_with(
    options: &Options,
    store: Store,
    stage: watch::Receiver<Stage>,
    counters: Arc<Counters>,
) -> anyhow::Result<()> {
    let sandbox = options.sandbox()?;
    let guests = tokio::runtime::Builder::new_multi_thread()
        .thread_name("guests")
        .enable_all()
        .build()
        .context("starting the guests' runtime")?;
    let http = match options.http {
        Some(address) => Some(Server::bind(address, store.clone(), counters.clone()).await?),
        None => None,
    };
    let done = worker::run(options.config(), store, sandbox, guests.handle().clone(), stage, counters).await;
    if let Some(http) = http {
        http.stop().await;
    }
    // All its tasks were joined; a runtime may not be dropped where it could block.
    guests.shutdown_background();
    done
}

/// The first SIGTERM or SIGINT drains, the second interrupts.
pub fn stage_by_signals() -> anyhow::Result<watch::Receiver<Stage>> {
    let (stage, stages) = watch::channel(Stage::Run);
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    // Lives as long as the process: there is nothing to join before it ends.
    tokio::spawn(async move {
        for next in [Stage::Drain, Stage::Interrupt] {
            tokio::select! {
                _signal = terminate.recv() => (),
                _signal = interrupt.recv() => (),
            }
            match next {
                Stage::Interrupt => warn!("stopping now: running jobs are interrupted and given back"),
                Stage::Run | Stage::Drain => info!("stopping: running jobs may end; signal again to interrupt them"),
            }
            let _ = stage.send(next);
        }
        // Keeps the channel open, so that waiting for a stage waits on.
        std::future::pending::<()>().await;
    });
    Ok(stages)
}
