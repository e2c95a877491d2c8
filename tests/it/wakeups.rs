//! Promise 8: NOTIFY is a hint, and polling is the contract. An idle worker asks to be told, a busy one does not.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use leasehold::job::JobId;
use leasehold::store::{Database, Listener, Notice};
use leasehold::worker::WorkerConfig;
use leasehold_tests::TestDb;
use leasehold_tests::proxy::Proxy;
use leasehold_tests::scenario::PATIENCE;
use leasehold_tests::workers::quick;
use tokio_postgres::{AsyncMessage, Client, NoTls};

/// A worker for which no poll comes in a test's time.
fn only_told() -> WorkerConfig {
    WorkerConfig { poll: Duration::from_secs(3600), ..quick() }
}

/// Runs a few jobs, after which the worker is listening and asleep.
async fn settle_in(db: &TestDb) {
    db.push_wat("echo").await;
    for _ in 0..2 {
        let id = db.enqueue("'echo'").await;
        db.wait_for(id, "done").await;
    }
    let listening =
        "exists (select from pg_stat_activity where datname = current_database() and query like 'listen %')";
    db.wait_until("the worker listens", listening).await;
    db.wait_until("the worker has said that it sleeps", "exists (select from leasehold.sleepers)").await;
}

#[tokio::test]
async fn a_sleeping_worker_is_told_of_a_job() {
    let db = TestDb::new().await;
    let worker = db.worker_with(only_told());
    settle_in(&db).await;
    for _ in 0..20 {
        let id = db.enqueue("'echo'").await;
        db.wait_for(id, "done").await;
    }
    let many = db.enqueue_many("echo", 20).await;
    for id in many {
        db.wait_for(id, "done").await;
    }
    worker.drain().await;
}

#[tokio::test]
async fn a_job_that_becomes_due_wakes_the_worker_by_itself() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let id = db.enqueue("'echo', run_at => now() + interval '1500 ms'").await;
    let worker = db.worker_with(only_told());
    let job = db.wait_for(id, "done").await;
    assert!(job.due_in_ms <= 0.0);
    worker.drain().await;
}

#[tokio::test]
async fn a_retry_wakes_the_worker_that_failed_it() {
    let db = TestDb::new().await;
    db.push_wat("unreachable").await;
    let worker = db.worker_with(only_told());
    let id = db.enqueue("'unreachable', max_attempts => 3, backoff => '100 ms'").await;
    let job = db.wait_for(id, "dead").await;
    assert_eq!(job.attempt, 3);
    worker.drain().await;
}

#[tokio::test]
async fn whatever_puts_a_job_back_tells_of_it() {
    let db = TestDb::new().await;
    let worker = db.worker_with(only_told());
    settle_in(&db).await;
    // Redriven.
    let cancelled = db.enqueue("'echo', run_at => 'infinity'").await;
    db.cancel(cancelled).await;
    assert!(db.redrive(cancelled).await);
    db.wait_for(cancelled, "done").await;
    // Reaped from a worker that died, which had it from the moment it was there.
    let other = db.claimer().await;
    db.sql(&format!(
        "begin;
         select leasehold.enqueue('echo');
         select leasehold.claim({}, '{{default}}', 1, 1000, 600000, '{{}}', '{{}}', '{{}}', '{{}}');
         commit",
        other.id.0
    ))
    .await;
    let lost = JobId(db.value("select id from leasehold.live_jobs where running").await);
    db.expire_lease(lost).await;
    db.wait_for(lost, "done").await;
    // Held by a module that was switched off; the look below the bounds comes some seconds later.
    db.sql("select leasehold.activate_module('default', 'echo', null)").await;
    let held = db.enqueue("'echo'").await;
    db.sql("select leasehold.activate_module('default', 'echo', 1)").await;
    db.wait_for(held, "done").await;
    worker.drain().await;
}

#[tokio::test]
async fn a_worker_whose_listener_is_killed_again_and_again_still_gets_its_jobs() {
    let db = TestDb::new().await;
    let worker = db.worker_with(only_told());
    settle_in(&db).await;
    for _ in 0..5 {
        db.sql("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query like 'listen %'").await;
        let id = db.enqueue("'echo'").await;
        db.wait_for(id, "done").await;
    }
    worker.drain().await;
}

#[tokio::test]
async fn a_worker_that_cannot_ask_for_notices_polls() {
    let db = TestDb::new().await;
    db.sql(
        "create function nothing() returns trigger language plpgsql as 'begin return null; end';
         create trigger nobody_sleeps before insert on leasehold.sleepers for each row execute function nothing()",
    )
    .await;
    let worker = db.worker_with(WorkerConfig { poll: Duration::from_millis(100), ..quick() });
    db.push_wat("echo").await;
    for _ in 0..5 {
        let id = db.enqueue("'echo'").await;
        db.wait_for(id, "done").await;
    }
    assert_eq!(db.value::<i64>("select count(*) from leasehold.sleepers").await, 0);
    worker.drain().await;
}

