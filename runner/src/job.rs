//! What a job is, apart from any database or sandbox: ids, states, limits and the claim that entitles a worker to run one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::outcome::{FailureKind, OnFailure};
use crate::retry::{RetryPolicy, RetrySettings};

/// Whose module and whose job it is. A number the database gave; names are for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub i32);

/// A job's id: unique over all tenants, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The sha256 of a module's bytes as they were uploaded: what pins a version.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a module's code is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModuleKind {
    /// Exports `leasehold:job/handler`.
    Component,
    /// A WASI program: payload on stdin, result on stdout, outcome by exit code.
    Command,
}

impl ModuleKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Component => "component",
            Self::Command => "command",
        }
    }
}

impl FromStr for ModuleKind {
    type Err = anyhow::Error;
    fn from_str(s: &str) -> anyhow::Result<Self> {
        match s {
            "component" => Ok(Self::Component),
            "command" => Ok(Self::Command),
            other => anyhow::bail!("unknown kind of module {other:?}; kinds are component and command"),
        }
    }
}

/// What one run may use. Every field has a default that suits a job of a second or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Limits {
    /// Instructions, as wasmtime counts them: about 10 to 25 thousand millions a CPU second.
    pub fuel: u64,
    /// Linear memory and tables of all the module's instances together, in bytes.
    pub memory_bytes: u64,
    /// Wall-clock time from the start of the run, time spent waiting included.
    #[serde(rename = "timeout_ms", serialize_with = "as_millis")]
    pub timeout: Duration,
    /// The result's size, in bytes.
    pub result_bytes: u64,
    /// How much of stdout, stderr and the log is kept, in bytes. The rest is dropped from the middle and counted.
    pub log_bytes: u64,
    /// How many follow-up jobs a run may ask for.
    pub follow_ups: u32,
}

/// A clock and random numbers that do not depend on the machine, so that two runs of one payload are the same run. The clock
/// begins at `starts_at` and moves when the guest sleeps or looks at it, and nobody waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Deterministic {
    /// What the wall clock says when the run begins, counted from 1970.
    #[serde(rename = "starts_at_ms", serialize_with = "as_millis")]
    pub starts_at: Duration,
    /// Where the random numbers come from.
    pub seed: u64,
}

impl Deterministic {
    /// Where the clock begins unless told otherwise, counted from 1970: 2026-01-01T00:00:00Z.
    pub const STARTS_AT: Duration = Duration::from_secs(1_767_225_600);

    pub fn new(seed: u64, starts_at: Option<Duration>) -> Self {
        Self { starts_at: starts_at.unwrap_or(Self::STARTS_AT), seed }
    }
}

fn as_millis<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

impl Limits {
    /// About a second of computing: far above a usual job's need, far below what an endless loop would burn unseen.
    pub const DEFAULT_FUEL: u64 = 20_000_000_000;
    /// Enough for a Rust, C or JavaScript guest and a decoded photo.
    pub const DEFAULT_MEMORY_BYTES: u64 = 64 << 20;
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
    /// A result is a row's column; more than this belongs into a store of files.
    pub const DEFAULT_RESULT_BYTES: u64 = 1 << 20;
    /// A page or two of log for whoever looks into a failure.
    pub const DEFAULT_LOG_BYTES: u64 = 16 << 10;

    /// About a day of computing; more is a mistake in a number.
    pub const MAX_FUEL: u64 = 2_000_000_000_000_000;
    /// One page of wasm: less cannot even be started.
    pub const MIN_MEMORY_BYTES: u64 = 64 << 10;
    /// What a 32-bit memory can address.
    pub const MAX_MEMORY_BYTES: u64 = 4 << 30;
    /// The epoch's tick: a shorter time cannot be measured.
    pub const MIN_TIMEOUT: Duration = Duration::from_millis(1);
    /// A job that runs longer should be several.
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
    /// What is still sensible as one column of one row.
    pub const MAX_RESULT_BYTES: u64 = 64 << 20;
    /// A log is kept for each attempt.
    pub const MAX_LOG_BYTES: u64 = 1 << 20;
    /// They are all written in the settling transaction.
    pub const MAX_FOLLOW_UPS: u64 = 1_000;

