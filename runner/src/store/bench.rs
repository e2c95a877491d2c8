//! What the benches ask the database besides. What writes into tables by hand does so in a database of a bench's own only.

mod article;
mod bare;
mod fair;
mod past;
mod scratch;

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::types::Type;

pub(crate) use bare::BareEnd;

use super::{Store, get};

/// How the databases of benches are called.
const SCRATCH: &str = "leasehold_bench_";
/// How long one statement may fill in rows.
const FILL_LIMIT: Duration = Duration::from_secs(120);

impl Store {
    /// The highest id given so far.
    pub(crate) async fn newest_job(&self) -> anyhow::Result<i64> {
        let sql = "select greatest((select coalesce(max(id), 0) from leasehold.live_jobs), (select coalesce(max(id), 0) from leasehold.history))";
        get(&self.row("finding the newest job", sql, &[]).await?, 0)
    }

    /// One job as an application enqueues it.
    pub(crate) async fn enqueue_plain(
        &self,
        tenant: &str,
        module: &str,
        queue: &str,
        payload: &Value,
    ) -> anyhow::Result<()> {
        let sql = "select leasehold.enqueue($1, $2, tenant => $3, queue => $4)";
        let params = [
            (&module as _, Type::TEXT),
            (&payload as _, Type::JSONB),
            (&tenant as _, Type::TEXT),
            (&queue as _, Type::TEXT),
        ];
        self.row("enqueuing a job", sql, &params).await.map(drop)
    }

    /// How many jobs of a queue are due or running.
    pub(crate) async fn bench_waiting(&self, queue: &str) -> anyhow::Result<i64> {
        let sql = "select count(*) from leasehold.live_jobs where queue = $1 and run_at <= clock_timestamp()";
        get(&self.row("counting the jobs that wait", sql, &[(&queue, Type::TEXT)]).await?, 0)
    }

    /// Of the jobs with these ids: how many have no end in history, and how many have more than one or took more than one lease.
    pub(crate) async fn bench_account(&self, after: i64, to: i64) -> anyhow::Result<(i64, i64)> {
        let sql =
            "select $2 - $1 - count(distinct id), count(*) filter (where lease_no <> 1) + count(*) - count(distinct id)
                     from leasehold.history where id > $1 and id <= $2";
        let row = self.row("accounting for the jobs", sql, &[(&after, Type::INT8), (&to, Type::INT8)]).await?;
        Ok((get(&row, 0)?, get(&row, 1)?))
    }

    /// Milliseconds from enqueue to claim and to settlement.
    pub(crate) async fn bench_latencies(&self, after: i64) -> anyhow::Result<Vec<(f64, f64)>> {
        let sql = "select extract(epoch from started_at - enqueued_at)::float8 * 1000, extract(epoch from finished_at - enqueued_at)::float8 * 1000
                     from leasehold.history where id > $1 order by id";
        let rows = self.rows("reading latencies", sql, &[(&after, Type::INT8)]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
    }

    /// How many transactions have ended in a database of this server; a statement by itself is one.
    pub(crate) async fn transactions_of(&self, database: &str) -> anyhow::Result<i64> {
        let sql = "select xact_commit + xact_rollback from pg_stat_database where datname = $1";
        get(&self.row("counting transactions", sql, &[(&database, Type::TEXT)]).await?, 0)
    }

    /// Settles the tables after a bulk load, as autovacuum would within a minute.
    pub(crate) async fn tidy(&self) -> anyhow::Result<()> {
        self.batch("vacuum analyze leasehold.live_jobs").await
    }

    /// Refuses a database that was not made for a bench.
    fn ensure_scratch(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.database.name().starts_with(SCRATCH), "{} was not made for a bench", self.database);
        Ok(())
    }

    /// Statements without parameters, for as long as they take.
    async fn batch(&self, sql: &str) -> anyhow::Result<()> {
        self.client().await?.batch_execute(sql).await.map_err(super::explain)
    }
}
