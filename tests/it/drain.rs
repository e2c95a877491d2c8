//! Promise 7: a deploy burns no attempt. Shutdown drains, keeps heartbeating, then interrupts and gives back.

use std::time::Duration;

use leasehold::worker::{Queues, Stage, WorkerConfig};
use leasehold_tests::guests::{nap, nap_of};
use leasehold_tests::scenario::eventually;
use leasehold_tests::workers::quick;
use leasehold_tests::{TestDb, Upload};

/// Nothing of a worker is left, and what it had not finished waits as if it had never been claimed.
async fn nothing_was_burned(db: &TestDb) {
    let burned: Vec<String> = db
        .column(
            "select format('job %s: running %s, attempt %s, crashes %s', id, running, attempt, crash_count) from leasehold.live_jobs
              where running or attempt > 0 or crash_count > 0",
        )
        .await;
    assert_eq!(burned, [""; 0]);
    for table in ["claims", "workers", "sleepers"] {
        assert_eq!(db.value::<i64>(&format!("select count(*) from leasehold.{table}")).await, 0, "{table}");
    }
    assert_eq!(db.value::<i64>("select count(*) from leasehold.attempts where outcome = 'crash'").await, 0);
}

#[tokio::test]
async fn running_jobs_may_end() {
    let db = TestDb::new().await;
    db.push(Upload::component("nap", &nap())).await;
    let ids =
        [db.enqueue(&nap_of(Duration::from_millis(600))).await, db.enqueue(&nap_of(Duration::from_millis(300))).await];
    let worker = db.worker();
    worker.guests_run(2).await;
    worker.drain().await;
    for id in ids {
        let job = db.job(id).await;
        assert_eq!((job.state.as_str(), job.attempt, job.lease_no), ("done", 1, 1));
    }
    nothing_was_burned(&db).await;
}

#[tokio::test]
async fn nothing_more_is_claimed() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    db.push_wat("wait_for_cancel").await;
    let slow = db.enqueue("'wait_for_cancel', timeout => '1 hour'").await;
    let worker = db.worker();
    worker.guests_run(1).await;
    worker.ask(Stage::Drain);
    // Saying goodbye to the queue is the first thing that a drain does: no NOTIFY, no poll brings a job any more, and what a claim
    // under way at that moment brings is given back.
    let late = db.enqueue("'echo'").await;
    db.cancel(slow).await;
    worker.join().await.expect("it drains");
    assert_eq!(db.state(slow).await, "cancelled");
    assert_eq!((db.state(late).await, db.job(late).await.attempt), ("queued".into(), 0));
    nothing_was_burned(&db).await;
}

#[tokio::test]
async fn jobs_that_wait_for_a_slot_are_given_back() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let all = db.enqueue_many("echo", 4_000).await;
    let worker = db.worker_with(WorkerConfig { slots: 2, ..quick() });
    eventually("the worker is in full swing", || worker.finished() > 500).await;
    worker.drain().await;
    nothing_was_burned(&db).await;
    let done: i64 = db.value("select count(*) from leasehold.history where state = 'done' and attempt = 1").await;
    let queued: i64 = db.value("select count(*) from leasehold.live_jobs").await;
    assert_eq!(usize::try_from(done + queued).expect("a count"), all.len(), "none is lost and none is there twice");
}

#[tokio::test]
async fn a_claim_that_is_under_way_is_waited_for() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let worker = db.worker();
    let mut other = db.connect().await;
    let lock = other.transaction().await.expect("a transaction");
    lock.batch_execute("lock table leasehold.claims in share row exclusive mode").await.expect("a lock");
    let id = db.enqueue("'echo'").await;
    // The claim has chosen its job and waits for the lock to write its lease.
    db.wait_for_blocked(1).await;
    worker.ask(Stage::Drain);
    lock.rollback().await.expect("it ends");
    worker.join().await.expect("it drains");
    let job = db.job(id).await;
    assert_eq!((job.state.as_str(), job.attempt, job.lease_no), ("queued", 0, 1));
    nothing_was_burned(&db).await;
}

