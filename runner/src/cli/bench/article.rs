//! `article`: the experiments by which an article on job queues in PostgreSQL is known, as its program does them, and the same
//! jobs through this queue beside them, each in a sandbox. A queue owes that every job is done, that only the one that fails
//! runs again, and that a dead worker's job comes back; the time is what that costs.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Args;
use super::measure::{self, MODULE, QUEUE};
use super::report::Report;
use super::worker::Running;
use crate::store::{Bounds, Store};

/// The article has eight workers; here they are slots.
const WORKERS: usize = 8;
/// Jobs that take a lease: how many, and how long each works.
const LEASED: (u32, Duration) = (1_000, Duration::from_millis(2));
/// Jobs whose row stays locked while they work.
const LOCKED: (u32, Duration) = (200, Duration::from_millis(10));
const LEASE: Duration = Duration::from_secs(5);
/// The lease of the worker that dies, and how long it is waited.
const SHORT_LEASE: Duration = Duration::from_millis(100);
const PAST_IT: Duration = Duration::from_millis(150);
/// This one fails at its first two attempts.
const FAILING: &str = "job 7";

/// What became of a thousand jobs.
struct Account {
    done: i64,
    rerun: i64,
    failed: i64,
    quit_early: i64,
    time: Duration,
}

impl Account {
    fn ms(&self) -> f64 {
        self.time.as_secs_f64() * 1000.0
    }

    fn add_to(&self, report: &mut Report, key: &str, what: &str) {
        let Self { done, rerun, failed, quit_early, .. } = self;
        let text = format!(
            "{what:<44} {:>6.0} ms   done {done}, run more than once {rerun} (failed {failed} times), \
             workers that quit with jobs left {quit_early}",
            self.ms()
        );
        let value = json!({ "ms": self.ms().round(), "done": done, "run_more_than_once": rerun, "failures": failed,
                            "quit_with_jobs_left": quit_early });
        report.fact(key, text, value);
    }
}

pub async fn run(args: &Args, store: &Store) -> anyhow::Result<Report> {
    let tenants = measure::tenants(args);
    let mut report = Report::default();
    leases(store, true).await?.add_to(&mut report, "lease_skip_locked", "lease, skip locked");
    leases(store, false).await?.add_to(&mut report, "lease", "lease, no skip locked");
    locks(store, true).await?.add_to(&mut report, "lock_skip_locked", "lock while working, skip locked");
    locks(store, false).await?.add_to(&mut report, "lock", "lock while working, no skip locked");
    let dead = dead_worker(store).await?;
    report.fact("dead_worker", said("a worker claimed a job and died", &dead), dead);

    measure::upload(store, &args.module_or("pause"), &tenants).await?;
    let worker = Running::start(store, WORKERS);
    let tenant = &tenants[0];
    // So that compiling it is in no figure.
    ours(store, &worker, tenant, (64, Duration::from_millis(1)), false).await?;
    let leased = ours(store, &worker, tenant, LEASED, true).await?;
    let working = ours(store, &worker, tenant, LOCKED, false).await?;
    worker.stop().await?;
    leased.add_to(&mut report, "leasehold_1000", "Leasehold, the jobs of the first two lines");
    working.add_to(&mut report, "leasehold_200", "Leasehold, the jobs of the next two");
    let dead = our_dead_worker(store, tenant).await?;
    report.fact("leasehold_dead_worker", said("Leasehold: a worker claimed a job and died", &dead), dead);
    Ok(report)
}

/// Claims with a lease, works, ends; a worker that finds nothing goes home.
async fn leases(store: &Store, skip_locked: bool) -> anyhow::Result<Account> {
    store.article_setup(LEASED.0).await?;
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let store = store.clone();
        workers.spawn(async move {
            let (mut reruns, mut failed) = (0, 0);
            while let Some(job) = store.article_claim(LEASE, skip_locked).await? {
                tokio::time::sleep(LEASED.1).await;
                reruns += i64::from(job.attempt == 2);
                if job.payload == FAILING && job.attempt < 3 {
                    failed += 1;
                    store.article_fail(&job).await?;
                } else {
                    store.article_done(job.id).await?;
                }
            }
            let early = i64::from(store.article_count("queued").await? > 10);
            anyhow::Ok((reruns, failed, early))
        });
    }
    let (mut rerun, mut failed, mut quit_early) = (0, 0, 0);
    while let Some(worker) = workers.join_next().await {
        let (reruns, fails, early) = worker??;
        (rerun, failed, quit_early) = (rerun + reruns, failed + fails, quit_early + early);
    }
    // Whoever was put back is ready again after its delay.
    tokio::time::sleep(Duration::from_millis(80)).await;
    while let Some(job) = store.article_claim(LEASE, skip_locked).await? {
        rerun += i64::from(job.attempt == 2);
        store.article_done(job.id).await?;
    }
    let time = started.elapsed();
    Ok(Account { done: store.article_count("done").await?, rerun, failed, quit_early, time })
}

