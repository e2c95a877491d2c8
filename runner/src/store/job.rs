//! Jobs as their owners see them: put in, listed, shown, cancelled, redriven, counted.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{Store, get};
use crate::job::JobId;

/// A job to enqueue; the SQL function has the defaults.
pub struct NewJob<'a> {
    pub tenant: &'a str,
    pub module: &'a str,
    pub payload: &'a [u8],
    pub queue: &'a str,
    pub priority: i32,
    pub delay: Option<Duration>,
    pub max_attempts: i32,
    pub timeout: Option<Duration>,
    pub backoff: Option<Duration>,
    pub version: Option<i32>,
}

/// Which jobs to list; None means any.
#[derive(Debug, Default, Clone)]
pub struct JobFilter {
    pub tenant: Option<String>,
    pub module: Option<String>,
    pub queue: Option<String>,
    pub state: Option<String>,
    /// At most so many, newest first.
    pub limit: i64,
}

/// A job in a list. Times are the database's, as text.
#[derive(Debug, Clone, Serialize)]
pub struct JobRow {
    pub id: JobId,
    pub tenant: String,
    pub module: String,
    pub version: Option<i32>,
    pub queue: String,
    pub state: String,
    pub priority: i16,
    pub attempt: i32,
    pub max_attempts: i32,
    pub run_at: String,
    pub enqueued_at: String,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    pub result: Option<Value>,
    pub failure_kind: Option<String>,
    pub error: Option<String>,
    pub usage: Option<Value>,
}

/// A job with everything about it.
#[derive(Debug, Clone, Serialize)]
pub struct JobDetails {
    #[serde(flatten)]
    pub job: JobRow,
    pub lease_no: i32,
    pub crash_count: i32,
    pub cancel_requested: bool,
    pub worker_id: Option<i64>,
    pub locked_until: Option<String>,
    /// JSON where it is JSON, else a string, else null.
    pub payload: Option<Value>,
    pub attempts: Vec<AttemptRow>,
}

/// A run that left something to tell.
#[derive(Debug, Clone, Serialize)]
pub struct AttemptRow {
    pub attempt: i32,
    pub lease_no: i32,
    pub outcome: String,
    pub version: Option<i32>,
    pub worker_id: Option<i64>,
    pub started_at: String,
    pub finished_at: String,
    pub failure_kind: Option<String>,
    pub message: Option<String>,
    pub backtrace: Option<String>,
    pub log: Option<String>,
    pub log_dropped_bytes: i64,
    pub usage: Option<Value>,
}

/// One line of the queues' statistics.
#[derive(Debug, Clone, Serialize)]
pub struct QueueStat {
    pub tenant: String,
    pub queue: String,
    pub state: String,
    pub count: i64,
    pub oldest_due_age_seconds: Option<f64>,
}

const JOB_COLUMNS: &str = "id, tenant, module, version, queue, state::text, priority, attempt, max_attempts, run_at::text, \
     enqueued_at::text, started_at::text, finished_at::text, result, failure_kind, error, usage";

