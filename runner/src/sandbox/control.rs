//! The handle by which a worker stops a run from outside. It is a few atomics and a bell: whoever runs guests looks at
//! it at each tick of the epoch and at each host call, and a guest that sleeps in a host call is woken by the bell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::notes::Notes;
use crate::outcome::Stop;

/// Shared by the task that runs a guest and those that may stop it. Clones share one state; one control serves one run.
#[derive(Debug, Clone)]
pub struct RunControl(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Instants are counted from here, so that they fit into an atomic.
    created: Instant,
    /// 0 while nobody asked to stop, then the code of the first `Stop`.
    stop: AtomicU8,
    cancel_requested: AtomicBool,
    /// Nanoseconds after `created` at which the lease is lost; `NEVER` when there is none.
    stop_at: AtomicU64,
    changed: Notify,
    notes: Notes,
}

const NEVER: u64 = u64::MAX;

impl Default for RunControl {
    fn default() -> Self {
        Self::new()
    }
}

impl RunControl {
    /// A control with no lease: nothing but the limits ends the run.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            created: Instant::now(),
            stop: AtomicU8::new(0),
            cancel_requested: AtomicBool::new(false),
            stop_at: AtomicU64::new(NEVER),
            changed: Notify::new(),
            notes: Notes::default(),
        }))
    }

    /// Ends the run with `Outcome::Stopped(stop)`, within a tick of the epoch. The first stop wins.
    pub fn stop(&self, stop: Stop) {
        let code = match stop {
            Stop::Cancelled => 1,
            Stop::LeaseLost => 2,
            Stop::Shutdown => 3,
        };
        // A second stop changes nothing, so its failure is no error.
        let _ = self.0.stop.compare_exchange(0, code, Relaxed, Relaxed);
        self.0.changed.notify_one();
    }

    /// From now on the guest's `cancel-requested` answers true. The guest goes on until it looks, or until `stop`.
    pub fn request_cancel(&self) {
        self.0.cancel_requested.store(true, Relaxed);
    }

    /// Until when the run may go on; past it, it ends with `Stop::LeaseLost`. May be moved, also while the guest runs.
    pub fn stop_at(&self, lease_ends: Instant) {
        let nanos = lease_ends.saturating_duration_since(self.0.created).as_nanos();
        self.0.stop_at.store(u64::try_from(nanos).unwrap_or(NEVER), Relaxed);
        self.0.changed.notify_one();
    }

    /// What the run leaves with its worker while it goes on.
    pub fn notes(&self) -> &Notes {
        &self.0.notes
    }

    /// Whether the run has to end by now, or to have ended.
    pub fn is_stopped(&self) -> bool {
        self.stopped().is_some()
    }

    /// How long ago this was made.
    pub fn age(&self) -> Duration {
        self.0.created.elapsed()
    }

    /// Whether somebody asked the guest to cancel.
    pub fn cancel_requested(&self) -> bool {
        self.0.cancel_requested.load(Relaxed)
    }

    /// Why the run has to end by now, if it has to.
    pub(super) fn stopped(&self) -> Option<Stop> {
        match self.0.stop.load(Relaxed) {
            0 => self.lease_ends().filter(|ends| Instant::now() >= *ends).map(|_| Stop::LeaseLost),
            1 => Some(Stop::Cancelled),
            2 => Some(Stop::LeaseLost),
            _ => Some(Stop::Shutdown),
        }
    }

    /// Resolves when the run has to end: stopped from outside, or past the lease.
    pub async fn wait_for_stop(&self) -> Stop {
        loop {
            // The bell is armed before looking, so that a stop between the look and the wait is not missed. It keeps
            // one ring for a waiter that comes late.
            let changed = self.0.changed.notified();
            if let Some(stop) = self.stopped() {
                return stop;
            }
            match self.lease_ends() {
                Some(ends) => {
                    let _ = tokio::time::timeout_at(ends.into(), changed).await;
                }
                None => changed.await,
            }
        }
    }

    fn lease_ends(&self) -> Option<Instant> {
        match self.0.stop_at.load(Relaxed) {
            NEVER => None,
            nanos => self.0.created.checked_add(Duration::from_nanos(nanos)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_stop_wins() {
        let control = RunControl::new();
        assert_eq!(control.stopped(), None);
        control.stop(Stop::Shutdown);
        control.stop(Stop::Cancelled);
        assert_eq!(control.stopped(), Some(Stop::Shutdown));
    }

    #[test]
    fn a_lease_in_the_past_is_lost_and_one_moved_ahead_is_not() {
        let control = RunControl::new();
        control.stop_at(Instant::now() - Duration::from_secs(1));
        assert_eq!(control.stopped(), Some(Stop::LeaseLost));
        control.stop_at(Instant::now() + Duration::from_secs(60));
        assert_eq!(control.stopped(), None);
    }

    #[tokio::test]
    async fn a_waiter_hears_a_stop_from_before_it_waited() {
        let control = RunControl::new();
        control.stop(Stop::Cancelled);
        assert_eq!(control.wait_for_stop().await, Stop::Cancelled);
    }
}
