//! Tenants: who they are, what they may have, and which database roles may act for them.

use tokio_postgres::types::Type;

use super::{Store, get};

/// What a tenant may have of something, and has.
#[derive(Debug, Clone, serde::Serialize)]
pub struct QuotaRow {
    pub quota: String,
    /// None: no limit.
    pub allowed: Option<i64>,
    /// None: nobody counts it.
    pub used: Option<i64>,
}

/// A database role that may act for a tenant.
#[derive(Debug, Clone, serde::Serialize)]
pub struct GrantRow {
    pub role: String,
    /// `tenant` or `producer`.
    pub level: String,
    /// False for a role that was dropped, and perhaps made anew: it has nothing.
    pub valid: bool,
}

/// Whom to let act for a tenant, and how.
pub struct NewGrant<'a> {
    pub tenant: &'a str,
    pub role: &'a str,
    pub level: &'a str,
    pub through_functions: bool,
    pub create_role: bool,
}

/// What one step of a removal came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removal {
    /// Where the next step goes on; None at the end of a pass.
    pub next_id: Option<i64>,
    pub removed: i64,
    /// Jobs of the tenant that still run.
    pub running: i64,
    pub done: bool,
}

impl Store {
    /// Answers whether it was not there before.
    pub async fn create_tenant(&self, name: &str) -> anyhow::Result<bool> {
        let sql = "-- create_tenant\nselect leasehold.create_tenant($1)";
        get(&self.row("creating the tenant", sql, &[(&name, Type::TEXT)]).await?, 0)
    }

    pub async fn tenants(&self) -> anyhow::Result<Vec<String>> {
        let rows =
            self.rows("listing tenants", "-- tenants\nselect name from leasehold.tenants order by name", &[]).await?;
        rows.iter().map(|row| get(row, 0)).collect()
    }

    /// By their names; null takes one away, and what is not named stays.
    pub async fn set_quotas(&self, tenant: &str, quotas: &serde_json::Value) -> anyhow::Result<()> {
        let sql = "-- set_quotas\nselect leasehold.set_quotas($1, $2)";
        self.row("setting the quotas", sql, &[(&tenant, Type::TEXT), (quotas, Type::JSONB)]).await?;
        Ok(())
    }

    /// Counts jobs into the quota that are older than it, from an id on. Answers where to go on.
    pub async fn count_jobs(&self, tenant: &str, from_id: i64) -> anyhow::Result<Option<i64>> {
        let sql = "-- count_jobs\nselect leasehold.count_jobs($1, $2)";
        get(&self.row("counting jobs", sql, &[(&tenant, Type::TEXT), (&from_id, Type::INT8)]).await?, 0)
    }

    /// Empty when there is no such tenant.
    pub async fn quotas(&self, tenant: &str) -> anyhow::Result<Vec<QuotaRow>> {
        let sql = "-- quotas\nselect quota, allowed, used from leasehold.tenant_quotas where tenant = $1";
        let rows = self.rows("looking up the quotas", sql, &[(&tenant, Type::TEXT)]).await?;
        rows.iter().map(|row| Ok(QuotaRow { quota: get(row, 0)?, allowed: get(row, 1)?, used: get(row, 2)? })).collect()
    }

    pub async fn grants(&self, tenant: &str) -> anyhow::Result<Vec<GrantRow>> {
        let sql = "-- grants
            select r.role_name::text, r.level, exists (select from pg_roles p where p.oid = r.role_oid and p.rolname = r.role_name)
              from leasehold.tenant_roles r join leasehold.tenants t using (tenant_id) where t.name = $1 order by r.role_name";
        let rows = self.rows("listing the grants", sql, &[(&tenant, Type::TEXT)]).await?;
        rows.iter().map(|row| Ok(GrantRow { role: get(row, 0)?, level: get(row, 1)?, valid: get(row, 2)? })).collect()
    }

    /// Answers whether that changed anything.
    pub async fn grant_tenant(&self, grant: &NewGrant<'_>) -> anyhow::Result<bool> {
        let sql = "-- grant_tenant\nselect leasehold.grant_tenant($1, $2, $3, $4, $5)";
        let params = [
            (&grant.tenant as _, Type::TEXT),
            (&grant.role as _, Type::TEXT),
            (&grant.level as _, Type::TEXT),
            (/* through_functions */ &grant.through_functions as _, Type::BOOL),
            (/* create_role */ &grant.create_role as _, Type::BOOL),
        ];
        get(&self.row("granting the tenant", sql, &params).await?, 0)
    }

    /// Answers whether it could act for the tenant.
    pub async fn revoke_tenant(&self, tenant: &str, role: &str) -> anyhow::Result<bool> {
        let sql = "-- revoke_tenant\nselect leasehold.revoke_tenant($1, $2)";
        get(&self.row("revoking the tenant", sql, &[(&tenant, Type::TEXT), (&role, Type::TEXT)]).await?, 0)
    }

    /// One step; `from_id` is what the last one answered, None at first. `clean`: this pass has found nothing so far.
    pub async fn remove_tenant(
        &self,
        tenant: &str,
        force: bool,
        from_id: Option<i64>,
        clean: bool,
    ) -> anyhow::Result<Removal> {
        let sql = "-- remove_tenant\nselect * from leasehold.remove_tenant($1, $2, $3, $4)";
        let params = [
            (&tenant as _, Type::TEXT),
            (&force as _, Type::BOOL),
            (&from_id as _, Type::INT8),
            (&clean as _, Type::BOOL),
        ];
        let row = self.row("removing the tenant", sql, &params).await?;
        Ok(Removal {
            next_id: get(&row, "next_id")?,
            removed: get(&row, "removed")?,
            running: get(&row, "running")?,
            done: get(&row, "done")?,
        })
    }
}
