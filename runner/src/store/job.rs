//! Jobs as their owners see them: put in, listed, shown, cancelled, redriven, counted.

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::db_instant::DbInstant;
use super::{Store, get, ms};
use crate::job::JobId;
use crate::retry::RetrySettings;

/// A job to enqueue; where it is `None`, the SQL function has the default.
#[derive(Default)]
pub struct NewJob<'a> {
    pub tenant: &'a str,
    pub module: &'a str,
    pub payload: &'a [u8],
    pub queue: &'a str,
    pub priority: i32,
    pub delay: Option<Duration>,
    pub timeout: Option<Duration>,
    pub version: Option<i32>,
    pub retry: RetrySettings,
    pub concurrency_key: Option<&'a str>,
    pub concurrency_limit: Option<i32>,
    pub rate_key: Option<&'a str>,
    pub unique_key: Option<&'a str>,
    pub unique_for: Option<Duration>,
    pub on_conflict: Conflict,
    /// From now.
    pub expires: Option<Duration>,
    pub after: &'a [i64],
    pub on_dead: Option<&'a str>,
    pub notify: bool,
}

/// What becomes of a new job whose unique key is another's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Conflict {
    /// The other one stays as it is.
    #[default]
    Keep,
    /// The other one gets the new payload, priority and time, while it is queued.
    Replace,
}

/// One reason why a job is not running: see leasehold.explain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub code: String,
    pub message: String,
    pub until: Option<String>,
}

/// Which dead or cancelled jobs to queue again; None means any.
#[derive(Debug, Default, Clone)]
pub struct Redrive<'a> {
    pub tenant: &'a str,
    pub module: Option<&'a str>,
    pub queue: Option<&'a str>,
    pub failure_kind: Option<&'a str>,
    /// `dead` or `cancelled`.
    pub state: &'a str,
    /// Finished no longer ago.
    pub within: Option<Duration>,
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
    pub expires_at: Option<String>,
    /// Keys, group, and what else is special about it: see leasehold.enqueue.
    pub options: Option<Value>,
    /// Kept from running by something else than its time.
    pub waiting: bool,
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

/// How many jobs of a queue wait for what, or run.
#[derive(Debug, Clone, Serialize)]
pub struct Waiting {
    pub queue: String,
    /// As `explain` says it.
    pub code: String,
    pub jobs: i64,
    pub oldest_seconds: Option<f64>,
}

const JOB_COLUMNS: &str = "id, tenant, module, version, queue, state::text, priority, attempt, max_attempts, run_at::text, \
     enqueued_at::text, started_at::text, finished_at::text, result, failure_kind, error, usage, \
     expires_at::text, options, waiting";

