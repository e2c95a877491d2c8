//! Promise 2: at least once. No job is lost by a killed worker, killed backends, a crashed server or a full pool.

use std::time::Duration;

use leasehold::settlement::{Settled, Settlement};
use leasehold::worker::{Queues, WorkerConfig};
use leasehold_tests::db::store;
use leasehold_tests::guests::{nap, nap_of};
use leasehold_tests::scenario::{POLL, report};
use leasehold_tests::workers::quick;
use leasehold_tests::{Claimer, TestDb, Upload};

/// Short, and long enough for a loaded machine not to lose it by itself.
const LEASE: Duration = Duration::from_secs(3);

async fn all_done(db: &TestDb, count: usize) {
    let done = format!("(select count(*) from leasehold.history where state = 'done') = {count}");
    db.wait_until("all are done", &done).await;
    assert_eq!(db.value::<i64>("select count(*) from leasehold.live_jobs").await, 0);
    let ids: i64 = db.value("select count(distinct id) from leasehold.history").await;
    assert_eq!(ids, i64::try_from(count).expect("a count"), "each once");
}

#[tokio::test]
async fn a_killed_workers_jobs_are_done_by_another() {
    let db = TestDb::new().await;
    db.push(Upload::component("nap", &nap())).await;
    let mut doomed = db.worker_process(&["--lease", "3s"]).await;
    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(db.enqueue(&nap_of(Duration::from_millis(400))).await);
    }
    db.wait_until("it runs some", "(select count(*) from leasehold.live_jobs where running) >= 4").await;
    doomed.kill_9().await;
    let held = db.value::<i64>("select count(*) from leasehold.live_jobs where running").await;
    assert!(held > 0, "it died in the middle");
    let mut heir = db.worker_process(&["--lease", "3s"]).await;
    all_done(&db, ids.len()).await;
    let crashed: i64 = db.value("select count(*) from leasehold.history where crash_count = 1 and attempt = 2").await;
    assert_eq!(crashed, held, "what it held has run twice, and only that");
    let told: i64 = db.value("select count(*) from leasehold.job_attempts where outcome = 'crash'").await;
    assert_eq!(told, held);
    let counted: Vec<i64> =
        db.column("select unnest(array[sum(runs), sum(failed), sum(crashed)])::bigint from leasehold.usage").await;
    assert_eq!(counted, [ids.len() as i64 + held, held, held], "each run is on the bill once, whoever died");
    heir.terminate();
    assert!(heir.wait().await.success());
}

#[tokio::test]
async fn a_job_that_kills_its_workers_is_dead_after_three() {
    let db = TestDb::new().await;
    db.push_wat("sleep").await;
    let id = db.enqueue("'sleep', timeout => '1 hour', max_attempts => 50").await;
    // Somebody has to reap.
    let reaper = db.worker_with(WorkerConfig { queues: Queues::in_order(["another"]), ..quick() });
    for lease_no in 1..=3 {
        let mut doomed = db.worker_process(&["--lease", "1s"]).await;
        db.wait_until(
            "it is claimed",
            &format!("exists (select from leasehold.live_jobs where id = {id} and running and lease_no = {lease_no})"),
        )
        .await;
        doomed.kill_9().await;
        db.wait_until(
            "it is reaped",
            &format!("not exists (select from leasehold.live_jobs where id = {id} and running)"),
        )
        .await;
    }
    let job = db.job(id).await;
    assert_eq!((job.state.as_str(), job.failure_kind.as_deref(), job.crash_count), ("dead", Some("crash"), 3));
    reaper.drain().await;
}

