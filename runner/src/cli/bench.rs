//! `leasehold bench`: what this machine and this database do, measured with real jobs through a real worker. Machines are
//! noisy, so what is worth quoting is a ratio of one run: ours beside the plainest thing that could do the same, or a database
//! with a past beside an empty one.

mod article;
mod claims;
mod drain;
mod enqueue;
mod fair;
mod history;
mod hostile;
mod idle;
mod measure;
mod report;
mod scratch;
mod snapshot;
mod step;
mod worker;

use std::path::PathBuf;

use super::print;
use crate::store::{Database, Store};
use report::Report;

/// How many connections a bench needs: a worker's, and clients that enqueue meanwhile.
const CONNECTIONS: usize = 20;

/// Measure enqueue rate, drain rate and pickup latency with real jobs on this database.
///
/// Without a subcommand, and with `step`, it uses the database itself: the queue "bench" and tenants "bench-1", "bench-2", ..., and leaves
/// its jobs in history. With another one, or with --no-run, it makes a database of its own on that server (leasehold_bench_...), drops it
/// at the end, and touches nothing else; the role must be allowed to create databases. The worker runs in this process.
///
/// Quote ratios of one run, not single figures: machines are noisy.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// postgres://user:password@host:5432/name; sslmode=require asks for TLS
    #[arg(long, global = true, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// How many jobs are drained. Default: 100000; of snapshot 200000
    #[arg(long, global = true, value_parser = clap::value_parser!(u32).range(100..))]
    jobs: Option<u32>,
    /// How many jobs run at once; article has always 8
    #[arg(long, global = true, default_value_t = 64)]
    slots: usize,
    /// Over how many tenants the jobs are spread
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tenants: u32,
    /// How many bytes of text each payload carries
    #[arg(long, global = true, default_value_t = 16)]
    payload_bytes: usize,
    /// How many jobs measure the pickup latency, 20 a second
    #[arg(long, global = true, default_value_t = 200)]
    latency_jobs: usize,
    /// The module to run, made by scripts/build-jobs. Default: jobs/target/modules/noop.wasm; of article pause.wasm, of fair spin.wasm
    #[arg(long, global = true, value_name = "FILE.wasm")]
    module: Option<PathBuf>,
    /// Do not wait for the disk at commits (synchronous_commit = off), to compare with other queues' figures
    #[arg(long, global = true)]
    no_sync: bool,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Only claim and settle, 500 at a time, without running anything, beside a plain table that does the same
    #[arg(long)]
    no_run: bool,
    #[command(subcommand)]
    bench: Option<Bench>,
}

#[derive(Debug, clap::Subcommand)]
enum Bench {
    /// Drain while somebody holds an old snapshot: the end against the start, and the pickup against a fresh database's
    Snapshot,
    /// Drain with a long history and many future jobs, against an empty database
    History(history::Args),
    /// Enqueue by the statement and one by one, against bare inserts
    Enqueue(enqueue::Args),
    /// What tenants get that want more together than there is: by weight, by what jobs cost, how soon, how fast
    Fair(fair::Args),
    /// What an idle worker asks the database, and how soon it starts a job
    Idle(idle::Args),
    /// Thousands of runs that go wrong: what they leave in memory, and how soon good jobs beside them start
    Hostile(hostile::Args),
    /// The article's five lines: leases and locks, with and without SKIP LOCKED, a dead worker; and this queue beside them
    Article,
    /// One part of the plain run by itself, as a line of JSON, on the database itself: for scripts that compare queues
    Step(step::Own),
}

impl Args {
    fn database(&self) -> anyhow::Result<Database> {
        let Some(url) = &self.database_url else {
            anyhow::bail!("no database is named; set DATABASE_URL or give --database-url");
        };
        let mut database = Database::parse(url)?;
        if self.no_sync {
            database.set_option("synchronous_commit", "off");
        }
        Ok(database)
    }

    fn jobs_or(&self, default: u32) -> u32 {
        self.jobs.unwrap_or(default)
    }

    /// The module of that name among those that come with Leasehold, unless another was named.
    fn module_or(&self, name: &str) -> PathBuf {
        self.module.clone().unwrap_or_else(|| format!("jobs/target/modules/{name}.wasm").into())
    }
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let Some(bench) = &args.bench else {
        if args.no_run {
            return in_scratch(&args, async |store| claims::run(&args, store).await).await;
        }
        return drain::run(&args).await;
    };
    anyhow::ensure!(!args.no_run, "--no-run is a bench by itself; it takes no subcommand");
    match bench {
        Bench::Snapshot => in_scratch(&args, async |store| snapshot::run(&args, store).await).await,
        Bench::History(own) => in_scratch(&args, async |store| history::run(&args, own, store).await).await,
        Bench::Enqueue(own) => in_scratch(&args, async |store| enqueue::run(&args, own, store).await).await,
        Bench::Fair(own) => fair::run(&args, own).await,
        Bench::Idle(own) => in_scratch(&args, async |store| idle::run(&args, own, store).await).await,
        Bench::Hostile(own) => in_scratch(&args, async |store| hostile::run(&args, own, store).await).await,
        Bench::Article => in_scratch(&args, async |store| article::run(&args, store).await).await,
        Bench::Step(own) => step::run(&args, own).await,
    }
}

async fn in_scratch(args: &Args, bench: impl AsyncFnOnce(&Store) -> anyhow::Result<Report>) -> anyhow::Result<()> {
    let report = scratch::within(args.database()?, bench).await?;
    report.print(args.no_sync, args.json)
}
