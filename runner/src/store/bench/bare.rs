//! The plainest table that can be a queue, to compare with: no tenants, no fencing, no history, nobody woken.

use tokio_postgres::types::Type;

use super::super::{Store, get};
use super::FILL_LIMIT;

/// How a job of the plain table ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BareEnd {
    Done,
    Deleted,
}

const TABLE: &str = "
    drop schema if exists bare cascade;
    create schema bare;
    create table bare.jobs (
        id            bigserial primary key,
        payload       text,
        status        text not null default 'queued',
        attempts      int not null default 0,
        run_at        timestamptz not null default clock_timestamp(),
        locked_until  timestamptz,
        done_at       timestamptz
    );
    create index jobs_ready on bare.jobs (run_at) where status = 'queued';";

impl Store {
    /// Makes the table anew with so many jobs.
    pub(crate) async fn fill_bare(&self, jobs: u32, payload: &str) -> anyhow::Result<()> {
        self.ensure_scratch()?;
        self.batch(TABLE).await?;
        let sql = "insert into bare.jobs (payload, run_at)
                   select $1, now() - interval '1 hour' + n * interval '1 microsecond' from generate_series(1, $2) n";
        let params = [(&payload as _, Type::TEXT), (&i64::from(jobs) as _, Type::INT8)];
        self.rows_within(FILL_LIMIT, "filling the plain table", sql, &params).await?;
        self.batch("vacuum analyze bare.jobs").await
    }

    pub(crate) async fn insert_bare(&self, payloads: &[serde_json::Value]) -> anyhow::Result<()> {
        let sql = "insert into bare.jobs (payload) select p::text from unnest($1) p";
        self.rows("inserting into the plain table", sql, &[(&payloads, Type::JSONB_ARRAY)]).await?;
        Ok(())
    }

    pub(crate) async fn claim_bare(&self, limit: usize) -> anyhow::Result<Vec<i64>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = "with c as (
                update bare.jobs set status = 'running', attempts = attempts + 1, locked_until = now() + interval '30 s'
                 where id = any(array(select id from bare.jobs where status = 'queued' and run_at <= now()
                                       order by run_at, id limit $1 for update skip locked))
                returning id)
            select coalesce(array_agg(id), '{}') from c";
        get(&self.row("claiming from the plain table", sql, &[(&limit, Type::INT8)]).await?, 0)
    }

    pub(crate) async fn end_bare(&self, end: BareEnd, ids: &[i64]) -> anyhow::Result<()> {
        let sql = match end {
            BareEnd::Done => {
                "update bare.jobs set status = 'done', done_at = now() from unnest($1) u(x) where id = u.x"
            }
            BareEnd::Deleted => "delete from bare.jobs using unnest($1) u(x) where id = u.x",
        };
        self.rows("ending jobs of the plain table", sql, &[(&ids, Type::INT8_ARRAY)]).await?;
        Ok(())
    }
}
