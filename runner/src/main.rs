//! The `leasehold` command: flags and environment in, exit code out. Nothing below this file reads the environment.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use leasehold::cli::{
    self, bench, compile, demo, dev, enqueue, job, limit, migrate, module, new, replay, run, schedule, stats, tenant,
    test, usage, worker,
};
use tracing_subscriber::EnvFilter;

/// Background jobs in PostgreSQL whose code you do not have to trust.
///
/// Upload a WebAssembly module, enqueue jobs of it with one SQL function in your own transaction, and run them on workers
/// under limits of instructions, time and memory.
#[derive(Parser)]
#[command(name = "leasehold", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Dev(dev::Args),
    Migrate(migrate::Args),
    Worker(worker::Args),
    Tenant(tenant::Args),
    Module(module::Args),
    Enqueue(enqueue::Args),
    Job(job::Args),
    Limit(limit::Args),
    Pause(limit::PauseArgs),
    Resume(limit::ResumeArgs),
    Schedule(schedule::Args),
    Stats(stats::Args),
    Usage(usage::Args),
    Bench(bench::Args),
    Demo(demo::Args),
    New(new::Args),
    Replay(replay::Args),
    Run(run::Args),
    Test(test::Args),
    Compile(compile::Args),
}

fn main() -> ExitCode {
    leave_backtraces_to_panics();
    let cli = Cli::parse();
    if let Command::Compile(args) = &cli.command {
        return ended(compile::run(args));
    }
    let long_running = matches!(cli.command, Command::Worker(_) | Command::Dev(_));
    let default = if long_running { "info" } else { "warn" };
    let filter = EnvFilter::try_from_env("LEASEHOLD_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    if std::env::var_os("LEASEHOLD_LOG_JSON").is_some() {
        log.json().init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).init();
    }
    // Two threads: leases, claims and settlements must go on whatever guests do, and guests have a runtime of their own.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("leasehold").enable_all().build();
    let done = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(dispatch(cli.command)));
    ended(done)
}

/// With RUST_BACKTRACE set, each failure of a guest would cost a native backtrace, which tells nothing of the guest and takes
/// longer than most runs. Panics, which are ours, keep theirs.
fn leave_backtraces_to_panics() {
    if std::env::var_os("RUST_LIB_BACKTRACE").is_none() {
        // SAFETY: this is the first thing that the only thread does.
        unsafe { std::env::set_var("RUST_LIB_BACKTRACE", "0") };
    }
}

fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(cli::FAILURE)
    })
}

async fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Dev(args) => dev::run(args).await?,
        Command::Migrate(args) => migrate::run(args).await?,
        Command::Worker(args) => worker::run(args).await?,
        Command::Tenant(args) => tenant::run(args).await?,
        Command::Module(args) => module::run(args).await?,
        Command::Enqueue(args) => enqueue::run(args).await?,
        Command::Job(args) => job::run(args).await?,
        Command::Limit(args) => limit::run(args).await?,
        Command::Pause(args) => limit::pause(args).await?,
        Command::Resume(args) => limit::resume(args).await?,
        Command::Schedule(args) => schedule::run(args).await?,
        Command::Stats(args) => stats::run(args).await?,
        Command::Usage(args) => usage::run(args).await?,
        Command::Bench(args) => bench::run(args).await?,
        Command::Demo(args) => return demo::run(args).await,
        Command::New(args) => return new::run(args),
        Command::Replay(args) => return replay::run(args).await,
        Command::Run(args) => return run::run(args).await,
        Command::Test(args) => return test::run(args).await,
        Command::Compile(args) => return compile::run(&args),
    }
    Ok(ExitCode::SUCCESS)
}
