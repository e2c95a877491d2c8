//! Fires schedules. Any worker does it for all, without a leader: it reads what is due, computes what follows, and hands both
//! back; the database goes on only where the schedule is still as it was read, and enqueues in the same transaction.
//!
//! It wakes when the next fire is due, and besides now and then, for schedules that were made or changed meanwhile.

use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::schedule::Cron;
use crate::store::{DueSchedule, Fire, Store, Then};

/// How often schedules are looked for that were made, changed, resumed or let go meanwhile. An idle worker sends one statement each time.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Workers that wake for one fire come one after another, so that usually the first does it all and the others see it done.
const APART: Duration = Duration::from_millis(20);
/// How many schedules one look brings.
const SCHEDULES: usize = 100;
/// How many jobs one statement enqueues, unless a single schedule has more: well within a call's time. Their bytes are bounded too.
const JOBS: usize = 500;
/// A batch that the database refuses is halved until the one bad schedule stands alone: seven times. After so many failures it is
/// the database.
const FAILURES: u32 = 10;
/// The first and the longest wait while nothing that was due went on: others fire it in this moment, or hold it locked.
const HELD_UP: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Runs until `running` turns false; a look under way is ended.
pub(super) async fn run(store: &Store, mut running: watch::Receiver<bool>) {
    // Workers that are started together look apart.
    let mut wait = LOOK_EVERY.mul_f64(rand::random_range(0.0..0.25));
    let mut held_up = HELD_UP.0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => (),
            _ended = running.wait_for(|running| !running) => return,
        }
        let looked = look(store).await.unwrap_or_else(|cause| {
            warn!("{cause:#}");
            Looked { went_on: true, wait: LOOK_EVERY }
        });
        wait = looked.wait;
        if looked.went_on {
            held_up = HELD_UP.0;
        } else {
            wait = wait.min(held_up);
            held_up = (held_up * 2).min(HELD_UP.1);
        }
    }
}

/// What came of a look.
#[derive(Debug, Clone, Copy)]
pub struct Looked {
    /// False when there was something to do and nothing of it could be done.
    pub went_on: bool,
    /// Until there is something to do again.
    pub wait: Duration,
}

/// Fires what is due, once.
pub async fn look(store: &Store) -> anyhow::Result<Looked> {
    let due = store.due_schedules(SCHEDULES).await?;
    let poll = LOOK_EVERY.mul_f64(rand::random_range(0.75..1.25));
    let apart = APART.mul_f64(rand::random_range(0.0..1.0));
    let wait = due.wait.map_or(poll, |wait| poll.min(wait + apart));
    if due.schedules.is_empty() {
        return Ok(Looked { went_on: true, wait });
    }
    let (mut went_on, mut failures) = (0, 0);
    let mut fires = Vec::new();
    for schedule in &due.schedules {
        fires.push(fire(schedule));
        // A hundred of them may take a while, and this runtime has heartbeats to send.
        tokio::task::yield_now().await;
    }
    let mut batches = batches(fires);
    while let Some(mut fires) = batches.pop() {
        let fired = match store.fire_schedules(&fires).await {
            Ok(fired) => fired,
            Err(cause) => {
                failures += 1;
                anyhow::ensure!(failures < FAILURES, cause);
                warn!(schedules = fires.len(), "{cause:#}");
                // Whichever of them it was, the others need not wait for it.
                if fires.len() > 1 {
                    let half = fires.split_off(fires.len() / 2);
                    batches.extend([half, fires]);
                }
                continue;
            }
        };
        for fired in fired {
            went_on += 1;
            let Some(schedule) = due.schedules.iter().find(|schedule| schedule.id == fired.id) else { continue };
            let (tenant, name) = (&schedule.tenant, &schedule.name);
            if let Some(refusal) = fired.refusal {
                warn!(tenant, schedule = name, "a schedule cannot fire: {refusal}");
            }
            if let Some(job_id) = fired.last_job {
                info!(tenant, schedule = name, jobs = fired.jobs, %job_id, "fired");
            }
        }
    }
    debug!(due = due.schedules.len(), went_on, "schedules");
    // What went on may be due again, and others may have been beyond the limit.
    Ok(Looked { went_on: went_on > 0, wait: if went_on > 0 { Duration::ZERO } else { wait } })
}

fn fire(schedule: &DueSchedule) -> Fire {
    let then = match Cron::parse(&schedule.cron, &schedule.time_zone).and_then(|cron| cron.plan(&schedule.due)) {
        Ok(plan) => Then::GoOn { fires: plan.fires, next_fire: plan.next_fire },
        Err(bad) => Then::Broken(bad.to_string()),
    };
    Fire { id: schedule.id, expected: schedule.due.next_fire, then }
}

fn batches(fires: Vec<Fire>) -> Vec<Vec<Fire>> {
    let mut batches: Vec<Vec<Fire>> = vec![Vec::new()];
    let mut jobs = 0;
    for fire in fires {
        let own = match &fire.then {
            Then::GoOn { fires, .. } => fires.len(),
            Then::Broken(_) => 0,
        };
        if jobs > 0 && jobs + own > JOBS {
            batches.push(Vec::new());
            jobs = 0;
        }
        jobs += own;
        batches.last_mut().expect("one at least").push(fire);
    }
    batches
}
