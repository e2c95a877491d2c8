//! `hostile`: thousands of runs that go wrong in every way should leave nothing behind in the worker, and good jobs beside them
//! should start as soon as ever. The hostile jobs are a tenant's own, capped at half the slots, as an operator would cap it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::measure::{self, BULK, MODULE, QUEUE};
use super::report::{Report, Target};
use super::worker::Running;
use crate::cli::module::inspect;
use crate::job::Limits;
use crate::retry::RetrySettings;
use crate::sandbox::{Sandbox, SandboxConfig};
use crate::store::{NewVersion, Scope, Store};

const TENANT: &str = "bench-hostile";
/// Runs before memory is looked at: as many as fill the pool, the caches and what the allocator keeps.
const WARM_UP: i64 = 1_000;
/// How often it is looked what has ended, and for how long nothing may.
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(60);
/// Met within milliseconds, so that there are thousands of runs a minute.
const LIMITS: Limits = Limits {
    fuel: 20_000_000,
    memory_bytes: 8 << 20,
    timeout: Duration::from_millis(30),
    result_bytes: 64 << 10,
    log_bytes: 16 << 10,
    follow_ups: 0,
};
/// The faults of jobs/faults that end by themselves or at a limit.
const FAULTS: [&str; 9] = ["dead", "panic", "exit", "loop", "fuel", "memory", "recursion", "big_result", "sleep"];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many hostile runs there are between the two looks at the memory
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The module that goes wrong as its payload says, made by scripts/build-jobs
    #[arg(long, value_name = "FILE.wasm", default_value = "jobs/target/modules/faults.wasm")]
    faults: PathBuf,
}

pub async fn run(args: &super::Args, own: &Args, store: &Store) -> anyhow::Result<Report> {
    let runs = i64::from(own.runs);
    let (tenants, payload) = (measure::tenants(args), measure::payload(args));
    measure::upload(store, &args.module_or("noop"), &tenants).await?;
    upload_faults(store, own).await?;
    let half = i32::try_from(args.slots / 2).unwrap_or(i32::MAX).max(1);
    store.set_cap(Scope { tenant: TENANT, module: None }, Some(half)).await?;
    let worker = Running::start(store, args.slots);

    run_all(store, WARM_UP.min(runs)).await?;
    let (alone, _) = measure::latency(store, &tenants[0], &payload, args.latency_jobs).await?;
    let before = resident_mib()?;

    let first = enqueue(store, runs).await?;
    let (beside, _) = measure::latency(store, &tenants[0], &payload, args.latency_jobs).await?;
    let (left, _) = store.bench_account(first, first + runs).await?;
    until_ended(store, first, runs).await?;
    // One more round of good jobs, so that memory is looked at in the same state.
    measure::latency(store, &tenants[0], &payload, args.latency_jobs.min(20)).await?;
    let after = resident_mib()?;
    worker.stop().await?;

    let mut report = Report::default();
    report.fact("runs", format!("{} hostile runs, half the slots at most", own.runs), own.runs.into());
    report.fact("left", format!("{left} of them were still to come after the good jobs beside them"), left.into());
    report.figure("memory_before_mib", "resident memory of the worker before them", before, "MiB");
    report.figure("memory_after_mib", "resident memory after them", after, "MiB");
    report.ratio("memory_ratio", "memory after / before", after / before, Target::AtMost(1.1));
    report.figure("alone_pickup_p50_ms", "enqueue to claim, good jobs alone, p50", alone.p50_ms, "ms");
    report.figure("alone_pickup_p99_ms", "enqueue to claim, good jobs alone, p99", alone.p99_ms, "ms");
    report.figure("pickup_p50_ms", "enqueue to claim, beside hostile ones, p50", beside.p50_ms, "ms");
    report.figure("pickup_p99_ms", "enqueue to claim, beside hostile ones, p99", beside.p99_ms, "ms");
    report.ratio("pickup_ratio", "pickup beside them / alone", beside.p50_ms / alone.p50_ms, Target::AtMost(2.0));
    Ok(report)
}

async fn upload_faults(store: &Store, own: &Args) -> anyhow::Result<()> {
    let sandbox = Sandbox::new(&SandboxConfig::default())?;
    let inspected = inspect(&own.faults, &LIMITS, &sandbox).await;
    let inspected = inspected.context("scripts/build-jobs makes the benches' modules")?;
    store.create_tenant(TENANT).await?;
    let new = NewVersion {
        tenant: TENANT,
        name: MODULE,
        kind: inspected.kind,
        bytes: &inspected.bytes,
        limits: LIMITS,
        on_failure: &[],
        imports: &inspected.verdict.imports,
        activate: true,
        retry: RetrySettings { max_attempts: Some(1), ..RetrySettings::default() },
    };
    store.push_module(&new).await?;
    Ok(())
}

/// Each fault in its turn. Answers the id before the first job's.
async fn enqueue(store: &Store, count: i64) -> anyhow::Result<i64> {
    let first = store.newest_job().await?;
    let faults = FAULTS.iter().cycle().map(|fault| json!({ "fault": fault }));
    let faults: Vec<Value> = faults.take(usize::try_from(count)?).collect();
    for batch in faults.chunks(BULK) {
        store.enqueue_many(TENANT, MODULE, QUEUE, batch).await?;
    }
    Ok(first)
}

async fn run_all(store: &Store, count: i64) -> anyhow::Result<()> {
    let first = enqueue(store, count).await?;
    until_ended(store, first, count).await
}

/// Jobs at a cap are out of the queue's sight, so this goes by their ends.
async fn until_ended(store: &Store, first: i64, count: i64) -> anyhow::Result<()> {
    let (mut left, mut seen) = (count, Instant::now());
    while left > 0 {
        tokio::time::sleep(LOOK).await;
        let (now_left, settled_twice) = store.bench_account(first, first + count).await?;
        anyhow::ensure!(settled_twice == 0, "{settled_twice} jobs were settled twice");
        if now_left < left {
            (left, seen) = (now_left, Instant::now());
        }
        anyhow::ensure!(seen.elapsed() < PATIENCE, "{left} jobs have not ended, and none did for {PATIENCE:?}");
    }
    Ok(())
}

/// Of this process, in which the worker runs, in MiB.
fn resident_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading the resident memory of this process")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let kib: f64 = resident.context("there is no VmRSS in /proc/self/status")?.trim().parse()?;
    Ok(kib / 1024.0)
}
