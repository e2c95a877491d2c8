//! What a module may have besides computing, as `module push` and `run` are told it.

use super::parse;
use crate::grants::{Grants, HttpRule};

/// The flags. Without them a module gets next to nothing.
#[derive(Debug, Clone, clap::Args)]
pub struct GrantArgs {
    /// How large a checkpoint a job may keep for its next attempt; 0 for none
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "64KiB")]
    checkpoint: u64,
    /// A value that the module can look up, for everybody to see; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::pair)]
    config: Vec<(String, String)>,
    /// Where its HTTP requests may go: https://api.example.com, https://*.example.com or http://host:8080; may be given
    /// several times
    #[arg(long, value_name = "URL")]
    allow_http: Vec<HttpRule>,
    /// Let them go to private addresses too: this machine's own and its network's
    #[arg(long)]
    allow_http_private: bool,
}

impl GrantArgs {
    /// With the secrets of these names.
    pub fn grants(&self, secrets: impl IntoIterator<Item = String>) -> anyhow::Result<Grants> {
        let mut secrets: Vec<String> = secrets.into_iter().collect();
        secrets.sort();
        secrets.dedup();
        let config = self.config.iter().cloned().collect();
        let grants = Grants {
            checkpoint_bytes: self.checkpoint,
            config,
            secrets,
            http: self.allow_http.clone(),
            http_private: self.allow_http_private,
        };
        grants.validate()?;
        Ok(grants)
    }
}