    /// Refuses limits with which no run could do anything, or which can only be a mistake. The one place that judges.
    pub fn validate(&self) -> Result<(), InvalidLimit> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        for (what, unit, value, min, max) in [
            ("fuel", "instructions", self.fuel, 1, Self::MAX_FUEL),
            ("memory", "bytes", self.memory_bytes, Self::MIN_MEMORY_BYTES, Self::MAX_MEMORY_BYTES),
            ("timeout", "ms", millis(self.timeout), millis(Self::MIN_TIMEOUT), millis(Self::MAX_TIMEOUT)),
            ("result limit", "bytes", self.result_bytes, 0, Self::MAX_RESULT_BYTES),
            ("log limit", "bytes", self.log_bytes, 0, Self::MAX_LOG_BYTES),
            ("follow-up limit", "jobs", u64::from(self.follow_ups), 0, Self::MAX_FOLLOW_UPS),
        ] {
            if !(min..=max).contains(&value) {
                return Err(InvalidLimit { what, unit, value, min, max });
            }
        }
        Ok(())
    }
}

/// A limit outside of what makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {value} {unit} is out of range; it may be {min} to {max} {unit}")]
pub struct InvalidLimit {
    pub what: &'static str,
    pub unit: &'static str,
    pub value: u64,
    pub min: u64,
    pub max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: Self::DEFAULT_FUEL,
            memory_bytes: Self::DEFAULT_MEMORY_BYTES,
            timeout: Self::DEFAULT_TIMEOUT,
            result_bytes: Self::DEFAULT_RESULT_BYTES,
            log_bytes: Self::DEFAULT_LOG_BYTES,
            follow_ups: 0,
        }
    }
}

/// A version of a module as a claim names it: what to run, not its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct ModuleVersion {
    pub name: String,
    /// Counted from 1 within the module.
    pub version: i32,
    pub digest: Digest,
    pub kind: ModuleKind,
    pub limits: Limits,
    /// Where the module's owner wants another end than the table's for a kind of failure (`--on fuel=fail`).
    pub on_failure: Vec<(FailureKind, OnFailure)>,
    pub retry: RetrySettings,
}

/// The right to run one job until the lease runs out. Not `Clone`: it is given up by settling it, once.
#[derive(Debug)]
pub struct Claim {
    pub tenant: TenantId,
    pub tenant_name: String,
    pub job_id: JobId,
    pub queue: String,
    pub module: std::sync::Arc<ModuleVersion>,
    pub payload: Vec<u8>,
    /// Counted from 1, this run included.
    pub attempt: u32,
    pub max_attempts: u32,
    pub retry: RetryPolicy,
    /// The module's limits with the job's own timeout, where it has one.
    pub limits: Limits,
    /// Fences its writes: grows by one at each claim of the job and never goes back.
    pub lease_no: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_out_of_range_are_named_with_both_numbers() {
        assert_eq!(Limits::default().validate(), Ok(()));
        let message = |limits: Limits| limits.validate().expect_err("out of range").to_string();
        assert_eq!(
            message(Limits { fuel: 0, ..Limits::default() }),
            "fuel of 0 instructions is out of range; it may be 1 to 2000000000000000 instructions"
        );
        assert_eq!(
            message(Limits { timeout: Duration::from_secs(1_000_000), ..Limits::default() }),
            "timeout of 1000000000 ms is out of range; it may be 1 to 86400000 ms"
        );
        assert_eq!(
            message(Limits { memory_bytes: 1000, ..Limits::default() }),
            "memory of 1000 bytes is out of range; it may be 65536 to 4294967296 bytes"
        );
    }
}
