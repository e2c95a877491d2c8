//! The faces of the `leasehold` command, one file a subcommand. Each prints text for people, or with `--json` one JSON value
//! on standard output; errors go to standard error.

pub mod bench;
pub mod compile;
pub mod demo;
pub mod dev;
pub mod enqueue;
pub mod job;
pub mod migrate;
pub mod module;
pub mod parse;
mod print;
pub mod run;
pub mod stats;
pub mod tenant;
pub mod worker;

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

impl DatabaseArgs {
    /// For a command that sends a few statements.
    fn store(&self) -> anyhow::Result<Store> {
        Store::new(Database::parse(&self.database_url)?, 2)
    }
}
