//! Claims jobs, and keeps the lower bounds that make a claim cost the same however much the queue has churned.
//!
//! A bound says of a lane (a queue and a priority): every due job up to here was seen. Two things hold it back. A claim that
//! filled up saw its lane only as far as its last job. And a transaction that is still open may yet commit a job with an older
//! `run_at`: so a bound never passes the *horizon*, the latest clock reading of which it is known that every transaction
//! that could have read an earlier clock has ended.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::db_instant::DbInstant;
use super::{Store, WorkerId, get};
use crate::job::{JobId, TenantId};
use crate::retry::RetrySettings;

/// How many bytes of payload one claim may bring: what a worker holds in memory beyond its guests.
const CLAIM_BYTES: i64 = 32 << 20;
/// How many snapshots a claimer remembers while it waits for old transactions to end. When a transaction stays open for
/// longer than so many claims, the horizon stands still and the claims walk a little further; nothing is lost.
const SNAPSHOTS: usize = 4096;

/// What one claim brought.
pub struct Claimed {
    /// None when nothing was due.
    pub claim_id: Option<i64>,
    pub jobs: Vec<ClaimedJob>,
    /// How long until the next job of these queues is due, when that is within a minute.
    pub next_due: Option<Duration>,
}

/// A claimed job as the row says it, before its module is looked up.
pub struct ClaimedJob {
    pub tenant: TenantId,
    pub id: JobId,
    pub module_id: i32,
    pub version: i32,
    pub queue: String,
    pub attempt: i32,
    pub max_attempts: i32,
    pub lease_no: i32,
    pub timeout: Option<Duration>,
    pub retry: RetrySettings,
    pub payload: Vec<u8>,
}

type Lane = (String, i32);
type Place = (DbInstant, i64);

/// A claimer's memory between claims. Starting anew is always right, only slower.
#[derive(Default)]
pub struct Bounds(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    lanes: HashMap<Lane, Place>,
    /// Places of stragglers that no claim has started from yet.
    lowered: HashMap<Lane, Place>,
    snapshots: VecDeque<Snapshot>,
    horizon: Option<DbInstant>,
    last_seen_at: Option<DbInstant>,
}

/// A look at the clock and, just after it, at the transactions.
struct Snapshot {
    /// Every transaction from this number on reads a later clock.
    next_xid: i64,
    seen_at: DbInstant,
}

impl Bounds {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

impl Inner {
    /// Takes in what a claim saw.
    fn advance(&mut self, seen: Vec<(Lane, Place)>, oldest_xid: i64, snapshot: Snapshot) {
        if self.last_seen_at.replace(snapshot.seen_at).is_some_and(|last| snapshot.seen_at < last) {
            // The server's clock went back: jobs are coming in below every bound.
            *self = Self::default();
            return;
        }
        self.lanes.extend(seen);
        if self.snapshots.len() == SNAPSHOTS {
            self.snapshots.pop_back();
        }
        self.snapshots.push_back(snapshot);
        while let Some(oldest) = self.snapshots.front().filter(|oldest| oldest.next_xid <= oldest_xid) {
            self.horizon = Some(oldest.seen_at);
            self.snapshots.pop_front();
        }
    }

    /// Where the next claim starts in each lane. A straggler's place counts once: for that claim.
    fn starts(&mut self) -> LaneParams {
        let lowered = std::mem::take(&mut self.lowered);
        self.places(|lane, bound| lowered.get(lane).copied().unwrap_or(bound).min(bound))
    }

    /// What has been seen in each lane, by the database's own word.
    fn seen(&self) -> LaneParams {
        self.places(|_, bound| bound)
    }

