//! The one claimer of a worker. It claims for as many jobs as there is room, again at once while jobs keep coming, then sleeps
//! until a NOTIFY, the next due time, or a jittered poll. Whatever wakes it, it only ever looks: no hint is trusted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, watch};
use tracing::{debug, warn};

use super::attempt::Dispatched;
use super::{Shared, Stage};
use crate::sandbox::RunControl;
use crate::store::{Bounds, Claimed, Notice};

/// Jobs are claimed ahead of their slots for so long, by the rate of the last second: the time of a claim or two. Longer and
/// a slow job's neighbours would wait here while another worker is free.
const AHEAD: Duration = Duration::from_millis(10);
/// The most jobs claimed ahead, whatever the rate: they are lost time if this worker dies.
const AHEAD_JOBS: usize = 1_000;
/// How long a request for NOTIFY stays good; renewed at half of it.
const SLEEP_TTL: Duration = Duration::from_secs(60);
/// After so many claims in a row that found something, the worker is busy and wants no NOTIFY.
const BUSY_CLAIMS: u32 = 16;
/// How often the polling is done while nobody notifies.
const DEAF_POLL: Duration = Duration::from_millis(200);
/// The first and the longest wait after a failed claim.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often stragglers are looked for, at most; and never more than this share of the time is spent on it.
const STRAGGLERS: Duration = Duration::from_secs(5);
const STRAGGLERS_SHARE: u32 = 20;

/// Room for jobs: how many are here, and a bell for when one has left.
#[derive(Default)]
pub struct Room {
    inside: AtomicUsize,
    left: AtomicU64,
    /// The claimer waits until there are no more than so many inside; the bell is rung only then.
    wanted: AtomicUsize,
    bell: Notify,
}

impl Room {
    pub fn leave(&self) {
        self.left.fetch_add(1, Relaxed);
        let inside = self.inside.fetch_sub(1, Relaxed) - 1;
        if inside == self.wanted.load(Relaxed) {
            self.bell.notify_one();
        }
    }

    async fn at_most(&self, inside: usize) {
        self.wanted.store(inside, Relaxed);
        loop {
            let bell = self.bell.notified();
            if self.inside.load(Relaxed) <= inside {
                return;
            }
            // The bell can be missed when a job left between the two loads above; the timer makes that cost little.
            let _ = tokio::time::timeout(Duration::from_millis(20), bell).await;
        }
    }
}

/// Rung by the settler when it puts a job back that will be due soon.
#[derive(Default)]
pub struct RequeueHint {
    bell: Notify,
}

impl RequeueHint {
    pub fn ring(&self) {
        self.bell.notify_one();
    }
}

pub struct Claimer {
    shared: Arc<Shared>,
    dispatch: async_channel::Sender<Dispatched>,
    heard: mpsc::UnboundedReceiver<Notice>,
    beat_now: mpsc::Sender<()>,
    room: Arc<Room>,
    requeued: Arc<RequeueHint>,
    bounds: Arc<Bounds>,
    /// Until when the database notifies us; None when we have not asked.
    notified_until: Option<Instant>,
    busy_claims: u32,
    hearing: bool,
    rate: Rate,
}

impl Claimer {
    pub fn new(
        shared: Arc<Shared>,
        dispatch: async_channel::Sender<Dispatched>,
        heard: mpsc::UnboundedReceiver<Notice>,
        beat_now: mpsc::Sender<()>,
    ) -> Self {
        Self {
            shared,
            dispatch,
            heard,
            beat_now,
            room: Arc::default(),
            requeued: Arc::default(),
            bounds: Arc::default(),
            notified_until: None,
            busy_claims: 0,
            hearing: false,
            rate: Rate::new(),
        }
    }

    pub fn room(&self) -> Arc<Room> {
        self.room.clone()
    }

    pub fn requeue_hint(&self) -> Arc<RequeueHint> {
        self.requeued.clone()
    }

