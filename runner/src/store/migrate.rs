//! Brings the schema up to what this binary knows: under a lock, with checksums. An older binary never
//! touches a newer schema, and a released migration that was edited is refused.

use anyhow::Context as _;
use deadpool_postgres::{Client, Transaction};
use sha2::Digest as _;
use tokio_postgres::types::Type;

use super::{Store, explain, get};

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/migrations.rs"));
}

/// One thing that `migrate` did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Migration {
    /// "0001_tables", or "functions, views and roles".
    pub name: String,
}

const LEDGER: &str = "
    create schema if not exists leasehold;
    create table if not exists leasehold.schema_version (
        version     int primary key,         -- 0: the functions, views and roles
        name        text not null,
        checksum    text not null,
        applied_at  timestamptz not null default now()
    );";

/// Where there are jobs already this takes minutes, so it is done after everything else and without a lock: enqueue, claims and
/// settlements go on, and jobs are taken as they come until it is whole.
const INDEX: &str = "live_jobs_by_tenant";
const BUILD_INDEX: &str =
    "create index concurrently live_jobs_by_tenant on leasehold.live_jobs (queue, tenant_id, priority, run_at, id)";
const DROP_INDEX: &str = "drop index concurrently if exists leasehold.live_jobs_by_tenant";
/// How long that may take.
const BUILD_LIMIT: std::time::Duration = std::time::Duration::from_secs(6 * 3600);

/// A migration takes seconds, so who holds the lock for longer is no migrator.
const TAKE_TURNS: &str = "set local lock_timeout = '60s'; select pg_advisory_xact_lock(7236213)";

impl Store {
    /// Applies what is missing and answers it; with `dry_run` nothing is changed.
    ///
    /// Each file of tables is a transaction, and what works on them the last: to replace a view while tables that it shows are
    /// locked would deadlock with whoever reads it, and so would tables that others lock in another order. In between, the old
    /// functions work on the new tables.
    pub async fn migrate(&self, dry_run: bool) -> anyhow::Result<Vec<Migration>> {
        let mut client = self.client().await?;
        let mut done = Vec::new();
        let (mut tx, mut applied) = begin(&mut client).await?;
        for (index, (name, text)) in embedded::NUMBERED.iter().enumerate() {
            let version = i32::try_from(index).expect("a handful of files") + 1;
            if applied.iter().any(|(known, ..)| *known == version) {
                continue;
            }
            tx.batch_execute(text).await.map_err(explain).with_context(|| format!("applying {name}"))?;
            record(&tx, version, name, &checksum(&[text])).await?;
            done.push(Migration { name: (*name).to_owned() });
            if !dry_run {
                tx.commit().await.map_err(explain).context("ending the migration of the tables")?;
                (tx, applied) = begin(&mut client).await?;
            }
        }
        let current = code_checksum();
        if !applied.iter().any(|(version, _, checksum)| *version == 0 && *checksum == current) {
            for (name, text) in embedded::FUNCTIONS.iter().chain(embedded::VIEWS) {
                tx.batch_execute(text).await.map_err(explain).with_context(|| format!("applying {name}.sql"))?;
            }
            record(&tx, 0, "functions, views and roles", &current).await?;
            done.push(Migration { name: "functions, views and roles".into() });
        }
        // Each time, since an administrator may have made the roles only after the first migration asked for them.
        tx.batch_execute(embedded::ROLES).await.map_err(explain).context("applying roles.sql")?;
        let end = if dry_run { tx.rollback().await } else { tx.commit().await };
        end.map_err(explain).context("ending the migration")?;
        drop(client);
        if !dry_run {
            self.fence_tables().await?;
            self.maintain_partitions(super::Retention::default()).await?;
            if self.build_index().await? {
                done.push(Migration { name: INDEX.to_owned() });
            }
        }
        Ok(done)
    }

    /// The last step, where it was not made with the tables. One that was interrupted left an index that is not whole; it is built anew.
    async fn build_index(&self) -> anyhow::Result<bool> {
        let doing = "building the index live_jobs_by_tenant";
        let state = "select (select i.indisvalid from pg_index i where i.indexrelid = to_regclass('leasehold.live_jobs_by_tenant')),
                            exists (select from leasehold.sharing)
                            or exists (select from pg_stat_progress_create_index p where p.relid = 'leasehold.live_jobs'::regclass)";
        let row = self.row(doing, state, &[]).await?;
        let (whole, done_or_under_way): (Option<bool>, bool) = (get(&row, 0)?, get(&row, 1)?);
        if done_or_under_way {
            return Ok(false);
        }
        if whole != Some(true) {
            self.rows_within(BUILD_LIMIT, doing, DROP_INDEX, &[]).await?;
            self.rows_within(BUILD_LIMIT, doing, BUILD_INDEX, &[]).await?;
        }
        let sql = "-- begin_sharing\nselect leasehold.begin_sharing()";
        let row = self.rows_within(BUILD_LIMIT, "noting the tenants' lanes", sql, &[]).await?;
        row.first().map_or(Ok(false), |row| get(row, 0))
    }

