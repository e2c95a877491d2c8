//! The database. Only this module has SQL, and its statements are calls of the functions in `migrations/functions/`: a row
//! changes state nowhere else.
//!
//! Statements carry their parameters' types, answer built-in types only (the driver looks others up with statements that it
//! prepares by name) and are never prepared by name, so all of this works through PgBouncer in transaction mode; only the
//! listener needs a connection of its own.

mod bench;
mod bounds;
mod claim;
mod connect;
mod db_instant;
mod job;
mod limits;
mod listen;
mod maintain;
mod migrate;
mod module;
mod note;
mod replay;
mod schedule;
mod secret;
mod settle;
mod share;
mod tenant;
mod usage;
mod worker;

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::{FromSql, ToSql, Type};

pub(crate) use bench::BareEnd;
pub use bounds::{Bounds, ReadyLane, TenantLane, Turn};
pub use claim::{Claimed, ClaimedJob};
pub use connect::Database;
pub use db_instant::DbInstant;
pub use job::{Conflict, JobDetails, JobFilter, JobRow, NewJob, QueueStat, Reason, Redrive, Waiting};
pub use limits::{LimitRow, Scope};
pub use listen::{Listener, Notice};
pub use maintain::{Reaped, Retention, SWEEP_ROWS};
pub use migrate::Migration;
pub use module::{ModuleRow, NewVersion, Pushed, VersionRow};
pub use note::{LogRow, Note};
pub use replay::AttemptToReplay;
pub use schedule::{DueSchedule, DueSchedules, Fire, Fired, NewSchedule, ScheduleRow, Then};
pub use secret::SecretRow;
pub use settle::{Batch, CRASH_LIMIT, Report};
pub use share::Shares;
pub use tenant::{GrantRow, NewGrant, QuotaRow, Removal};
pub use usage::{UsageFilter, UsageRow};
pub use worker::{Beat, WorkerId};

/// How long any one statement may take before its connection is given up. Well below a lease, so that a dead connection
/// costs a retry and not the lease.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server has to cancel a statement, before its connection is given up.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// A pool of connections to one database. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pool: Pool,
    database: Database,
}

type Params<'a> = [(&'a (dyn ToSql + Sync), Type)];

