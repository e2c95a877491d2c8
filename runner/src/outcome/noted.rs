//! What a run leaves behind while it goes on, on its way to the database.

use std::sync::Arc;

/// How far a run is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// 0.0 to 1.0.
    pub fraction: f32,
    /// Clean and bounded.
    pub message: String,
}

/// What is to be written of a run. Whoever has written it says so (`Notes::written`).
#[derive(Debug, Clone, Default)]
pub struct Noted {
    pub checkpoint: Option<Arc<[u8]>>,
    pub progress: Option<Progress>,
    pub log: Option<LogChunk>,
    /// Up to which save, progress and line this is.
    pub saves: u64,
    pub progresses: u64,
    pub next_line: u64,
}

/// Some lines of a log.
#[derive(Debug, Clone)]
pub struct LogChunk {
    /// Counted from 0.
    pub number: i32,
    /// As `Log::to_rows` writes them.
    pub rows: String,
    /// The chunks that go, so that no more than the log's limit is kept: from this one to the one before that.
    pub dropped: (i32, i32),
}

impl Noted {
    /// What it weighs, in bytes.
    pub fn weight(&self) -> usize {
        let checkpoint = self.checkpoint.as_ref().map_or(0, |bytes| bytes.len());
        let message = self.progress.as_ref().map_or(0, |progress| progress.message.len());
        128 + checkpoint + message + self.log.as_ref().map_or(0, |log| log.rows.len())
    }
}
