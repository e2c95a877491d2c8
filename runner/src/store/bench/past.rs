//! What a database has that was long in use: a history, jobs for later, somebody's old snapshot.

use deadpool_postgres::Object;
use tokio_postgres::types::Type;

use super::super::{Store, explain};
use super::FILL_LIMIT;

impl Store {
    /// Jobs that have finished just now, so that they lie in the partition that settling writes to. Their ids are negative:
    /// no job has one.
    pub(crate) async fn fill_history(
        &self,
        tenant: &str,
        module: &str,
        queue: &str,
        already: u32,
        count: u32,
    ) -> anyhow::Result<()> {
        self.ensure_scratch()?;
        let sql = "insert into leasehold.history (tenant_id, module_id, id, state, priority, attempt, max_attempts, lease_no, crash_count,
                       version, version_pinned, run_at, enqueued_at, started_at, finished_at, worker_id, fuel, wall_us, cpu_us,
                       memory_peak_bytes, queue, payload, result)
            select tenant_id, module_id, -n, 'done', 0, 1, 5, 1, 0, 1, false, now(), now(), now(), now(), 1, 20000, 50, 40, 1114112, $3,
                   '\"xxxxxxxxxxxxxxxx\"', 'null'
              from leasehold.modules m join leasehold.tenants t using (tenant_id), generate_series($4 + 1, $4 + $5) n
             where t.name = $1 and m.name = $2";
        let (already, count) = (i64::from(already), i64::from(count));
        let params = [
            (&tenant as _, Type::TEXT),
            (&module as _, Type::TEXT),
            (&queue as _, Type::TEXT),
            (&already as _, Type::INT8),
            (&count as _, Type::INT8),
        ];
        self.rows_within(FILL_LIMIT, "filling the history", sql, &params).await?;
        Ok(())
    }

    /// Jobs that are due tomorrow.
    pub(crate) async fn fill_future(&self, tenant: &str, module: &str, queue: &str, count: u32) -> anyhow::Result<()> {
        self.ensure_scratch()?;
        let sql = "insert into leasehold.live_jobs (tenant_id, module_id, priority, max_attempts, queue, run_at, enqueued_at, payload)
            select tenant_id, module_id, 0, 5, $3, now() + interval '1 day' + n * interval '1 millisecond', now(), '\"xxxxxxxxxxxxxxxx\"'
              from leasehold.modules m join leasehold.tenants t using (tenant_id), generate_series(1, $4) n
             where t.name = $1 and m.name = $2";
        let count = i64::from(count);
        let params = [
            (&tenant as _, Type::TEXT),
            (&module as _, Type::TEXT),
            (&queue as _, Type::TEXT),
            (&count as _, Type::INT8),
        ];
        self.rows_within(FILL_LIMIT, "filling in jobs for later", sql, &params).await?;
        Ok(())
    }

    /// Holds a snapshot until it is released: nothing that is deleted from now on can be vacuumed away.
    pub(crate) async fn hold_snapshot(&self) -> anyhow::Result<HeldSnapshot> {
        let session = self.client().await?;
        let begin = "begin isolation level repeatable read; select count(*) from leasehold.live_jobs";
        session.batch_execute(begin).await.map_err(explain)?;
        Ok(HeldSnapshot(session))
    }
}

/// Not released, it ends with its connection's database.
pub(crate) struct HeldSnapshot(Object);

impl HeldSnapshot {
    pub async fn release(self) -> anyhow::Result<()> {
        self.0.batch_execute("commit").await.map_err(explain)
    }
}
