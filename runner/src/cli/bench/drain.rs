//! The plain run: enqueue, drain, pickup, on the database itself.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::measure::{self, BULK, Percentiles, SINGLE_CLIENTS};
use super::worker::Running;
use super::{Args, CONNECTIONS, print};
use crate::store::Store;

/// How long jobs are enqueued singly.
const SINGLE_TIME: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
struct Figures {
    jobs: u32,
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

pub async fn run(args: &Args) -> anyhow::Result<()> {
    let jobs = args.jobs_or(100_000);
    let store = Store::new(args.database()?, CONNECTIONS)?;
    store.check_schema().await?;
    let (tenants, payload) = (measure::tenants(args), measure::payload(args));
    measure::upload(&store, &args.module_or("noop"), &tenants).await?;

    let enqueue_single_per_second = measure::enqueue_single(&store, SINGLE_TIME, &tenants[0], &payload).await?;
    // Those are run before the measured drain, which also warms the worker's cache.
    let worker = Running::start(&store, args.slots);
    worker.until_idle(&store).await?;
    worker.stop().await?;
    let first = store.newest_job().await?;
    let enqueue_bulk_per_second = measure::enqueue_bulk(&store, jobs as usize, &tenants, &payload).await?;
    let last = store.newest_job().await?;
    store.tidy().await?;

    let started = Instant::now();
    let worker = Running::start(&store, args.slots);
    worker.until_settled(u64::from(jobs)).await?;
    let drain = started.elapsed();
    let claims = worker.counters.claims.load(Relaxed);
    let (lost, settled_twice) = store.bench_account(first, last).await?;

    let (pickup, done) = measure::latency(&store, &tenants[0], &payload, args.latency_jobs).await?;
    worker.stop().await?;
    let figures = Figures {
        jobs,
        slots: args.slots,
        tenants: args.tenants,
        payload_bytes: args.payload_bytes,
        synchronous_commit: !args.no_sync,
        enqueue_bulk_per_second,
        enqueue_single_per_second,
        drain_seconds: drain.as_secs_f64(),
        drain_per_second: f64::from(jobs) / drain.as_secs_f64(),
        claims,
        lost,
        settled_twice,
        pickup,
        done,
    };
    report(&figures, args.json)?;
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
