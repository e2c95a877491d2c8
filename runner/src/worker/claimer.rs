//! The one claimer of a worker. It claims for as many jobs as there is room, again at once while jobs keep coming, then sleeps
//! until a NOTIFY, the next due time, or a jittered poll. Whatever wakes it, it only ever looks: no hint is trusted.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, watch};
use tracing::{debug, info, warn};

use super::attempt::Dispatched;
use super::{Shared, Stage};
use crate::retry::jittered;
use crate::sandbox::RunControl;
use crate::store::{Bounds, Claimed, Notice};

/// Jobs are claimed ahead of their slots for so long, by the rate of the last few ms (`Rate::WINDOW`): the time of a claim or two.
/// Longer and a slow job's neighbours would wait here while another worker is free.
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
/// After so long without a claim it is looked who has come meanwhile before turns are given: where runs are long, a tenant that
/// has just come would wait for two of them otherwise.
const LOOK_FIRST: Duration = Duration::from_millis(5);
/// So many claims in a row may bring nothing though jobs are known to wait; then somebody else holds them, and it pauses.
const FRUITLESS: u32 = 3;
const FRUITLESS_PAUSE: Duration = Duration::from_millis(20);
/// How often weights are read.
const WEIGHTS: Duration = Duration::from_secs(10);

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
        // The two loads and stores here and in `at_most` must be seen in one order, or the bell is not rung.
        let inside = self.inside.fetch_sub(1, SeqCst) - 1;
        if inside == self.wanted.load(SeqCst) {
            self.bell.notify_one();
        }
    }

    async fn at_most(&self, inside: usize) {
        self.wanted.store(inside, SeqCst);
        while self.inside.load(SeqCst) > inside {
            // The bell keeps one ring for a waiter that comes late.
            self.bell.notified().await;
        }
    }
}