    /// Claims until the stage says to drain. Dropping `dispatch` at the end is what lets the slots end.
    pub async fn run(mut self, mut stage: watch::Receiver<Stage>) {
        let stragglers =
            tokio::spawn(look_for_stragglers(self.shared.clone(), self.bounds.clone(), self.requeued.clone()));
        let mut wait = Wait::ForRoom;
        let mut retry = RETRY.0;
        loop {
            // Only the waiting is cut short. A claim under way is waited for: dropped, it would still take its jobs, which
            // nobody would run until their lease ran out.
            let limit = tokio::select! {
                biased;
                _asked = stage.wait_for(|stage| *stage >= Stage::Drain) => break,
                limit = self.wait(wait) => limit,
            };
            wait = match self.claim(limit).await {
                Ok(next) => {
                    retry = RETRY.0;
                    next
                }
                Err(cause) => {
                    warn!("{cause:#}; trying again in {} ms", retry.as_millis());
                    let this = retry;
                    retry = (retry * 2).min(RETRY.1);
                    Wait::ToRetry(this)
                }
            };
        }
        stragglers.abort();
        let _ = stragglers.await;
    }

    /// Waits until a claim is worth sending; answers for how many jobs.
    async fn wait(&mut self, wait: Wait) -> usize {
        match wait {
            Wait::ForRoom => (),
            Wait::ToRetry(retry) => tokio::time::sleep(jittered(retry)).await,
            Wait::ForJobs { next_due } => self.sleep(next_due).await,
        }
        self.wait_for_room().await
    }

    async fn wait_for_room(&mut self) -> usize {
        let slots = self.shared.config.slots;
        loop {
            let ahead = self.rate.ahead(&self.room);
            let inside = self.room.inside.load(Relaxed);
            // A free slot is worth a claim by itself; jobs ahead of their slots are claimed by the half batch.
            if inside < slots || inside <= slots + ahead / 2 {
                let limit = slots + ahead - inside;
                if limit > 0 {
                    return limit;
                }
            }
            let wanted = (slots + ahead / 2).max(slots) - usize::from(ahead == 0);
            // A full worker still listens: somebody may ask to cancel what fills it.
            tokio::select! {
                () = self.room.at_most(wanted) => (),
                Some(notice) = self.heard.recv() => { self.take_in(notice); }
            }
        }
    }

    /// One claim, and a second one when it found nothing and nobody would have told. Answers what to wait for next.
    async fn claim(&mut self, limit: usize) -> anyhow::Result<Wait> {
        let ClaimedNow { next_due, count } = self.claim_once(limit).await?;
        if count > 0 {
            self.busy_claims += 1;
            if self.busy_claims >= BUSY_CLAIMS && self.notified_until.is_some() {
                self.ask_for_notices(Duration::ZERO).await;
            }
            return Ok(Wait::ForRoom);
        }
        self.busy_claims = 0;
        if self.notified_until.is_none_or(|until| until.saturating_duration_since(Instant::now()) < SLEEP_TTL / 2) {
            let newly = self.notified_until.is_none();
            self.ask_for_notices(SLEEP_TTL).await;
            if newly && self.notified_until.is_some() {
                // A job may have been committed between the claim and our asking, by somebody who saw nobody asleep.
                return Ok(Wait::ForRoom);
            }
        }
        Ok(Wait::ForJobs { next_due })
    }

