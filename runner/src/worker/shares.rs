//! Whose turn it is: each tenant's weight's share of what this worker's runs use, by their CPU time, while more is due than there
//! are slots.
//!
//! A tenant's debt is what its runs used, which fades by half in `HALF_LIFE`, and what its claimed jobs are expected to use. Turns
//! go to whoever owes least for its weight, job by job. What somebody does not want is the others'; nobody pays later for
//! having been alone, and nobody saves up: who has had nothing due comes back owing no less than `CREDIT` below those who did.
//!
//! Each worker keeps its own accounts of its own runs, so no row is everybody's. While all workers see all queues, shares that are
//! right on each are right over all.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::job::TenantId;
use crate::store::{ClaimedJob, ReadyLane, Turn};

/// Long against a run: a debt that fades while a run goes on, which is charged at its end, would favour short ones (10 s took 5 % from jobs of 500 ms).
const HALF_LIFE: Duration = Duration::from_secs(60);
/// How much CPU time at the default weight a tenant may be ahead that had nothing due for a while: a burst of short jobs is begun at once.
const CREDIT: f64 = 0.1;
/// What a run costs besides what its guest used: it is claimed and settled. Runs that use nothing count too.
const OVERHEAD: f64 = 20e-6;
/// What a run is expected to use before any has ended, in seconds.
const UNKNOWN: f64 = 0.01;
/// How fast the expectation follows what runs use.
const LEARNING: f64 = 0.2;
/// How many lanes are offered besides those with a turn, for the room that those leave.
const SPARES: usize = 64;
/// Below so many seconds a debt is nothing, and its account is closed.
const NOTHING: f64 = 1e-5;
const DEFAULT_WEIGHT: i32 = 100;

#[derive(Default)]
pub struct Shares(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    accounts: HashMap<TenantId, Account>,
    weights: HashMap<TenantId, i32>,
    /// What a run uses, over all tenants.
    usual: Option<f64>,
}

struct Account {
    /// Seconds of CPU time, as of an instant.
    debt: f64,
    at: Instant,
    in_flight: u32,
    /// What a run uses.
    expected: Option<f64>,
    /// Whether it had jobs due when turns were given last.
    waiting: bool,
}

/// What a tenant would owe for its weight with so many runs more.
struct Price {
    debt: f64,
    expected: f64,
    share: f64,
}

impl Price {
    fn with(&self, runs: u32) -> f64 {
        (self.debt + f64::from(runs) * self.expected) / self.share
    }
}

impl Shares {
    pub fn set_weights(&self, weights: Vec<(TenantId, i32)>) {
        let mut inner = self.inner();
        inner.weights = weights.into_iter().collect();
        let now = Instant::now();
        inner.accounts.retain(|_, account| account.waiting || account.in_flight > 0 || account.debt(now) > NOTHING);
    }

    /// Who takes how many of `room` jobs, in the order of their turns; after them lanes that may fill what those leave (0 jobs). Queues
    /// as a claim gets them: with `queue_first` turns are given in the first that has jobs due.
    pub fn turns(&self, ready: &[ReadyLane], queues: (&[String], bool), room: usize) -> Vec<Turn> {
        self.inner().turns(ready, queues, room, Instant::now())
    }

    /// Charges jobs that were claimed with what they are expected to use, and sorts them by whose turn it is.
    pub fn begin(&self, jobs: &mut [ClaimedJob]) {
        let (mut inner, now) = (self.inner(), Instant::now());
        let mut places: HashMap<i64, f64> = HashMap::with_capacity(jobs.len());
        for job in &*jobs {
            places.insert(job.id.0, inner.price(job.tenant, now).with(1));
            inner.account(job.tenant, now).in_flight += 1;
        }
        jobs.sort_by(|a, b| places[&a.id.0].total_cmp(&places[&b.id.0]));
    }

