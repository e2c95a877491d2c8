//! What several benches measure: enqueuing in bulk and singly, and how soon an idle worker starts a job.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Args;
use crate::cli::module::{Inspected, inspect};
use crate::grants::Grants;
use crate::job::Limits;
use crate::sandbox::{Sandbox, SandboxConfig};
use crate::store::{NewVersion, Store};

/// How many jobs one enqueue_many puts in.
pub const BULK: usize = 1_000;
/// How many clients enqueue singly at once.
pub const SINGLE_CLIENTS: usize = 8;
/// The queue that a bench keeps to itself, and the module it runs.
pub const QUEUE: &str = "bench";
pub const MODULE: &str = "bench";

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Percentiles {
    pub p50_ms: f64,
    pub p99_ms: f64,
}

pub fn tenants(args: &Args) -> Vec<String> {
    (1..=args.tenants).map(|n| format!("bench-{n}")).collect()
}

pub fn payload(args: &Args) -> Value {
    json!("x".repeat(args.payload_bytes))
}

/// Uploads a module for each tenant, which is made if need be.
pub async fn upload(store: &Store, file: &Path, tenants: &[String]) -> anyhow::Result<()> {
    let (limits, sandbox) = (Limits::default(), Sandbox::new(&SandboxConfig::default())?);
    let inspected = inspect(file, &limits, &sandbox).await;
    let Inspected { bytes, kind, verdict } = inspected.context("scripts/build-jobs makes the benches' modules")?;
    for tenant in tenants {
        store.create_tenant(tenant).await?;
        let imports = &verdict.imports;
        let new = NewVersion {
            tenant,
            name: MODULE,
            kind,
            bytes: &bytes,
            limits,
            grants: Grants::usual(),
            on_failure: &[],
            imports,
            activate: true,
            retry: Default::default(),
        };
        store.push_module(&new).await?;
    }
    Ok(())
}

/// Jobs a second, 1,000 a statement, one client.
pub async fn enqueue_bulk(store: &Store, jobs: usize, tenants: &[String], payload: &Value) -> anyhow::Result<f64> {
    let bar = bar(jobs as u64, "enqueuing");
    let started = Instant::now();
    let mut left = jobs;
    // A tenant a statement in turn, so that they lie mixed in the queue.
    let batch = BULK.min(jobs.div_ceil(tenants.len()));
    for tenant in tenants.iter().cycle() {
        let count = batch.min(left);
        store.enqueue_many(tenant, MODULE, QUEUE, &vec![payload.clone(); count]).await?;
        left -= count;
        bar.inc(count as u64);
        if left == 0 {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(jobs as f64 / started.elapsed().as_secs_f64())
}

/// How often something can be done a second by several clients at once.
pub async fn per_second<F>(
    clients: usize,
    time: Duration,
    once: impl Fn() -> F + Clone + Send + 'static,
) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let started = Instant::now();
    let total = by_clients(clients, move || started.elapsed() < time, once).await?;
    Ok(total as f64 / started.elapsed().as_secs_f64())
}

/// Has something done by several clients at once while it goes on, which each asks before each time. Answers how often it was done.
pub async fn by_clients<F>(
    clients: usize,
    goes_on: impl Fn() -> bool + Clone + Send + 'static,
    once: impl Fn() -> F + Clone + Send + 'static,
) -> anyhow::Result<u64>
where
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let (goes_on, once) = (goes_on.clone(), once.clone());
        running.spawn(async move {
            let mut count = 0_u64;
            while goes_on() {
                once().await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut total = 0;
    while let Some(count) = running.join_next().await {
        total += count??;
    }
    Ok(total)
}

/// Jobs a second, one a transaction, eight clients.
pub async fn enqueue_single(store: &Store, time: Duration, tenant: &str, payload: &Value) -> anyhow::Result<f64> {
    let (store, tenant, payload) = (store.clone(), tenant.to_owned(), payload.clone());
    per_second(SINGLE_CLIENTS, time, move || {
        let (store, tenant, payload) = (store.clone(), tenant.clone(), payload.clone());
        async move { store.enqueue_plain(&tenant, MODULE, QUEUE, &payload).await }
    })
    .await
}

/// From the enqueue to the claim and to the settlement: 20 jobs a second, each into an idle queue; by the database's clock.
pub async fn latency(
    store: &Store,
    tenant: &str,
    payload: &Value,
    count: usize,
) -> anyhow::Result<(Percentiles, Percentiles)> {
    let (times, _) = paced(store, tenant, payload, count).await?;
    let of = |pick: fn(&(f64, f64)) -> f64| percentiles(times.iter().map(pick).collect());
    Ok((of(|t| t.0), of(|t| t.1)))
}

/// From before the enqueue to the claim, as a client sees it: what the enqueue took there, and the rest by the database's clock. What it
/// took after the job was written counts twice, so this is no less than the truth.
pub async fn pickup_from_outside(
    store: &Store,
    tenant: &str,
    payload: &Value,
    count: usize,
) -> anyhow::Result<Percentiles> {
    let (times, enqueues) = paced(store, tenant, payload, count).await?;
    Ok(percentiles(times.iter().zip(enqueues).map(|((claimed, _), enqueue)| claimed + enqueue).collect()))
}

/// 20 jobs a second, each into an idle queue, in their order. Of each: milliseconds from enqueue to claim and to settlement, by the
/// database's clock; and how many the enqueue took.
async fn paced(
    store: &Store,
    tenant: &str,
    payload: &Value,
    count: usize,
) -> anyhow::Result<(Vec<(f64, f64)>, Vec<f64>)> {
    let bar = bar(count as u64, "measuring latency");
    let first = store.newest_job().await?;
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    let mut enqueues = Vec::new();
    for _ in 0..count {
        pace.tick().await;
        let started = Instant::now();
        store.enqueue_plain(tenant, MODULE, QUEUE, payload).await?;
        enqueues.push(started.elapsed().as_secs_f64() * 1000.0);
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
    Ok((times, enqueues))
}

fn percentiles(mut values: Vec<f64>) -> Percentiles {
    values.sort_by(f64::total_cmp);
    Percentiles { p50_ms: at(&values, 0.5), p99_ms: at(&values, 0.99) }
}

fn at(sorted: &[f64], share: f64) -> f64 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The median of each figure over some rounds.
pub fn medians<const N: usize>(rounds: &[[f64; N]]) -> [f64; N] {
    std::array::from_fn(|figure| {
        let mut values: Vec<f64> = rounds.iter().map(|round| round[figure]).collect();
        values.sort_by(f64::total_cmp);
        at(&values, 0.5)
    })
}

pub fn bar(length: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:18} {bar:40} {pos}/{len} {per_sec}").expect("a valid template");
    ProgressBar::new(length).with_style(style).with_message(what)
}
