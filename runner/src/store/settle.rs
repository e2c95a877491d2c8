//! Settles runs in batches, one statement a kind of settlement. Each write is guarded by the lease number: a run that lost
//! its lease writes nothing, and that is an answer, not an error.

use std::collections::HashSet;

use anyhow::Context as _;
use tokio_postgres::types::{ToSql, Type};

use super::{Params, Store, WorkerId, get};
use crate::job::JobId;
use crate::outcome::{Failure, FollowUp, Log, Usage, clip_text};
use crate::settlement::{Settled, Settlement};

/// After so many runs that ended with their worker (or by its fault) a job is dead.
pub const CRASH_LIMIT: i32 = 3;
/// The longest message that is kept, in bytes: a stack of wrapped errors, not a log.
const MESSAGE_BYTES: usize = 8 << 10;
/// The longest backtrace that is kept, in bytes: 32 frames of mangled names.
const BACKTRACE_BYTES: usize = 16 << 10;

/// One run's settlement, ready to be sent.
#[derive(Debug, Clone)]
pub struct Report {
    pub job_id: JobId,
    pub lease_no: i32,
    pub settlement: Settlement,
    pub usage: Usage,
    pub log: Log,
    /// Put in with a `Complete`, in the same transaction; nothing of them with any other settlement.
    pub follow_ups: Vec<FollowUp>,
}

impl Report {
    /// Of a run that used nothing, said nothing and asked for nothing.
    pub fn unrun(job_id: JobId, lease_no: i32, settlement: Settlement) -> Self {
        let (usage, log, follow_ups) = (Usage::default(), Log::default(), Vec::new());
        Self { job_id, lease_no, settlement, usage, log, follow_ups }
    }

    /// What it weighs on the wire, roughly: batches are bounded by this too.
    pub fn bytes(&self) -> usize {
        let own = match &self.settlement {
            Settlement::Complete { result } => result.len(),
            Settlement::Fail { failure, .. } | Settlement::Bury { failure } => {
                failure.message.len() + failure.backtrace.as_ref().map_or(0, String::len)
            }
            Settlement::Release { .. } | Settlement::Snooze { .. } | Settlement::FinishCancel => 0,
        };
        let follow_ups: usize = self.follow_ups.iter().map(|job| 128 + job.payload.len()).sum();
        128 + own + self.log.weight() + follow_ups
    }
}

/// Reports of one kind of settlement, which one statement writes: all of them or, when it fails, none.
#[derive(Debug)]
pub struct Batch {
    kind: Kind,
    pub reports: Vec<Report>,
}

impl Batch {
    /// Sorts reports into batches.
    pub fn sort(reports: Vec<Report>) -> Vec<Self> {
        let mut batches: Vec<Self> = Kind::ALL.map(|kind| Self { kind, reports: Vec::new() }).into();
        for report in reports {
            match Kind::of(&report) {
                // What is refused of one's jobs must not keep another's result.
                kind @ Kind::CompleteWith => batches.push(Self { kind, reports: vec![report] }),
                kind => batches[kind as usize].reports.push(report),
            }
        }
        batches.retain(|batch| !batch.reports.is_empty());
        batches
    }

    /// Those that pass and those that do not.
    pub fn partition(self, passes: impl Fn(&Report) -> bool) -> [Self; 2] {
        let (passing, others) = self.reports.into_iter().partition(passes);
        [passing, others].map(|reports| Self { kind: self.kind, reports })
    }

    /// Two halves; the first is never empty.
    pub fn halve(mut self) -> [Self; 2] {
        let second = self.reports.split_off(self.reports.len().div_ceil(2));
        [Self { kind: self.kind, reports: second }, self]
    }
}

impl Store {
    /// Sends a batch of settlements; answers in their order.
    pub async fn settle(&self, worker: WorkerId, batch: &Batch) -> anyhow::Result<Vec<Settled>> {
        let settled: HashSet<i64> = self.settle_kind(worker, batch.kind, &batch.reports).await?.into_iter().collect();
        let answer =
            |report: &Report| if settled.contains(&report.job_id.0) { Settled::Yes } else { Settled::LeaseLost };
        Ok(batch.reports.iter().map(answer).collect())
    }

