//! What a worker did and how it is, for its last log line, for metrics and for benches. Kept as numbers that cost a run nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::outcome::{FailureKind, Usage};
use crate::settlement::Settlement;

#[derive(Debug)]
pub struct Counters {
    pub claims: AtomicU64,
    pub finished: AtomicU64,
    pub settled: AtomicU64,
    pub leases_lost: AtomicU64,
    /// Runs under way.
    pub running: AtomicU64,
    pub slots: AtomicU64,
    /// Processor time of runs that were settled.
    pub cpu_us: AtomicU64,
    /// A NOTIFY reaches this worker; without, it polls.
    pub hears: AtomicBool,
    ends: [AtomicU64; Settlement::NAMES.len()],
    failures: [AtomicU64; FailureKind::ALL.len()],
    begun: Instant,
    lease_ms: AtomicU64,
    /// When the database last answered a heartbeat, in milliseconds since `begun`; 0 is never.
    beat_at_ms: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            claims: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            leases_lost: AtomicU64::new(0),
            running: AtomicU64::new(0),
            slots: AtomicU64::new(0),
            cpu_us: AtomicU64::new(0),
            hears: AtomicBool::new(false),
            ends: Default::default(),
            failures: Default::default(),
            begun: Instant::now(),
            lease_ms: AtomicU64::new(0),
            beat_at_ms: AtomicU64::new(0),
        }
    }
}

impl Counters {
    pub(super) fn started(&self, slots: usize, lease: Duration) {
        self.slots.store(slots as u64, Relaxed);
        self.lease_ms.store(lease.as_millis() as u64, Relaxed);
        self.beaten();
    }

    /// The database knows of this worker.
    pub(super) fn beaten(&self) {
        self.beat_at_ms.store((self.begun.elapsed().as_millis() as u64).max(1), Relaxed);
    }

    pub(super) fn settled(&self, settlement: &Settlement, usage: &Usage) {
        self.settled.fetch_add(1, Relaxed);
        self.cpu_us.fetch_add(usage.cpu.as_micros() as u64, Relaxed);
        self.ends[settlement.index()].fetch_add(1, Relaxed);
        if let Some(failure) = settlement.failure() {
            let index = FailureKind::ALL.iter().position(|kind| *kind == failure.kind).expect("ALL has each kind");
            self.failures[index].fetch_add(1, Relaxed);
        }
    }

    /// How many runs were settled in which way.
    pub fn ends(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Settlement::NAMES.into_iter().zip(self.ends.iter().map(|count| count.load(Relaxed)))
    }

    /// How many runs failed for what.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FailureKind::ALL.iter().map(|kind| kind.as_str()).zip(self.failures.iter().map(|count| count.load(Relaxed)))
    }

    /// Why this worker is not to be counted on, if so: it has no lease that the database answered for.
    pub fn illness(&self) -> Option<String> {
        let (lease_ms, beat_at_ms) = (self.lease_ms.load(Relaxed), self.beat_at_ms.load(Relaxed));
        if beat_at_ms == 0 {
            return Some("not registered with the database yet".into());
        }
        let silent_ms = (self.begun.elapsed().as_millis() as u64).saturating_sub(beat_at_ms);
        (silent_ms > lease_ms)
            .then(|| format!("the database has not answered a heartbeat for {silent_ms} ms; a lease is {lease_ms} ms"))
    }
}
