//! `--no-run`: what claiming and settling cost by themselves, beside a plain table that hands out and finishes as many.

use std::time::Instant;

use anyhow::Context as _;
use tokio::task::JoinSet;

use super::Args;
use super::measure::{self, MODULE, QUEUE, medians};
use super::report::{Report, Target};
use crate::grants::Grants;
use crate::job::{Limits, ModuleKind};
use crate::settlement::{Settled, Settlement};
use crate::store::{BareEnd, Batch, Bounds, ClaimedJob, NewVersion, Report as RunReport, Store};
use crate::worker::WorkerConfig;

/// How many jobs one claim takes and one statement settles.
const BATCH: usize = 500;
/// How many claim and settle at once.
const CLIENTS: usize = 2;
/// All take turns, so that a machine that is busy for a while is so for each of them.
const ROUNDS: u32 = 5;

pub async fn run(args: &Args, store: &Store) -> anyhow::Result<Report> {
    let jobs = args.jobs_or(100_000);
    let (tenants, payload) = (measure::tenants(args), measure::payload(args));
    for tenant in &tenants {
        store.create_tenant(tenant).await?;
        let (kind, limits) = (ModuleKind::Command, Limits::default());
        // Nobody runs it.
        let bytes = b"\0asm\x01\0\0\0";
        let new = NewVersion {
            tenant,
            name: MODULE,
            kind,
            bytes,
            limits,
            grants: Grants::usual(),
            on_failure: &[],
            imports: &[],
            activate: true,
            retry: Default::default(),
        };
        store.push_module(&new).await?;
    }
    let text = payload.to_string();
    let per_round = jobs / ROUNDS;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let first = store.newest_job().await?;
        measure::enqueue_bulk(store, per_round as usize, &tenants, &payload).await?;
        store.tidy().await?;
        let ours = drain(per_round, || ours(store.clone())).await?;
        let (lost, settled_twice) = store.bench_account(first, first + i64::from(per_round)).await?;
        anyhow::ensure!(lost == 0 && settled_twice == 0, "{lost} jobs were lost and {settled_twice} settled twice");
        store.fill_bare(per_round, &text).await?;
        let done = drain(per_round, || bare(store.clone(), BareEnd::Done)).await?;
        store.fill_bare(per_round, &text).await?;
        let deleted = drain(per_round, || bare(store.clone(), BareEnd::Deleted)).await?;
        rounds.push([ours, done, deleted, ours / done, ours / deleted]);
    }
    let [ours, done, deleted, to_done, to_deleted] = medians(&rounds);

    let mut report = Report::default();
    let text = format!("{ROUNDS} rounds of {per_round} jobs, {BATCH} at a time, {CLIENTS} clients; medians");
    report.fact("jobs", text, (per_round * ROUNDS).into());
    report.figure("claim_and_settle_per_second", "claim and settle: fenced, with history", ours, "jobs/s");
    report.figure("bare_done_per_second", "a plain table: claim and mark as done", done, "jobs/s");
    report.figure("bare_deleted_per_second", "a plain table: claim and delete", deleted, "jobs/s");
    report.ratio("ratio_to_bare_done", "claim and settle / claim and mark as done", to_done, Target::AtLeast(0.6));
    report.ratio("ratio_to_bare_deleted", "claim and settle / claim and delete", to_deleted, Target::AtLeast(0.6));
    Ok(report)
}

/// Jobs a second by some clients at once, of which each answers how many it had.
async fn drain<F>(jobs: u32, client: impl Fn() -> F) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<usize>> + Send + 'static,
{
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(client());
    }
    let mut had = 0;
    while let Some(count) = clients.join_next().await {
        had += count??;
    }
    let rate = f64::from(jobs) / started.elapsed().as_secs_f64();
    anyhow::ensure!(had == jobs as usize, "{had} of {jobs} jobs were handed out");
    Ok(rate)
}

/// As a worker does: with bounds, a lease a batch, and a heartbeat that forgets the leases.
async fn ours(store: Store) -> anyhow::Result<usize> {
    let (lease, queues) = (WorkerConfig::default().lease, [QUEUE.to_owned()]);
    let worker = store.register_worker(&queues, BATCH).await?;
    let (bounds, mut closed, mut had) = (Bounds::default(), Vec::new(), 0);
    loop {
        let claimed = store.claim(worker, (&queues, false), BATCH, lease, &bounds, None).await?;
        let Some(claim_id) = claimed.claim_id else { break };
        had += claimed.jobs.len();
        for batch in Batch::sort(claimed.jobs.into_iter().map(done).collect()) {
            let settled = store.settle(worker, &batch).await?;
            anyhow::ensure!(settled.iter().all(|settled| *settled == Settled::Yes), "a lease of 30 s ran out");
        }
        closed.push(claim_id);
    }
    store.heartbeat(worker, &[], &closed, lease, &[]).await.context("closing the claims")?;
    Ok(had)
}

fn done(job: ClaimedJob) -> RunReport {
    RunReport::unrun(job.id, job.lease_no, Settlement::Complete { result: b"null".to_vec() })
}

async fn bare(store: Store, end: BareEnd) -> anyhow::Result<usize> {
    let mut had = 0;
    loop {
        let ids = store.claim_bare(BATCH).await?;
        if ids.is_empty() {
            return Ok(had);
        }
        had += ids.len();
        store.end_bare(end, &ids).await?;
    }
}