/// Works while the row is locked.
async fn locks(store: &Store, skip_locked: bool) -> anyhow::Result<Account> {
    store.article_setup(LOCKED.0).await?;
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let store = store.clone();
        workers.spawn(async move {
            while store.article_hold(LOCKED.1, skip_locked).await? {}
            anyhow::Ok(i64::from(store.article_count("queued").await? > 0))
        });
    }
    let mut quit_early = 0;
    while let Some(early) = workers.join_next().await {
        quit_early += early??;
    }
    let time = started.elapsed();
    Ok(Account { done: store.article_count("done").await?, rerun: 0, failed: 0, quit_early, time })
}

/// A worker that claims a job and dies: its lease ends and the reaper gives the job back.
async fn dead_worker(store: &Store) -> anyhow::Result<Value> {
    store.article_setup(3).await?;
    let job = store.article_claim(SHORT_LEASE, true).await?.context("there are three jobs")?;
    let (queued, running) = (store.article_count("queued").await?, store.article_count("running").await?);
    let at_once = store.article_reap().await?;
    tokio::time::sleep(PAST_IT).await;
    let later = store.article_reap().await?;
    let next = store.article_claim(LEASE, true).await?.context("there are three jobs")?;
    anyhow::ensure!(next.id == job.id, "the next claim got job {} and not {}", next.id, job.id);
    Ok(dead_worker_json(queued, running, at_once, later, next.attempt))
}

fn dead_worker_json(queued: i64, running: i64, at_once: usize, later: usize, attempt: i32) -> Value {
    json!({ "queued": queued, "running": running, "reaped_at_once": at_once, "reaped_after_the_lease": later,
            "next_attempt": attempt })
}

fn said(what: &str, dead: &Value) -> String {
    format!(
        "{what}: queued {}, running {}; reaped at once {}, after the lease {}; its next claim is attempt {}",
        dead["queued"], dead["running"], dead["reaped_at_once"], dead["reaped_after_the_lease"], dead["next_attempt"]
    )
}

/// The same jobs here. Enqueuing them is in the time.
async fn ours(
    store: &Store,
    worker: &Running,
    tenant: &str,
    (jobs, work): (u32, Duration),
    one_fails: bool,
) -> anyhow::Result<Account> {
    let ms = work.as_millis() as u64;
    let mut payloads = vec![json!({ "ms": ms }); jobs as usize];
    if one_fails {
        payloads[6] = json!({ "ms": ms, "fails": 2, "after_ms": 50 });
    }
    let (first, settled) = (store.newest_job().await?, worker.counters.settled.load(Relaxed));
    let started = Instant::now();
    store.enqueue_many(tenant, MODULE, QUEUE, &payloads).await?;
    worker.until_settled(settled + u64::from(jobs) + if one_fails { 2 } else { 0 }).await?;
    let time = started.elapsed();
    let (done, rerun, failed) = store.bench_reruns(first).await?;
    let owed = (i64::from(jobs), i64::from(one_fails), if one_fails { 2 } else { 0 });
    anyhow::ensure!((done, rerun, failed) == owed, "done {done}, run more than once {rerun}, failed {failed} times");
    Ok(Account { done, rerun, failed, quit_early: 0, time })
}

async fn our_dead_worker(store: &Store, tenant: &str) -> anyhow::Result<Value> {
    store.enqueue_many(tenant, MODULE, QUEUE, &[json!({}), json!({}), json!({})]).await?;
    let queues = [QUEUE.to_owned()];
    let worker = store.register_worker(&queues, 1).await?;
    let claim =
        async |limit, lease| store.claim(worker, (&queues, false), limit, lease, &Bounds::default(), None).await;
    let dead = claim(1, SHORT_LEASE).await?.jobs.pop().context("there are three jobs")?;
    let waiting = store.bench_waiting(QUEUE).await? - 1;
    let at_once = store.reap().await?.len();
    tokio::time::sleep(PAST_IT).await;
    let later = store.reap().await?.len();
    let next = claim(3, LEASE).await?.jobs.into_iter().find(|job| job.id == dead.id).context("the job is back")?;
    Ok(dead_worker_json(waiting, 1, at_once, later, next.attempt))
}
