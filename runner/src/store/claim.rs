//! Claims jobs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::bounds::{Lane, LaneParams, Place, Seen, Snapshot, TenantLane, Turn, TurnSeen};
use super::db_instant::DbInstant;
use super::{Bounds, Store, WorkerId, get};
use crate::job::{JobId, TenantId};
use crate::retry::RetrySettings;

/// How many bytes of payload one claim may bring: what a worker holds in memory beyond its guests.
const CLAIM_BYTES: i64 = 32 << 20;
/// How long a look for stragglers may take: an open snapshot makes it long.
const STRAGGLERS_LIMIT: Duration = Duration::from_secs(120);

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

impl Store {
    /// Claims up to `limit` due jobs of the queues for a lease. Earlier queues come first: among equal priorities, or with
    /// all their priorities when `queue_first`. With turns, possibly none, tenants share: see `leasehold.claim`.
    pub async fn claim(
        &self,
        worker: WorkerId,
        (queues, queue_first): (&[String], bool),
        limit: usize,
        lease: Duration,
        bounds: &Bounds,
        turns: Option<Vec<Turn>>,
    ) -> anyhow::Result<Claimed> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let lease_ms = i32::try_from(lease.as_millis()).unwrap_or(i32::MAX);
        let lanes = bounds.inner().starts();
        let turn_params = turns.as_deref().map(|turns| TurnParams::of(turns, bounds)).unwrap_or_default();
        let shares = turns.is_some();
        let rows = self
            .rows(
                "claiming jobs",
                "-- claim\nselect * from leasehold.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
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
                    (/* turn tenants */ &shares.then_some(&turn_params.tenants), Type::INT4_ARRAY),
                    (/* turn queues */ &turn_params.queues, Type::TEXT_ARRAY),
                    (/* turn priorities */ &turn_params.priorities, Type::INT4_ARRAY),
                    (/* turn counts */ &turn_params.counts, Type::INT4_ARRAY),
                    (/* turn run_ats */ &turn_params.run_ats, Type::TIMESTAMPTZ_ARRAY),
                    (/* turn ids */ &turn_params.ids, Type::INT8_ARRAY),
                ],
            )
            .await?;
        let head =
            rows.first().ok_or_else(|| anyhow::anyhow!("claiming jobs: the database did not answer a first row"))?;
        let seen = seen(head, turns.unwrap_or_default(), turn_params)?;
        let oldest_xid = get(head, "oldest_xid")?;
        let snapshot = Snapshot { next_xid: get(head, "next_xid")?, seen_at: get(head, "seen_at")? };
        let claimed = Claimed {
            claim_id: get(head, "claim_id")?,
            jobs: rows[1..].iter().map(claimed_job).collect::<anyhow::Result<_>>()?,
            next_due: seen.next_due,
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
        let (lanes, ready) = {
            let inner = bounds.inner();
            (inner.seen(), inner.turn_bounds())
        };
        if !ready.is_empty() {
            return self.find_tenant_stragglers(bounds, &lanes, ready).await;
        }
        let rows = self
            .rows_within(
                STRAGGLERS_LIMIT,
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
        bounds.inner().lower(found, Vec::new());
        Ok(!rows.is_empty())
    }

    /// While tenants wait for their turns their jobs lie below the lanes' bounds, so it is looked tenant by tenant.
    async fn find_tenant_stragglers(
        &self,
        bounds: &Bounds,
        lanes: &LaneParams,
        ready: Vec<(TenantLane, Place)>,
    ) -> anyhow::Result<bool> {
        let mut turns = TurnParams::default();
        ready.into_iter().for_each(|(lane, place)| turns.push(&lane, 0, place));
        let rows = self
            .rows_within(
                STRAGGLERS_LIMIT,
                "looking for stragglers",
                "-- find_tenant_stragglers\nselect * from leasehold.find_tenant_stragglers($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                &[
                    (&lanes.queues, Type::TEXT_ARRAY),
                    (&lanes.priorities, Type::INT4_ARRAY),
                    (&lanes.run_ats, Type::TIMESTAMPTZ_ARRAY),
                    (&lanes.ids, Type::INT8_ARRAY),
                    (&turns.tenants, Type::INT4_ARRAY),
                    (&turns.queues, Type::TEXT_ARRAY),
                    (&turns.priorities, Type::INT4_ARRAY),
                    (&turns.run_ats, Type::TIMESTAMPTZ_ARRAY),
                    (&turns.ids, Type::INT8_ARRAY),
                ],
            )
            .await?;
        let found = rows.iter().map(|row| {
            let ((queue, priority), place) = straggler(row)?;
            Ok((TenantLane { tenant: TenantId(get(row, "tenant_id")?), queue: queue.into(), priority }, place))
        });
        let found: Vec<(TenantLane, Place)> = found.collect::<anyhow::Result<_>>()?;
        bounds.inner().lower(Vec::new(), found);
        Ok(!rows.is_empty())
    }
}

