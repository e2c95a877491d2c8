//! Nothing but the listener needs a session of its own: through a pooler that shares connections between transactions
//! everything else works, and the worker finds out that nobody tells it of anything.

use std::time::Duration;

use leasehold::job::JobId;
use leasehold::store::Database;
use leasehold::worker::{Stage, WorkerConfig};
use leasehold_tests::binary::{Files, run};
use leasehold_tests::guests::{core, nap, nap_of};
use leasehold_tests::pgbouncer::PgBouncer;
use leasehold_tests::scenario::eventually;
use leasehold_tests::workers::{TestWorker, WorkerProcess, quick};
use leasehold_tests::{TestDb, Upload, db};

/// Fewer than a worker has, so that its statements share them in ever new ways.
const CONNECTIONS: usize = 3;
const DEAF: &str = "takes LISTEN and no NOTIFY arrives";

/// What a database is asked through the pooler.
async fn asks(url: &str, sql: &str) -> i64 {
    db::connect(url).await.query_typed(sql, &[]).await.unwrap_or_else(|error| panic!("{error:?}"))[0].get(0)
}

#[tokio::test]
async fn from_an_empty_database_to_results_through_a_transaction_pooler() {
    let db = TestDb::empty().await;
    let Some(pooler) = PgBouncer::start(&db, "transaction", CONNECTIONS).await else { return };
    let url = pooler.url(&db);
    let files = Files::new();
    let wasm = files.write("echo.wasm", &core("echo"));
    run(&url, &["migrate"]).await.ok();
    assert_eq!(run(&url, &["migrate", "--json"]).await.json()["applied"], serde_json::json!([]));
    run(&url, &["module", "push", "echo", &wasm]).await.ok();
    let mut worker = WorkerProcess::start(&url, &[]).await;
    // As an application does, and as the command does.
    let enqueued = asks(
        &url,
        "select count(*) from leasehold.enqueue_many('echo', array(select to_jsonb(n) from generate_series(1, 1000) n))",
    );
    assert_eq!(enqueued.await, 1000);
    let id = asks(&url, "select leasehold.enqueue('echo', '{\"n\": 1}')").await;
    db.wait_until("all are done", "(select count(*) = 1001 from leasehold.history where state = 'done')").await;
    eventually("it has found out", || worker.log().contains(DEAF)).await;
    db.wait_until("it wants no NOTIFY", "not exists (select from leasehold.sleepers)").await;
    // Nobody tells it, and it comes all the same.
    for _ in 0..5 {
        let id: i64 = run(&url, &["enqueue", "echo"]).await.ok().stdout.trim().parse().expect("a number");
        db.wait_for(JobId(id), "done").await;
    }
    assert_eq!(db.value::<i64>("select count(*) from leasehold.history where lease_no <> 1").await, 0);
    assert_eq!(db.value::<i64>("select count(*) from leasehold.sleepers").await, 0, "nobody waits for a NOTIFY");
    assert_eq!(worker.log().matches(DEAF).count(), 1, "it says so once:\n{}", worker.log());
    assert_eq!(run(&url, &["job", "show", &id.to_string(), "--json"]).await.json()["state"], "done");
    for list in [["job", "list"], ["module", "list"], ["tenant", "list"], ["module", "show"]] {
        let name: &[&str] = if list[1] == "show" { &["echo"] } else { &[] };
        run(&url, &[&list, name, &["--json"]].concat()).await.json();
    }
    let stats = run(&url, &["stats", "--json"]).await.json();
    assert_eq!((&stats[0]["state"], &stats[0]["count"]), (&"done".into(), &1006.into()));
    worker.terminate();
    assert!(worker.wait().await.success(), "{}", worker.log());
    assert_eq!(worker.log().matches("ERROR").count(), 0, "{}", worker.log());
}

