//! `enqueue`: what it costs to enqueue, beside an insert into a plain table that checks nothing and wakes nobody.

use std::time::{Duration, Instant};

use super::measure::{self, BULK, MODULE, QUEUE, SINGLE_CLIENTS, medians};
use super::report::{Report, Target};
use crate::store::Store;

/// Ours and the plain table take turns, so that a machine that is busy for a while is so for both.
const ROUNDS: u32 = 5;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many seconds each of the four measurements lasts in all
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

pub async fn run(args: &super::Args, own: &Args, store: &Store) -> anyhow::Result<Report> {
    anyhow::ensure!((0.01..=3600.0).contains(&own.seconds), "--seconds {} is not 0.01 to 3600", own.seconds);
    let time = Duration::from_secs_f64(own.seconds) / ROUNDS;
    let (tenants, payload) = (measure::tenants(args), measure::payload(args));
    measure::upload(store, &args.module_or("noop"), &tenants).await?;
    let (tenant, text) = (tenants[0].as_str(), payload.to_string());
    store.fill_bare(0, &text).await?;
    let payloads = vec![payload.clone(); BULK];

    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let bulk = async || store.enqueue_many(tenant, MODULE, QUEUE, &payloads).await.map(drop);
        let bulk = bulk_rate(time, bulk).await?;
        let bare_bulk = bulk_rate(time, async || store.insert_bare(&payloads).await).await?;
        let single = measure::enqueue_single(store, time, tenant, &payload).await?;
        let (bare, one) = (store.clone(), vec![payload.clone()]);
        let bare_single = measure::per_second(SINGLE_CLIENTS, time, move || {
            let (bare, one) = (bare.clone(), one.clone());
            async move { bare.insert_bare(&one).await }
        });
        let bare_single = bare_single.await?;
        rounds.push([bulk, bare_bulk, single, bare_single, bulk / bare_bulk, single / bare_single]);
    }
    let [bulk, bare_bulk, single, bare_single, bulk_ratio, single_ratio] = medians(&rounds);

    let mut report = Report::default();
    report.figure("bulk_per_second", "enqueue_many, 1000 a statement, one client", bulk, "jobs/s");
    report.figure("bare_bulk_per_second", "bare insert, 1000 a statement, one client", bare_bulk, "rows/s");
    report.ratio("bulk_ratio", "enqueue_many / bare insert", bulk_ratio, Target::AtLeast(0.3));
    report.figure("single_per_second", "enqueue, one a transaction, eight clients", single, "jobs/s");
    report.figure("bare_single_per_second", "bare insert, one a transaction, eight clients", bare_single, "rows/s");
    report.ratio("single_ratio", "enqueue / bare insert", single_ratio, Target::AtLeast(0.5));
    Ok(report)
}

/// Rows a second of a statement that puts in 1,000.
async fn bulk_rate(time: Duration, statement: impl AsyncFn() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let (started, mut rows) = (Instant::now(), 0);
    while started.elapsed() < time {
        statement().await?;
        rows += BULK;
    }
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}