    fn places(&self, start: impl Fn(&Lane, Place) -> Place) -> LaneParams {
        // Jobs of the horizon's very microsecond may still come, so the bound stays before their ids.
        let horizon = (self.horizon.unwrap_or(DbInstant::BEGINNING), 0);
        let mut params = LaneParams::default();
        for (lane @ (queue, priority), place) in &self.lanes {
            let (run_at, id) = start(lane, (*place).min(horizon));
            params.queues.push(queue.clone());
            params.priorities.push(*priority);
            params.run_ats.push(run_at);
            params.ids.push(id);
        }
        params
    }
}

#[derive(Default)]
struct LaneParams {
    queues: Vec<String>,
    priorities: Vec<i32>,
    run_ats: Vec<DbInstant>,
    ids: Vec<i64>,
}

impl Store {
    /// Claims up to `limit` due jobs of the queues for a lease. Earlier queues come first: among equal priorities, or with
    /// all their priorities when `queue_first`.
    pub async fn claim(
        &self,
        worker: WorkerId,
        (queues, queue_first): (&[String], bool),
        limit: usize,
        lease: Duration,
        bounds: &Bounds,
    ) -> anyhow::Result<Claimed> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let lease_ms = i32::try_from(lease.as_millis()).unwrap_or(i32::MAX);
        let lanes = bounds.inner().starts();
        let rows = self
            .rows(
                "claiming jobs",
                "-- claim\nselect * from leasehold.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
                &[
                    (/* worker */ &worker.0, Type::INT8),
                    (/* queues */ &queues, Type::TEXT_ARRAY),
                    (/* limit */ &limit, Type::INT4),
                    (/* bytes */ &CLAIM_BYTES, Type::INT8),
                    (/* lease_ms */ &lease_ms, Type::INT4),
                    (/* lane queues */ &lanes.queues, Type::TEXT_ARRAY),
                    (/* lane priorities */ &lanes.priorities, Type::INT4_ARRAY),
                    (/* lane run_ats */ &lanes.run_ats, Type::TIMESTAMPTZ_ARRAY),
                    (/* lane ids */ &lanes.ids, Type::INT8_ARRAY),
                    (/* queue_first */ &queue_first, Type::BOOL),
                ],
            )
            .await?;
        let head =
            rows.first().ok_or_else(|| anyhow::anyhow!("claiming jobs: the database did not answer a first row"))?;
        let queues: Vec<String> = get(head, "lane_queues")?;
        let priorities: Vec<i32> = get(head, "lane_priorities")?;
        let run_ats: Vec<DbInstant> = get(head, "lane_run_ats")?;
        let ids: Vec<i64> = get(head, "lane_ids")?;
        let seen = queues.into_iter().zip(priorities).zip(run_ats.into_iter().zip(ids)).collect();
        let oldest_xid = get(head, "oldest_xid")?;
        let snapshot = Snapshot { next_xid: get(head, "next_xid")?, seen_at: get(head, "seen_at")? };
        let claimed = Claimed {
            claim_id: get(head, "claim_id")?,
            jobs: rows[1..].iter().map(claimed_job).collect::<anyhow::Result<_>>()?,
            next_due: get::<Option<i64>>(head, "next_due_ms")?.map(|ms| Duration::from_millis(ms.unsigned_abs())),
        };
        // Only now that all of it was understood: jobs of a claim that failed are given back, and looked for again.
        bounds.inner().advance(seen, oldest_xid, snapshot);
        Ok(claimed)
    }

    /// Gives back what this worker claimed without hearing of it. Only for the claimer, between two claims.
    pub async fn recover_claims(&self, worker: WorkerId, known_claims: &[i64]) -> anyhow::Result<usize> {
        let sql = "-- recover_claims\nselect leasehold.recover_claims($1, $2)";
        let params = [(&worker.0 as _, Type::INT8), (&known_claims as _, Type::INT8_ARRAY)];
        Ok(self.rows("recovering claims", sql, &params).await?.len())
    }

    /// Looks below the bounds for jobs that wait there and lowers the bounds to them. Answers whether there was any. May take
    /// long while somebody holds an old snapshot.
    pub async fn find_stragglers(&self, bounds: &Bounds) -> anyhow::Result<bool> {
        let lanes = bounds.inner().seen();
        let rows = self
            .rows_within(
                Duration::from_secs(120),
                "looking for stragglers",
                "-- find_stragglers\nselect * from leasehold.find_stragglers($1, $2, $3, $4)",
                &[
                    (&lanes.queues, Type::TEXT_ARRAY),
                    (&lanes.priorities, Type::INT4_ARRAY),
                    (&lanes.run_ats, Type::TIMESTAMPTZ_ARRAY),
                    (&lanes.ids, Type::INT8_ARRAY),
                ],
            )
            .await?;
        let found: Vec<(Lane, Place)> = rows.iter().map(straggler).collect::<anyhow::Result<_>>()?;
        bounds.inner().lowered.extend(found);
        Ok(!rows.is_empty())
    }
}