#[tokio::test]
async fn what_runs_past_the_drain_is_interrupted_and_given_back() {
    let db = TestDb::new().await;
    let limits = leasehold::job::Limits {
        timeout: Duration::from_secs(3600),
        fuel: leasehold::job::Limits::MAX_FUEL,
        ..leasehold_tests::guests::LIMITS
    };
    let mut ids = Vec::new();
    for guest in ["sleep", "spin", "spin_in_host_calls"] {
        db.push(Upload { limits, ..Upload::component(guest, &leasehold_tests::guests::core(guest)) }).await;
        ids.push(db.enqueue(&format!("'{guest}', max_attempts => 1")).await);
    }
    let worker = db.worker_with(WorkerConfig { drain: Duration::from_millis(50), ..quick() });
    worker.guests_run(3).await;
    worker.drain().await;
    for id in ids {
        let job = db.job(id).await;
        assert_eq!((job.state.as_str(), job.attempt, job.lease_no), ("queued", 0, 1));
        assert!(job.due_in_ms <= 0.0, "another worker may take it at once");
        assert!(db.attempts(id).await.is_empty());
    }
    nothing_was_burned(&db).await;
}

#[tokio::test]
async fn a_second_signal_interrupts_at_once() {
    let db = TestDb::new().await;
    db.push_wat("sleep").await;
    let id = db.enqueue("'sleep', timeout => '1 hour'").await;
    let worker = db.worker_with(WorkerConfig { drain: Duration::from_secs(3600), ..quick() });
    worker.guests_run(1).await;
    worker.ask(Stage::Drain);
    worker.ask(Stage::Interrupt);
    worker.join().await.expect("it stops");
    assert_eq!(db.job(id).await.attempt, 0);
    nothing_was_burned(&db).await;
}

#[tokio::test]
async fn heartbeats_go_on_to_the_last() {
    let db = TestDb::new().await;
    db.push(Upload::component("nap", &nap())).await;
    let lease = Duration::from_secs(3);
    let id = db.enqueue(&nap_of(2 * lease)).await;
    let worker = db.worker_with(WorkerConfig { lease, ..quick() });
    // Somebody else reaps all the while.
    let reaper = db.worker_with(WorkerConfig { queues: Queues::in_order(["another"]), ..quick() });
    worker.guests_run(1).await;
    worker.drain().await;
    let job = db.job(id).await;
    assert_eq!((job.state.as_str(), job.attempt, job.lease_no, job.crash_count), ("done", 1, 1, 0));
    reaper.drain().await;
    nothing_was_burned(&db).await;
}

#[tokio::test]
async fn a_job_that_was_asked_to_cancel_is_cancelled_by_the_drain_and_not_given_back() {
    let db = TestDb::new().await;
    db.push_wat("sleep").await;
    let id = db.enqueue("'sleep', timeout => '1 hour'").await;
    let config = WorkerConfig { cancel_grace: Duration::from_secs(3600), lease: Duration::from_secs(3600), ..quick() };
    let worker = db.worker_with(config);
    worker.guests_run(1).await;
    assert_eq!(db.cancel(id).await, "running");
    worker.stop().await;
    assert_eq!(db.state(id).await, "cancelled");
    nothing_was_burned(&db).await;
}

#[tokio::test]
async fn a_worker_that_is_told_to_stop_before_it_started_claims_nothing() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let id = db.enqueue("'echo'").await;
    let worker = db.worker();
    worker.drain().await;
    let job = db.job(id).await;
    // It may have been quick enough to do it all.
    assert!(matches!((job.state.as_str(), job.attempt), ("queued", 0) | ("done", 1)), "{job:?}");
    nothing_was_burned(&db).await;
}

#[tokio::test]
async fn a_process_drains_on_sigterm_and_a_second_one_interrupts() {
    let db = TestDb::new().await;
    db.push(Upload::component("nap", &nap())).await;
    db.push_wat("sleep").await;
    let nap = db.enqueue(&nap_of(Duration::from_millis(1500))).await;
    let mut worker = db.worker_process(&["--drain", "1h"]).await;
    db.wait_for(nap, "running").await;
    worker.terminate();
    assert!(worker.wait().await.success(), "a drained worker exits with 0");
    assert_eq!((db.state(nap).await, db.job(nap).await.attempt), ("done".into(), 1));
    nothing_was_burned(&db).await;

    let endless = db.enqueue("'sleep', timeout => '1 hour'").await;
    let mut worker = db.worker_process(&["--drain", "1h"]).await;
    db.wait_for(endless, "running").await;
    worker.terminate();
    db.wait_until("the worker has heard the first signal", "true").await;
    eventually("the worker has heard the first signal", || worker.log().contains("signal again to interrupt")).await;
    worker.terminate();
    assert!(worker.wait().await.success());
    assert_eq!(db.job(endless).await.attempt, 0);
    nothing_was_burned(&db).await;
}
