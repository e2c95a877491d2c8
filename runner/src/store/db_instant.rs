//! An instant of the database's clock, which this process carries about without reading it: it only comes back as a lower
//! bound. Only cron arithmetic reads one. Never compared with a clock of ours.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Microseconds since 2000-01-01, PostgreSQL's own form; its infinities are the ends of i64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DbInstant(i64);

impl DbInstant {
    pub const BEGINNING: Self = Self(i64::MIN);

    /// From 1970 to 2000.
    const EPOCH_MICROS: i64 = 946_684_800_000_000;

    pub fn from_unix_second(second: i64) -> Self {
        Self(second.saturating_mul(1_000_000).saturating_sub(Self::EPOCH_MICROS))
    }

    pub fn unix_micros(self) -> i64 {
        self.0.saturating_add(Self::EPOCH_MICROS)
    }

    #[cfg(test)]
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }
}

impl<'a> FromSql<'a> for DbInstant {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

impl ToSql for DbInstant {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}
