//! Weights, and whether claims can share yet.

use tokio_postgres::types::Type;

use super::{Store, get};
use crate::job::TenantId;

/// What a claimer has to know of shares.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    /// Whether jobs can be found by their tenant: not while the last step of a migration is still to be made.
    pub ready: bool,
    /// The weights that are not 100.
    pub weights: Vec<(TenantId, i32)>,
}

impl Store {
    pub async fn shares(&self) -> anyhow::Result<Shares> {
        let row = self.row("reading the tenants' weights", "-- shares\nselect * from leasehold.shares()", &[]).await?;
        let tenants = get::<Vec<i32>>(&row, "tenant_ids")?.into_iter().map(TenantId);
        Ok(Shares { ready: get(&row, "ready")?, weights: tenants.zip(get::<Vec<i32>>(&row, "weights")?).collect() })
    }

    /// Answers the weight that the tenant had before.
    pub async fn set_weight(&self, tenant: &str, weight: i32) -> anyhow::Result<i32> {
        let sql = "-- set_weight\nselect leasehold.set_weight($1, $2)";
        get(&self.row("setting a weight", sql, &[(&tenant, Type::TEXT), (&weight, Type::INT4)]).await?, 0)
    }
}
