//! `fair`: what tenants get that want more together than there is. CPU time is what the sandbox measured of their runs.

use std::time::Duration;

use serde_json::json;

use super::measure::{self, MODULE, Percentiles, QUEUE, medians};
use super::report::{Report, Target};
use super::scratch;
use super::worker::Running;
use crate::store::Store;

/// How many jobs run at once, where CPU time is shared: more would only begin more long jobs before it is known how long they are.
const SLOTS: usize = 8;
/// What a job of the neighbour with a long backlog costs.
const NEIGHBOURS_JOB: Duration = Duration::from_millis(5);
/// How often it is looked whether enough was used.
const LOOK: Duration = Duration::from_millis(100);
/// Rounds of the drains, in turns.
const ROUNDS: usize = 3;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only one of them
    #[arg(value_enum)]
    only: Option<What>,
    /// How many seconds of CPU time are shared before shares are compared
    #[arg(long, default_value_t = 40.0)]
    cpu_seconds: f64,
    /// How many jobs the neighbour has waiting
    #[arg(long, default_value_t = 1_000_000)]
    backlog: u32,
    /// How many tenants have one job each
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    singles: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// CPU time of two tenants whose weights are 3 to 1
    Weights,
    /// CPU time of two tenants, one with jobs of 1 ms and one with jobs of 500 ms
    Costs,
    /// How soon a tenant's job begins beside a neighbour's long backlog
    Pickup,
    /// Many tenants with a job each, against one tenant with as many
    Drain,
}

pub async fn run(args: &super::Args, own: &Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    for what in [What::Weights, What::Costs, What::Pickup, What::Drain] {
        if own.only.is_some_and(|only| only != what) {
            continue;
        }
        let bench = async |store: &Store| match what {
            What::Weights => weights(args, own, store, &mut report).await,
            What::Costs => costs(args, own, store, &mut report).await,
            What::Pickup => pickup(args, own, store, &mut report).await,
            What::Drain => drain(args, own, store, &mut report).await,
        };
        scratch::within(args.database()?, bench).await?;
    }
    report.print(args.no_sync, args.json)
}

async fn weights(args: &super::Args, own: &Args, store: &Store, report: &mut Report) -> anyhow::Result<()> {
    let cost = Duration::from_millis(5);
    let [heavy, light] = share(args, own, store, [(300, cost), (100, cost)]).await?;
    report.figure("heavy_cpu_seconds", "CPU of the tenant of weight 300", heavy, "s");
    report.figure("light_cpu_seconds", "CPU of the tenant of weight 100", light, "s");
    let off = (heavy / light / 3.0 - 1.0).abs();
    report.ratio("weights_off", "off 3 to 1 by", off, Target::AtMost(0.1));
    Ok(())
}

async fn costs(args: &super::Args, own: &Args, store: &Store, report: &mut Report) -> anyhow::Result<()> {
    let shares = [(100, Duration::from_millis(1)), (100, Duration::from_millis(500))];
    let [short, long] = share(args, own, store, shares).await?;
    report.figure("short_cpu_seconds", "CPU of the tenant of jobs of 1 ms", short, "s");
    report.figure("long_cpu_seconds", "CPU of the tenant of jobs of 500 ms", long, "s");
    report.ratio("costs_off", "off 1 to 1 by", (short / long - 1.0).abs(), Target::AtMost(0.1));
    Ok(())
}

/// Seconds of CPU time of two tenants of these weights, whose jobs cost so much and are always due.
async fn share(
    args: &super::Args,
    own: &Args,
    store: &Store,
    tenants: [(i32, Duration); 2],
) -> anyhow::Result<[f64; 2]> {
    let names = ["fair-1".to_owned(), "fair-2".to_owned()];
    measure::upload(store, &args.module_or("spin"), &names).await?;
    let round = cost_of_a_round(store, &names[0]).await?;
    for (name, (weight, cost)) in names.iter().zip(tenants) {
        store.set_weight(name, weight).await?;
        // As many as it would run if it had everything.
        let jobs = (own.cpu_seconds * 1.5 / cost.as_secs_f64()) as usize + 10 * SLOTS;
        let payload = json!((cost.as_secs_f64() / round) as u64);
        measure::enqueue_bulk(store, jobs, std::slice::from_ref(name), &payload).await?;
    }
    store.tidy().await?;
    let worker = Running::start(store, SLOTS);
    // The first tenth tells the worker what jobs cost.
    let start = used(store, &names, own.cpu_seconds / 10.0).await?;
    let end = used(store, &names, own.cpu_seconds * 1.1).await?;
    worker.stop().await?;
    for name in &names {
        anyhow::ensure!(store.bench_waiting_of(name).await? > 0, "tenant {name} ran out of jobs");
    }
    Ok([0, 1].map(|which| end[which] - start[which]))
}

/// Waits until tenants have used so many seconds of CPU time together, and answers what each has.
async fn used(store: &Store, names: &[String; 2], together: f64) -> anyhow::Result<[f64; 2]> {
    loop {
        let mut used = [0.0; 2];
        for (used, name) in used.iter_mut().zip(names) {
            *used = store.bench_runs(name).await?.cpu_seconds;
        }
        if used.iter().sum::<f64>() >= together {
            return Ok(used);
        }
        let waiting = store.bench_waiting(QUEUE).await?;
        anyhow::ensure!(waiting > 0, "all jobs were run for {:.3} of {together:.3} s", used.iter().sum::<f64>());
        tokio::time::sleep(LOOK).await;
    }
}