/// What a job says of its own retries: see leasehold.job_options.
fn retry(backoff_ms: Option<i32>, options: Option<serde_json::Value>) -> RetrySettings {
    let options = options.unwrap_or_default();
    RetrySettings {
        base: backoff_ms.map(millis),
        factor: options["backoff_factor"].as_f64(),
        cap: options["backoff_cap_ms"].as_u64().map(Duration::from_millis),
        jitter: options["backoff_jitter"].as_f64(),
        max_attempts: None, // it is in the row
    }
}

fn claimed_job(row: &Row) -> anyhow::Result<ClaimedJob> {
    Ok(ClaimedJob {
        tenant: TenantId(get(row, "tenant_id")?),
        id: JobId(get(row, "id")?),
        module_id: get(row, "module_id")?,
        version: get(row, "version")?,
        queue: get(row, "queue")?,
        attempt: get(row, "attempt")?,
        max_attempts: get(row, "max_attempts")?,
        lease_no: get(row, "lease_no")?,
        timeout: get::<Option<i32>>(row, "timeout_ms")?.map(millis),
        retry: retry(get(row, "backoff_ms")?, get(row, "options")?),
        payload: get(row, "payload")?,
    })
}

fn straggler(row: &Row) -> anyhow::Result<(Lane, Place)> {
    Ok(((get(row, "queue")?, get(row, "priority")?), (get(row, "run_at")?, get(row, "id")?)))
}

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::from(ms.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> DbInstant {
        DbInstant::from_micros(micros)
    }

    fn lane() -> Lane {
        ("default".into(), 0)
    }

    fn claim(bounds: &mut Inner, place: Place, oldest_xid: i64, next_xid: i64, seen_at: i64) {
        bounds.advance(vec![(lane(), place)], oldest_xid, Snapshot { next_xid, seen_at: at(seen_at) });
    }

    fn start(bounds: &mut Inner) -> Place {
        let params = bounds.starts();
        (params.run_ats[0], params.ids[0])
    }

    #[test]
    fn a_bound_waits_for_transactions_that_may_still_commit_older_jobs() {
        let mut bounds = Inner::default();
        // Transaction 5 is open while the lane is seen to its end at 100.
        claim(&mut bounds, (at(100), 0), 5, 8, 100);
        assert_eq!(start(&mut bounds), (DbInstant::BEGINNING, 0));
        // It is still open at 200.
        claim(&mut bounds, (at(200), 0), 5, 9, 200);
        assert_eq!(start(&mut bounds), (DbInstant::BEGINNING, 0));
        // All below 8 have ended by 300: nothing older than 100 can appear any more, but something older than 200 can.
        claim(&mut bounds, (at(300), 0), 8, 12, 300);
        assert_eq!(start(&mut bounds), (at(100), 0));
    }

    #[test]
    fn a_claim_that_filled_up_has_seen_no_further_than_its_last_job() {
        let mut bounds = Inner::default();
        claim(&mut bounds, (at(40), 17), 8, 8, 100);
        claim(&mut bounds, (at(50), 18), 9, 9, 200);
        assert_eq!(start(&mut bounds), (at(50), 18));
    }

    #[test]
    fn a_straggler_lowers_the_bound_for_one_claim() {
        let mut bounds = Inner::default();
        claim(&mut bounds, (at(100), 0), 8, 8, 100);
        claim(&mut bounds, (at(200), 0), 9, 9, 200);
        bounds.lowered.insert(lane(), (at(30), 6));
        assert_eq!(bounds.seen().run_ats, [at(200)], "looking for more stragglers does not use it up");
        assert_eq!(start(&mut bounds), (at(30), 6));
        assert_eq!(start(&mut bounds), (at(200), 0));
    }

    #[test]
    fn a_clock_that_goes_back_starts_anew() {
        let mut bounds = Inner::default();
        claim(&mut bounds, (at(100), 0), 8, 8, 100);
        claim(&mut bounds, (at(50), 0), 9, 9, 50);
        assert!(bounds.lanes.is_empty());
    }
}