#[tokio::test]
async fn failures_snoozes_and_cancels_through_a_transaction_pooler() {
    let db = TestDb::new().await;
    let Some(pooler) = PgBouncer::start(&db, "transaction", CONNECTIONS).await else { return };
    for guest in ["unreachable", "attempt"] {
        db.push_wat(guest).await;
    }
    db.push(Upload::component("nap", &nap())).await;
    // The heartbeat brings the wish to cancel, since no NOTIFY does.
    let config = WorkerConfig { lease: Duration::from_secs(3), ..quick() };
    let worker = TestWorker::start(&pooler.url(&db), config);
    let failing = db.enqueue("'unreachable', max_attempts => 2, backoff => '10 ms'").await;
    let napping = db.enqueue(&nap_of(Duration::from_secs(15))).await;
    assert_eq!(db.wait_for(failing, "dead").await.attempt, 2);
    db.wait_for(napping, "running").await;
    let cancel = format!("select (leasehold.cancel({napping}) = 'running')::int::bigint");
    assert_eq!(asks(&pooler.url(&db), &cancel).await, 1);
    db.wait_for(napping, "cancelled").await;
    // A running job is given back when the worker is told to stop at once.
    let interrupted = db.enqueue(&nap_of(Duration::from_secs(15))).await;
    db.wait_for(interrupted, "running").await;
    worker.ask(Stage::Interrupt);
    worker.join().await.unwrap_or_else(|error| panic!("{error:#}"));
    let job = db.job(interrupted).await;
    assert_eq!((job.state.as_str(), job.attempt), ("queued", 0));
}

#[tokio::test]
async fn jobs_of_a_killed_worker_are_reaped_through_a_transaction_pooler() {
    let db = TestDb::new().await;
    let Some(pooler) = PgBouncer::start(&db, "transaction", CONNECTIONS).await else { return };
    let url = pooler.url(&db);
    db.push(Upload::component("nap", &nap())).await;
    let mut killed = WorkerProcess::start(&url, &["--lease", "2s"]).await;
    let id = db.enqueue(&nap_of(Duration::from_secs(3))).await;
    db.wait_for(id, "running").await;
    killed.kill_9().await;
    let second = WorkerProcess::start(&url, &["--lease", "2s"]).await;
    let job = db.wait_for(id, "done").await;
    assert_eq!((job.attempt, job.lease_no, job.crash_count), (2, 2, 1), "{}", second.log());
    assert!(second.log().contains("reaped"), "{}", second.log());
}

#[tokio::test]
async fn a_listener_that_goes_past_the_pooler_hears() {
    let db = TestDb::new().await;
    let Some(pooler) = PgBouncer::start(&db, "transaction", CONNECTIONS).await else { return };
    db.push_wat("echo").await;
    let direct = Database::parse(db.url()).expect("a URL of ours");
    // No poll comes in a test's time.
    let config = WorkerConfig { poll: Duration::from_secs(3600), listen: Some(direct), ..quick() };
    let worker = TestWorker::start(&pooler.url(&db), config);
    for _ in 0..20 {
        let id = db.enqueue("'echo'").await;
        db.wait_for(id, "done").await;
        db.wait_until("it has asked to be told", "exists (select from leasehold.sleepers)").await;
    }
    worker.drain().await;
}

#[tokio::test]
async fn a_session_pooler_tells_the_worker_of_jobs_and_again_after_it_was_restarted() {
    let db = TestDb::new().await;
    let Some(mut pooler) = PgBouncer::start(&db, "session", 50).await else { return };
    db.push_wat("echo").await;
    let url = pooler.url(&db);
    // No poll comes in a test's time.
    let worker = TestWorker::start(&url, WorkerConfig { poll: Duration::from_secs(3600), ..quick() });
    for _ in 0..2 {
        db.wait_until("it has asked to be told", "exists (select from leasehold.sleepers)").await;
        for _ in 0..10 {
            let id = db.enqueue("'echo'").await;
            db.wait_for(id, "done").await;
        }
        pooler.restart(&db).await;
    }
    worker.drain().await;
}
