//! The queue of the article, statement by statement, prepared as its driver does.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::super::{Store, explain, get};

const TABLE: &str = "
    drop schema if exists article cascade;
    create schema article;
    create table article.jobs (
        id            bigserial primary key,
        payload       text not null,
        status        text not null default 'queued',
        attempts      int not null default 0,
        run_at        timestamptz not null default now(),
        locked_until  timestamptz,
        done_at       timestamptz
    );
    create index jobs_ready on article.jobs (run_at) where status = 'queued';";

pub(crate) struct ArticleJob {
    pub id: i64,
    pub payload: String,
    pub attempt: i32,
}

impl Store {
    /// Makes the table anew with the jobs "job 1", "job 2", ...
    pub(crate) async fn article_setup(&self, jobs: u32) -> anyhow::Result<()> {
        self.ensure_scratch()?;
        self.batch(TABLE).await?;
        let sql = "insert into article.jobs (payload) select 'job ' || n from generate_series(1, $1::bigint) n";
        self.article(sql, &[&i64::from(jobs)]).await?;
        Ok(())
    }

    pub(crate) async fn article_claim(&self, lease: Duration, skip_locked: bool) -> anyhow::Result<Option<ArticleJob>> {
        let sql = format!(
            "update article.jobs set status = 'running', attempts = attempts + 1, locked_until = now() + $1 * interval '1 second'
              where id = (select id from article.jobs where status = 'queued' and run_at <= now()
                           order by run_at, id limit 1 {})
              returning id, payload, attempts",
            for_update(skip_locked)
        );
        let rows = self.article(&sql, &[&lease.as_secs_f64()]).await?;
        let job = |row| Ok(ArticleJob { id: get(row, 0)?, payload: get(row, 1)?, attempt: get(row, 2)? });
        rows.first().map(job).transpose()
    }

    pub(crate) async fn article_done(&self, id: i64) -> anyhow::Result<()> {
        let sql = "update article.jobs set status = 'done', done_at = now(), locked_until = null where id = $1";
        self.article(sql, &[&id]).await.map(drop)
    }

    pub(crate) async fn article_fail(&self, job: &ArticleJob) -> anyhow::Result<()> {
        let sql = if job.attempt >= 3 {
            "update article.jobs set status = 'dead', locked_until = null where id = $1"
        } else {
            "update article.jobs set status = 'queued', run_at = now() + interval '50 milliseconds', locked_until = null where id = $1"
        };
        self.article(sql, &[&job.id]).await.map(drop)
    }

    /// How many jobs it gave back.
    pub(crate) async fn article_reap(&self) -> anyhow::Result<usize> {
        let sql = "update article.jobs set status = 'queued', locked_until = null
                    where status = 'running' and locked_until < now() returning id";
        Ok(self.article(sql, &[]).await?.len())
    }

    /// How many jobs are in a state.
    pub(crate) async fn article_count(&self, status: &str) -> anyhow::Result<i64> {
        let rows = self.article("select count(*) from article.jobs where status = $1", &[&status]).await?;
        get(&rows[0], 0)
    }

    /// The other design: keeps the row locked, in an open transaction, while the job is worked on. False when it found none.
    pub(crate) async fn article_hold(&self, work: Duration, skip_locked: bool) -> anyhow::Result<bool> {
        let lock = for_update(skip_locked);
        let sql = format!("select id from article.jobs where status = 'queued' order by id limit 1 {lock}");
        let mut client = self.client().await?;
        let transaction = client.transaction().await.map_err(explain)?;
        let statement = transaction.prepare_cached(&sql).await.map_err(explain)?;
        let Some(row) = transaction.query_opt(&statement, &[]).await.map_err(explain)? else {
            transaction.rollback().await.map_err(explain)?;
            return Ok(false);
        };
        tokio::time::sleep(work).await;
        let sql = "update article.jobs set status = 'done' where id = $1";
        let statement = transaction.prepare_cached(sql).await.map_err(explain)?;
        transaction.execute(&statement, &[&get::<i64>(&row, 0)?]).await.map_err(explain)?;
        transaction.commit().await.map_err(explain)?;
        Ok(true)
    }

    async fn article(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> anyhow::Result<Vec<Row>> {
        let client = self.client().await?;
        let statement = client.prepare_cached(sql).await.map_err(explain)?;
        client.query(&statement, params).await.map_err(explain)
    }

    /// Of our own jobs after this one: how many are done, how many ran more than once, and how many runs were not the last.
    pub(crate) async fn bench_reruns(&self, after: i64) -> anyhow::Result<(i64, i64, i64)> {
        let sql = "select count(*) filter (where state = 'done'), count(*) filter (where lease_no > 1),
                          coalesce(sum(lease_no - 1), 0)::bigint
                     from leasehold.history where id > $1";
        let row = self.row("accounting for the jobs", sql, &[(&after, tokio_postgres::types::Type::INT8)]).await?;
        Ok((get(&row, 0)?, get(&row, 1)?, get(&row, 2)?))
    }
}

fn for_update(skip_locked: bool) -> &'static str {
    if skip_locked { "for update skip locked" } else { "for update" }
}
