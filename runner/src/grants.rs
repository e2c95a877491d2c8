//! What a module is granted at upload besides its limits: nothing but a small checkpoint, unless somebody says so.

mod http;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use anyhow::ensure;
use serde::{Deserialize, Serialize};

pub use http::HttpRule;

/// A version's grants, as the database keeps them. What this binary does not know of it does not give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grants {
    /// How large a checkpoint may be; 0 for none.
    pub checkpoint_bytes: u64,
    /// What it may look up, for everybody to see.
    pub config: BTreeMap<String, String>,
    /// The tenant's secrets that it may ask for, by name.
    pub secrets: Vec<String>,
    /// Where its HTTP requests may go.
    pub http: Vec<HttpRule>,
    /// Whether they may go to private addresses: this machine and its network.
    pub http_private: bool,
}

impl Grants {
    /// Enough for a position in a file and what was counted up to there.
    pub const DEFAULT_CHECKPOINT_BYTES: u64 = 64 << 10;
    /// It is written up to once a second while the job runs.
    pub const MAX_CHECKPOINT_BYTES: u64 = 4 << 20;

    /// All keys and values together, in bytes: each worker that runs the module holds them.
    pub const MAX_CONFIG_BYTES: usize = 64 << 10;
    /// Each is looked up and opened before a run.
    pub const MAX_SECRETS: usize = 32;

    /// More are a sign that a wildcard is meant.
    pub const MAX_HTTP_RULES: usize = 100;

    /// What a module has that nobody granted anything.
    pub fn usual() -> &'static Arc<Self> {
        static USUAL: LazyLock<Arc<Grants>> = LazyLock::new(Arc::default);
        &USUAL
    }

    /// The one place that judges.
    pub fn validate(&self) -> anyhow::Result<()> {
        ensure!(
            self.checkpoint_bytes <= Self::MAX_CHECKPOINT_BYTES,
            "checkpoint limit of {} bytes is out of range; it may be 0 to {} bytes",
            self.checkpoint_bytes,
            Self::MAX_CHECKPOINT_BYTES
        );
        let config_bytes = self.config.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        ensure!(
            config_bytes <= Self::MAX_CONFIG_BYTES,
            "config of {config_bytes} bytes is out of range; its keys and values may have 0 to {} bytes together",
            Self::MAX_CONFIG_BYTES
        );
        ensure!(!self.config.contains_key(""), "a config value without a key; write --config KEY=VALUE");
        // PostgreSQL's JSON cannot hold it.
        let nul = self.config.iter().find(|(key, value)| key.contains('\0') || value.contains('\0'));
        ensure!(nul.is_none(), "config value {:?} holds a NUL", nul.map(|(key, _)| key));
        ensure!(
            self.secrets.len() <= Self::MAX_SECRETS,
            "{} secrets are out of range; a module may be granted 0 to {}",
            self.secrets.len(),
            Self::MAX_SECRETS
        );
        ensure!(
            self.http.len() <= Self::MAX_HTTP_RULES,
            "{} places for requests are out of range; a module may be granted 0 to {}",
            self.http.len(),
            Self::MAX_HTTP_RULES
        );
        ensure!(
            !self.http_private || !self.http.is_empty(),
            "private addresses for requests, and no place to send them to; add --allow-http URL"
        );
        self.secrets.iter().try_for_each(|name| check_secret_name(name))?;
        Ok(())
    }
}

/// The one place that judges; the database has the same rule as a CHECK.
pub fn check_secret_name(name: &str) -> anyhow::Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    ensure!(
        (1..=63).contains(&name.len()) && name.bytes().all(plain) && name.as_bytes()[0].is_ascii_alphanumeric(),
        "secret name {name:?} is not 1 to 63 letters, digits, \"_\", \".\" and \"-\", a letter or digit first"
    );
    Ok(())
}

impl Default for Grants {
    fn default() -> Self {
        Self {
            checkpoint_bytes: Self::DEFAULT_CHECKPOINT_BYTES,
            config: BTreeMap::new(),
            secrets: Vec::new(),
            http: Vec::new(),
            http_private: false,
        }
    }
}
