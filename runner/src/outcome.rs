//! What became of a run. A guest that fails is data here, never an `Err`: the worker's own errors are apart.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

mod log;
mod noted;

pub use log::{Log, LogLine, LogStream};
pub use noted::{LogChunk, Noted, Progress};

/// One finished run: how it ended, what it used and what it said.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub outcome: Outcome,
    pub usage: Usage,
    pub log: Log,
    /// The jobs that the guest asked for; put in only when the outcome is `Done`.
    pub follow_ups: Vec<FollowUp>,
}

impl Run {
    /// One that used nothing, said nothing and asked for nothing.
    pub fn unrun(outcome: Outcome) -> Self {
        Self { outcome, usage: Usage::default(), log: Log::default(), follow_ups: Vec::new() }
    }
}

/// A job of the same tenant to put in when a run has ended well.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FollowUp {
    pub module: String,
    #[serde(serialize_with = "lossy_text")]
    pub payload: Vec<u8>,
    /// None: that of the job which asks for it.
    pub queue: Option<String>,
    pub priority: i32,
    pub delay_ms: Option<u64>,
    pub unique_key: Option<String>,
    pub concurrency_key: Option<String>,
}

fn lossy_text<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&clean_text(bytes))
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The handler returned a result, or the command exited with 0.
    Done { result: Vec<u8> },
    /// The run failed; the kind says by whose fault and how.
    Failed(Failure),
    /// The handler asked to be run again later, without counting this attempt.
    Snoozed { delay: Duration },
    /// The worker stopped the run for a reason of its own.
    Stopped(Stop),
}

/// Why the worker stops a run that has done nothing wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    #[error("the job was cancelled")]
    Cancelled,
    #[error("the lease is lost or about to run out")]
    LeaseLost,
    #[error("the worker is shutting down")]
    Shutdown,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub kind: FailureKind,
    /// One sentence or more for people, with both numbers where a limit was met.
    pub message: String,
    /// The wasm backtrace, one frame a line, innermost first.
    pub backtrace: Option<String>,
    /// The delay that the guest asked for before the next attempt.
    pub delay: Option<Duration>,
}

/// The rows of the trap table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The handler returned `retry`.
    GuestRetry,
    /// A command exited with a code other than 0 and 65.
    Exit,
    /// The handler returned `dead`, or a command exited with 65 (EX_DATAERR).
    GuestDead,
    /// A wasm trap: a panic (`unreachable`), out of bounds, division by zero and the like.
    Trap,
    /// Out of fuel.
    Fuel,
    /// The memory or table limit.
    Memory,
    /// The wasm stack overflowed.
    Stack,
    /// The result is too large.
    Output,
    /// The wall-clock deadline.
    Timeout,
    /// The module does not instantiate: missing import, invalid, wrong world.
    Link,
    /// The guest broke the canonical ABI.
    Abi,
    /// The worker's own fault: pool exhausted, host I/O, host panic. The attempt is given back.
    Host,
    /// The lease ran out: the worker died, or lost the database, in the middle of the run.
    Crash,
    /// It was not done by its `expires_at`.
    Expired,
    /// A job that it asked for could not be put in.
    FollowUp,
}

impl FailureKind {
    pub const ALL: [Self; 15] = [
        Self::GuestRetry,
        Self::Exit,
        Self::GuestDead,
        Self::Trap,
        Self::Fuel,
        Self::Memory,
        Self::Stack,
        Self::Output,
        Self::Timeout,
        Self::Link,
        Self::Abi,
        Self::Host,
        Self::Crash,
        Self::Expired,
        Self::FollowUp,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::GuestRetry => "guest_retry",
            Self::Exit => "exit",
            Self::GuestDead => "guest_dead",
            Self::Trap => "trap",
            Self::Fuel => "fuel",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::Output => "output",
            Self::Timeout => "timeout",
            Self::Link => "link",
            Self::Abi => "abi",
            Self::Host => "host",
            Self::Crash => "crash",
            Self::Expired => "expired",
            Self::FollowUp => "follow_up",
        }
    }

    /// What this kind does to a job when the module does not say otherwise. Where the same run would end the same way
    /// again, there is no second one.
    pub fn default_on_failure(self) -> OnFailure {
        match self {
            Self::GuestRetry | Self::Exit | Self::Trap | Self::Timeout | Self::Host | Self::Crash => OnFailure::Fail,
            Self::GuestDead
            | Self::Fuel
            | Self::Memory
            | Self::Stack
            | Self::Output
            | Self::Link
            | Self::Abi
            | Self::Expired
            | Self::FollowUp => OnFailure::Dead,
        }
    }

    /// Whether `--on KIND=...` may name it: only where the run itself is to blame.
    pub fn overridable(self) -> bool {
        !matches!(self, Self::Host | Self::Crash | Self::Expired | Self::FollowUp)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FailureKind {
    type Err = anyhow::Error;
    fn from_str(s: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == s).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
            anyhow::anyhow!("unknown kind of failure {s:?}; kinds are {}", known.join(", "))
        })
    }
}

/// What a failure does to its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Queued again with backoff while attempts are left, then dead.
    Fail,
    /// Dead at once.
    Dead,
}

impl OnFailure {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Dead => "dead",
        }
    }
}

impl FromStr for OnFailure {
    type Err = anyhow::Error;
    fn from_str(s: &str) -> anyhow::Result<Self> {
        match s {
            "fail" => Ok(Self::Fail),
            "dead" => Ok(Self::Dead),
            other => anyhow::bail!("unknown end {other:?}; write fail or dead"),
        }
    }
}

/// What a run used, whatever became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Exact when the run ended by itself; after an interrupt it may lag behind (wasmtime writes it back at calls).
    pub fuel: u64,
    pub wall: Duration,
    /// Time that a thread spent computing for this run, instantiation included.
    pub cpu: Duration,
    /// The most linear memory and tables that it held at once, in bytes.
    pub memory_peak_bytes: u64,
    pub result_bytes: u64,
}

/// What a guest wrote, as text that neither a terminal nor PostgreSQL takes amiss: broken UTF-8 and control characters
/// other than newline and tab become U+FFFD.
pub fn clean_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// The same, cut to so many bytes, and saying how many were cut.
pub fn clip_text(bytes: &[u8], limit: usize) -> String {
    if bytes.len() <= limit {
        return clean_text(bytes);
    }
    // Not through a character, as long as there are characters.
    let end = (limit.saturating_sub(3)..=limit).rev().find(|end| bytes[*end] & 0xc0 != 0x80).unwrap_or(limit);
    format!("{}[... {} bytes more]", clean_text(&bytes[..end]), bytes.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_guest_is_clean_and_bounded() {
        assert_eq!(clean_text(b"a\0b\x1b[31m\tc\n\xff"), "a\u{fffd}b\u{fffd}[31m\tc\n\u{fffd}");
        assert_eq!(clip_text(b"short", 5), "short");
        assert_eq!(clip_text("nöö".as_bytes(), 4), "nö[... 2 bytes more]");
        assert_eq!(clip_text(&[0x80; 10], 4), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}[... 6 bytes more]");
    }
}
