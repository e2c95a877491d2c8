//! What runs leave behind while they go on, and what a job's next run begins with.

use tokio_postgres::types::Type;

use super::{Store, get};
use crate::job::JobId;
use crate::outcome::{LogChunk, Noted};

/// What one run left behind, under its lease.
#[derive(Debug, Clone)]
pub struct Note {
    pub job_id: JobId,
    pub lease_no: i32,
    pub noted: Noted,
}

/// A line of a run's log.
#[derive(Debug, Clone, serde::Serialize)]
pub struct LogRow {
    pub attempt: i32,
    pub lease_no: i32,
    pub line: i64,
    /// Milliseconds after the run's start.
    pub after_ms: f64,
    /// None: of a version that did not tell.
    pub stream: Option<String>,
    pub level: Option<String>,
    pub text: String,
    /// It is more of the line before.
    pub goes_on: bool,
}

impl Store {
    /// Writes what runs left behind, where they still have their lease, and drops what belonged to runs that have
    /// ended.
    pub async fn note(&self, notes: &[Note], ended: &[JobId]) -> anyhow::Result<()> {
        let ids: Vec<i64> = notes.iter().map(|note| note.job_id.0).collect();
        let lease_nos: Vec<i32> = notes.iter().map(|note| note.lease_no).collect();
        let checkpoints: Vec<Option<&[u8]>> = notes.iter().map(|note| note.noted.checkpoint.as_deref()).collect();
        let progress = |note: &Note| note.noted.progress.clone().map(|progress| (progress.fraction, progress.message));
        let (fractions, messages): (Vec<_>, Vec<_>) = notes.iter().map(|note| progress(note).unzip()).unzip();
        let chunks: Vec<Option<&LogChunk>> = notes.iter().map(|note| note.noted.log.as_ref()).collect();
        let rows: Vec<Option<&str>> = chunks.iter().map(|chunk| chunk.map(|chunk| chunk.rows.as_str())).collect();
        let number =
            |of: fn(&LogChunk) -> i32| -> Vec<Option<i32>> { chunks.iter().map(|chunk| chunk.map(of)).collect() };
        let ended: Vec<i64> = ended.iter().map(|job| job.0).collect();
        let sql = "-- note\nselect leasehold.note($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let params = [
            (&ids as _, Type::INT8_ARRAY),
            (&lease_nos as _, Type::INT4_ARRAY),
            (&checkpoints as _, Type::BYTEA_ARRAY),
            (&fractions as _, Type::FLOAT4_ARRAY),
            (&messages as _, Type::TEXT_ARRAY),
            (/* log_rows */ &rows as _, Type::TEXT_ARRAY),
            (/* log_chunk_nos */ &number(|chunk| chunk.number) as _, Type::INT4_ARRAY),
            (/* log_drop_from */ &number(|chunk| chunk.dropped.0) as _, Type::INT4_ARRAY),
            (/* log_drop_to */ &number(|chunk| chunk.dropped.1) as _, Type::INT4_ARRAY),
            (&ended as _, Type::INT8_ARRAY),
        ];
        // A run that lost its lease is told so by the heartbeat.
        self.rows("writing what runs left behind", sql, &params).await?;
        Ok(())
    }

    /// What the job's runs saved last.
    pub async fn checkpoint(&self, job: JobId, lease_no: i32) -> anyhow::Result<Option<Vec<u8>>> {
        let sql = "-- checkpoint\nselect leasehold.checkpoint($1, $2)";
        let params = [(&job.0 as _, Type::INT8), (&lease_no as _, Type::INT4)];
        get(&self.row("fetching the checkpoint", sql, &params).await?, 0)
    }

    /// The lines of a job's log that come after that line of the run with that lease number; so many at most.
    pub async fn job_logs(&self, job: JobId, after: (i32, i64), limit: i64) -> anyhow::Result<Vec<LogRow>> {
        let sql = "-- job_logs
            select attempt, lease_no, line, extract(epoch from after)::float8 * 1000 as after_ms, stream, level, text, goes_on
              from leasehold.job_logs where job_id = $1 and (lease_no, line) > ($2, $3) order by lease_no, line limit $4";
        let params = [
            (&job.0 as _, Type::INT8),
            (/* lease_no */ &after.0 as _, Type::INT4),
            (/* line */ &after.1 as _, Type::INT8),
            (&limit as _, Type::INT8),
        ];
        let rows = self.rows("reading the job's log", sql, &params).await?;
        rows.iter()
            .map(|row| {
                Ok(LogRow {
                    attempt: get(row, "attempt")?,
                    lease_no: get(row, "lease_no")?,
                    line: get(row, "line")?,
                    after_ms: get(row, "after_ms")?,
                    stream: get(row, "stream")?,
                    level: get(row, "level")?,
                    text: get(row, "text")?,
                    goes_on: get(row, "goes_on")?,
                })
            })
            .collect()
    }
}
