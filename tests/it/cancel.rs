//! Cancelling a running job: asked at once, given a grace period, then interrupted.

use std::time::Duration;

use leasehold::job::Limits;
use leasehold::worker::WorkerConfig;
use leasehold_tests::guests::{LIMITS, core};
use leasehold_tests::workers::quick;
use leasehold_tests::{TestDb, Upload};

/// So long between two heartbeats that only the NOTIFY can have made it look.
fn seldom_beating() -> WorkerConfig {
    WorkerConfig { lease: Duration::from_secs(3600), ..quick() }
}

async fn with_endless_guests() -> TestDb {
    let db = TestDb::new().await;
    let limits = Limits { timeout: Duration::from_secs(3600), fuel: Limits::MAX_FUEL, ..LIMITS };
    for guest in ["wait_for_cancel", "spin", "sleep", "spin_in_host_calls"] {
        db.push(Upload { limits, ..Upload::component(guest, &core(guest)) }).await;
    }
    db
}

#[tokio::test]
async fn a_guest_that_looks_ends_in_its_own_way() {
    let db = with_endless_guests().await;
    let worker = db.worker_with(WorkerConfig { cancel_grace: Duration::from_secs(3600), ..seldom_beating() });
    let id = db.enqueue("'wait_for_cancel'").await;
    worker.guests_run(1).await;
    assert_eq!(db.cancel(id).await, "running");
    let job = db.wait_for(id, "cancelled").await;
    assert_eq!((job.failure_kind, job.result), (None, None));
    assert_eq!(db.attempts(id).await[0].outcome, "cancelled");
    worker.drain().await;
}

#[tokio::test]
async fn a_guest_that_does_not_look_is_interrupted_after_the_grace_period() {
    let db = with_endless_guests().await;
    let worker = db.worker_with(seldom_beating());
    let mut ids = Vec::new();
    for guest in ["spin", "sleep", "spin_in_host_calls"] {
        ids.push(db.enqueue(&format!("'{guest}'")).await);
    }
    worker.guests_run(3).await;
    for id in &ids {
        assert_eq!(db.cancel(*id).await, "running");
    }
    for id in ids {
        db.wait_for(id, "cancelled").await;
        let since: f64 = db
            .value(&format!(
                "select extract(epoch from finished_at - started_at)::float8 * 1000 from leasehold.jobs where id = {id}"
            ))
            .await;
        assert!(since >= 200.0, "interrupted {since} ms after its start, before the grace period of 200 ms was over");
    }
    worker.drain().await;
}

#[tokio::test]
async fn a_full_worker_hears_of_it_at_once_too() {
    let db = with_endless_guests().await;
    let worker = db.worker_with(WorkerConfig { slots: 1, ..seldom_beating() });
    let id = db.enqueue("'wait_for_cancel'").await;
    worker.guests_run(1).await;
    assert_eq!(db.cancel(id).await, "running");
    db.wait_for(id, "cancelled").await;
    worker.drain().await;
}

#[tokio::test]
async fn without_a_notify_the_next_heartbeat_brings_it() {
    let db = with_endless_guests().await;
    let worker = db.worker_with(WorkerConfig { lease: Duration::from_secs(3), ..quick() });
    let id = db.enqueue("'wait_for_cancel'").await;
    worker.guests_run(1).await;
    // What cancel writes, without what it says.
    db.sql(&format!("update leasehold.live_jobs set cancel_requested = true where id = {id}")).await;
    db.wait_for(id, "cancelled").await;
    worker.drain().await;
}

#[tokio::test]
async fn nobody_can_cancel_a_job_by_notify_alone() {
    let db = with_endless_guests().await;
    let worker = db.worker_with(seldom_beating());
    let id = db.enqueue("'wait_for_cancel'").await;
    worker.guests_run(1).await;
    db.sql(&format!(
        "notify leasehold_cancel, '{id}'; notify leasehold_cancel, 'nonsense'; notify leasehold_wake, 'nonsense'"
    ))
    .await;
    // The worker works on, and the next job shows that it has heard all that by now.
    db.push_wat("echo").await;
    let after = db.enqueue("'echo'").await;
    db.wait_for(after, "done").await;
    assert_eq!((db.state(id).await, db.job(id).await.cancel_requested), ("running".into(), false));
    worker.stop().await;
}

#[tokio::test]
async fn cancelling_many_at_once_ends_them_all() {
    let db = with_endless_guests().await;
    db.sql("select leasehold.enqueue('wait_for_cancel') from generate_series(1, 12)").await;
    let worker = db.worker_with(seldom_beating());
    worker.guests_run(4).await;
    let states: Vec<String> = db.column("select leasehold.cancel(id)::text from leasehold.live_jobs").await;
    assert_eq!(states.len(), 12);
    db.wait_until("all have ended", "not exists (select from leasehold.live_jobs)").await;
    assert_eq!(db.value::<i64>("select count(*) from leasehold.history where state = 'cancelled'").await, 12);
    worker.drain().await;
}