pub struct Claimer {
    shared: Arc<Shared>,
    dispatch: async_channel::Sender<Dispatched>,
    heard: mpsc::UnboundedReceiver<Notice>,
    beat_now: mpsc::Sender<()>,
    room: Arc<Room>,
    /// Rung by the settler when it puts a job back that will be due soon.
    requeued: Arc<Notify>,
    bounds: Arc<Bounds>,
    /// Until when the database notifies us; None when we have not asked.
    notified_until: Option<Instant>,
    busy_claims: u32,
    hearing: bool,
    /// A NOTIFY does not arrive, however long one waits for it.
    unheard: bool,
    rate: Rate,
    fruitless: u32,
    last_claim: Instant,
    /// Tenants share; not yet where the last step of a migration is still to be made.
    sharing: Arc<AtomicBool>,
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
            unheard: false,
            rate: Rate::new(),
            fruitless: 0,
            last_claim: Instant::now(),
            sharing: Arc::default(),
        }
    }

    pub fn room(&self) -> Arc<Room> {
        self.room.clone()
    }

    pub fn requeue_hint(&self) -> Arc<Notify> {
        self.requeued.clone()
    }

    /// Claims until the stage says to drain. Dropping `dispatch` at the end is what lets the slots end.
    pub async fn run(mut self, mut stage: watch::Receiver<Stage>) {
        let stragglers =
            tokio::spawn(look_for_stragglers(self.shared.clone(), self.bounds.clone(), self.requeued.clone()));
        read_weights(&self.shared, &self.sharing).await;
        let weights = tokio::spawn(keep_weights(self.shared.clone(), self.sharing.clone()));
        let mut retry = RETRY.0;
        // A claim under way is always waited for: its jobs would be nobody's.
        while let Some(limit) = unless_draining(&mut stage, self.wait_for_room()).await {
            let claimed = match self.claim_once(limit).await {
                Ok(claimed) => claimed,
                Err(cause) => {
                    warn!("{cause:#}; trying again in {} ms", retry.as_millis());
                    unless_draining(&mut stage, tokio::time::sleep(jittered(retry))).await;
                    self.recover().await;
                    retry = (retry * 2).min(RETRY.1);
                    continue;
                }
            };
            retry = RETRY.0;
            if claimed.count > 0 {
                self.fruitless = 0;
                self.busy_claims += 1;
                if self.busy_claims >= BUSY_CLAIMS && self.notified_until.is_some() {
                    self.ask_for_notices(Duration::ZERO).await;
                }
                continue;
            }
            if claimed.again {
                self.fruitless += 1;
                if self.fruitless <= FRUITLESS {
                    continue;
                }
            }
            self.busy_claims = 0;
            let newly = self.notified_until.is_none() && !self.unheard;
            if self.unheard {
                // Nobody need pay for a NOTIFY that does not arrive.
                if self.notified_until.is_some() {
                    self.ask_for_notices(Duration::ZERO).await;
                }
            } else if self.notified_until.is_none_or(|until| until < Instant::now() + SLEEP_TTL / 2) {
                self.ask_for_notices(SLEEP_TTL).await;
            }
            // After asking for the first time it looks once more: a job may have been committed since the claim, by somebody
            // who saw nobody asleep.
            if !newly || self.notified_until.is_none() {
                unless_draining(&mut stage, self.sleep(claimed.next_due)).await;
            }
        }
        for looking in [stragglers, weights] {
            looking.abort();
            let _ = looking.await;
        }
    }

    /// After a claim that failed it is not known whether it was committed.
    async fn recover(&self) {
        match self.shared.store.recover_claims(self.shared.id, &self.shared.held.known_claims()).await {
            Ok(0) => (),
            Ok(count) => info!(count, "gave back jobs whose claim was not answered"),
            Err(cause) => warn!("{cause:#}"),
        }
    }

    /// Waits until a claim is worth sending; answers for how many jobs.
    async fn wait_for_room(&mut self) -> usize {
        let slots = self.shared.config.slots;
        let room = self.room.clone();
        loop {
            let ahead = self.rate.ahead(&room);
            let inside = room.inside.load(SeqCst);
            // A free slot is worth a claim by itself; jobs ahead of their slots are claimed by the half batch.
            let enough = slots + ahead / 2 - usize::from(ahead == 0);
            if inside <= enough {
                return slots + ahead - inside;
            }
            let left = room.at_most(enough);
            tokio::pin!(left);
            loop {
                tokio::select! {
                    () = &mut left => break,
                    Some(notice) = self.heard.recv() => { self.take_in(notice); }
                }
            }
        }
    }

    async fn claim_once(&mut self, limit: usize) -> anyhow::Result<ClaimedNow> {
        let shared = self.shared.clone();
        let Shared { config, store, held, counters, .. } = &*shared;
        let (queues, queue_first) = config.queues.draw();
        let sharing = self.sharing.load(Relaxed);
        if sharing && self.bounds.is_ready() && self.last_claim.elapsed() > LOOK_FIRST {
            store
                .claim(self.shared.id, (&queues, queue_first), 0, config.lease, &self.bounds, Some(Vec::new()))
                .await?;
        }
        let turns = sharing.then(|| match self.bounds.ready() {
            ready if ready.is_empty() => Vec::new(),
            ready => self.shared.shares.turns(&ready, (&queues, queue_first), limit),
        });
        let sent = Instant::now();
        self.last_claim = sent;
        let Claimed { claim_id, mut jobs, next_due } =
            store.claim(self.shared.id, (&queues, queue_first), limit, config.lease, &self.bounds, turns).await?;
        counters.claims.fetch_add(1, Relaxed);
        let count = jobs.len();
        let Some(claim_id) = claim_id else {
            let again = self.bounds.is_ready();
            let next_due =
                [next_due, self.bounds.aside(), again.then_some(FRUITLESS_PAUSE)].into_iter().flatten().min();
            return Ok(ClaimedNow { next_due, count, again });
        };
        self.shared.shares.begin(&mut jobs);
        debug!(claim_id, count, "claimed");
        let stop_at = sent + config.lease - config.lease_margin();
        let dispatched: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                let control = RunControl::new();
                control.stop_at(stop_at);
                Dispatched { job, control }
            })
            .collect();
        held.add(claim_id, dispatched.iter().map(|d| (d.job.id, d.job.lease_no, d.control.clone())));
        self.room.inside.fetch_add(count, SeqCst);
        for job in dispatched {
            // The slots outlive the claimer, so the queue is open.
            let _ = self.dispatch.try_send(job);
        }
        Ok(ClaimedNow { next_due, count, again: true })
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
                () = self.requeued.notified() => return,
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
                (self.hearing, self.unheard) = (true, false);
                self.shared.counters.hears.store(true, Relaxed);
                true
            }
            Notice::Unheard => {
                self.unheard = true;
                self.shared.counters.hears.store(false, Relaxed);
                true
            }
            // The sleep that it is in may be one for a worker that is told.
            Notice::Deaf => {
                self.shared.counters.hears.store(false, Relaxed);
                std::mem::take(&mut self.hearing)
            }
        }
    }

    fn hear_what_was_said(&mut self) {
        while let Ok(notice) = self.heard.try_recv() {
            self.take_in(notice);
        }
    }

    async fn ask_for_notices(&mut self, ttl: Duration) {
        match self.shared.store.sleep(self.shared.id, self.shared.config.queues.names(), ttl).await {
            Ok(()) => self.notified_until = (!ttl.is_zero()).then(|| Instant::now() + ttl),
            Err(cause) => warn!("{cause:#}; polling goes on"),
        }
    }
}

struct ClaimedNow {
    next_due: Option<Duration>,
    count: usize,
    /// Jobs are known that the next claim can bring.
    again: bool,
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
async fn look_for_stragglers(shared: Arc<Shared>, bounds: Arc<Bounds>, found: Arc<Notify>) {
    let mut wait = STRAGGLERS;
    loop {
        tokio::time::sleep(jittered(wait)).await;
        let started = Instant::now();
        match shared.store.find_stragglers(&bounds).await {
            Ok(true) => found.notify_one(),
            Ok(false) => (),
            Err(cause) => warn!("{cause:#}"),
        }
        wait = STRAGGLERS.max(started.elapsed() * STRAGGLERS_SHARE);
    }
}

/// Reads the tenants' weights now and then.
async fn keep_weights(shared: Arc<Shared>, sharing: Arc<AtomicBool>) {
    loop {
        tokio::time::sleep(jittered(WEIGHTS)).await;
        read_weights(&shared, &sharing).await;
    }
}

async fn read_weights(shared: &Shared, sharing: &AtomicBool) {
    match shared.store.shares().await {
        Ok(shares) => {
            shared.shares.set_weights(shares.weights);
            sharing.store(shares.ready, Relaxed);
        }
        Err(cause) => warn!("{cause:#}"),
    }
}

/// None when the worker drains first.
async fn unless_draining<T>(stage: &mut watch::Receiver<Stage>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _asked = stage.wait_for(|stage| *stage >= Stage::Drain) => None,
        done = work => Some(done),
    }
}