#[derive(Default)]
struct TurnParams {
    tenants: Vec<i32>,
    queues: Vec<String>,
    priorities: Vec<i32>,
    counts: Vec<i32>,
    run_ats: Vec<DbInstant>,
    ids: Vec<i64>,
}

impl TurnParams {
    fn of(turns: &[Turn], bounds: &Bounds) -> Self {
        let (mut params, inner) = (Self::default(), bounds.inner());
        turns.iter().for_each(|Turn { lane, count }| params.push(lane, *count, inner.turn_start(lane)));
        params
    }

    fn push(&mut self, lane: &TenantLane, count: i32, (run_at, id): Place) {
        self.tenants.push(lane.tenant.0);
        self.queues.push(lane.queue.to_string());
        self.priorities.push(lane.priority);
        self.counts.push(count);
        self.run_ats.push(run_at);
        self.ids.push(id);
    }
}

/// What a claim's first row says of lanes and turns.
fn seen(head: &Row, turns: Vec<Turn>, starts: TurnParams) -> anyhow::Result<Seen> {
    let lanes: Vec<Lane> =
        get::<Vec<String>>(head, "lane_queues")?.into_iter().zip(get::<Vec<i32>>(head, "lane_priorities")?).collect();
    let ends = get::<Option<Vec<Option<bool>>>>(head, "turn_ends")?.unwrap_or_default();
    let turned = starts.run_ats.into_iter().zip(starts.ids).zip(places(head, "turn_run_ats", "turn_ids")?).zip(ends);
    let turns = turns.into_iter().zip(turned);
    let tenants = get::<Option<Vec<i32>>>(head, "ready_tenants")?.unwrap_or_default();
    let priorities = get::<Option<Vec<i32>>>(head, "ready_priorities")?.unwrap_or_default();
    // Few names, many lanes.
    let mut names: HashSet<Arc<str>> = HashSet::new();
    let mut name = |queue: String| {
        names.get(queue.as_str()).cloned().unwrap_or_else(|| {
            let name: Arc<str> = queue.into();
            names.insert(name.clone());
            name
        })
    };
    let queues: Vec<Arc<str>> =
        get::<Option<Vec<String>>>(head, "ready_queues")?.unwrap_or_default().into_iter().map(&mut name).collect();
    let ready = tenants.into_iter().zip(queues).zip(priorities);
    let ready = ready.map(|((tenant, queue), priority)| TenantLane { tenant: TenantId(tenant), queue, priority });
    Ok(Seen {
        lanes: lanes.into_iter().zip(places(head, "lane_run_ats", "lane_ids")?).collect(),
        turns: turns.map(|(Turn { lane, .. }, ((from, to), end))| TurnSeen { lane, from, to, end }).collect(),
        ready: ready.zip(places(head, "ready_run_ats", "ready_ids")?).collect(),
        next_due: get::<Option<i64>>(head, "next_due_ms")?.map(|ms| Duration::from_millis(ms.unsigned_abs())),
    })
}

fn places(head: &Row, run_ats: &str, ids: &str) -> anyhow::Result<Vec<Place>> {
    let run_ats = get::<Option<Vec<DbInstant>>>(head, run_ats)?.unwrap_or_default();
    Ok(run_ats.into_iter().zip(get::<Option<Vec<i64>>>(head, ids)?.unwrap_or_default()).collect())
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
