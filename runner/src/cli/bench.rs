//! `leasehold bench`: what this machine and this database do, measured with real jobs through a real worker.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::module::{Inspected, inspect};
use super::worker::Options;
use super::{Common, print};
use crate::job::Limits;
use crate::sandbox::{Sandbox, SandboxConfig};
use crate::store::{Database, NewJob, NewVersion, Store};
use crate::worker::{Counters, Stage};

/// How many jobs one enqueue_many puts in.
const BULK: usize = 1_000;
/// How many clients enqueue singly at once, and for how long.
const SINGLE_CLIENTS: usize = 8;
const SINGLE_TIME: Duration = Duration::from_secs(2);
/// The queue that the bench keeps to itself.
const QUEUE: &str = "bench";

/// Measure enqueue rate, drain rate and pickup latency with real jobs on this database.
///
/// Uses the queue "bench" and tenants "bench-1", "bench-2", ... and leaves its jobs in history. The worker runs in this
/// process. Quote ratios of one run, not single figures: machines are noisy.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many jobs are drained
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// How many jobs run at once
    #[arg(long, default_value_t = 64)]
    slots: usize,
    /// Over how many tenants the jobs are spread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tenants: u32,
    /// How many bytes of text each payload carries
    #[arg(long, default_value_t = 16)]
    payload_bytes: usize,
    /// How many jobs measure the pickup latency, 20 a second
    #[arg(long, default_value_t = 200)]
    latency_jobs: usize,
    /// The module to run; scripts/build-jobs noop makes the default one
    #[arg(long, value_name = "FILE.wasm", default_value = "jobs/target/modules/noop.wasm")]
    module: PathBuf,
    /// Do not wait for the disk at commits (synchronous_commit = off), to compare with other queues' figures
    #[arg(long)]
    no_sync: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Serialize)]
struct Figures {
    jobs: usize,
    slots: usize,
    tenants: u32,
    payload_bytes: usize,
    synchronous_commit: bool,
    /// Jobs a second, 1,000 a statement, one client.
    enqueue_bulk_per_second: f64,
    /// Jobs a second, one a transaction, eight clients.
    enqueue_single_per_second: f64,
    drain_seconds: f64,
    drain_per_second: f64,
    claims: u64,
    /// Jobs that are missing, still live, or have more than one end. Anything but 0 is a bug.
    lost: i64,
    settled_twice: i64,
    /// From the enqueue to the claim, by the database's clock.
    pickup: Percentiles,
    /// From the enqueue to the settlement.
    done: Percentiles,
}

#[derive(Debug, Serialize)]
struct Percentiles {
    p50_ms: f64,
    p99_ms: f64,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut database = Database::parse(&args.common.database.database_url)?;
    if args.no_sync {
        database.set_option("synchronous_commit", "off");
    }
    let store = Store::new(database, 16)?;
    store.check_schema().await?;
    let tenants: Vec<String> = (1..=args.tenants).map(|n| format!("bench-{n}")).collect();
    upload(&store, &args, &tenants).await?;
    let payload = json!("x".repeat(args.payload_bytes));

    let enqueue_single_per_second = enqueue_single(&store, &tenants[0], &payload).await?;
    // Those are run before the measured drain, which also warms the worker's cache.
    let worker = Running::start(&args, &store)?;
    worker.until_idle(&store).await?;
    worker.stop().await?;
    let first = store.newest_job().await?;
    let enqueue_bulk_per_second = enqueue_bulk(&store, &args, &tenants, &payload).await?;
    let last = store.newest_job().await?;
    store.tidy().await?;

    let started = Instant::now();
    let worker = Running::start(&args, &store)?;
    worker.until_settled(args.jobs).await?;
    let drain = started.elapsed();
    let claims = worker.counters.claims.load(Relaxed);
    let (lost, settled_twice) = store.bench_account(first, last).await?;

    let (pickup, done) = latency(&store, &tenants[0], &payload, args.latency_jobs).await?;
    worker.stop().await?;
    let figures = Figures {
        jobs: args.jobs,
        slots: args.slots,
        tenants: args.tenants,
        payload_bytes: args.payload_bytes,
        synchronous_commit: !args.no_sync,
        enqueue_bulk_per_second,
        enqueue_single_per_second,
        drain_seconds: drain.as_secs_f64(),
        drain_per_second: args.jobs as f64 / drain.as_secs_f64(),
        claims,
        lost,
        settled_twice,
        pickup,
        done,
    };
    report(&figures, args.common.json)?;
    anyhow::ensure!(lost == 0 && settled_twice == 0, "{lost} jobs were lost and {settled_twice} settled twice");
    Ok(())
}

fn report(figures: &Figures, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return print::json(figures);
    }
    println!("enqueue, {BULK} a statement   {:>9.0} jobs/s", figures.enqueue_bulk_per_second);
    println!("enqueue, {SINGLE_CLIENTS} clients singly   {:>9.0} jobs/s", figures.enqueue_single_per_second);
    println!(
        "drain of {} jobs        {:>9.0} jobs/s   ({:.2} s, {} claims, {} lost, {} settled twice)",
        figures.jobs,
        figures.drain_per_second,
        figures.drain_seconds,
        figures.claims,
        figures.lost,
        figures.settled_twice
    );
    println!(
        "enqueue to claim, idle       {:>7.1} ms p50 {:>7.1} ms p99",
        figures.pickup.p50_ms, figures.pickup.p99_ms
    );
    println!("enqueue to done, idle        {:>7.1} ms p50 {:>7.1} ms p99", figures.done.p50_ms, figures.done.p99_ms);
    Ok(())
}

