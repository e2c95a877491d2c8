//! What any worker does for all: reaps lost jobs, makes and drops partitions.

use tokio_postgres::types::Type;

use super::settle::CRASH_LIMIT;
use super::{Store, get};
use crate::job::JobId;

/// How many days of partitions lie ready: a week of nobody running maintenance still settles into the right place.
const PARTITIONS_AHEAD_DAYS: i32 = 7;
/// How long finished jobs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub days: i32,
    /// Where jobs that are done may go sooner.
    pub done_days: Option<i32>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { days: 30, done_days: None }
    }
}
/// How many expired claims one call reaps: a bounded transaction, repeated while it comes back full.
const REAP_CLAIMS: i32 = 100;

/// How many rows of a kind one call of sweep or drop_unused takes.
pub const SWEEP_ROWS: i64 = 1_000;

/// A job that was given back or buried because its lease ran out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    pub job_id: JobId,
    /// `queued`, `dead` or `cancelled`.
    pub state: String,
}

impl Store {
    /// Gives back the jobs whose lease ran out, by the database's clock. Idempotent.
    pub async fn reap(&self) -> anyhow::Result<Vec<Reaped>> {
        let sql = "-- reap\nselect id, state::text from leasehold.reap($1, $2)";
        let rows = self.rows("reaping", sql, &[(&REAP_CLAIMS, Type::INT4), (&CRASH_LIMIT, Type::INT4)]).await?;
        rows.iter().map(|row| Ok(Reaped { job_id: JobId(get(row, 0)?), state: get(row, 1)? })).collect()
    }

    /// Ends what has expired and sees to jobs whose others have ended. Answers how many rows it moved.
    pub async fn sweep(&self) -> anyhow::Result<i64> {
        let limit = SWEEP_ROWS as i32;
        get(&self.row("sweeping", "-- sweep\nselect leasehold.sweep($1)", &[(&limit, Type::INT4)]).await?, 0)
    }

    /// Drops gates, unique keys and groups that nobody needs. Answers how many rows.
    pub async fn drop_unused(&self) -> anyhow::Result<i64> {
        let limit = SWEEP_ROWS as i32;
        let sql = "-- drop_unused\nselect leasehold.drop_unused($1)";
        get(&self.row("dropping what is unused", sql, &[(&limit, Type::INT4)]).await?, 0)
    }

    /// Makes the coming days' partitions and drops those past their retention. Answers what it did, one line each.
    pub async fn maintain_partitions(&self, retention: Retention) -> anyhow::Result<Vec<String>> {
        let sql = "-- maintain_partitions\nselect leasehold.maintain_partitions($1, $2, $3)";
        let params = [
            (&PARTITIONS_AHEAD_DAYS as _, Type::INT4),
            (&retention.days as _, Type::INT4),
            (&retention.done_days as _, Type::INT4),
        ];
        let rows = self.rows("making and dropping partitions", sql, &params).await?;
        rows.iter().map(|row| get(row, 0)).collect()
    }
}