    async fn claim_once(&mut self, limit: usize) -> anyhow::Result<ClaimedNow> {
        let Shared { config, store, held, counters, .. } = &*self.shared;
        let sent = Instant::now();
        let Claimed { claim_id, jobs, next_due } =
            store.claim(self.shared.id, &config.queues, limit, config.lease, &self.bounds).await?;
        counters.claims.fetch_add(1, Relaxed);
        let count = jobs.len();
        let Some(claim_id) = claim_id else { return Ok(ClaimedNow { next_due, count }) };
        counters.claimed.fetch_add(count as u64, Relaxed);
        debug!(claim_id, count, "claimed");
        let lease_expires = sent + config.lease;
        let dispatched: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                let control = RunControl::new();
                control.stop_at(lease_expires - config.lease_margin());
                Dispatched { job, control, lease_expires }
            })
            .collect();
        held.add(claim_id, dispatched.iter().map(|d| (d.job.id, d.job.lease_no, d.control.clone())));
        self.room.inside.fetch_add(count, Relaxed);
        for job in dispatched {
            // The slots outlive the claimer, so the queue is open.
            let _ = self.dispatch.try_send(job);
        }
        Ok(ClaimedNow { next_due, count })
    }

    async fn sleep(&mut self, next_due: Option<Duration>) {
        let poll =
            jittered(if self.hearing { self.shared.config.poll } else { DEAF_POLL.min(self.shared.config.poll) });
        let wait = next_due.map_or(poll, |due| due.min(poll));
        let timer = tokio::time::sleep(wait);
        tokio::pin!(timer);
        loop {
            tokio::select! {
                () = &mut timer => return,
                () = self.requeued.bell.notified() => return,
                notice = self.heard.recv() => match notice {
                    Some(notice) => if self.take_in(notice) { self.hear_what_was_said(); return },
                    None => { timer.await; return }
                },
            }
        }
    }

    /// Whether a notice is a reason to look into the queue.
    fn take_in(&mut self, notice: Notice) -> bool {
        match notice {
            Notice::Wake => true,
            Notice::Cancel(id) => {
                // Anybody who may connect can send this, so it only makes the heartbeat look now.
                if self.shared.held.holds(id) {
                    let _ = self.beat_now.try_send(());
                }
                false
            }
            Notice::Listening => {
                self.hearing = true;
                true
            }
            Notice::Deaf => {
                self.hearing = false;
                false
            }
        }
    }

    fn hear_what_was_said(&mut self) {
        while let Ok(notice) = self.heard.try_recv() {
            self.take_in(notice);
        }
    }

    async fn ask_for_notices(&mut self, ttl: Duration) {
        match self.shared.store.sleep(self.shared.id, &self.shared.config.queues, ttl).await {
            Ok(()) => self.notified_until = (!ttl.is_zero()).then(|| Instant::now() + ttl),
            Err(cause) => warn!("{cause:#}; polling goes on"),
        }
    }
}

/// What a claimer waits for before its next claim, besides room.
enum Wait {
    ForRoom,
    ToRetry(Duration),
    ForJobs { next_due: Option<Duration> },
}

struct ClaimedNow {
    next_due: Option<Duration>,
    count: usize,
}

/// How many jobs this worker ends a second, from which follows how many are worth claiming ahead.
struct Rate {
    since: Instant,
    left: u64,
    per_second: f64,
}

impl Rate {
    /// Long enough to count more than a job or two, short enough to follow a change of load.
    const WINDOW: Duration = Duration::from_millis(20);

    fn new() -> Self {
        Self { since: Instant::now(), left: 0, per_second: 0.0 }
    }

    fn ahead(&mut self, room: &Room) -> usize {
        let elapsed = self.since.elapsed();
        if elapsed >= Self::WINDOW {
            let left = room.left.load(Relaxed);
            self.per_second = (left - self.left) as f64 / elapsed.as_secs_f64();
            (self.since, self.left) = (Instant::now(), left);
        }
        ((self.per_second * AHEAD.as_secs_f64()) as usize).min(AHEAD_JOBS)
    }
}

/// Looks below the bounds now and then, and makes the claimer look when something waits there.
async fn look_for_stragglers(shared: Arc<Shared>, bounds: Arc<Bounds>, found: Arc<RequeueHint>) {
    let mut wait = STRAGGLERS;
    loop {
        tokio::time::sleep(jittered(wait)).await;
        let started = Instant::now();
        match shared.store.find_stragglers(&bounds).await {
            Ok(true) => found.ring(),
            Ok(false) => (),
            Err(cause) => warn!("{cause:#}"),
        }
        wait = STRAGGLERS.max(started.elapsed() * STRAGGLERS_SHARE);
    }
}

/// Spread by a quarter, so that workers started together do not stay together.
pub(super) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(rand::random_range(0.75..1.25))
}
