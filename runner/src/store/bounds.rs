//! A claimer's memory between claims: lower bounds, which make a claim cost the same however much the queue has churned, and the
//! tenants whose jobs are due while there is no room for all.
//!
//! A bound says of a lane (a queue and a priority): every due job up to here was seen. Two things hold it back. A claim that
//! filled up saw its lane only as far as its last job. And a transaction that is still open may yet commit a job with an older
//! `run_at`: so a bound never passes the *horizon*, the latest clock reading of which it is known that every transaction
//! that could have read an earlier clock has ended.
//!
//! Where tenants take turns, a job that was seen and not taken is one of a tenant's lane that is remembered as ready, from a
//! place of its own, until a turn has come to that lane's end. So a long backlog is walked once, and holds up nobody's bound.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::db_instant::DbInstant;
use crate::job::TenantId;

/// How many snapshots a claimer remembers while it waits for old transactions to end. When a transaction stays open for
/// longer than so many claims, the horizon stands still and the claims walk a little further; nothing is lost.
const SNAPSHOTS: usize = 4096;
/// How long a tenant's lane that was left out (its tenant is at its cap, say) is put aside. It is looked at sooner when its gate opens
/// or a new job comes.
const ASIDE: Duration = Duration::from_millis(500);

pub(super) type Lane = (String, i32);
pub(super) type Place = (DbInstant, i64);

/// One tenant's jobs of a queue and a priority.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TenantLane {
    pub tenant: TenantId,
    pub queue: Arc<str>,
    pub priority: i32,
}

/// A tenant's lane in which jobs are due.
#[derive(Debug, Clone)]
pub struct ReadyLane {
    pub lane: TenantLane,
    /// When the first of them was due: to be compared only.
    pub since: DbInstant,
}

/// So many jobs are to be taken from a tenant's lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub lane: TenantLane,
    pub count: i32,
}

/// Starting anew is always right, only slower.
#[derive(Default)]
pub struct Bounds(Mutex<Inner>);

#[derive(Default)]
pub(super) struct Inner {
    lanes: HashMap<Lane, Place>,
    /// Places of stragglers that no claim has started from yet.
    lowered: HashMap<Lane, Place>,
    ready: HashMap<TenantLane, Ready>,
    snapshots: VecDeque<Snapshot>,
    horizon: Option<DbInstant>,
    last_seen_at: Option<DbInstant>,
}

struct Ready {
    place: Place,
    aside: Option<Instant>,
}

/// A look at the clock and, just after it, at the transactions.
pub(super) struct Snapshot {
    /// Every transaction from this number on reads a later clock.
    pub next_xid: i64,
    pub seen_at: DbInstant,
}

/// What a claim saw.
#[derive(Default)]
pub(super) struct Seen {
    pub lanes: Vec<(Lane, Place)>,
    pub turns: Vec<TurnSeen>,
    pub ready: Vec<(TenantLane, Place)>,
    /// When to look again at those that were left out, where that is known.
    pub next_due: Option<Duration>,
}

pub(super) struct TurnSeen {
    pub lane: TenantLane,
    pub from: Place,
    pub to: Place,
    /// Whether that is the lane's end; None when it was left out.
    pub end: Option<bool>,
}

impl Bounds {
    /// The lanes of tenants that wait for their turn.
    pub fn ready(&self) -> Vec<ReadyLane> {
        let (inner, now) = (self.inner(), Instant::now());
        let waiting = inner.ready.iter().filter(|(_, ready)| ready.aside.is_none_or(|until| until <= now));
        waiting.map(|(lane, ready)| ReadyLane { lane: lane.clone(), since: ready.place.0 }).collect()
    }

    /// Whether one waits for its turn.
    pub fn is_ready(&self) -> bool {
        let now = Instant::now();
        self.inner().ready.values().any(|ready| ready.aside.is_none_or(|until| until <= now))
    }

