//! Schedules: as their owners see them, and as the workers fire them. The database says what is due and moves the rows; what
//! comes next is computed in [`crate::schedule`].

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::db_instant::DbInstant;
use super::{Store, get, ms};
use crate::job::JobId;
use crate::schedule::{Due, Missed, Second};

/// A schedule to create or replace; the SQL function has the defaults.
pub struct NewSchedule<'a> {
    pub tenant: &'a str,
    pub name: &'a str,
    pub cron: &'a str,
    pub time_zone: &'a str,
    pub module: &'a str,
    pub payload: &'a [u8],
    pub queue: &'a str,
    pub priority: i32,
    pub max_attempts: i32,
    pub timeout: Option<Duration>,
    pub backoff: Option<Duration>,
    pub version: Option<i32>,
    pub missed: Missed,
    pub missed_limit: i32,
    pub spread: Duration,
    pub time_key: Option<&'a str>,
    /// None leaves a schedule that exists as it is.
    pub paused: Option<bool>,
}

/// A schedule in a list. Times are the database's, as text.
#[derive(Debug, Clone, Serialize)]
pub struct ScheduleRow {
    pub tenant: String,
    pub name: String,
    pub cron: String,
    pub time_zone: String,
    pub module: String,
    pub paused: bool,
    pub held: bool,
    pub next_fire: Option<String>,
    pub last_fire: Option<String>,
    pub last_fired_at: Option<String>,
    pub last_job_id: Option<JobId>,
    pub error: Option<String>,
    pub error_at: Option<String>,
    pub missed: String,
    pub missed_limit: i32,
    pub spread_ms: i64,
    pub spread_offset_ms: i64,
    pub time_key: Option<String>,
    pub queue: String,
    pub priority: i32,
    pub max_attempts: i32,
    pub timeout_ms: Option<i64>,
    pub backoff_ms: Option<i64>,
    pub version: Option<i32>,
    /// JSON where it is JSON, else a string, else null.
    pub payload: Option<Value>,
}

/// What there is to do about schedules.
#[derive(Debug)]
pub struct DueSchedules {
    pub schedules: Vec<DueSchedule>,
    /// How long until the next one of the others is due; None when none is.
    pub wait: Option<Duration>,
}

#[derive(Debug)]
pub struct DueSchedule {
    pub id: i64,
    pub tenant: String,
    pub name: String,
    pub cron: String,
    pub time_zone: String,
    pub due: Due,
}

/// What a worker found to do with a schedule that it saw.
#[derive(Debug, Clone)]
pub struct Fire {
    pub id: i64,
    /// The next fire as it was seen; the database does nothing when there is another one by now.
    pub expected: Option<Second>,
    pub then: Then,
}

#[derive(Debug, Clone)]
pub enum Then {
    /// A job for each of these nominal times, then on to the next.
    GoOn { fires: Vec<Second>, next_fire: Second },
    /// There is no next fire, for this reason.
    Broken(String),
}

/// A schedule that went on, or could not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    pub id: i64,
    pub jobs: i32,
    pub last_job: Option<JobId>,
    pub refusal: Option<String>,
}

/// How many bytes of payload one call enqueues, or one fire more: what the database writes well within a call's time.
const FIRE_BYTES: i64 = 16 << 20;

const SCHEDULE_COLUMNS: &str = "tenant, name, cron, time_zone, module, paused, held, next_fire::text, last_fire::text, last_fired_at::text, \
     last_job_id, error, error_at::text, missed::text, missed_limit, (extract(epoch from spread) * 1000)::int8 as spread_ms, \
     (extract(epoch from spread_offset) * 1000)::int8 as spread_offset_ms, time_key, queue, priority, max_attempts, \
     (extract(epoch from timeout) * 1000)::int8 as timeout_ms, (extract(epoch from backoff) * 1000)::int8 as backoff_ms, version, \
     leasehold.as_json(payload) as payload";

