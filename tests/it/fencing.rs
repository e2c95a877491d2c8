//! Promise 3: one settlement a lease. A stale worker changes nothing, and that is an answer, not an error.

use std::time::Duration;

use leasehold::outcome::{Failure, FailureKind, Log, LogStream};
use leasehold::settlement::{Settled, Settlement};
use leasehold::store::ClaimedJob;
use leasehold_tests::TestDb;
use leasehold_tests::scenario::{report, trap};
use serde_json::Value;

async fn with_module() -> TestDb {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db
}

/// Everything that a worker can say about a run.
fn every_settlement() -> Vec<Settlement> {
    let fault = Failure { kind: FailureKind::Host, ..trap("a fault") };
    vec![
        Settlement::Complete { result: b"1".to_vec() },
        Settlement::Fail { failure: trap("it failed"), delay: Duration::ZERO },
        Settlement::Bury { failure: trap("hopeless") },
        Settlement::Snooze { delay: Duration::ZERO },
        Settlement::Release { fault: None, delay: Duration::ZERO },
        Settlement::Release { fault: Some(fault), delay: Duration::ZERO },
        Settlement::FinishCancel,
    ]
}

/// Every row of the tables that a settlement could touch.
async fn everything(db: &TestDb) -> Value {
    db.value(
        "select jsonb_build_object(
             'live', (select jsonb_agg(to_jsonb(j) order by j.id) from leasehold.live_jobs j),
             'history', (select jsonb_agg(to_jsonb(h) order by h.id) from leasehold.history h),
             'attempts', (select jsonb_agg(to_jsonb(a) order by a.job_id, a.lease_no) from leasehold.attempts a),
             'claims', (select jsonb_agg(to_jsonb(c) order by c.claim_id) from leasehold.claims c))",
    )
    .await
}

/// Says everything about a run, and sees that nothing of it was written.
async fn nothing_changes(db: &TestDb, stale: &ClaimedJob, why: &str) {
    let before = everything(db).await;
    for settlement in every_settlement() {
        let mut stale_report = report(stale, settlement.clone());
        stale_report.log = Log::of(LogStream::Stderr, b"something");
        assert_eq!(db.settle_all(vec![stale_report]).await, [Settled::LeaseLost], "{why}: {settlement:?}");
    }
    assert_eq!(everything(db).await, before, "{why}");
}

#[tokio::test]
async fn a_stale_worker_changes_nothing_whatever_became_of_the_job() {
    let db = with_module().await;
    let stale = db.enqueue_and_claim("echo").await;
    let id = stale.id;
    db.expire_lease(id).await;
    db.reap().await;
    nothing_changes(&db, &stale, "reaped and queued").await;

    let second = db.claim_one().await;
    nothing_changes(&db, &stale, "running elsewhere").await;

    // A wish to cancel it is for the worker that runs it now.
    db.cancel(id).await;
    nothing_changes(&db, &stale, "running elsewhere, asked to cancel").await;
    assert_eq!(db.finish_cancel(second).await, Settled::Yes);
    nothing_changes(&db, &stale, "cancelled").await;

    assert!(db.redrive(id).await);
    nothing_changes(&db, &stale, "redriven").await;
    let third = db.claim_one().await;
    assert_eq!(third.lease_no, 3);
    assert_eq!(db.complete(third).await, Settled::Yes);
    nothing_changes(&db, &stale, "done").await;
}

#[tokio::test]
async fn a_run_is_settled_once() {
    let db = with_module().await;
    for first in every_settlement() {
        let job = db.enqueue_and_claim("echo").await;
        if first == Settlement::FinishCancel {
            db.cancel(job.id).await;
        }
        assert_eq!(db.settle(&job, first.clone()).await, Settled::Yes, "{first:?}");
        nothing_changes(&db, &job, "settled before").await;
        db.sql("delete from leasehold.live_jobs").await;
    }
}

#[tokio::test]
async fn a_snooze_does_not_make_an_old_lease_good_again() {
    // An attempt number goes back and comes again; the lease number must not.
    let db = with_module().await;
    let first = db.enqueue_and_claim("echo").await;
    assert_eq!(db.settle(&first, Settlement::Snooze { delay: Duration::ZERO }).await, Settled::Yes);
    let second = db.claim_one().await;
    assert_eq!((first.attempt, second.attempt), (1, 1));
    nothing_changes(&db, &first, "another run with the same attempt number").await;
    assert_eq!(db.complete(second).await, Settled::Yes);
}

#[tokio::test]
async fn one_stale_run_in_a_batch_does_not_touch_the_others() {
    let db = with_module().await;
    db.enqueue_many("echo", 3).await;
    let jobs = db.claim(3).await;
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    db.sql(&format!("update leasehold.live_jobs set lease_no = lease_no + 1 where id = {}", ids[1])).await;
    let reports =
        jobs.iter().map(|job| report(job, Settlement::Complete { result: job.id.to_string().into_bytes() })).collect();
    assert_eq!(db.settle_all(reports).await, [Settled::Yes, Settled::LeaseLost, Settled::Yes]);
    for (id, state) in ids.iter().zip(["done", "running", "done"]) {
        let job = db.job(*id).await;
        assert_eq!(job.state, state);
        assert_eq!(
            job.result_bytes.is_some_and(|bytes| bytes == id.to_string().into_bytes()),
            state == "done",
            "its own result"
        );
    }
}

#[tokio::test]
async fn of_two_that_settle_the_same_run_at_once_one_wins() {
    let db = with_module().await;
    db.enqueue_many("echo", 20).await;
    let jobs = db.claim(20).await;
    let other = leasehold_tests::db::store(db.url());
    let worker = db.worker_id().await;
    let batch = |settlement: Settlement| {
        let reports = jobs.iter().map(|job| report(job, settlement.clone())).collect();
        leasehold::store::Batch::sort(reports).pop().expect("one batch")
    };
    let (complete, fail) = (
        batch(Settlement::Complete { result: Vec::new() }),
        batch(Settlement::Fail { failure: trap("it failed"), delay: Duration::ZERO }),
    );
    let (completed, failed) = tokio::join!(db.store().settle(worker, &complete), other.settle(worker, &fail));
    let (completed, failed) = (completed.expect("an answer"), failed.expect("an answer"));
    for ((job, completed), failed) in jobs.iter().zip(completed).zip(failed) {
        assert_ne!(completed, failed, "job {}", job.id);
        let state = if completed == Settled::Yes { "done" } else { "queued" };
        assert_eq!(db.state(job.id).await, state);
    }
}
