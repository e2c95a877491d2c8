//! Uploads: named modules, their versions and bytes.

use std::time::Duration;

use anyhow::Context as _;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{Store, get};
use crate::job::{Digest, Limits, ModuleKind, ModuleVersion, TenantId};
use crate::outcome::{FailureKind, OnFailure};
use crate::retry::RetrySettings;

/// A version to upload.
pub struct NewVersion<'a> {
    pub tenant: &'a str,
    pub name: &'a str,
    pub kind: ModuleKind,
    pub bytes: &'a [u8],
    pub limits: Limits,
    pub on_failure: &'a [(FailureKind, OnFailure)],
    pub imports: &'a [String],
    pub activate: bool,
    pub retry: RetrySettings,
}

/// What an upload came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    pub version: i32,
    /// False when the newest version was the same already.
    pub created: bool,
}

/// A module in a list.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ModuleRow {
    pub tenant: String,
    pub name: String,
    pub active_version: Option<i32>,
    pub versions: i64,
    pub kind: Option<String>,
    pub size_bytes: Option<i64>,
    pub digest: Option<String>,
    pub created_at: String,
}

/// A version in a list.
#[derive(Debug, Clone, serde::Serialize)]
pub struct VersionRow {
    pub version: i32,
    pub active: bool,
    pub kind: String,
    pub digest: String,
    pub size_bytes: i64,
    pub limits: Limits,
    pub on_failure: serde_json::Value,
    pub imports: Vec<String>,
    /// As leasehold.module_versions has it.
    pub retry: serde_json::Value,
    pub created_at: String,
}

impl Store {
    pub async fn push_module(&self, new: &NewVersion<'_>) -> anyhow::Result<Pushed> {
        let on_failure: serde_json::Map<String, serde_json::Value> =
            new.on_failure.iter().map(|(kind, end)| (kind.to_string(), end.as_str().into())).collect();
        let on_failure = serde_json::Value::Object(on_failure);
        let number =
            |name: &str, n: u64| i64::try_from(n).with_context(|| format!("{name} of {n} is over {}", i64::MAX));
        let fuel = number("fuel", new.limits.fuel)?;
        let memory_bytes = number("memory", new.limits.memory_bytes)?;
        let result_bytes = number("result limit", new.limits.result_bytes)?;
        let log_bytes = i32::try_from(new.limits.log_bytes).context("log limit is over 2 GiB")?;
        let follow_ups = i32::try_from(new.limits.follow_ups).context("follow-up limit is over 2^31")?;
        let timeout_ms = i32::try_from(new.limits.timeout.as_millis()).context("timeout is over 24 days")?;
        let row = self
            .row(
                "uploading the module",
                "-- push_module\nselect * from leasehold.push_module($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
                &[
                    (&new.tenant, Type::TEXT),
                    (&new.name, Type::TEXT),
                    (&new.kind.as_str(), Type::TEXT),
                    (&new.bytes, Type::BYTEA),
                    (/* fuel */ &fuel, Type::INT8),
                    (/* memory_bytes */ &memory_bytes, Type::INT8),
                    (/* timeout_ms */ &timeout_ms, Type::INT4),
                    (/* result_bytes */ &result_bytes, Type::INT8),
                    (/* log_bytes */ &log_bytes, Type::INT4),
                    (&on_failure, Type::JSONB),
                    (&new.imports, Type::TEXT_ARRAY),
                    (/* activate */ &new.activate, Type::BOOL),
                    (&retry_json(&new.retry), Type::JSONB),
                    (/* follow_ups */ &follow_ups, Type::INT4),
                ],
            )
            .await?;
        Ok(Pushed { version: get(&row, "version")?, created: get(&row, "created")? })
    }

    /// None switches the module off. Answers the version that was active before.
    pub async fn activate_module(&self, tenant: &str, name: &str, version: Option<i32>) -> anyhow::Result<Option<i32>> {
        let sql = "-- activate_module\nselect leasehold.activate_module($1, $2, $3)";
        let row = self
            .row("activating the version", sql, &[(&tenant, Type::TEXT), (&name, Type::TEXT), (&version, Type::INT4)])
            .await?;
        get(&row, 0)
    }

