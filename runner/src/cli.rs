//! The faces of the `leasehold` command, one file a subcommand. Each prints text for people, or with `--json` one JSON value
//! on standard output; errors go to standard error.

pub mod bench;
pub mod compile;
pub mod demo;
pub mod dev;
pub mod enqueue;
pub mod job;
pub mod limit;
pub mod migrate;
pub mod module;
pub mod new;
pub mod parse;
mod print;
pub mod replay;
pub mod run;
pub mod schedule;
pub mod stats;
pub mod tenant;
pub mod test;
pub mod usage;
pub mod worker;

use std::time::Duration;

use crate::job::{InvalidLimit, Limits};
use crate::retry::RetrySettings;
use crate::store::{Database, Store};

/// Exit code for a command that was understood but could not be done.
pub const FAILURE: u8 = 1;
/// Exit code for a command that was wrong in itself; clap uses it too.
pub const BAD_USE: u8 = 2;

/// Where the database is.
#[derive(Debug, Clone, clap::Args)]
pub struct DatabaseArgs {
    /// postgres://user:password@host:5432/name; sslmode=require asks for TLS
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
}

/// What a run may use.
#[derive(Debug, Clone, clap::Args)]
struct LimitArgs {
    /// Instructions a run may execute
    #[arg(long, default_value_t = Limits::DEFAULT_FUEL)]
    fuel: u64,
    /// Memory a run may hold
    #[arg(long, value_parser = parse::bytes, default_value = "64MiB")]
    memory: u64,
    /// Wall-clock time a run may take
    #[arg(long, value_parser = parse::duration, default_value = "30s")]
    timeout: Duration,
    /// How large a result may be
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "1MiB")]
    result_limit: u64,
    /// How much of a run's log is kept
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "16KiB")]
    log_limit: u64,
    /// How many follow-up jobs of the same tenant a run may put in
    #[arg(long, value_name = "N", default_value_t = 0)]
    follow_ups: u32,
}

impl LimitArgs {
    fn limits(&self) -> Result<Limits, InvalidLimit> {
        let limits = Limits {
            fuel: self.fuel,
            memory_bytes: self.memory,
            timeout: self.timeout,
            result_bytes: self.result_limit,
            log_bytes: self.log_limit,
            follow_ups: self.follow_ups,
        };
        limits.validate()?;
        Ok(limits)
    }
}

/// How a job, or all jobs of a module, are tried again.
#[derive(Debug, Clone, clap::Args)]
struct RetryArgs {
    /// How many runs may fail before a job is dead [default: the module's, or 5]
    #[arg(long, value_name = "N")]
    max_attempts: Option<i32>,
    /// How long to wait after the first failure [default: the module's, or 5s]
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    backoff: Option<Duration>,
    /// How many times longer after each further one [default: the module's, or 2]
    #[arg(long, value_name = "FACTOR")]
    backoff_factor: Option<f64>,
    /// The longest wait [default: the module's, or 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    backoff_cap: Option<Duration>,
    /// The share of a wait, 0 to 1, that chance adds or takes away [default: the module's, or 0.2]
    #[arg(long, value_name = "SHARE")]
    backoff_jitter: Option<f64>,
}

impl RetryArgs {
    fn settings(&self) -> RetrySettings {
        RetrySettings {
            base: self.backoff,
            factor: self.backoff_factor,
            cap: self.backoff_cap,
            jitter: self.backoff_jitter,
            max_attempts: self.max_attempts,
        }
    }
}

/// What each command takes that asks the database something and prints the answer.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Common {
    /// For a command that sends a few statements.
    fn store(&self) -> anyhow::Result<Store> {
        Store::new(Database::parse(&self.database.database_url)?, 2)
    }
}