impl Store {
    /// Creates a schedule or replaces the one of its name.
    pub async fn set_schedule(&self, schedule: &NewSchedule<'_>) -> anyhow::Result<()> {
        let sql = "-- schedule
            select leasehold.schedule(name => $1, cron => $2, module => $3, payload => $4::bytea, tenant => $5, time_zone => $6,
                queue => $7, priority => $8, max_attempts => $9, timeout => $10 * interval '1 ms', backoff => $11 * interval '1 ms',
                version => $12, missed => $13, missed_limit => $14, spread => $15 * interval '1 ms', time_key => $16, paused => $17)";
        let params = [
            (&schedule.name as _, Type::TEXT),
            (&schedule.cron as _, Type::TEXT),
            (&schedule.module as _, Type::TEXT),
            (&schedule.payload as _, Type::BYTEA),
            (&schedule.tenant as _, Type::TEXT),
            (&schedule.time_zone as _, Type::TEXT),
            (&schedule.queue as _, Type::TEXT),
            (&schedule.priority as _, Type::INT4),
            (&schedule.max_attempts as _, Type::INT4),
            (/* timeout_ms */ &ms(schedule.timeout) as _, Type::INT8),
            (/* backoff_ms */ &ms(schedule.backoff) as _, Type::INT8),
            (&schedule.version as _, Type::INT4),
            (/* missed */ &schedule.missed.as_str() as _, Type::TEXT),
            (&schedule.missed_limit as _, Type::INT4),
            (/* spread_ms */ &ms(Some(schedule.spread)) as _, Type::INT8),
            (&schedule.time_key as _, Type::TEXT),
            (&schedule.paused as _, Type::BOOL),
        ];
        self.row("setting the schedule", sql, &params).await?;
        Ok(())
    }

    pub async fn schedules(&self, tenant: Option<&str>) -> anyhow::Result<Vec<ScheduleRow>> {
        let sql = format!(
            "-- schedules\nselect {SCHEDULE_COLUMNS} from leasehold.schedules where $1::text is null or tenant = $1 order by tenant, name"
        );
        let rows = self.rows("listing schedules", &sql, &[(&tenant, Type::TEXT)]).await?;
        rows.iter().map(schedule_row).collect()
    }

    pub async fn schedule(&self, tenant: &str, name: &str) -> anyhow::Result<Option<ScheduleRow>> {
        let sql =
            format!("-- schedule\nselect {SCHEDULE_COLUMNS} from leasehold.schedules where tenant = $1 and name = $2");
        let rows = self.rows("showing the schedule", &sql, &[(&tenant, Type::TEXT), (&name, Type::TEXT)]).await?;
        rows.first().map(schedule_row).transpose()
    }

    /// False when it was paused already.
    pub async fn pause_schedule(&self, tenant: &str, name: &str) -> anyhow::Result<bool> {
        let sql = "-- pause_schedule\nselect leasehold.pause_schedule($1, $2)";
        self.answer("pausing the schedule", sql, tenant, name).await
    }

    /// False when it was not paused.
    pub async fn resume_schedule(&self, tenant: &str, name: &str) -> anyhow::Result<bool> {
        let sql = "-- resume_schedule\nselect leasehold.resume_schedule($1, $2)";
        self.answer("resuming the schedule", sql, tenant, name).await
    }

    /// False when there was none.
    pub async fn unschedule(&self, tenant: &str, name: &str) -> anyhow::Result<bool> {
        self.answer("removing the schedule", "-- unschedule\nselect leasehold.unschedule($1, $2)", tenant, name).await
    }

    /// Enqueues its job now, whatever its time.
    pub async fn fire_schedule(&self, tenant: &str, name: &str) -> anyhow::Result<JobId> {
        let sql = "-- fire_schedule\nselect leasehold.fire_schedule($1, $2)";
        let row = self.row("firing the schedule", sql, &[(&name, Type::TEXT), (&tenant, Type::TEXT)]).await?;
        Ok(JobId(get(&row, 0)?))
    }

    async fn answer(&self, doing: &'static str, sql: &str, tenant: &str, name: &str) -> anyhow::Result<bool> {
        get(&self.row(doing, sql, &[(&name, Type::TEXT), (&tenant, Type::TEXT)]).await?, 0)
    }

    /// The database's clock, from which the next fires of a schedule are counted.
    pub async fn clock(&self) -> anyhow::Result<Second> {
        let row = self.row("reading the clock", "-- clock\nselect clock_timestamp()", &[]).await?;
        Ok(get::<DbInstant>(&row, 0)?.unix_micros().div_euclid(1_000_000))
    }

