//! Secrets of tenants, sealed: this side never sees a value or a key.

use tokio_postgres::types::Type;

use super::{Store, get};
use crate::job::TenantId;
use crate::secrets::Sealed;

/// A secret in a list.
#[derive(Debug, Clone, serde::Serialize)]
pub struct SecretRow {
    pub tenant: String,
    pub name: String,
    pub key_id: String,
    pub created_at: String,
    pub updated_at: String,
}

impl Store {
    /// Keeps a secret; with the nonce that another had, only in the place of that one. Answers whether it did.
    pub async fn set_secret(&self, tenant: &str, secret: &Sealed, replaces: Option<&[u8]>) -> anyhow::Result<bool> {
        let sql = "-- set_secret\nselect leasehold.set_secret($1, $2, $3, $4, $5, $6)";
        let params = [
            (&tenant as _, Type::TEXT),
            (&secret.name as _, Type::TEXT),
            (&secret.key_id as _, Type::TEXT),
            (&secret.nonce as _, Type::BYTEA),
            (&secret.bytes as _, Type::BYTEA),
            (/* replaces */ &replaces as _, Type::BYTEA),
        ];
        get(&self.row("keeping the secret", sql, &params).await?, 0)
    }

    /// Answers whether there was one.
    pub async fn remove_secret(&self, tenant: &str, name: &str) -> anyhow::Result<bool> {
        let sql = "-- remove_secret\nselect leasehold.remove_secret($1, $2)";
        get(&self.row("removing the secret", sql, &[(&tenant, Type::TEXT), (&name, Type::TEXT)]).await?, 0)
    }

    /// A tenant's secrets with these names, or all there are, each with its tenant's name.
    pub async fn sealed_secrets(&self, of: Option<(TenantId, &[String])>) -> anyhow::Result<Vec<(String, Sealed)>> {
        let sql = "-- sealed_secrets\nselect * from leasehold.sealed_secrets($1, $2)";
        let (tenant, names) = of.map(|(tenant, names)| (tenant.0, names)).unzip();
        let rows = self.rows("fetching secrets", sql, &[(&tenant, Type::INT4), (&names, Type::TEXT_ARRAY)]).await?;
        rows.iter()
            .map(|row| {
                let sealed = Sealed {
                    name: get(row, "name")?,
                    key_id: get(row, "key_id")?,
                    nonce: get(row, "nonce")?,
                    bytes: get(row, "sealed")?,
                };
                Ok((get(row, "tenant")?, sealed))
            })
            .collect()
    }

    /// All tenants' secrets, or one's, without what they say.
    pub async fn secrets(&self, tenant: Option<&str>) -> anyhow::Result<Vec<SecretRow>> {
        let sql = "-- secrets
            select tenant, name, key_id, created_at::text, updated_at::text from leasehold.secret_names
             where $1::text is null or tenant = $1 order by tenant, name";
        let rows = self.rows("listing secrets", sql, &[(&tenant, Type::TEXT)]).await?;
        rows.iter()
            .map(|row| {
                Ok(SecretRow {
                    tenant: get(row, "tenant")?,
                    name: get(row, "name")?,
                    key_id: get(row, "key_id")?,
                    created_at: get(row, "created_at")?,
                    updated_at: get(row, "updated_at")?,
                })
            })
            .collect()
    }
}
