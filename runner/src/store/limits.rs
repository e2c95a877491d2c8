//! What keeps jobs waiting on purpose: pauses, caps and rates.

use std::time::Duration;

use serde::Serialize;
use tokio_postgres::types::Type;

use super::{Store, get};

/// Whose jobs are meant: a tenant's, or those of one of its modules.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    pub tenant: &'a str,
    pub module: Option<&'a str>,
}

/// A pause, a cap or a rate that is in force.
#[derive(Debug, Clone, Serialize)]
pub struct LimitRow {
    /// `pause`, `cap` or `rate`.
    pub kind: String,
    pub tenant: Option<String>,
    pub module: Option<String>,
    pub key: Option<String>,
    pub queue: Option<String>,
    pub max_running: Option<i32>,
    pub running: Option<i32>,
    pub per_second: Option<f64>,
    pub burst: Option<f64>,
    pub paused_at: Option<String>,
    pub reason: Option<String>,
}

impl Store {
    /// Answers whether it was not paused before.
    pub async fn pause_queue(&self, queue: &str, reason: Option<&str>) -> anyhow::Result<bool> {
        let sql = "-- pause\nselect leasehold.pause(queue => $1, reason => $2)";
        get(&self.row("pausing the queue", sql, &[(&queue, Type::TEXT), (&reason, Type::TEXT)]).await?, 0)
    }

    /// Answers whether it was paused.
    pub async fn resume_queue(&self, queue: &str) -> anyhow::Result<bool> {
        let sql = "-- resume\nselect leasehold.resume(queue => $1)";
        get(&self.row("resuming the queue", sql, &[(&queue, Type::TEXT)]).await?, 0)
    }

    pub async fn pause(&self, scope: Scope<'_>, reason: Option<&str>) -> anyhow::Result<bool> {
        let sql = "-- pause\nselect leasehold.pause(tenant => $1, module => $2, reason => $3)";
        let params = [(&scope.tenant as _, Type::TEXT), (&scope.module as _, Type::TEXT), (&reason as _, Type::TEXT)];
        get(&self.row("pausing", sql, &params).await?, 0)
    }

    pub async fn resume(&self, scope: Scope<'_>) -> anyhow::Result<bool> {
        let sql = "-- resume\nselect leasehold.resume(tenant => $1, module => $2)";
        let params = [(&scope.tenant as _, Type::TEXT), (&scope.module as _, Type::TEXT)];
        get(&self.row("resuming", sql, &params).await?, 0)
    }

    /// So many jobs each `per`, `burst` at once; a rate of None takes the limit away. Answers whether there was one.
    pub async fn set_rate(
        &self,
        scope: Scope<'_>,
        key: Option<&str>,
        rate: Option<f64>,
        per: Duration,
        burst: Option<i32>,
    ) -> anyhow::Result<bool> {
        let per_ms = i64::try_from(per.as_millis()).unwrap_or(i64::MAX);
        let sql = "-- set_rate
            select leasehold.set_rate($1, per => $2 * interval '1 millisecond', burst => $3, tenant => $4, module => $5, key => $6)";
        let params = [
            (&rate as _, Type::FLOAT8),
            (&per_ms as _, Type::INT8),
            (&burst as _, Type::INT4),
            (&scope.tenant as _, Type::TEXT),
            (&scope.module as _, Type::TEXT),
            (&key as _, Type::TEXT),
        ];
        get(&self.row("setting the rate", sql, &params).await?, 0)
    }

    /// None takes the cap away. Answers the cap that was before.
    pub async fn set_cap(&self, scope: Scope<'_>, max_running: Option<i32>) -> anyhow::Result<Option<i32>> {
        let sql = "-- set_cap\nselect leasehold.set_cap($1, tenant => $2, module => $3)";
        let params =
            [(&max_running as _, Type::INT4), (&scope.tenant as _, Type::TEXT), (&scope.module as _, Type::TEXT)];
        get(&self.row("setting the cap", sql, &params).await?, 0)
    }

    pub async fn limits(&self) -> anyhow::Result<Vec<LimitRow>> {
        let sql = "-- limits
            select kind, tenant, module, key, queue, max_running, running, per_second, burst, paused_at::text, reason
              from leasehold.limits order by kind, tenant, module, key, queue";
        let rows = self.rows("listing limits", sql, &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(LimitRow {
                    kind: get(row, "kind")?,
                    tenant: get(row, "tenant")?,
                    module: get(row, "module")?,
                    key: get(row, "key")?,
                    queue: get(row, "queue")?,
                    max_running: get(row, "max_running")?,
                    running: get(row, "running")?,
                    per_second: get(row, "per_second")?,
                    burst: get(row, "burst")?,
                    paused_at: get(row, "paused_at")?,
                    reason: get(row, "reason")?,
                })
            })
            .collect()
    }
}