    /// Those of the jobs whose rows nobody holds.
    pub async fn free_of_locks(&self, jobs: impl Iterator<Item = JobId>) -> anyhow::Result<HashSet<JobId>> {
        let ids: Vec<i64> = jobs.map(|job| job.0).collect();
        let sql = "-- free_of_locks\nselect leasehold.free_of_locks($1)";
        let rows = self.rows("looking for locked jobs", sql, &[(&ids, Type::INT8_ARRAY)]).await?;
        rows.iter().map(|row| Ok(JobId(get(row, 0)?))).collect()
    }

    async fn settle_kind(&self, worker: WorkerId, kind: Kind, batch: &[Report]) -> anyhow::Result<Vec<i64>> {
        let ids = column(batch, |report| report.job_id.0);
        let lease_nos = column(batch, |report| report.lease_no);
        let usage = UsageColumns::of(batch);
        let delays = column(batch, |report| delay_ms(&report.settlement));
        let failures = column(batch, |report| failure_of(&report.settlement));
        let kinds: Vec<Option<&str>> = failures.iter().map(|failure| failure.map(|f| f.kind.as_str())).collect();
        let messages: Vec<Option<String>> =
            failures.iter().map(|failure| failure.map(|f| clip_text(f.message.as_bytes(), MESSAGE_BYTES))).collect();
        let backtraces: Vec<Option<String>> = failures
            .iter()
            .map(|failure| {
                failure.and_then(|f| f.backtrace.as_deref()).map(|text| clip_text(text.as_bytes(), BACKTRACE_BYTES))
            })
            .collect();
        let results: Vec<Option<&[u8]>> = column(batch, |report| match &report.settlement {
            Settlement::Complete { result } => Some(result.as_slice()),
            _other => None,
        });

        let follow_ups: Vec<&FollowUp> = batch.iter().flat_map(|report| &report.follow_ups).collect();
        let asked = serde_json::to_value(&follow_ups).context("writing follow-up jobs")?;
        let payloads: Vec<&[u8]> = follow_ups.iter().map(|job| job.payload.as_slice()).collect();

        let head: [(&(dyn ToSql + Sync), Type); 3] =
            [(&worker.0, Type::INT8), (&ids, Type::INT8_ARRAY), (&lease_nos, Type::INT4_ARRAY)];
        let failed: [(&(dyn ToSql + Sync), Type); 2] = [(&kinds, Type::TEXT_ARRAY), (&messages, Type::TEXT_ARRAY)];
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> = head.to_vec();
        let sql = match kind {
            Kind::Complete => {
                params.push((&results, Type::BYTEA_ARRAY));
                "-- complete\nselect leasehold.complete($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
            }
            Kind::CompleteWith => {
                params.push((&results, Type::BYTEA_ARRAY));
                params.push((&asked, Type::JSONB));
                params.push((&payloads, Type::BYTEA_ARRAY));
                "-- complete_with\nselect leasehold.complete_with($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
            }
            Kind::Fail => {
                params.push((&delays, Type::INT8_ARRAY));
                params.extend(failed);
                params.push((&backtraces, Type::TEXT_ARRAY));
                "-- fail\nselect id from leasehold.fail($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
            }
            Kind::Bury => {
                params.extend(failed);
                params.push((&backtraces, Type::TEXT_ARRAY));
                "-- bury\nselect leasehold.bury($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
            }
            Kind::Snooze => {
                params.push((&delays, Type::INT8_ARRAY));
                "-- snooze\nselect leasehold.snooze($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
            }
            Kind::Release => {
                params.push((&delays, Type::INT8_ARRAY));
                params.extend(failed);
                params.push((&CRASH_LIMIT, Type::INT4));
                "-- release\nselect id from leasehold.release($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
            }
            Kind::FinishCancel => {
                "-- finish_cancel\nselect leasehold.finish_cancel($1, $2, $3, $4, $5, $6, $7, $8, $9)"
            }
        };
        usage.push_onto(&mut params);
        self.settled_ids(sql, &params).await
    }