    /// At most so many schedules that are due by the database's clock. Changes nothing.
    pub async fn due_schedules(&self, limit: usize) -> anyhow::Result<DueSchedules> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let sql = "-- due_schedules\nselect * from leasehold.due_schedules($1)";
        let rows = self.rows("looking for due schedules", sql, &[(&limit, Type::INT4)]).await?;
        let (first, due) = rows.split_first().context("looking for due schedules: no answer")?;
        let wait: Option<i64> = get(first, "wait_ms")?;
        Ok(DueSchedules {
            schedules: due.iter().map(due_schedule).collect::<anyhow::Result<_>>()?,
            wait: wait.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
        })
    }

    /// Enqueues and goes on, for each schedule that is still as it was seen. Answers those.
    pub async fn fire_schedules(&self, fires: &[Fire]) -> anyhow::Result<Vec<Fired>> {
        let ids: Vec<i64> = fires.iter().map(|fire| fire.id).collect();
        let expected: Vec<_> = fires.iter().map(|fire| fire.expected.map(DbInstant::from_unix_second)).collect();
        let (mut next, mut counts, mut nominals, mut errors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for fire in fires {
            match &fire.then {
                Then::GoOn { fires, next_fire } => {
                    next.push(Some(DbInstant::from_unix_second(*next_fire)));
                    counts.push(i32::try_from(fires.len()).expect("a thousand at most"));
                    nominals.extend(fires.iter().map(|fire| DbInstant::from_unix_second(*fire)));
                    errors.push(None);
                }
                Then::Broken(why) => {
                    next.push(None);
                    counts.push(0);
                    errors.push(Some(why.as_str()));
                }
            }
        }
        let sql = "-- fire_schedules\nselect * from leasehold.fire_schedules($1, $2, $3, $4, $5, $6, $7)";
        let params = [
            (&ids as _, Type::INT8_ARRAY),
            (&expected as _, Type::TIMESTAMPTZ_ARRAY),
            (&next as _, Type::TIMESTAMPTZ_ARRAY),
            (&counts as _, Type::INT4_ARRAY),
            (&nominals as _, Type::TIMESTAMPTZ_ARRAY),
            (&errors as _, Type::TEXT_ARRAY),
            (/* bytes */ &FIRE_BYTES as _, Type::INT8),
        ];
        let rows = self.rows("firing schedules", sql, &params).await?;
        rows.iter().map(fired).collect()
    }
}

fn fired(row: &Row) -> anyhow::Result<Fired> {
    Ok(Fired {
        id: get(row, "schedule_id")?,
        jobs: get(row, "fired")?,
        last_job: get::<Option<i64>>(row, "job_id")?.map(JobId),
        refusal: get(row, "refusal")?,
    })
}

fn due_schedule(row: &Row) -> anyhow::Result<DueSchedule> {
    let next_fire: Option<DbInstant> = get(row, "next_fire")?;
    let count = |column: &str| Ok::<_, anyhow::Error>(u64::try_from(get::<i32>(row, column)?).unwrap_or(0));
    Ok(DueSchedule {
        id: get(row, "schedule_id")?,
        tenant: get(row, "tenant")?,
        name: get(row, "name")?,
        cron: get(row, "cron")?,
        time_zone: get(row, "time_zone")?,
        due: Due {
            now_micros: get::<DbInstant>(row, "now")?.unix_micros(),
            next_fire: next_fire.map(|fire| fire.unix_micros().div_euclid(1_000_000)),
            spread_offset: Duration::from_millis(count("spread_offset_ms")?),
            missed: get::<&str>(row, "missed")?.parse()?,
            missed_limit: usize::try_from(count("missed_limit")?).unwrap_or(1),
        },
    })
}

fn schedule_row(row: &Row) -> anyhow::Result<ScheduleRow> {
    Ok(ScheduleRow {
        tenant: get(row, "tenant")?,
        name: get(row, "name")?,
        cron: get(row, "cron")?,
        time_zone: get(row, "time_zone")?,
        module: get(row, "module")?,
        paused: get(row, "paused")?,
        held: get(row, "held")?,
        next_fire: get(row, "next_fire")?,
        last_fire: get(row, "last_fire")?,
        last_fired_at: get(row, "last_fired_at")?,
        last_job_id: get::<Option<i64>>(row, "last_job_id")?.map(JobId),
        error: get(row, "error")?,
        error_at: get(row, "error_at")?,
        missed: get(row, "missed")?,
        missed_limit: get(row, "missed_limit")?,
        spread_ms: get(row, "spread_ms")?,
        spread_offset_ms: get(row, "spread_offset_ms")?,
        time_key: get(row, "time_key")?,
        queue: get(row, "queue")?,
        priority: get(row, "priority")?,
        max_attempts: get(row, "max_attempts")?,
        timeout_ms: get(row, "timeout_ms")?,
        backoff_ms: get(row, "backoff_ms")?,
        version: get(row, "version")?,
        payload: get(row, "payload")?,
    })
}
