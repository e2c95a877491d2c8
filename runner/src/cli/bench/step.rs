//! One part of the plain run by itself, a line of JSON for each: for scripts that put several queues into one table, each driven
//! the same way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use serde_json::{Value, json};

use super::measure::{self, MODULE, QUEUE, SINGLE_CLIENTS};
use super::worker::Running;
use super::{Args, CONNECTIONS};
use crate::store::Store;

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Step {
    /// Migrate the database and upload the module
    Setup,
    /// Enqueue --jobs, 1,000 a statement, by one client
    Bulk,
    /// Enqueue --jobs, one a transaction, by eight clients
    Single,
    /// Run the --jobs that wait, from the start of the worker to the last settlement
    Drain,
    /// Enqueue --latency-jobs into an idle queue, 20 a second: from before the enqueue to the claim
    Latency,
}

#[derive(Debug, clap::Args)]
pub struct Own {
    step: Step,
}

pub async fn run(args: &Args, own: &Own) -> anyhow::Result<()> {
    let store = Store::new(args.database()?, CONNECTIONS)?;
    let (tenants, payload, jobs) = (measure::tenants(args), measure::payload(args), args.jobs_or(100_000));
    let line = match own.step {
        Step::Setup => {
            store.migrate(false).await?;
            measure::upload(&store, &args.module_or("noop"), &tenants).await?;
            return Ok(());
        }
        Step::Bulk => {
            let rate = measure::enqueue_bulk(&store, jobs as usize, &tenants, &payload).await?;
            json!({ "mode": "bulk", "rate": rate })
        }
        Step::Single => json!({ "mode": "single", "rate": single(&store, jobs, &tenants[0], &payload).await? }),
        Step::Drain => {
            let started = Instant::now();
            let worker = Running::start(&store, args.slots);
            worker.until_settled(u64::from(jobs)).await?;
            let seconds = started.elapsed().as_secs_f64();
            worker.stop().await?;
            json!({ "mode": "drain", "jobs": jobs, "rate": f64::from(jobs) / seconds })
        }
        Step::Latency => {
            let worker = Running::start(&store, args.slots);
            worker.until_idle(&store).await?;
            let times = measure::pickup_from_outside(&store, &tenants[0], &payload, args.latency_jobs).await?;
            worker.stop().await?;
            json!({ "mode": "latency", "n": args.latency_jobs, "median": times.p50_ms, "p99": times.p99_ms })
        }
    };
    println!("{line}");
    Ok(())
}

/// Jobs a second.
async fn single(store: &Store, jobs: u32, tenant: &str, payload: &Value) -> anyhow::Result<f64> {
    let next = Arc::new(AtomicU32::new(0));
    let started = Instant::now();
    let (store, tenant, payload) = (store.clone(), tenant.to_owned(), payload.clone());
    let goes_on = move || next.fetch_add(1, Relaxed) < jobs;
    measure::by_clients(SINGLE_CLIENTS, goes_on, move || {
        let (store, tenant, payload) = (store.clone(), tenant.clone(), payload.clone());
        async move { store.enqueue_plain(&tenant, MODULE, QUEUE, &payload).await }
    })
    .await?;
    Ok(f64::from(jobs) / started.elapsed().as_secs_f64())
}
