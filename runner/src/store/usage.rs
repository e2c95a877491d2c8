//! What runs used, for bills.

use serde::Serialize;
use tokio_postgres::types::Type;

use super::{Store, get};

/// Which rows of `leasehold.usage` to show; a day as PostgreSQL reads one.
#[derive(Debug, Default)]
pub struct UsageFilter<'a> {
    pub tenant: Option<&'a str>,
    pub module: Option<&'a str>,
    pub since: Option<&'a str>,
    pub until: Option<&'a str>,
}

/// A tenant's runs of a module on a day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UsageRow {
    pub tenant: String,
    pub module: String,
    pub day: String,
    pub runs: i64,
    pub failed: i64,
    pub crashed: i64,
    pub cpu_ms: f64,
    /// More than fits into 64 bits may be burnt in a day.
    pub fuel: String,
    pub memory_byte_seconds: f64,
    pub bytes_in: i64,
    pub bytes_out: i64,
}

impl Store {
    pub async fn usage(&self, filter: &UsageFilter<'_>) -> anyhow::Result<Vec<UsageRow>> {
        let sql = "-- usage
            select tenant, module, day::text, runs, failed, crashed, cpu_ms, fuel::text, memory_byte_seconds, bytes_in, bytes_out
              from leasehold.usage
             where ($1::text is null or tenant = $1) and ($2::text is null or module = $2)
               and ($3::text is null or day >= $3::date) and ($4::text is null or day <= $4::date)
             order by tenant, day, module";
        let params = [
            (&filter.tenant as _, Type::TEXT),
            (&filter.module as _, Type::TEXT),
            (&filter.since as _, Type::TEXT),
            (&filter.until as _, Type::TEXT),
        ];
        let rows = self.rows("reading what was used", sql, &params).await?;
        rows.iter()
            .map(|row| {
                Ok(UsageRow {
                    tenant: get(row, 0)?,
                    module: get(row, 1)?,
                    day: get(row, 2)?,
                    runs: get(row, 3)?,
                    failed: get(row, 4)?,
                    crashed: get(row, 5)?,
                    cpu_ms: get(row, 6)?,
                    fuel: get(row, 7)?,
                    memory_byte_seconds: get(row, 8)?,
                    bytes_in: get(row, 9)?,
                    bytes_out: get(row, 10)?,
                })
            })
            .collect()
    }
}