    /// Answers how many queued jobs were cancelled.
    pub async fn remove_module(&self, tenant: &str, name: &str, force: bool) -> anyhow::Result<i64> {
        let sql = "-- remove_module\nselect leasehold.remove_module($1, $2, $3)";
        let row = self
            .row("removing the module", sql, &[(&tenant, Type::TEXT), (&name, Type::TEXT), (&force, Type::BOOL)])
            .await?;
        get(&row, 0)
    }

    /// All tenants' modules, or one's.
    pub async fn modules(&self, tenant: Option<&str>) -> anyhow::Result<Vec<ModuleRow>> {
        let sql = "-- modules
            select t.name as tenant, m.name, m.active_version, m.created_at::text,
                   (select count(*) from leasehold.module_versions v where v.module_id = m.module_id) as versions,
                   v.kind::text, octet_length(b.bytes)::bigint as size_bytes, encode(v.digest, 'hex') as digest
              from leasehold.modules m join leasehold.tenants t using (tenant_id)
              left join leasehold.module_versions v on v.module_id = m.module_id and v.version = m.active_version
              left join leasehold.module_bytes b on b.tenant_id = v.tenant_id and b.digest = v.digest
             where m.name is not null and ($1::text is null or t.name = $1)
             order by t.name, m.name";
        let rows = self.rows("listing modules", sql, &[(&tenant, Type::TEXT)]).await?;
        rows.iter()
            .map(|row| {
                Ok(ModuleRow {
                    tenant: get(row, "tenant")?,
                    name: get(row, "name")?,
                    active_version: get(row, "active_version")?,
                    versions: get(row, "versions")?,
                    kind: get(row, "kind")?,
                    size_bytes: get(row, "size_bytes")?,
                    digest: get(row, "digest")?,
                    created_at: get(row, "created_at")?,
                })
            })
            .collect()
    }

    /// A module's versions, newest first. Empty when there is no such module.
    pub async fn module_versions(&self, tenant: &str, name: &str) -> anyhow::Result<Vec<VersionRow>> {
        let sql = "-- module_versions
            select v.version, v.digest, v.kind::text as kind, v.fuel, v.memory_bytes, v.timeout_ms, v.result_bytes, v.log_bytes,
                   v.follow_ups, v.on_failure, v.imports, v.retry, v.created_at::text as created_at, octet_length(b.bytes)::bigint as size_bytes,
                   v.version is not distinct from m.active_version as active
              from leasehold.module_versions v
              join leasehold.modules m using (module_id) join leasehold.tenants t on t.tenant_id = m.tenant_id
              join leasehold.module_bytes b on b.tenant_id = v.tenant_id and b.digest = v.digest
             where t.name = $1 and m.name = $2 order by v.version desc";
        let rows = self.rows("showing the module", sql, &[(&tenant, Type::TEXT), (&name, Type::TEXT)]).await?;
        rows.iter()
            .map(|row| {
                Ok(VersionRow {
                    version: get(row, "version")?,
                    active: get(row, "active")?,
                    kind: get(row, "kind")?,
                    digest: hex::encode(get::<Vec<u8>>(row, "digest")?),
                    size_bytes: get(row, "size_bytes")?,
                    limits: limits(row)?,
                    on_failure: get(row, "on_failure")?,
                    imports: get(row, "imports")?,
                    retry: get(row, "retry")?,
                    created_at: get(row, "created_at")?,
                })
            })
            .collect()
    }

