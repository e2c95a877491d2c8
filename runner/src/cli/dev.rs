//! `leasehold dev`: everything a job's author needs, in one process: a database that stays, a worker, and the jobs of a
//! folder, built and uploaded whenever they change.

mod build;
mod jobs_folder;
mod toolchain;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::watch;

use super::worker::{self, Options};
use crate::cluster::{self, Cluster};
use crate::store::{Database, Store};
use crate::worker::Stage;
use jobs_folder::JobsFolder;

/// Where jobs are looked for when nobody says.
const JOBS: &str = "jobs";

/// Run a private PostgreSQL and a worker here, and upload the jobs of a folder as they change.
///
/// The database lies in .leasehold in the current folder and is there again next time, at the same URL. Every crate in the
/// jobs folder is built for wasm and uploaded under its name, and every .wasm file under its own; a crate that does not
/// build leaves the version before it active. Ctrl-C stops it all.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Use this database instead of a private one
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The database of the private server to use; made when it is not there
    #[arg(long, value_name = "NAME", default_value = "leasehold")]
    database: String,
    /// The folder with the jobs. Default: jobs, where there is one
    #[arg(long, value_name = "DIR")]
    jobs: Option<PathBuf>,
    #[command(flatten)]
    pub options: Options,
}

/// A private server.
#[derive(Debug, Clone, clap::Args)]
pub struct ClusterArgs {
    /// The folder of the private server
    #[arg(long, value_name = "DIR", default_value = ".leasehold")]
    pub dir: PathBuf,
    /// The port of the private server. Default: the one of last time, or at first a random free one
    #[arg(long)]
    port: Option<u16>,
    /// The folder with PostgreSQL's programs (postgres, initdb). Default: where they usually are
    #[arg(long, value_name = "DIR", env = "PG_BIN")]
    pg_bin: Option<PathBuf>,
}

impl ClusterArgs {
    /// Whether a URL is the one that this folder's own server told the user to set.
    fn wrote(&self, url: &str) -> bool {
        std::fs::read_to_string(self.dir.join("env")).is_ok_and(|env| env.contains(url))
    }

    /// A server that ends with this process, however that ends.
    pub async fn start(&self) -> anyhow::Result<Cluster> {
        let options = cluster::Options {
            binaries: self.pg_bin.clone(),
            port: self.port,
            ends_with_thread: true,
            ..cluster::Options::default()
        };
        Cluster::start(&self.dir, &options).await
    }
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let stage = worker::stage_by_signals()?;
    let jobs = jobs_folder(args.jobs.as_deref())?;
    if let Some(url) = args.database_url.as_ref().filter(|url| !args.cluster.wrote(url)) {
        println!("Using the database of DATABASE_URL; no server is started.");
        return serve(&args.options, url, None, jobs, stage).await;
    }
    let mut cluster = args.cluster.start().await?;
    cluster.create_database(&args.database).await?;
    let url = cluster.url(&args.database);
    let env = cluster.write_env(&args.database)?;
    let served = tokio::select! {
        served = serve(&args.options, &url, Some(&env), jobs, stage) => served,
        error = cluster.ended() => {
            // The worker would go on trying to reach it. For its jobs this is a crash: the next worker reaps them.
            eprintln!("error: {error:#}");
            std::process::exit(super::FAILURE.into());
        }
    };
    cluster.stop().await.context("stopping PostgreSQL")?;
    served
}

fn jobs_folder(given: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let folder = given.unwrap_or(JOBS.as_ref());
    match folder.canonicalize() {
        Ok(folder) if folder.is_dir() => Ok(Some(folder)),
        Ok(folder) => anyhow::bail!("{} is no folder; --jobs takes the one that holds the crates", folder.display()),
        Err(_) if given.is_none() => Ok(None),
        Err(error) => Err(error).with_context(|| format!("opening the jobs folder {}", folder.display())),
    }
}

/// Until somebody asks to stop and the worker has drained.
async fn serve(
    options: &Options,
    url: &str,
    env: Option<&Path>,
    jobs: Option<PathBuf>,
    stage: watch::Receiver<Stage>,
) -> anyhow::Result<()> {
    let store = Store::new(Database::parse(url)?, worker::CONNECTIONS)?;
    for migration in store.migrate(false).await? {
        tracing::info!("applied {}", migration.name);
    }
    announce(url, env, jobs.as_deref());
    let worked = worker::run_with(options, store.clone(), stage.clone(), Arc::default());
    let Some(folder) = jobs else { return worked.await };
    let kept = JobsFolder::new(folder, store, options.max_memory, options.compiler.compiler()?, stage)?.keep_uploaded();
    tokio::select! {
        worked = worked => worked,
        never = kept => match never {},
    }
}

fn announce(url: &str, env: Option<&Path>, jobs: Option<&Path>) {
    if let Some(env) = env {
        println!("\nDATABASE_URL={url}\n");
        println!("In another terminal, put a job into the queue and look at it:\n");
        println!("  . {}", env.display());
        println!("  psql");
    } else {
        println!("\nPut a job into the queue and look at it, in psql:\n");
    }
    println!("  select leasehold.enqueue('MODULE', '{{\"some\": \"payload\"}}');");
    println!("  select id, module, state, result, error from leasehold.jobs order by id desc limit 10;\n");
    match jobs {
        Some(folder) => println!("Jobs in {} are built and uploaded as they change. Ctrl-C stops.\n", folder.display()),
        None => {
            println!("There is no folder {JOBS} here; --jobs DIR names one to build and upload from. Ctrl-C stops.\n")
        }
    }
}
