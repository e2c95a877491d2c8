//! What a module may have besides computing, as `module push` and `run` are told it.

use super::parse;
use crate::grants::Grants;

/// The flags. Without them a module gets next to nothing.
#[derive(Debug, Clone, clap::Args)]
pub struct GrantArgs {
    /// How large a checkpoint a job may keep for its next attempt; 0 for none
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "64KiB")]
    checkpoint: u64,
}

impl GrantArgs {
    pub fn grants(&self) -> anyhow::Result<Grants> {
        let grants = Grants { checkpoint_bytes: self.checkpoint };
        grants.validate()?;
        Ok(grants)
    }
}