    /// Row level security for each table that has none, also of later versions.
    async fn fence_tables(&self) -> anyhow::Result<()> {
        let sql = "-- unfenced tables
            select c.relname::text from pg_class c where c.relnamespace = 'leasehold'::regnamespace and c.relkind in ('r', 'p')
               and not c.relrowsecurity and c.relname <> 'schema_version' order by c.oid";
        for row in self.rows("looking for tables without row level security", sql, &[]).await? {
            let table: String = get(&row, 0)?;
            let sql = "-- fence\nselect leasehold.fence($1)::text";
            let fenced = self.row("turning row level security on", sql, &[(&table, Type::TEXT)]).await;
            fenced.with_context(|| format!("of table {table}"))?;
        }
        Ok(())
    }

    /// Refuses a schema that is older than this binary needs. A newer one is fine: its functions keep the older signatures.
    pub async fn check_schema(&self) -> anyhow::Result<()> {
        let newest = i32::try_from(embedded::NUMBERED.len()).expect("a handful of files");
        let rows = self
            .rows(
                "reading the schema's version",
                "select coalesce(max(version), -1) from leasehold.schema_version",
                &[],
            )
            .await?;
        let found: i32 = rows.first().map_or(Ok(-1), |row| get(row, 0))?;
        if found < newest {
            anyhow::bail!(
                "{} has schema version {found}, this leasehold needs {newest}; run: leasehold migrate",
                self.database
            );
        }
        Ok(())
    }
}

type Applied = Vec<(i32, String, String)>;

/// A transaction in which nobody else migrates, and what was applied before.
async fn begin(client: &mut Client) -> anyhow::Result<(Transaction<'_>, Applied)> {
    let run = async {
        let tx = client.transaction().await?;
        // Two migrators take turns; the second then finds nothing to do. Whoever may connect can take this lock too.
        tx.batch_execute(TAKE_TURNS).await?;
        tx.batch_execute(
            "set local lock_timeout = '5s'; set local check_function_bodies = off; set local client_min_messages = warning",
        )
        .await?;
        tx.batch_execute(LEDGER).await?;
        let applied = "select version, name, checksum from leasehold.schema_version order by version";
        let applied = tx.query_typed(applied, &[]).await?;
        let applied = applied.iter().map(|r| Ok((r.try_get(0)?, r.try_get(1)?, r.try_get(2)?)));
        Ok::<_, tokio_postgres::Error>((applied.collect::<Result<Applied, tokio_postgres::Error>>()?, tx))
    };
    let (applied, tx) = run.await.map_err(explain).context("starting the migration")?;
    check_known(&applied)?;
    Ok((tx, applied))
}

fn check_known(applied: &[(i32, String, String)]) -> anyhow::Result<()> {
    for (version, name, checksum_then) in applied.iter().filter(|(version, ..)| *version > 0) {
        let index = usize::try_from(version - 1).expect("positive");
        let Some((own_name, text)) = embedded::NUMBERED.get(index) else {
            anyhow::bail!(
                "the database has schema version {version} ({name}), this leasehold knows versions up to {}; use a newer leasehold",
                embedded::NUMBERED.len()
            );
        };
        if *checksum_then != checksum(&[text]) {
            anyhow::bail!(
                "migration {own_name} differs from the one that was applied to this database (checksum {}, applied {}); \
                 released migrations never change, so this binary or that database is not a released one",
                checksum(&[text]),
                checksum_then
            );
        }
    }
    Ok(())
}

async fn record(tx: &Transaction<'_>, version: i32, name: &str, checksum: &str) -> anyhow::Result<()> {
    let sql = "insert into leasehold.schema_version (version, name, checksum) values ($1, $2, $3)
               on conflict (version) do update set checksum = excluded.checksum, applied_at = now()";
    tx.query_typed(sql, &[(&version, Type::INT4), (&name, Type::TEXT), (&checksum, Type::TEXT)])
        .await
        .map_err(explain)?;
    Ok(())
}

fn code_checksum() -> String {
    let texts: Vec<_> =
        embedded::FUNCTIONS.iter().chain(embedded::VIEWS).map(|(_, text)| *text).chain([embedded::ROLES]).collect();
    checksum(&texts)
}

fn checksum(texts: &[&str]) -> String {
    let mut hash = sha2::Sha256::new();
    for text in texts {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    hex::encode(&hash.finalize()[..8])
}
