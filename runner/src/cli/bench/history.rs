//! `history`: what finished long ago and what is not due yet must cost the jobs of now nothing.

use std::time::Instant;

use super::measure::{self, MODULE, QUEUE, bar, medians};
use super::report::{Report, Target};
use super::scratch;
use super::worker::Running;
use crate::store::Store;

/// How many rows one statement fills in.
const FILL: u32 = 100_000;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many finished jobs lie in history
    #[arg(long, default_value_t = 1_000_000)]
    finished: u32,
    /// How many jobs are queued for a later day
    #[arg(long, default_value_t = 1_000_000)]
    future: u32,
}

/// The empty database and the full one take turns, so that a machine that is busy for a while is so for both.
const ROUNDS: u32 = 5;

pub async fn run(args: &super::Args, own: &Args, full: &Store) -> anyhow::Result<Report> {
    let per_round = args.jobs_or(100_000) / ROUNDS;
    let tenants = measure::tenants(args);
    measure::upload(full, &args.module_or("noop"), &tenants).await?;
    let progress = bar(u64::from(own.finished) + u64::from(own.future), "filling");
    for done in (0..own.finished).step_by(FILL as usize) {
        let count = FILL.min(own.finished - done);
        full.fill_history(&tenants[0], MODULE, QUEUE, done, count).await?;
        progress.inc(u64::from(count));
    }
    for done in (0..own.future).step_by(FILL as usize) {
        let count = FILL.min(own.future - done);
        full.fill_future(&tenants[0], MODULE, QUEUE, count).await?;
        progress.inc(u64::from(count));
    }
    progress.finish_and_clear();
    let rounds = async |empty: &Store| {
        measure::upload(empty, &args.module_or("noop"), &tenants).await?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let empty = drain(args, empty, per_round, &tenants).await?;
            let full = drain(args, full, per_round, &tenants).await?;
            rounds.push([empty, full, full / empty]);
        }
        Ok(rounds)
    };
    let [empty, full, ratio] = medians(&scratch::within(args.database()?, rounds).await?);

    let mut report = Report::default();
    let (finished, future) = (own.finished, own.future);
    report.fact("finished", format!("{finished} finished jobs in history"), finished.into());
    report.fact("future", format!("{future} jobs that are not due"), future.into());
    let text = format!("{ROUNDS} rounds of {per_round} jobs drained in each database; medians");
    report.fact("jobs", text, (per_round * ROUNDS).into());
    report.figure("empty_drain_per_second", "drain, empty database", empty, "jobs/s");
    report.figure("drain_per_second", "drain, beside all those", full, "jobs/s");
    report.ratio("drain_ratio", "drain beside all those / empty", ratio, Target::AtLeast(0.9));
    Ok(report)
}

async fn drain(args: &super::Args, store: &Store, jobs: u32, tenants: &[String]) -> anyhow::Result<f64> {
    let first = store.newest_job().await?;
    measure::enqueue_bulk(store, jobs as usize, tenants, &measure::payload(args)).await?;
    store.tidy().await?;
    let worker = Running::start(store, args.slots);
    // The first tenth gets it going.
    let marks = [u64::from(jobs) / 10, u64::from(jobs)];
    let times = worker.times_of(&marks).await?;
    worker.stop().await?;
    let (lost, settled_twice) = store.bench_account(first, first + i64::from(jobs)).await?;
    anyhow::ensure!(lost == 0 && settled_twice == 0, "{lost} jobs were lost and {settled_twice} settled twice");
    Ok((marks[1] - marks[0]) as f64 / Instant::duration_since(&times[1], times[0]).as_secs_f64())
}
