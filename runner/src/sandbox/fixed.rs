//! A clock and random numbers that are the same in each run: for tests and replays. Nobody waits for this clock. It stands
//! still while a guest computes, moves a little whenever the guest looks at it, and jumps to the end of a sleep once nothing else
//! that the guest waits for is ready. A run whose time is over by this clock has timed out, as it would have by the real one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand_core::TryRng;
use tokio::sync::Notify;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

/// How far a look moves the clock, in nanoseconds, so that a guest which waits by looking gets through.
const LOOK: u64 = 1_000;

/// Clones share one clock.
#[derive(Clone)]
pub(super) struct VirtualClock(Arc<Shared>);

struct Shared {
    starts_at: Duration,
    /// Nanoseconds since the run began.
    nanos: AtomicU64,
    /// At which the run's time is over.
    limit: u64,
    /// How often somebody's sleep has moved it.
    jumps: AtomicU64,
    /// The ends that are waited for, and by how many sleepers.
    ends: Mutex<BTreeMap<u64, usize>>,
    over: Notify,
}

impl VirtualClock {
    pub fn new(starts_at: Duration, limit: Duration) -> Self {
        Self(Arc::new(Shared {
            starts_at,
            nanos: AtomicU64::new(0),
            limit: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            jumps: AtomicU64::new(0),
            ends: Mutex::default(),
            over: Notify::new(),
        }))
    }

    /// How long the run has been going on.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.0.nanos.load(Relaxed))
    }

    /// The moment, by the monotonic clock, at which a wait of so long ends.
    pub fn end_of(&self, nanos: u64) -> u64 {
        self.0.nanos.load(Relaxed).saturating_add(nanos)
    }

    /// The same for a moment by the wall clock, in nanoseconds since 1970.
    pub fn end_at(&self, wall_nanos: u64) -> u64 {
        let starts_at = u64::try_from(self.0.starts_at.as_nanos()).unwrap_or(u64::MAX);
        wall_nanos.saturating_sub(starts_at)
    }

    /// Resolves when nothing earlier is waited for; then it is that moment.
    pub async fn sleep_until(&self, end: u64) {
        let _waiting = Waiting::new(self, end);
        while self.0.nanos.load(Relaxed) < end {
            let seen = self.0.jumps.load(Relaxed);
            // Whatever else the guest waits for comes first, if it is ready.
            tokio::task::yield_now().await;
            // After somebody's jump the guest may have something to do before the next one.
            let first = self.ends().first_key_value().is_none_or(|(first, _)| *first >= end);
            if first && seen == self.0.jumps.load(Relaxed) {
                self.jump(end).await;
            }
        }
    }

    async fn jump(&self, end: u64) {
        self.0.nanos.fetch_max(end.min(self.0.limit), Relaxed);
        self.0.jumps.fetch_add(1, Relaxed);
        if end >= self.0.limit {
            self.0.over.notify_one();
            pending().await
        }
    }

    /// Resolves when the run's time is over by this clock.
    pub async fn over(&self) {
        self.0.over.notified().await;
    }

    fn look(&self) -> u64 {
        self.0.nanos.fetch_add(LOOK, Relaxed) + LOOK
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        // Nothing that can panic runs under the lock in a half-changed state.
        self.0.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sleeper among the others, for as long as it sleeps.
struct Waiting<'a> {
    clock: &'a VirtualClock,
    end: u64,
}

impl<'a> Waiting<'a> {
    fn new(clock: &'a VirtualClock, end: u64) -> Self {
        *clock.ends().entry(end).or_default() += 1;
        Self { clock, end }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut ends = self.clock.ends();
        if let Some(sleepers) = ends.get_mut(&self.end) {
            *sleepers -= 1;
            if *sleepers == 0 {
                ends.remove(&self.end);
            }
        }
    }
}

impl HostMonotonicClock for VirtualClock {
    fn resolution(&self) -> u64 {
        LOOK
    }

    fn now(&self) -> u64 {
        self.look()
    }
}

impl HostWallClock for VirtualClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(LOOK)
    }

    fn now(&self) -> Duration {
        self.0.starts_at.saturating_add(Duration::from_nanos(self.look()))
    }
}

/// SplitMix64: the same numbers from the same seed, in every version. No secret can be made of them.
pub(super) struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl TryRng for Seeded {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let number = self.next().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{Either, select};

    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut seeded = Seeded::new(0);
        assert_eq!([seeded.next(), seeded.next()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[tokio::test]
    async fn the_earlier_of_two_sleeps_ends_first_and_takes_no_time() {
        let clock = VirtualClock::new(Duration::from_secs(1_000), Duration::from_secs(3600));
        let (hour, minute) = (clock.end_of(3_500_000_000_000), clock.end_of(60_000_000_000));
        let (late, early) = (Box::pin(clock.sleep_until(hour)), Box::pin(clock.sleep_until(minute)));
        let Either::Right(((), late)) = select(late, early).await else { panic!("the later one ended first") };
        assert_eq!(clock.elapsed(), Duration::from_secs(60));
        late.await;
        assert_eq!(clock.elapsed(), Duration::from_secs(3500));
        let now = HostWallClock::now(&clock);
        assert_eq!(now, Duration::from_secs(4500) + Duration::from_nanos(LOOK), "a look moves it");
    }

    #[tokio::test]
    async fn a_sleep_past_the_limit_never_ends_and_the_run_is_over() {
        let clock = VirtualClock::new(Duration::ZERO, Duration::from_secs(1));
        tokio::select! {
            () = clock.sleep_until(2_000_000_000) => panic!("it ended"),
            () = clock.over() => assert_eq!(clock.elapsed(), Duration::from_secs(1)),
        }
    }
}