impl Store {
    pub async fn enqueue(&self, job: &NewJob<'_>) -> anyhow::Result<JobId> {
        let ms = |duration: Option<Duration>| duration.map(|d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
        let sql = "-- enqueue
            select leasehold.enqueue($1, $2::bytea, tenant => $3, queue => $4, priority => $5,
                run_at => now() + $6 * interval '1 millisecond', max_attempts => $7,
                timeout => $8 * interval '1 millisecond', backoff => $9 * interval '1 millisecond', version => $10)";
        let row = self
            .row(
                "enqueuing the job",
                sql,
                &[
                    (/* module */ &job.module, Type::TEXT),
                    (/* payload */ &job.payload, Type::BYTEA),
                    (/* tenant */ &job.tenant, Type::TEXT),
                    (/* queue */ &job.queue, Type::TEXT),
                    (/* priority */ &job.priority, Type::INT4),
                    (/* delay_ms */ &ms(job.delay), Type::INT8),
                    (/* max_attempts */ &job.max_attempts, Type::INT4),
                    (/* timeout_ms */ &ms(job.timeout), Type::INT8),
                    (/* backoff_ms */ &ms(job.backoff), Type::INT8),
                    (/* version */ &job.version, Type::INT4),
                ],
            )
            .await?;
        Ok(JobId(get(&row, 0)?))
    }

    /// One statement for many jobs of one module and the default options.
    pub async fn enqueue_many(
        &self,
        tenant: &str,
        module: &str,
        queue: &str,
        payloads: &[Value],
    ) -> anyhow::Result<Vec<JobId>> {
        let sql = "-- enqueue_many\nselect leasehold.enqueue_many($1, $2, tenant => $3, queue => $4)";
        let params = [
            (&module as _, Type::TEXT),
            (&payloads as _, Type::JSONB_ARRAY),
            (&tenant as _, Type::TEXT),
            (&queue as _, Type::TEXT),
        ];
        self.rows("enqueuing jobs", sql, &params).await?.iter().map(|row| Ok(JobId(get(row, 0)?))).collect()
    }

    pub async fn jobs(&self, filter: &JobFilter) -> anyhow::Result<Vec<JobRow>> {
        let sql = format!(
            "-- jobs\nselect {JOB_COLUMNS} from leasehold.jobs
              where ($1::text is null or tenant = $1) and ($2::text is null or module = $2)
                and ($3::text is null or queue = $3) and ($4::text is null or state::text = $4)
              order by id desc limit $5"
        );
        let params = [
            (&filter.tenant as _, Type::TEXT),
            (&filter.module as _, Type::TEXT),
            (&filter.queue as _, Type::TEXT),
            (&filter.state as _, Type::TEXT),
            (&filter.limit as _, Type::INT8),
        ];
        self.rows("listing jobs", &sql, &params).await?.iter().map(job_row).collect()
    }

    pub async fn job(&self, id: JobId) -> anyhow::Result<Option<JobDetails>> {
        let sql = format!(
            "-- job\nselect {JOB_COLUMNS}, lease_no, crash_count, cancel_requested, worker_id, locked_until::text,
                    leasehold.as_json(payload) as payload
               from leasehold.jobs where id = $1"
        );
        let rows = self.rows("showing the job", &sql, &[(&id.0, Type::INT8)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let sql = "-- job_attempts
            select attempt, lease_no, outcome, version, worker_id, started_at::text, finished_at::text, failure_kind, message,
                   backtrace, log, log_dropped_bytes, usage
              from leasehold.job_attempts where job_id = $1 order by lease_no";
        let attempts = self.rows("showing the job's attempts", sql, &[(&id.0, Type::INT8)]).await?;
        Ok(Some(JobDetails {
            job: job_row(row)?,
            lease_no: get(row, "lease_no")?,
            crash_count: get(row, "crash_count")?,
            cancel_requested: get(row, "cancel_requested")?,
            worker_id: get(row, "worker_id")?,
            locked_until: get(row, "locked_until")?,
            payload: get(row, "payload")?,
            attempts: attempts.iter().map(attempt_row).collect::<anyhow::Result<_>>()?,
        }))
    }

    /// Answers the state the job is in now; a running one was only asked.
    pub async fn cancel(&self, id: JobId) -> anyhow::Result<String> {
        let sql = "-- cancel\nselect leasehold.cancel($1)::text";
        get(&self.row("cancelling the job", sql, &[(&id.0, Type::INT8)]).await?, 0)
    }

    /// False when the job is neither dead nor cancelled.
    pub async fn redrive(&self, id: JobId) -> anyhow::Result<bool> {
        let sql = "-- redrive\nselect leasehold.redrive($1)";
        get(&self.row("redriving the job", sql, &[(&id.0, Type::INT8)]).await?, 0)
    }

    pub async fn queue_stats(&self, tenant: Option<&str>) -> anyhow::Result<Vec<QueueStat>> {
        let sql = "-- queue_stats
            select tenant, queue, state::text, count, extract(epoch from oldest_due_age)::float8 as age
              from leasehold.queue_stats where $1::text is null or tenant = $1 order by tenant, queue, state";
        let rows = self.rows("counting jobs", sql, &[(&tenant, Type::TEXT)]).await?;
        rows.iter()
            .map(|row| {
                Ok(QueueStat {
                    tenant: get(row, "tenant")?,
                    queue: get(row, "queue")?,
                    state: get(row, "state")?,
                    count: get(row, "count")?,
                    oldest_due_age_seconds: get(row, "age")?,
                })
            })
            .collect()
    }
}

fn job_row(row: &Row) -> anyhow::Result<JobRow> {
    Ok(JobRow {
        id: JobId(get(row, "id")?),
        tenant: get(row, "tenant")?,
        module: get(row, "module")?,
        version: get(row, "version")?,
        queue: get(row, "queue")?,
        state: get(row, "state")?,
        priority: get(row, "priority")?,
        attempt: get(row, "attempt")?,
        max_attempts: get(row, "max_attempts")?,
        run_at: get(row, "run_at")?,
        enqueued_at: get(row, "enqueued_at")?,
        started_at: get(row, "started_at")?,
        finished_at: get(row, "finished_at")?,
        result: get(row, "result")?,
        failure_kind: get(row, "failure_kind")?,
        error: get(row, "error")?,
        usage: get(row, "usage")?,
    })
}

fn attempt_row(row: &Row) -> anyhow::Result<AttemptRow> {
    Ok(AttemptRow {
        attempt: get(row, "attempt")?,
        lease_no: get(row, "lease_no")?,
        outcome: get(row, "outcome")?,
        version: get(row, "version")?,
        worker_id: get(row, "worker_id")?,
        started_at: get(row, "started_at")?,
        finished_at: get(row, "finished_at")?,
        failure_kind: get(row, "failure_kind")?,
        message: get(row, "message")?,
        backtrace: get(row, "backtrace")?,
        log: get(row, "log")?,
        log_dropped_bytes: get(row, "log_dropped_bytes")?,
        usage: get(row, "usage")?,
    })
}