impl Store {
    /// Opens no connection yet.
    pub fn new(database: Database, max_connections: usize) -> anyhow::Result<Self> {
        let manager = Manager::from_config(
            database.config().clone(),
            database.tls(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(max_connections)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .wait_timeout(Some(CALL_TIMEOUT))
            .create_timeout(Some(CALL_TIMEOUT))
            .build()
            .context("setting up the connection pool")?;
        Ok(Self { pool, database })
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Runs one statement. `doing` names it in errors: "claiming jobs".
    async fn rows(&self, doing: &'static str, sql: &str, params: &Params<'_>) -> anyhow::Result<Vec<Row>> {
        self.rows_within(CALL_TIMEOUT, doing, sql, params).await
    }

    async fn rows_within(
        &self,
        limit: Duration,
        doing: &'static str,
        sql: &str,
        params: &Params<'_>,
    ) -> anyhow::Result<Vec<Row>> {
        let client = self.client().await.context(doing)?;
        let answered = {
            let mut query = pin!(client.query_typed(sql, params));
            if let Ok(answer) = tokio::time::timeout(limit, query.as_mut()).await {
                return answer.map(of_built_in_types).map_err(|error| explain(error).context(doing));
            }
            // The statement may go on behind our back: a claim that gets its lock later would take jobs that nobody runs. So
            // it is cancelled, and its end waited for; it may even end well in that moment.
            let cancel = client.cancel_token();
            let ended = async {
                let _ = cancel.cancel_query(self.database.tls()).await;
                query.await
            };
            tokio::time::timeout(CANCEL_TIMEOUT, ended).await
        };
        match answered {
            Ok(Ok(rows)) => return Ok(of_built_in_types(rows)),
            Ok(Err(_cancelled)) => {}
            // Nobody may queue up behind it.
            Err(_) => drop(Object::take(client)),
        }
        anyhow::bail!("{doing}: no answer from the database within {} s", limit.as_secs())
    }

    /// A statement that always answers exactly one row.
    async fn row(&self, doing: &'static str, sql: &str, params: &Params<'_>) -> anyhow::Result<Row> {
        let mut rows = self.rows(doing, sql, params).await?;
        rows.pop().filter(|_| rows.is_empty()).with_context(|| format!("{doing}: the database did not answer one row"))
    }

    async fn client(&self) -> anyhow::Result<Object> {
        self.pool.get().await.map_err(|error| match error {
            deadpool_postgres::PoolError::Backend(error) => {
                explain(error).context(format!("connecting to {}", self.database))
            }
            other => anyhow::Error::new(other).context(format!("connecting to {}", self.database)),
        })
    }
}

/// Whoever writes a statement that answers an enum notices in the first test, and not behind a pooler.
fn of_built_in_types(rows: Vec<Row>) -> Vec<Row> {
    let columns = rows.first().map(Row::columns).unwrap_or_default();
    let own = columns.iter().find(|column| Type::from_oid(column.type_().oid()).is_none());
    debug_assert!(own.is_none(), "a statement answers a type that is not built in: {own:?}");
    rows
}

/// A duration as SQL is given one: in whole milliseconds.
fn ms(duration: Option<Duration>) -> Option<i64> {
    duration.map(|d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// A column of an answer, by name or number.
fn get<'a, T: FromSql<'a>>(row: &'a Row, column: impl RowIndex + fmt::Display) -> anyhow::Result<T> {
    row.try_get(column).map_err(|cause| anyhow::Error::new(UnknownAnswer(cause)))
}

/// A function of another version of the schema may answer other columns than this binary reads. That is an error like any
/// other: a panic would end the claimer or the settler with it.
#[derive(Debug, thiserror::Error)]
#[error("the database's answer has another shape than this leasehold reads; is its schema of another version?")]
struct UnknownAnswer(#[source] tokio_postgres::Error);

/// What the database said to a statement. Its Display is for people; who branches looks at the code.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Refused {
    code: SqlState,
    text: String,
}

/// The database's own words, and its hint after them; tokio-postgres's Display hides both.
pub(crate) fn explain(error: tokio_postgres::Error) -> anyhow::Error {
    let Some(db) = error.as_db_error() else { return anyhow::Error::new(error) };
    let mut text = db.message().to_owned();
    // The detail of a violated constraint is the row with all that a tenant put into it, which belongs into no log.
    if let Some(detail) = db.detail().filter(|_| !db.code().code().starts_with("23")) {
        text = format!("{text} ({detail})");
    }
    if let Some(hint) = db.hint() {
        text = format!("{text}; {hint}");
    }
    match db.code().code() {
        "3F000" | "42883" | "42P01" if text.contains("leasehold") => {
            text = format!("{text}; has this database been set up? run: leasehold migrate");
        }
        _ => {}
    }
    anyhow::Error::new(Refused { code: db.code().clone(), text })
}

/// Whether trying the same statement again can help: the connection broke, the server restarts, or two transactions met.
pub fn is_transient(error: &anyhow::Error) -> bool {
    let Some(code) = code(error) else {
        // No answer at all (the pool, the network, a timeout), or one that will be the same again.
        return !error.chain().any(|cause| cause.is::<UnknownAnswer>());
    };
    let class = &code.code()[..2];
    class == "08"
        || class == "53"
        || class == "57"
        || *code == SqlState::T_R_SERIALIZATION_FAILURE
        || *code == SqlState::T_R_DEADLOCK_DETECTED
}

/// Whether a statement that does not wait long for a lock met one.
pub fn is_locked(error: &anyhow::Error) -> bool {
    code(error).is_some_and(|code| *code == SqlState::LOCK_NOT_AVAILABLE)
}

/// Whether a job that a guest asked for was refused.
pub fn is_refused_follow_up(error: &anyhow::Error) -> bool {
    code(error).is_some_and(|code| code.code() == "LH008")
}

fn code(error: &anyhow::Error) -> Option<&SqlState> {
    error.chain().find_map(|cause| cause.downcast_ref::<Refused>()).map(|refused| &refused.code)
}