impl Store {
    /// Answers the job's id, or that of the job whose unique key it is.
    pub async fn enqueue(&self, job: &NewJob<'_>) -> anyhow::Result<JobId> {
        let on_conflict = match job.on_conflict {
            Conflict::Keep => "keep",
            Conflict::Replace => "replace",
        };
        let after = (!job.after.is_empty()).then_some(job.after);
        let sql = "-- enqueue
            select leasehold.enqueue($1, $2::bytea, tenant => $3, queue => $4, priority => $5,
                run_at => now() + $6 * interval '1 millisecond', max_attempts => $7,
                timeout => $8 * interval '1 millisecond', backoff => $9 * interval '1 millisecond', version => $10,
                concurrency_key => $11, concurrency_limit => coalesce($12, 1), rate_key => $13, unique_key => $14,
                unique_for => $15 * interval '1 millisecond', on_conflict => $16,
                expires_at => now() + $17 * interval '1 millisecond', after => $18, on_dead => coalesce($19, 'cancel'),
                backoff_factor => $20, backoff_cap => $21 * interval '1 millisecond', backoff_jitter => $22, notify => $23)";
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
                    (/* max_attempts */ &job.retry.max_attempts, Type::INT4),
                    (/* timeout_ms */ &ms(job.timeout), Type::INT8),
                    (/* backoff_ms */ &ms(job.retry.base), Type::INT8),
                    (/* version */ &job.version, Type::INT4),
                    (/* concurrency_key */ &job.concurrency_key, Type::TEXT),
                    (/* concurrency_limit */ &job.concurrency_limit, Type::INT4),
                    (/* rate_key */ &job.rate_key, Type::TEXT),
                    (/* unique_key */ &job.unique_key, Type::TEXT),
                    (/* unique_for_ms */ &ms(job.unique_for), Type::INT8),
                    (/* on_conflict */ &on_conflict, Type::TEXT),
                    (/* expires_ms */ &ms(job.expires), Type::INT8),
                    (/* after */ &after, Type::INT8_ARRAY),
                    (/* on_dead */ &job.on_dead, Type::TEXT),
                    (/* backoff_factor */ &job.retry.factor, Type::FLOAT8),
                    (/* backoff_cap_ms */ &ms(job.retry.cap), Type::INT8),
                    (/* backoff_jitter */ &job.retry.jitter, Type::FLOAT8),
                    (/* notify */ &job.notify, Type::BOOL),
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

    /// Queues the jobs again that the filter finds, a bounded call at a time. Answers how many.
    pub async fn redrive_many(&self, filter: &Redrive<'_>) -> anyhow::Result<u64> {
        const CALL: i32 = 1_000;
        // One that dies again meanwhile is not queued a second time.
        let until: DbInstant = get(&self.row("reading the clock", "select clock_timestamp()", &[]).await?, 0)?;
        let sql = "-- redrive_many
            select leasehold.redrive_many(tenant => $1, module => $2, queue => $3, failure_kind => $4, state => $5,
                finished_after => coalesce(now() - $6 * interval '1 millisecond', '-infinity'), finished_before => $8, max_jobs => $7)";
        let mut moved = 0;
        loop {
            let params = [
                (&filter.tenant as _, Type::TEXT),
                (&filter.module as _, Type::TEXT),
                (&filter.queue as _, Type::TEXT),
                (&filter.failure_kind as _, Type::TEXT),
                (&filter.state as _, Type::TEXT),
                (&ms(filter.within) as _, Type::INT8),
                (&CALL as _, Type::INT4),
                (&until as _, Type::TIMESTAMPTZ),
            ];
            let count = self.rows("redriving jobs", sql, &params).await?.len();
            moved += count as u64;
            if count < CALL as usize {
                return Ok(moved);
            }
        }
    }

    /// Waits until the job has ended, so long at most. Answers its state.
    pub async fn wait(&self, id: JobId, timeout: Duration) -> anyhow::Result<String> {
        let timeout_ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        let sql = "-- wait\nselect leasehold.wait($1, $2 * interval '1 millisecond')::text";
        let params = [(&id.0 as _, Type::INT8), (&timeout_ms as _, Type::INT8)];
        let limit = timeout + Duration::from_secs(10);
        let rows = self.rows_within(limit, "waiting for the job", sql, &params).await?;
        get(rows.first().context("waiting for the job: no answer")?, 0)
    }

    /// Why a job is not running.
    pub async fn explain(&self, id: JobId) -> anyhow::Result<Vec<Reason>> {
        let sql = "-- explain\nselect code, message, until::text from leasehold.explain($1)";
        let rows = self.rows("explaining the job", sql, &[(&id.0, Type::INT8)]).await?;
        rows.iter().map(|row| Ok(Reason { code: get(row, 0)?, message: get(row, 1)?, until: get(row, 2)? })).collect()
    }

    /// What the live jobs of each queue wait for. Reads all of them.
    pub async fn count_waiting(&self) -> anyhow::Result<Vec<Waiting>> {
        let sql = "-- count_waiting
            select queue, code, jobs, extract(epoch from oldest)::float8 as oldest from leasehold.count_waiting()";
        let rows = self.rows("counting what waits", sql, &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(Waiting {
                    queue: get(row, "queue")?,
                    code: get(row, "code")?,
                    jobs: get(row, "jobs")?,
                    oldest_seconds: get(row, "oldest")?,
                })
            })
            .collect()
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
        expires_at: get(row, "expires_at")?,
        options: get(row, "options")?,
        waiting: get(row, "waiting")?,
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