    async fn settled_ids(&self, sql: &str, params: &Params<'_>) -> anyhow::Result<Vec<i64>> {
        self.rows("settling runs", sql, params).await?.iter().map(|row| get(row, 0)).collect()
    }
}

/// In the order of `ALL`, by which it indexes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Complete,
    Fail,
    Bury,
    Snooze,
    Release,
    FinishCancel,
    /// With follow-up jobs: always alone in its batch.
    CompleteWith,
}

impl Kind {
    /// Those that share a batch.
    const ALL: [Self; 6] = [Self::Complete, Self::Fail, Self::Bury, Self::Snooze, Self::Release, Self::FinishCancel];

    fn of(report: &Report) -> Self {
        match report.settlement {
            Settlement::Complete { .. } if !report.follow_ups.is_empty() => Self::CompleteWith,
            Settlement::Complete { .. } => Self::Complete,
            Settlement::Fail { .. } => Self::Fail,
            Settlement::Bury { .. } => Self::Bury,
            Settlement::Snooze { .. } => Self::Snooze,
            Settlement::Release { .. } => Self::Release,
            Settlement::FinishCancel => Self::FinishCancel,
        }
    }
}

fn delay_ms(settlement: &Settlement) -> i64 {
    match settlement {
        Settlement::Fail { delay, .. } | Settlement::Snooze { delay } | Settlement::Release { delay, .. } => {
            // A guest may ask for any delay; more than a year is as good as never and would overflow the timestamp.
            const YEAR_MS: i64 = 365 * 24 * 3600 * 1000;
            i64::try_from(delay.as_millis()).unwrap_or(YEAR_MS).min(YEAR_MS)
        }
        Settlement::Complete { .. } | Settlement::Bury { .. } | Settlement::FinishCancel => 0,
    }
}

fn failure_of(settlement: &Settlement) -> Option<&Failure> {
    match settlement {
        Settlement::Fail { failure, .. } | Settlement::Bury { failure } => Some(failure),
        Settlement::Release { fault, .. } => fault.as_ref(),
        Settlement::Complete { .. } | Settlement::Snooze { .. } | Settlement::FinishCancel => None,
    }
}

fn column<'a, T>(batch: &'a [Report], value: impl Fn(&'a Report) -> T) -> Vec<T> {
    batch.iter().map(value).collect()
}

struct UsageColumns {
    fuel: Vec<i64>,
    wall_us: Vec<i64>,
    cpu_us: Vec<i64>,
    memory_peak_bytes: Vec<i64>,
    logs: Vec<Option<String>>,
    log_dropped_bytes: Vec<i64>,
}

impl UsageColumns {
    fn of(batch: &[Report]) -> Self {
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Self {
            fuel: column(batch, |report| count(report.usage.fuel)),
            wall_us: column(batch, |report| i64::try_from(report.usage.wall.as_micros()).unwrap_or(i64::MAX)),
            cpu_us: column(batch, |report| i64::try_from(report.usage.cpu.as_micros()).unwrap_or(i64::MAX)),
            memory_peak_bytes: column(batch, |report| count(report.usage.memory_peak_bytes)),
            logs: column(batch, |report| (!report.log.is_empty()).then(|| report.log.to_rows())),
            log_dropped_bytes: column(batch, |report| count(report.log.dropped_bytes)),
        }
    }

    fn push_onto<'a>(&'a self, params: &mut Vec<(&'a (dyn ToSql + Sync), Type)>) {
        params.push((&self.fuel, Type::INT8_ARRAY));
        params.push((&self.wall_us, Type::INT8_ARRAY));
        params.push((&self.cpu_us, Type::INT8_ARRAY));
        params.push((&self.memory_peak_bytes, Type::INT8_ARRAY));
        params.push((&self.logs, Type::TEXT_ARRAY));
        params.push((&self.log_dropped_bytes, Type::INT8_ARRAY));
    }
}
