use std::process::ExitCode;

use clap::Parser;

/// Background jobs in PostgreSQL whose code you do not have to trust.
#[derive(Parser)]
#[command(name = "leasehold", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(leasehold::cli::run::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match Cli::parse().command {
        Command::Run(args) => leasehold::cli::run::run(args).await,
    }
}