    /// What a claim needs to know of a version. None when it was removed meanwhile.
    pub async fn module_version(
        &self,
        tenant: TenantId,
        module_id: i32,
        version: i32,
    ) -> anyhow::Result<Option<(ModuleVersion, String)>> {
        let sql = "-- module_version
            select v.digest, v.kind::text as kind, v.fuel, v.memory_bytes, v.timeout_ms, v.result_bytes, v.log_bytes, v.follow_ups, v.on_failure, v.retry,
                   coalesce(m.name, m.removed_name) as module_name, t.name as tenant_name
              from leasehold.module_versions v
              join leasehold.modules m using (module_id) join leasehold.tenants t on t.tenant_id = m.tenant_id
             where m.tenant_id = $1 and v.module_id = $2 and v.version = $3";
        let params = [(&tenant.0 as _, Type::INT4), (&module_id as _, Type::INT4), (&version as _, Type::INT4)];
        let rows = self.rows("looking up the module", sql, &params).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let version = ModuleVersion {
            name: get(row, "module_name")?,
            version,
            digest: digest(&get::<Vec<u8>>(row, "digest")?)?,
            kind: get::<String>(row, "kind")?.parse()?,
            limits: limits(row)?,
            on_failure: on_failure(row)?,
            retry: retry(&get(row, "retry")?),
        };
        Ok(Some((version, get(row, "tenant_name")?)))
    }

    /// The uploaded bytes. Whoever uses them checks them against the digest, so that who can write that row can't make a
    /// worker run something else.
    pub async fn module_bytes(&self, tenant: TenantId, digest: Digest) -> anyhow::Result<Option<Vec<u8>>> {
        let sql = "-- module_bytes\nselect bytes from leasehold.module_bytes where tenant_id = $1 and digest = $2";
        let key = digest.0.as_slice();
        let rows = self.rows("fetching the module", sql, &[(&tenant.0, Type::INT4), (&key, Type::BYTEA)]).await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }
}

pub(super) fn limits(row: &Row) -> anyhow::Result<Limits> {
    // The CHECKs of the table keep these positive.
    Ok(Limits {
        fuel: get::<i64>(row, "fuel")?.unsigned_abs(),
        memory_bytes: get::<i64>(row, "memory_bytes")?.unsigned_abs(),
        timeout: Duration::from_millis(u64::from(get::<i32>(row, "timeout_ms")?.unsigned_abs())),
        result_bytes: get::<i64>(row, "result_bytes")?.unsigned_abs(),
        log_bytes: u64::from(get::<i32>(row, "log_bytes")?.unsigned_abs()),
        follow_ups: get::<i32>(row, "follow_ups")?.unsigned_abs(),
    })
}

pub(super) fn on_failure(row: &Row) -> anyhow::Result<Vec<(FailureKind, OnFailure)>> {
    let chosen: serde_json::Value = get(row, "on_failure")?;
    let chosen = chosen.as_object().context("on_failure is not an object")?;
    chosen
        .iter()
        .map(|(kind, end)| Ok((kind.parse()?, end.as_str().context("not a string")?.parse()?)))
        .collect::<anyhow::Result<_>>()
        .context("reading on_failure")
}

fn retry_json(retry: &RetrySettings) -> serde_json::Value {
    let ms = |duration: Option<Duration>| duration.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
    let mut json = serde_json::json!({
        "base_ms": ms(retry.base), "factor": retry.factor, "cap_ms": ms(retry.cap), "jitter": retry.jitter,
        "max_attempts": retry.max_attempts,
    });
    json.as_object_mut().expect("it was made as one").retain(|_, value| !value.is_null());
    json
}

fn retry(json: &serde_json::Value) -> RetrySettings {
    let ms = |name: &str| json[name].as_u64().map(Duration::from_millis);
    RetrySettings {
        base: ms("base_ms"),
        factor: json["factor"].as_f64(),
        cap: ms("cap_ms"),
        jitter: json["jitter"].as_f64(),
        max_attempts: None, // enqueue has looked at it
    }
}

pub(super) fn digest(bytes: &[u8]) -> anyhow::Result<Digest> {
    Ok(Digest(bytes.try_into().with_context(|| format!("a digest has 32 bytes, not {}", bytes.len()))?))
}
