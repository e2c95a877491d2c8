//! The faces of the `leasehold` command, one file a subcommand.

pub mod parse;
pub mod run;