/// Seconds of CPU time that a round of the job `spin` takes here.
async fn cost_of_a_round(store: &Store, tenant: &str) -> anyhow::Result<f64> {
    const FEW: usize = 20;
    const MANY_ROUNDS: u32 = 2_000_000;
    let worker = Running::start(store, 1);
    let mut mean = [0.0; 2];
    let mut before = store.bench_runs(tenant).await?;
    for (mean, rounds) in mean.iter_mut().zip([0, MANY_ROUNDS]) {
        measure::enqueue_bulk(store, FEW, &[tenant.to_owned()], &json!(rounds)).await?;
        worker.until_idle(store).await?;
        let after = store.bench_runs(tenant).await?;
        *mean = (after.cpu_seconds - before.cpu_seconds) / (after.count - before.count).max(1) as f64;
        before = after;
    }
    worker.stop().await?;
    Ok(((mean[1] - mean[0]) / f64::from(MANY_ROUNDS)).max(1e-10))
}

async fn pickup(args: &super::Args, own: &Args, store: &Store, report: &mut Report) -> anyhow::Result<()> {
    let [neighbour, tenant] = ["fair-1".to_owned(), "fair-2".to_owned()];
    measure::upload(store, &args.module_or("spin"), &[neighbour.clone(), tenant.clone()]).await?;
    let round = cost_of_a_round(store, &neighbour).await?;
    let worker = Running::start(store, SLOTS);
    let (unloaded, _) = measure::latency(store, &tenant, &json!(0), args.latency_jobs).await?;
    worker.stop().await?;
    let payload = json!((NEIGHBOURS_JOB.as_secs_f64() / round) as u64);
    measure::enqueue_bulk(store, own.backlog as usize, std::slice::from_ref(&neighbour), &payload).await?;
    store.tidy().await?;
    let worker = Running::start(store, SLOTS);
    worker.until_settled(10 * SLOTS as u64).await?;
    let (loaded, done) = measure::latency(store, &tenant, &json!(0), args.latency_jobs).await?;
    worker.stop().await?;
    let run_ms = store.bench_runs(&neighbour).await?.median_wall_ms;

    report.fact("backlog", format!("a neighbour's backlog of {} jobs", own.backlog), own.backlog.into());
    let mut figures = |key: &str, what: &str, found: Percentiles| {
        report.figure(&format!("{key}_p50_ms"), &format!("{what}, p50"), found.p50_ms, "ms");
        report.figure(&format!("{key}_p99_ms"), &format!("{what}, p99"), found.p99_ms, "ms");
    };
    figures("unloaded_pickup", "enqueue to claim, alone", unloaded);
    figures("pickup", "enqueue to claim, beside the backlog", loaded);
    figures("done", "enqueue to done, beside the backlog", done);
    report.figure("neighbour_run_ms", "a run of the neighbour's, median", run_ms, "ms");
    let most = 2.0 * unloaded.p99_ms + run_ms;
    report.ratio(
        "pickup_ratio",
        "p99 beside it / (twice that alone + a run)",
        loaded.p99_ms / most,
        Target::AtMost(1.0),
    );
    Ok(())
}

async fn drain(args: &super::Args, own: &Args, store: &Store, report: &mut Report) -> anyhow::Result<()> {
    let names: Vec<String> = (1..=own.singles).map(|n| format!("fair-{n}")).collect();
    measure::upload(store, &args.module_or("noop"), &names).await?;
    let worker = Running::start(store, args.slots);
    // The first time each tenant's module is looked up, which is once for a worker's whole life.
    let first = drain_once(store, &worker, own.singles, true).await?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let one = drain_once(store, &worker, own.singles, false).await?;
        let many = drain_once(store, &worker, own.singles, true).await?;
        rounds.push([one, many, many / one]);
    }
    worker.stop().await?;
    let [one, many, ratio] = medians(&rounds);
    report.fact("singles", format!("{} tenants; medians of {ROUNDS} rounds", own.singles), own.singles.into());
    report.figure("first_drain_per_second", "drain, a job each, modules still to be looked up", first, "jobs/s");
    report.figure("one_drain_per_second", "drain, as many jobs of one tenant", one, "jobs/s");
    report.figure("many_drain_per_second", "drain, a job each", many, "jobs/s");
    report.ratio("drain_ratio", "drain of many tenants / of one", ratio, Target::AtLeast(0.7));
    Ok(())
}

async fn drain_once(store: &Store, worker: &Running, jobs: u32, each: bool) -> anyhow::Result<f64> {
    store.pause_queue(QUEUE, None).await?;
    let before = worker.settled();
    if each {
        store.enqueue_each(MODULE, QUEUE, "fair-").await?;
    } else {
        measure::enqueue_bulk(store, jobs as usize, &["fair-1".to_owned()], &json!(0)).await?;
    }
    store.tidy().await?;
    let started = std::time::Instant::now();
    store.resume_queue(QUEUE).await?;
    worker.until_settled(before + u64::from(jobs)).await?;
    Ok(f64::from(jobs) / started.elapsed().as_secs_f64())
}
