//! A database for one bench. Whoever made it holds a session that is named after it for as long as it is needed; so what a
//! killed bench left behind is told from what is in use.

use anyhow::Context as _;
use deadpool_postgres::Object;
use tokio_postgres::types::Type;

use super::super::{Store, explain, get};
use super::SCRATCH;

pub(crate) struct Scratch {
    name: String,
    session: Object,
}

impl Store {
    /// Makes a database on this server, and drops those of benches that were killed.
    pub(crate) async fn create_scratch(&self) -> anyhow::Result<Scratch> {
        let sql = "select datname::text from pg_database d where starts_with(datname, $1)
                      and not exists (select from pg_stat_activity a where a.datname = d.datname or a.application_name = d.datname)";
        for row in self.rows("looking for left-over databases", sql, &[(&SCRATCH, Type::TEXT)]).await? {
            // It may be somebody else's to drop, or two benches are at it.
            let _ = self.batch(&format!("drop database if exists {}", get::<String>(&row, 0)?)).await;
        }
        let name = format!("{SCRATCH}{:08x}", rand::random::<u32>());
        let session = self.client().await?;
        session.batch_execute(&format!("set application_name = '{name}'")).await.map_err(explain)?;
        let created = session.batch_execute(&format!("create database {name}")).await.map_err(explain);
        created.context("creating a database for the bench; the role needs CREATEDB")?;
        Ok(Scratch { name, session })
    }
}

impl Scratch {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub async fn drop(self) -> anyhow::Result<()> {
        let dropped = self.session.batch_execute(&format!("drop database {} with (force)", self.name)).await;
        dropped.map_err(explain).with_context(|| format!("dropping the database {}", self.name))
    }
}
