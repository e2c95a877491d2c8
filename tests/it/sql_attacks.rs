//! What a hostile, or careless, producer can do to the others with SQL alone: nothing.

use std::time::Duration;

use leasehold::job::JobId;
use leasehold_tests::scenario::eventually;
use leasehold_tests::workers::{TestWorker, quick};
use leasehold_tests::{TestDb, Upload, guests};
use tokio_postgres::Client;

/// A producer that has cancelled a job in a transaction which it leaves open.
async fn cancelling(db: &TestDb, id: JobId) -> Client {
    let (producer, _) = db.connect_as("leasehold_producer").await;
    producer.batch_execute("begin").await.expect("a transaction");
    let state = producer.query_one(&format!("select leasehold.cancel({id})::text"), &[]).await.expect("it is there");
    assert_eq!(state.get::<_, String>(0), "running");
    producer
}

async fn with_a_job_that_ends_while_it_is_being_cancelled(max_attempts: i32) -> (TestDb, TestWorker, JobId, Client) {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    db.push(Upload::component("sleep", &guests::core("sleep"))).await;
    let worker = db.worker_with(quick());
    let id = db.enqueue(&format!("'sleep', timeout => '3 s', max_attempts => {max_attempts}")).await;
    worker.guests_run(1).await;
    let producer = cancelling(&db, id).await;
    eventually("the run has ended", || worker.finished() > 0).await;
    (db, worker, id, producer)
}

#[tokio::test]
async fn a_cancel_in_an_open_transaction_keeps_no_other_job_from_its_end() {
    let (db, worker, held, producer) = with_a_job_that_ends_while_it_is_being_cancelled(1).await;
    for _ in 0..3 {
        let others = db.enqueue_many("echo", 10).await;
        for id in others {
            db.wait_for(id, "done").await;
        }
    }
    assert_eq!(db.state(held).await, "running");
    producer.batch_execute("rollback").await.expect("it ends");
    assert_eq!(db.wait_for(held, "dead").await.failure_kind.as_deref(), Some("timeout"));
    worker.drain().await;
}

#[tokio::test]
async fn a_cancel_that_commits_when_the_run_has_ended_still_keeps_it_from_another() {
    let (db, worker, held, producer) = with_a_job_that_ends_while_it_is_being_cancelled(2).await;
    producer.batch_execute("commit").await.expect("it ends");
    assert_eq!(db.wait_for(held, "cancelled").await.attempt, 1);
    worker.drain().await;
}

#[tokio::test]
async fn a_drain_leaves_a_job_that_an_open_transaction_holds_to_be_reaped() {
    let db = TestDb::new().await;
    db.push(Upload::component("sleep", &guests::core("sleep"))).await;
    let lease = Duration::from_secs(2);
    let worker = db.worker_with(leasehold::worker::WorkerConfig { lease, ..quick() });
    let id = db.enqueue("'sleep'").await;
    worker.guests_run(1).await;
    let producer = cancelling(&db, id).await;
    worker.stop().await;
    assert_eq!(db.state(id).await, "running");
    producer.batch_execute("rollback").await.expect("it ends");
    let next = db.worker();
    db.wait_until("it runs again", &format!("(select lease_no = 2 from leasehold.jobs where id = {id})")).await;
    next.stop().await;
}

#[tokio::test]
async fn a_cancel_in_an_open_transaction_keeps_no_other_job_from_being_reaped() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let [held, other] = db.enqueue_many("echo", 2).await[..] else { panic!("two were asked for") };
    assert_eq!(db.claim(2).await.len(), 2);
    let producer = cancelling(&db, held).await;
    db.expire_lease(other).await;
    let reaped: Vec<_> = db.reap().await.into_iter().map(|reaped| reaped.job_id).collect();
    assert_eq!(reaped, [other]);
    assert_eq!(db.state(held).await, "running");
    producer.batch_execute("rollback").await.expect("it ends");
    db.wait_until("its turn comes", "(select bool_and(locked_until < clock_timestamp()) from leasehold.claims)").await;
    let reaped: Vec<_> = db.reap().await.into_iter().map(|reaped| reaped.job_id).collect();
    assert_eq!(reaped, [held]);
}