    /// How long until a lane that was put aside is looked at again; None when there is none.
    pub fn aside(&self) -> Option<Duration> {
        let until = self.inner().ready.values().filter_map(|ready| ready.aside).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

impl Inner {
    /// Takes in what a claim saw.
    pub fn advance(&mut self, seen: Seen, oldest_xid: i64, snapshot: Snapshot) {
        if self.last_seen_at.replace(snapshot.seen_at).is_some_and(|last| snapshot.seen_at < last) {
            // The server's clock went back: jobs are coming in below every bound.
            *self = Self::default();
            return;
        }
        self.lanes.extend(seen.lanes);
        let mut started = HashMap::new();
        let aside = seen.next_due.map_or(ASIDE, |due| due.min(ASIDE));
        for TurnSeen { lane, from, to, end } in seen.turns {
            if end == Some(true) {
                self.ready.remove(&lane);
            } else if let Some(ready) = self.ready.get_mut(&lane) {
                ready.place = to;
                ready.aside = end.is_none().then(|| Instant::now() + aside);
            }
            started.insert(lane, from);
        }
        for (lane, place) in seen.ready {
            if started.get(&lane).is_none_or(|from| place < *from) {
                self.heard_of(lane, place);
            }
        }
        if self.snapshots.len() == SNAPSHOTS {
            self.snapshots.pop_back();
        }
        self.snapshots.push_back(snapshot);
        while let Some(oldest) = self.snapshots.front().filter(|oldest| oldest.next_xid <= oldest_xid) {
            self.horizon = Some(oldest.seen_at);
            self.snapshots.pop_front();
        }
    }

    fn heard_of(&mut self, lane: TenantLane, place: Place) {
        let ready = self.ready.entry(lane).or_insert(Ready { place, aside: None });
        *ready = Ready { place: ready.place.min(place), aside: None };
    }

    /// Takes in jobs that were found below the bounds.
    pub fn lower(&mut self, lanes: Vec<(Lane, Place)>, ready: Vec<(TenantLane, Place)>) {
        self.lowered.extend(lanes);
        ready.into_iter().for_each(|(lane, place)| self.heard_of(lane, place));
    }

    /// Where the next claim starts in each lane. A straggler's place counts once: for that claim.
    pub fn starts(&mut self) -> LaneParams {
        let lowered = std::mem::take(&mut self.lowered);
        self.places(|lane, bound| lowered.get(lane).copied().unwrap_or(bound).min(bound))
    }

    /// What has been seen in each lane, by the database's own word.
    pub fn seen(&self) -> LaneParams {
        self.places(|_, bound| bound)
    }

    pub fn turn_start(&self, lane: &TenantLane) -> Place {
        self.ready.get(lane).map_or(self.horizon(), |ready| ready.place.min(self.horizon()))
    }

    /// The lanes of tenants that are ready, each with the place up to which its jobs were seen.
    pub fn turn_bounds(&self) -> Vec<(TenantLane, Place)> {
        self.ready.keys().map(|lane| (lane.clone(), self.turn_start(lane))).collect()
    }

    /// Jobs of the horizon's very microsecond may still come, so a bound stays before their ids.
    fn horizon(&self) -> Place {
        (self.horizon.unwrap_or(DbInstant::BEGINNING), 0)
    }

    fn places(&self, start: impl Fn(&Lane, Place) -> Place) -> LaneParams {
        let mut params = LaneParams::default();
        for (lane @ (queue, priority), place) in &self.lanes {
            let (run_at, id) = start(lane, (*place).min(self.horizon()));
            params.queues.push(queue.clone());
            params.priorities.push(*priority);
            params.run_ats.push(run_at);
            params.ids.push(id);
        }
        params
    }
}

#[derive(Default)]
pub(super) struct LaneParams {
    pub queues: Vec<String>,
    pub priorities: Vec<i32>,
    pub run_ats: Vec<DbInstant>,
    pub ids: Vec<i64>,
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
        seen(bounds, Seen { lanes: vec![(lane(), place)], ..Seen::default() }, (oldest_xid, next_xid, seen_at));
    }

    fn seen(bounds: &mut Inner, seen: Seen, (oldest_xid, next_xid, seen_at): (i64, i64, i64)) {
        bounds.advance(seen, oldest_xid, Snapshot { next_xid, seen_at: at(seen_at) });
    }

    fn tenant_lane(tenant: i32) -> TenantLane {
        TenantLane { tenant: TenantId(tenant), queue: "default".into(), priority: 0 }
    }

    fn turn(tenant: i32, from: Place, to: Place, end: impl Into<Option<bool>>) -> TurnSeen {
        TurnSeen { lane: tenant_lane(tenant), from, to, end: end.into() }
    }

    fn places(bounds: &Inner) -> Vec<(i32, Place)> {
        let mut places: Vec<_> = bounds.ready.iter().map(|(lane, ready)| (lane.tenant.0, ready.place)).collect();
        places.sort();
        places
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

    #[test]
    fn a_lane_of_a_tenant_is_ready_until_a_turn_came_to_its_end() {
        let mut bounds = Inner::default();
        let ready = vec![(tenant_lane(1), (at(10), 0)), (tenant_lane(2), (at(20), 4))];
        seen(&mut bounds, Seen { ready, ..Seen::default() }, (8, 8, 100));
        assert_eq!(places(&bounds), [(1, (at(10), 0)), (2, (at(20), 4))]);
        let turns = vec![turn(1, (at(10), 0), (at(15), 3), false), turn(2, (at(20), 4), (at(20), 5), true)];
        // What the same claim saw of a lane that then had its turn is no news, but for what lies before that turn's start.
        let ready = vec![(tenant_lane(2), (at(20), 4)), (tenant_lane(1), (at(12), 0))];
        seen(&mut bounds, Seen { turns, ready, ..Seen::default() }, (9, 9, 200));
        assert_eq!(places(&bounds), [(1, (at(15), 3))]);
        let turns = vec![turn(1, (at(15), 3), (at(16), 4), true)];
        let ready = vec![(tenant_lane(1), (at(11), 0))];
        seen(&mut bounds, Seen { turns, ready, ..Seen::default() }, (10, 10, 300));
        assert_eq!(places(&bounds), [(1, (at(11), 0))], "committed late");
    }

    #[test]
    fn a_turn_starts_before_whatever_may_still_be_committed() {
        let mut bounds = Inner::default();
        claim(&mut bounds, (at(100), 0), 8, 8, 100);
        // Transaction 8 is open.
        let ready = vec![(tenant_lane(1), (at(250), 0))];
        seen(&mut bounds, Seen { ready, ..Seen::default() }, (8, 9, 300));
        let (start, _) = bounds.turn_start(&tenant_lane(1));
        assert_eq!(start, at(100));
    }

    #[test]
    fn a_lane_that_was_left_out_is_put_aside_until_it_is_heard_of() {
        let mut bounds = Inner::default();
        let place = (at(10), 0);
        seen(&mut bounds, Seen { ready: vec![(tenant_lane(1), place)], ..Seen::default() }, (8, 8, 100));
        let turns = vec![turn(1, place, place, None)];
        seen(&mut bounds, Seen { turns, ..Seen::default() }, (9, 9, 200));
        assert!(bounds.ready[&tenant_lane(1)].aside.is_some());
        seen(&mut bounds, Seen { ready: vec![(tenant_lane(1), (at(200), 0))], ..Seen::default() }, (10, 10, 300));
        assert!(bounds.ready[&tenant_lane(1)].aside.is_none());
        assert_eq!(places(&bounds), [(1, place)]);
    }
}