#[tokio::test]
async fn a_worker_whose_wish_for_notices_fails_does_not_spin() {
    let db = TestDb::new().await;
    db.sql(
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
         create trigger nobody_sleeps before insert on leasehold.sleepers for each row execute function refuse()",
    )
    .await;
    let worker = db.worker_with(WorkerConfig { poll: Duration::from_millis(100), ..quick() });
    db.push_wat("echo").await;
    let claims = || worker.counters.claims.load(std::sync::atomic::Ordering::Relaxed);
    let id = db.enqueue("'echo'").await;
    db.wait_for(id, "done").await;
    let (before, since) = (claims(), std::time::Instant::now());
    leasehold_tests::scenario::eventually("the worker polls", || claims() >= before + 5).await;
    // 75 ms is the shortest that a poll is spread to.
    assert!(since.elapsed() >= 4 * Duration::from_millis(75), "five claims within {:?}", since.elapsed());
    worker.drain().await;
}

#[tokio::test]
async fn a_listener_whose_network_went_silent_is_found_out() {
    let db = TestDb::new().await;
    let proxy = Proxy::before(db.url()).await;
    let behind = Database::parse(proxy.url()).expect("a URL of ours");
    let (notices, mut said) = tokio::sync::mpsc::unbounded_channel();
    let listening = tokio::spawn(Listener::new(behind, db.store().clone()).run(notices));
    let mut next = async || tokio::time::timeout(PATIENCE, said.recv()).await.expect("it says something");
    assert_eq!(next().await, Some(Notice::Listening));
    db.sql("notify leasehold_wake").await;
    assert_eq!(next().await, Some(Notice::Wake));
    // Other connections live on, and this one has no error.
    proxy.freeze();
    assert_eq!(next().await, Some(Notice::Deaf));
    proxy.thaw();
    assert_eq!(next().await, Some(Notice::Listening));
    drop(said);
    listening.await.expect("it ends when nobody listens to it");
}

/// A session that hears what is said.
async fn ear(db: &TestDb) -> (Client, BoxStream<'static, (String, String)>) {
    let (client, mut connection) = tokio_postgres::connect(db.url(), NoTls).await.expect("a session");
    let (heard, said) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notice) = message {
                let _ = heard.send((notice.channel().to_owned(), notice.payload().to_owned()));
            }
        }
    });
    client.batch_execute("listen leasehold_wake; listen leasehold_cancel; listen mark").await.expect("it listens");
    (client, stream::unfold(said, |mut said| async { said.recv().await.map(|notice| (notice, said)) }).boxed())
}

/// What was said up to a mark that is set now.
async fn heard(db: &TestDb, ear: &mut BoxStream<'static, (String, String)>) -> Vec<(String, String)> {
    db.sql("notify mark").await;
    ear.take_while(|(channel, _)| std::future::ready(channel != "mark")).collect().await
}

#[tokio::test]
async fn nobody_is_told_when_nobody_sleeps_and_once_a_statement_when_somebody_does() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let (_client, mut ear) = ear(&db).await;
    db.enqueue("'echo'").await;
    db.enqueue_many("echo", 10).await;
    assert_eq!(heard(&db, &mut ear).await, []);
    let sleeper = db.claimer().await;
    let minute = Duration::from_secs(60);
    db.store().sleep(sleeper.id, &["default".into()], minute).await.expect("it may sleep");
    db.enqueue_many("echo", 1000).await;
    let wake = ("leasehold_wake".to_owned(), "default".to_owned());
    assert_eq!(heard(&db, &mut ear).await, std::slice::from_ref(&wake));
    db.sql("begin; select leasehold.enqueue('echo') from generate_series(1, 100); commit").await;
    assert_eq!(heard(&db, &mut ear).await, [wake], "equal notices of one transaction are one");
    db.enqueue("'echo', queue => 'another'").await;
    db.enqueue("'echo', run_at => now() + interval '1 hour'").await;
    assert_eq!(heard(&db, &mut ear).await, [], "another queue, and nothing to do yet");
    db.store().sleep(sleeper.id, &["default".into()], Duration::ZERO).await.expect("it wakes up");
    db.enqueue("'echo'").await;
    assert_eq!(heard(&db, &mut ear).await, []);
    // A worker that died in its sleep.
    db.store().sleep(sleeper.id, &["default".into()], minute).await.expect("it may sleep");
    db.sql("update leasehold.sleepers set until = clock_timestamp() - interval '1 second'").await;
    db.enqueue("'echo'").await;
    assert_eq!(heard(&db, &mut ear).await, []);
}

#[tokio::test]
async fn a_busy_worker_wants_no_notices() {
    let db = TestDb::new().await;
    let worker = db.worker_with(WorkerConfig { slots: 1, ..quick() });
    settle_in(&db).await;
    db.enqueue_many("echo", 2_000).await;
    db.wait_until("the busy worker has taken back its wish", "not exists (select from leasehold.sleepers)").await;
    db.wait_until("the idle one has it again", "exists (select from leasehold.sleepers)").await;
    worker.drain().await;
}
