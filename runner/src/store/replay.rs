//! What an attempt ran, for who wants to run it once more elsewhere.

use std::time::Duration;

use anyhow::Context as _;
use tokio_postgres::types::Type;

use super::{Store, get, module};
use crate::job::{Digest, JobId, Limits};
use crate::outcome::{FailureKind, OnFailure};

/// An attempt of a job: all that went into it, and what came of it.
#[derive(Debug, Clone)]
pub struct AttemptToReplay {
    pub tenant: String,
    pub module: String,
    pub version: i32,
    pub bytes: Vec<u8>,
    pub limits: Limits,
    pub on_failure: Vec<(FailureKind, OnFailure)>,
    pub queue: String,
    pub payload: Vec<u8>,
    pub attempt: u32,
    pub max_attempts: u32,
    pub lease_no: i32,
    /// When it began, by the database's clock, counted from 1970.
    pub started_at: Duration,
    /// `fail`, `dead`, `done`...
    pub outcome: String,
    pub failure_kind: Option<String>,
    pub message: Option<String>,
    pub backtrace: Option<String>,
}

impl Store {
    /// None for the lease: that of the last attempt that failed.
    pub async fn attempt_to_replay(&self, job: JobId, lease_no: Option<i32>) -> anyhow::Result<AttemptToReplay> {
        let sql = "-- attempt_to_replay
            select tenant, module, version, digest, bytes, fuel, memory_bytes, timeout_ms, result_bytes, log_bytes, follow_ups, on_failure, queue, payload,
                   attempt, max_attempts, lease_no, started_ms, outcome, failure_kind, message, backtrace
              from leasehold.attempt_to_replay($1, $2)";
        let rows = self
            .rows(
                "fetching the attempt",
                sql,
                &[(/* job_id */ &job.0, Type::INT8), (/* lease_no */ &lease_no, Type::INT4)],
            )
            .await?;
        let row = rows.first().context("the database answered no attempt")?;
        let counted = |column: &str| Ok::<_, anyhow::Error>(get::<i32>(row, column)?.unsigned_abs());
        let bytes: Vec<u8> = get(row, "bytes")?;
        let (wanted, found) = (module::digest(&get::<Vec<u8>>(row, "digest")?)?, Digest::of(&bytes));
        anyhow::ensure!(wanted == found, "the module's bytes have the digest {found}, not {wanted}; upload it again");
        Ok(AttemptToReplay {
            tenant: get(row, "tenant")?,
            module: get(row, "module")?,
            version: get(row, "version")?,
            bytes,
            limits: module::limits(row)?,
            on_failure: module::on_failure(row)?,
            queue: get(row, "queue")?,
            payload: get(row, "payload")?,
            attempt: counted("attempt")?,
            max_attempts: counted("max_attempts")?,
            lease_no: get(row, "lease_no")?,
            started_at: Duration::from_millis(get::<i64>(row, "started_ms")?.unsigned_abs()),
            outcome: get(row, "outcome")?,
            failure_kind: get(row, "failure_kind")?,
            message: get(row, "message")?,
            backtrace: get(row, "backtrace")?,
        })
    }
}
