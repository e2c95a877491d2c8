//! `idle`: a worker with nothing to do should ask for little and start at once.

use std::time::{Duration, Instant};

use super::measure;
use super::report::{Report, Target};
use super::worker::Running;
use crate::store::Store;

/// How long the worker settles down before it is watched: it sleeps at once, but the server's sessions tell of what they did as
/// late as after ten idle seconds, and what was asked before must not be counted.
const SETTLE: Duration = Duration::from_secs(12);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// For how many seconds the idle worker is watched
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
}

pub async fn run(args: &super::Args, own: &Args, store: &Store) -> anyhow::Result<Report> {
    anyhow::ensure!((0.01..=3600.0).contains(&own.seconds), "--seconds {} is not 0.01 to 3600", own.seconds);
    let (tenants, payload) = (measure::tenants(args), measure::payload(args));
    measure::upload(store, &args.module_or("noop"), &tenants).await?;
    // Counted from another database, so that looking is not counted.
    let watcher = Store::new(args.database()?, 1)?;
    let scratch = store.database().name();
    let worker = Running::start(store, args.slots);
    let (pickup, done) = measure::latency(store, &tenants[0], &payload, args.latency_jobs).await?;
    tokio::time::sleep(SETTLE).await;
    let (before, started) = (watcher.transactions_of(scratch).await?, Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(own.seconds)).await;
    let statements = (watcher.transactions_of(scratch).await? - before) as f64 / started.elapsed().as_secs_f64();
    worker.stop().await?;

    let mut report = Report::default();
    report.ratio("statements_per_second", "statements a second of an idle worker", statements, Target::AtMost(2.0));
    report.figure("pickup_p50_ms", "enqueue to claim, idle, p50", pickup.p50_ms, "ms");
    report.figure("pickup_p99_ms", "enqueue to claim, idle, p99", pickup.p99_ms, "ms");
    report.figure("done_p50_ms", "enqueue to done, idle, p50", done.p50_ms, "ms");
    report.figure("done_p99_ms", "enqueue to done, idle, p99", done.p99_ms, "ms");
    Ok(report)
}
