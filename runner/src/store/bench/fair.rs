//! What tenants' runs used.

use tokio_postgres::types::Type;

use super::super::{Store, get};
use super::FILL_LIMIT;

/// Of a tenant's finished jobs.
pub(crate) struct Runs {
    pub count: i64,
    pub cpu_seconds: f64,
    pub median_wall_ms: f64,
}

impl Store {
    pub(crate) async fn bench_runs(&self, tenant: &str) -> anyhow::Result<Runs> {
        let sql = "select count(*), coalesce(sum(h.cpu_us), 0)::float8 / 1e6,
                          coalesce(percentile_cont(0.5) within group (order by h.wall_us), 0)::float8 / 1e3
                     from leasehold.history h join leasehold.tenants t using (tenant_id) where t.name = $1";
        let row = self.row("adding up runs", sql, &[(&tenant, Type::TEXT)]).await?;
        Ok(Runs { count: get(&row, 0)?, cpu_seconds: get(&row, 1)?, median_wall_ms: get(&row, 2)? })
    }

    /// How many jobs of a tenant wait.
    pub(crate) async fn bench_waiting_of(&self, tenant: &str) -> anyhow::Result<i64> {
        let sql = "select count(*) from leasehold.live_jobs j join leasehold.tenants t using (tenant_id) where t.name = $1 and not j.running";
        get(&self.row("counting the jobs that wait", sql, &[(&tenant, Type::TEXT)]).await?, 0)
    }

    /// One job for each tenant whose name starts so.
    pub(crate) async fn enqueue_each(&self, module: &str, queue: &str, tenants: &str) -> anyhow::Result<()> {
        let sql = "select count(leasehold.enqueue($1, '0'::jsonb, t.name, $2)) from leasehold.tenants t where starts_with(t.name, $3)";
        let params = [(&module as _, Type::TEXT), (&queue as _, Type::TEXT), (&tenants as _, Type::TEXT)];
        self.rows_within(FILL_LIMIT, "enqueuing a job for each tenant", sql, &params).await?;
        Ok(())
    }
}