async fn upload(store: &Store, args: &Args, tenants: &[String]) -> anyhow::Result<()> {
    let (limits, sandbox) = (Limits::default(), Sandbox::new(&SandboxConfig::default())?);
    let inspected = inspect(&args.module, &limits, &sandbox).await;
    let Inspected { bytes, kind, verdict } = inspected.context("scripts/build-jobs noop makes the bench's module")?;
    for tenant in tenants {
        store.create_tenant(tenant).await?;
        let new = NewVersion {
            tenant,
            name: "bench",
            kind,
            bytes: &bytes,
            limits,
            on_failure: &[],
            imports: &verdict.imports,
            activate: true,
            retry: Default::default(),
        };
        store.push_module(&new).await?;
    }
    Ok(())
}

async fn enqueue_bulk(store: &Store, args: &Args, tenants: &[String], payload: &Value) -> anyhow::Result<f64> {
    let bar = bar(args.jobs as u64, "enqueuing");
    let started = Instant::now();
    let mut left = args.jobs;
    // A tenant a statement in turn, so that they lie mixed in the queue.
    let batch = BULK.min(args.jobs.div_ceil(tenants.len()));
    for tenant in tenants.iter().cycle() {
        let count = batch.min(left);
        store.enqueue_many(tenant, "bench", QUEUE, &vec![payload.clone(); count]).await?;
        left -= count;
        bar.inc(count as u64);
        if left == 0 {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(args.jobs as f64 / started.elapsed().as_secs_f64())
}

async fn enqueue_single(store: &Store, tenant: &str, payload: &Value) -> anyhow::Result<f64> {
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..SINGLE_CLIENTS {
        let (store, tenant, payload) = (store.clone(), tenant.to_owned(), payload.to_string());
        clients.spawn(async move {
            let mut count = 0_u64;
            while started.elapsed() < SINGLE_TIME {
                store.enqueue(&new_job(&tenant, payload.as_bytes())).await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut total = 0;
    while let Some(count) = clients.join_next().await {
        total += count??;
    }
    Ok(total as f64 / started.elapsed().as_secs_f64())
}

fn new_job<'a>(tenant: &'a str, payload: &'a [u8]) -> NewJob<'a> {
    NewJob { tenant, module: "bench", payload, queue: QUEUE, ..NewJob::default() }
}

/// 20 jobs a second, each into an idle queue; times by the database's clock.
async fn latency(
    store: &Store,
    tenant: &str,
    payload: &Value,
    count: usize,
) -> anyhow::Result<(Percentiles, Percentiles)> {
    let bar = bar(count as u64, "measuring latency");
    let payload = payload.to_string();
    let first = store.newest_job().await?;
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..count {
        pace.tick().await;
        store.enqueue(&new_job(tenant, payload.as_bytes())).await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut times = store.bench_latencies(first).await?;
    while times.len() < count {
        anyhow::ensure!(Instant::now() < deadline, "{} of {count} jobs were done within 10 s", times.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
        times = store.bench_latencies(first).await?;
    }
    let of = |pick: fn(&(f64, f64)) -> f64| percentiles(times.iter().map(pick).collect());
    Ok((of(|t| t.0), of(|t| t.1)))
}

fn percentiles(mut sorted: Vec<f64>) -> Percentiles {
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted.get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)));
    Percentiles { p50_ms: at(0.5).copied().unwrap_or(f64::NAN), p99_ms: at(0.99).copied().unwrap_or(f64::NAN) }
}

fn bar(length: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:18} {bar:40} {pos}/{len} {per_sec}").expect("a valid template");
    ProgressBar::new(length).with_style(style).with_message(what)
}

/// A worker in this process.
struct Running {
    stage: watch::Sender<Stage>,
    counters: Arc<Counters>,
    worker: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    fn start(args: &Args, store: &Store) -> anyhow::Result<Self> {
        let options = Options { queues: vec![(QUEUE.into(), None)], slots: args.slots, ..Options::default() };
        let (stage, stages) = watch::channel(Stage::Run);
        let counters = Arc::<Counters>::default();
        let (store, counted) = (store.clone(), counters.clone());
        let worker = tokio::spawn(async move { super::worker::run_with(&options, store, stages, counted).await });
        Ok(Self { stage, counters, worker })
    }

    async fn until_settled(&self, count: usize) -> anyhow::Result<()> {
        let bar = bar(count as u64, "draining");
        loop {
            let settled = self.counters.settled.load(Relaxed);
            bar.set_position(settled);
            if settled >= count as u64 {
                bar.finish_and_clear();
                return Ok(());
            }
            anyhow::ensure!(!self.worker.is_finished(), "the worker ended early");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_idle(&self, store: &Store) -> anyhow::Result<()> {
        while store
            .queue_stats(None)
            .await?
            .iter()
            .any(|s| s.queue == QUEUE && matches!(s.state.as_str(), "queued" | "running"))
        {
            anyhow::ensure!(!self.worker.is_finished(), "the worker ended early");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn stop(self) -> anyhow::Result<()> {
        let _ = self.stage.send(Stage::Drain);
        self.worker.await?
    }
}
