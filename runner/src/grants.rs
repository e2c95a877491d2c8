//! What a module is granted at upload besides its limits: nothing but a small checkpoint, unless somebody says so.

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

/// A version's grants, as the database keeps them. What this binary does not know of it does not give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grants {
    /// How large a checkpoint may be; 0 for none.
    pub checkpoint_bytes: u64,
}

impl Grants {
    /// Enough for a position in a file and what was counted up to there.
    pub const DEFAULT_CHECKPOINT_BYTES: u64 = 64 << 10;
    /// It is written up to once a second while the job runs.
    pub const MAX_CHECKPOINT_BYTES: u64 = 4 << 20;

    /// What a module has that nobody granted anything.
    pub fn usual() -> &'static Arc<Self> {
        static USUAL: LazyLock<Arc<Grants>> = LazyLock::new(Arc::default);
        &USUAL
    }

    /// The one place that judges.
    pub fn validate(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.checkpoint_bytes <= Self::MAX_CHECKPOINT_BYTES,
            "checkpoint limit of {} bytes is out of range; it may be 0 to {} bytes",
            self.checkpoint_bytes,
            Self::MAX_CHECKPOINT_BYTES
        );
        Ok(())
    }
}

impl Default for Grants {
    fn default() -> Self {
        Self { checkpoint_bytes: Self::DEFAULT_CHECKPOINT_BYTES }
    }
}