    /// A run has ended, or was given back, and has used so much.
    pub fn end(&self, tenant: TenantId, cpu: Duration) {
        self.inner().end(tenant, cpu.as_secs_f64() + OVERHEAD, Instant::now());
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

impl Account {
    fn debt(&self, now: Instant) -> f64 {
        self.debt * 0.5_f64.powf(now.saturating_duration_since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64())
    }
}

impl Inner {
    fn account(&mut self, tenant: TenantId, now: Instant) -> &mut Account {
        let new = || Account { debt: 0.0, at: now, in_flight: 0, expected: None, waiting: false };
        self.accounts.entry(tenant).or_insert_with(new)
    }

    fn price(&self, tenant: TenantId, now: Instant) -> Price {
        let (account, usual) = (self.accounts.get(&tenant), self.usual.unwrap_or(UNKNOWN));
        let expected = account.and_then(|account| account.expected).unwrap_or(usual);
        let debt = account.map_or(0.0, |account| account.debt(now) + f64::from(account.in_flight) * expected);
        let weight = self.weights.get(&tenant).copied().unwrap_or(DEFAULT_WEIGHT);
        Price { debt, expected, share: f64::from(weight) / f64::from(DEFAULT_WEIGHT) }
    }

    fn end(&mut self, tenant: TenantId, cost: f64, now: Instant) {
        let usual = self.usual.get_or_insert(cost);
        *usual += (cost - *usual) * LEARNING;
        let account = self.account(tenant, now);
        (account.debt, account.at) = (account.debt(now) + cost, now);
        account.in_flight = account.in_flight.saturating_sub(1);
        let expected = account.expected.get_or_insert(cost);
        *expected += (cost - *expected) * LEARNING;
    }

    fn turns(
        &mut self,
        ready: &[ReadyLane],
        (queues, queue_first): (&[String], bool),
        room: usize,
        now: Instant,
    ) -> Vec<Turn> {
        let places: HashMap<&str, usize> =
            queues.iter().enumerate().map(|(place, queue)| (queue.as_str(), place)).collect();
        // A tenant's own order is that of a claim: by priority, then by queue; or by queue first.
        let order = |lane: &ReadyLane| {
            let (priority, queue) =
                (Reverse(lane.lane.priority), places.get(&*lane.lane.queue).copied().unwrap_or(usize::MAX));
            if queue_first { (queue, priority, 0) } else { (0, priority, queue) }
        };
        let first_queue = ready.iter().map(|lane| order(lane).0).min();
        let mut heads: HashMap<TenantId, &ReadyLane> = HashMap::new();
        for lane in ready.iter().filter(|lane| Some(order(lane).0) == first_queue) {
            let head = heads.entry(lane.lane.tenant).or_insert(lane);
            if order(lane) < order(head) {
                *head = lane;
            }
        }
        self.let_in(ready.iter().map(|lane| lane.lane.tenant).collect(), now);

        let candidates =
            heads.values().map(|lane| Candidate { owes: self.price(lane.lane.tenant, now).with(1), lane, count: 0 });
        let mut by_debt: BinaryHeap<Candidate<'_>> = candidates.collect::<Vec<_>>().into();
        let mut order_of_turns = Vec::new();
        let mut counts: HashMap<TenantId, i32> = HashMap::new();
        for _ in 0..room {
            let Some(mut next) = by_debt.pop() else { break };
            let count = counts.entry(next.lane.lane.tenant).or_insert(0);
            if *count == 0 {
                order_of_turns.push(next.lane);
            }
            *count += 1;
            next.count += 1;
            next.owes = self.price(next.lane.lane.tenant, now).with(next.count + 1);
            by_debt.push(next);
        }
        let mut turns: Vec<Turn> = order_of_turns
            .iter()
            .map(|lane| Turn { lane: lane.lane.clone(), count: counts[&lane.lane.tenant] })
            .collect();
        // The heads of others first, then what else there is.
        let given: HashSet<_> = turns.iter().map(|turn| turn.lane.clone()).collect();
        let rest = std::iter::from_fn(|| by_debt.pop()).map(|next| next.lane).take(turns.len() + SPARES);
        let rest = rest.chain(ready.iter()).filter(|lane| !given.contains(&lane.lane)).take(SPARES);
        let mut spares: Vec<Turn> = Vec::new();
        for lane in rest {
            if !spares.iter().any(|spare| spare.lane == lane.lane) {
                spares.push(Turn { lane: lane.lane.clone(), count: 0 });
            }
        }
        turns.extend(spares);
        turns
    }

    /// Who had nothing due for a while has not saved up for it.
    fn let_in(&mut self, waiting: HashSet<TenantId>, now: Instant) {
        let here = self.accounts.iter().filter(|(_, account)| account.waiting || account.in_flight > 0);
        let least = here.map(|(tenant, _)| self.price(*tenant, now).with(0)).min_by(f64::total_cmp);
        for tenant in &waiting {
            let (price, account) = (self.price(*tenant, now), self.account(*tenant, now));
            if let Some(least) = least.filter(|_| !account.waiting && account.in_flight == 0) {
                let floor = (least - CREDIT) * price.share;
                (account.debt, account.at) = (account.debt(now).max(floor), now);
            }
        }
        for (tenant, account) in &mut self.accounts {
            account.waiting = waiting.contains(tenant);
        }
    }
}

struct Candidate<'a> {
    owes: f64,
    lane: &'a ReadyLane,
    count: u32,
}

/// The greatest is who owes least; among equals, who has waited longest.
impl Ord for Candidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = other.owes.total_cmp(&self.owes);
        order
            .then_with(|| other.lane.since.cmp(&self.lane.since))
            .then_with(|| other.lane.lane.tenant.cmp(&self.lane.lane.tenant))
    }
}

impl PartialOrd for Candidate<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate<'_> {}

#[cfg(test)]
#[path = "shares/tests.rs"]
mod tests;