#[tokio::test]
async fn a_storm_of_killed_backends_loses_nothing() {
    const JOBS: usize = 400;
    let db = TestDb::new().await;
    db.push(Upload::component("nap", &nap())).await;
    db.push_wat("echo").await;
    let worker = db.worker_with(WorkerConfig { lease: LEASE, ..quick() });
    for _ in 0..JOBS / 4 {
        db.enqueue(&nap_of(Duration::from_millis(10))).await;
    }
    db.enqueue_many("echo", JOBS - JOBS / 4).await;
    let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'leasehold' and datname = current_database()";
    let mut killed = 0;
    while killed < 100 {
        killed += db.value::<i64>(kill).await;
        tokio::time::sleep(10 * POLL).await; // between two blows, not for anything to happen
        if db.value::<i64>("select count(*) from leasehold.live_jobs").await == 0 {
            break;
        }
    }
    assert!(killed > 5, "the storm hit {killed} sessions");
    all_done(&db, JOBS).await;
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_loses_no_job() {
    const JOBS: usize = 150;
    let mut db = TestDb::on_own_cluster().await;
    db.push(Upload::component("nap", &nap())).await;
    for _ in 0..JOBS {
        db.enqueue(&nap_of(Duration::from_millis(20))).await;
    }
    let worker = db.worker_with(WorkerConfig { lease: LEASE, ..quick() });
    for done in [10, 60] {
        db.wait_until("some are done", &format!("(select count(*) from leasehold.history) >= {done}")).await;
        db.crash_server().await;
    }
    all_done(&db, JOBS).await;
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_waits_out_a_server_that_is_away_and_can_be_stopped_meanwhile() {
    let mut db = TestDb::on_own_cluster().await;
    db.push_wat("echo").await;
    let worker = db.worker_with(WorkerConfig { lease: LEASE, ..quick() });
    let stopped = db.worker_with(WorkerConfig { lease: LEASE, queues: Queues::in_order(["slow"]), ..quick() });
    db.push(Upload::component("nap", &nap())).await;
    let first = db.enqueue("'echo'").await;
    db.wait_for(first, "done").await;
    let slow = db.enqueue(&format!("{}, queue => 'slow'", nap_of(Duration::from_millis(500)))).await;
    stopped.guests_run(1).await;
    // Claims do not wait for the disk; this takes what is not there yet with it.
    db.sql("create table flushed ()").await;
    let cluster = db.cluster();
    tokio::task::spawn_blocking(move || cluster.crash()).await.expect("it crashes");
    // Its job ends, cannot be settled, and the worker is told to stop: it does, with an error, and does not hang.
    let asked = std::time::Instant::now();
    stopped.ask(leasehold::worker::Stage::Interrupt);
    let ended = tokio::time::timeout(Duration::from_secs(60), stopped.join()).await;
    let ended = ended.unwrap_or_else(|_| panic!("the worker still hangs after {:?}", asked.elapsed()));
    assert!(ended.is_err(), "it could not say goodbye");
    let cluster = db.cluster();
    tokio::task::spawn_blocking(move || cluster.start()).await.expect("it starts");
    db.reconnect().await;
    // The other worker is still there, and reaps what the stopped one left.
    let id = db.enqueue("'echo'").await;
    db.wait_for(id, "done").await;
    let job = db.wait_for(slow, "queued").await;
    assert_eq!(job.crash_count, 1);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_server_gives_no_lease_number_out_again() {
    let mut db = TestDb::on_own_cluster().await;
    db.push_nothing("echo").await;
    let id = db.enqueue("'echo'").await;
    let first = db.claimer().await;
    let stale = first.claim(1).await.pop().expect("a job");
    // It was on the disk before the claimer heard of it.
    db.crash_server().await;
    assert_eq!(db.state(id).await, "running");
    db.expire_lease(id).await;
    db.reap().await;
    let second = Claimer::new(store(db.url()), &["default"]).await;
    let current = second.claim(1).await.pop().expect("a job");
    let settle = async |worker, job| {
        let batch = leasehold::store::Batch::sort(vec![report(job, Settlement::Complete { result: Vec::new() })]).pop();
        db.store().settle(worker, &batch.expect("one batch")).await.expect("an answer")[0]
    };
    assert_eq!(settle(first.id, &stale).await, Settled::LeaseLost, "both hold lease number {}", current.lease_no);
    assert_eq!(settle(second.id, &current).await, Settled::Yes);
}

#[tokio::test]
async fn more_workers_than_connections_take_turns() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    // One connection for the claimer, the settler, the heartbeat, maintenance and all slots.
    let role = format!("{}_narrow", db.name());
    db.sql(&format!("create role {role} login password 'secret' connection limit 2 in role leasehold_worker")).await;
    let url = leasehold_tests::db::as_user(db.url(), &role);
    let worker = leasehold_tests::workers::TestWorker::start(&url, quick());
    let ids = db.enqueue_many("echo", 200).await;
    all_done(&db, ids.len()).await;
    worker.drain().await;
}

#[tokio::test]
async fn several_workers_do_each_job_once() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let workers = [db.worker(), db.worker()];
    let mut processes = [db.worker_process(&[]).await, db.worker_process(&[]).await];
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.extend(db.enqueue_many("echo", 200).await);
    }
    all_done(&db, ids.len()).await;
    let wrong: Vec<i64> =
        db.column("select id from leasehold.history where attempt <> 1 or lease_no <> 1 or payload <> result").await;
    assert_eq!(wrong, [0; 0], "each with one run and its own result");
    for worker in workers {
        worker.drain().await;
    }
    for process in &processes {
        process.terminate();
    }
    for process in &mut processes {
        assert!(process.wait().await.success());
    }
}
