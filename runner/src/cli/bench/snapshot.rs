//! `snapshot`: somebody's report, backup or forgotten transaction holds a snapshot, so that nothing can be vacuumed, while the
//! queue goes on.

use super::Args;
use super::measure;
use super::report::{Report, Target};
use super::worker::Running;
use crate::store::Store;

pub async fn run(args: &Args, store: &Store) -> anyhow::Result<Report> {
    let jobs = args.jobs_or(200_000);
    let (tenants, payload) = (measure::tenants(args), measure::payload(args));
    measure::upload(store, &args.module_or("noop"), &tenants).await?;
    let worker = Running::start(store, args.slots);
    let (fresh, _) = measure::latency(store, &tenants[0], &payload, args.latency_jobs).await?;
    worker.stop().await?;

    let first = store.newest_job().await?;
    measure::enqueue_bulk(store, jobs as usize, &tenants, &payload).await?;
    store.tidy().await?;
    let snapshot = store.hold_snapshot().await?;
    let worker = Running::start(store, args.slots);
    // A tenth at either end; before the first one the worker gets going.
    let marks = [5, 15, 90, 100].map(|percent| u64::from(jobs) * percent / 100);
    let times = worker.times_of(&marks).await?;
    let rate = |from: usize| (marks[from + 1] - marks[from]) as f64 / (times[from + 1] - times[from]).as_secs_f64();
    let (start, end) = (rate(0), rate(2));
    let (old, _) = measure::latency(store, &tenants[0], &payload, args.latency_jobs).await?;
    snapshot.release().await?;
    worker.stop().await?;
    let (lost, settled_twice) = store.bench_account(first, first + i64::from(jobs)).await?;
    anyhow::ensure!(lost == 0 && settled_twice == 0, "{lost} jobs were lost and {settled_twice} settled twice");

    let mut report = Report::default();
    report.fact("jobs", format!("{jobs} jobs while a snapshot from before them is held"), jobs.into());
    report.figure("drain_at_start_per_second", "drain, from 5 % to 15 % of the jobs", start, "jobs/s");
    report.figure("drain_at_end_per_second", "drain, the last 10 %", end, "jobs/s");
    report.ratio("drain_ratio", "drain at the end / at the start", end / start, Target::AtLeast(0.8));
    report.figure("fresh_pickup_p50_ms", "enqueue to claim, idle, fresh database, p50", fresh.p50_ms, "ms");
    report.figure("pickup_p50_ms", "enqueue to claim, idle, after them, p50", old.p50_ms, "ms");
    report.ratio("pickup_ratio", "pickup after them / fresh", old.p50_ms / fresh.p50_ms, Target::AtMost(1.5));
    Ok(report)
}
