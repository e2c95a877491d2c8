//! Promise 4, and what keeps a lease: heartbeats extend it, a guest is stopped before it can run out, a lost one is noticed.

use std::time::{Duration, Instant};

use leasehold::settlement::Settled;
use leasehold::worker::{Queues, WorkerConfig};
use leasehold_tests::TestDb;
use leasehold_tests::proxy::Proxy;
use leasehold_tests::scenario::eventually;
use leasehold_tests::workers::{TestWorker, quick};

/// Short, and long enough for a loaded machine not to lose it by itself.
const LEASE: Duration = Duration::from_secs(3);

async fn seconds_left(db: &TestDb, claim: i64) -> f64 {
    db.value(&format!("select extract(epoch from locked_until - clock_timestamp())::float8 from leasehold.claims where claim_id = {claim}")).await
}

#[tokio::test]
async fn a_heartbeat_extends_what_the_worker_holds_and_nothing_else() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db.enqueue_many("echo", 4).await;
    let [me, other] = [db.claimer().await, db.claimer().await];
    let lease = Duration::from_secs(60);
    let mut claims = Vec::new();
    for claimer in [&me, &me, &other] {
        let claimed = claimer.claim_within(1, lease, &claimer.bounds).await;
        claims.push((claimed.claim_id.expect("a job was claimed"), (claimed.jobs[0].id, claimed.jobs[0].lease_no)));
    }
    let [(first, first_job), (second, second_job), (foreign, foreign_job)] = claims[..] else { panic!("three claims") };
    let long = Duration::from_secs(1000);
    let beat = db
        .store()
        .heartbeat(me.id, &[first, foreign], &[second], long, &[first_job, second_job, foreign_job])
        .await
        .expect("a beat");
    assert!((900.0..=1000.0).contains(&seconds_left(&db, first).await), "extended");
    assert!(seconds_left(&db, foreign).await <= 60.0, "another worker's claim is not this one's to extend");
    let left: Vec<i64> = db.column("select claim_id from leasehold.claims order by 1").await;
    assert_eq!(left, [first, foreign], "the closed one is gone");
    assert_eq!(beat.lost, [second_job.0], "and with it the right to its job");
    assert!(beat.cancel.is_empty());
    let seen: f64 = db
        .value(&format!("select extract(epoch from clock_timestamp() - seen_at)::float8 from leasehold.workers where worker_id = {}", me.id.0))
        .await;
    assert!(seen < 30.0, "the worker was seen {seen} s ago");
}

#[tokio::test]
async fn a_heartbeat_answers_what_was_lost_and_what_is_to_be_cancelled() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db.enqueue_many("echo", 5).await;
    let claimer = db.claimer().await;
    let claimed = claimer.claim_within(5, LEASE, &claimer.bounds).await;
    let claim = claimed.claim_id.expect("jobs were claimed");
    let held: Vec<_> = claimed.jobs.iter().map(|job| (job.id, job.lease_no)).collect();
    let beat = async || db.store().heartbeat(claimer.id, &[claim], &[], LEASE, &held).await.expect("a beat");
    let fresh = beat().await;
    assert!(fresh.lost.is_empty() && fresh.cancel.is_empty());
    db.cancel(held[1].0).await;
    db.sql(&format!("update leasehold.live_jobs set lease_no = lease_no + 1 where id = {}", held[2].0)).await;
    assert_eq!(db.complete(claimed.jobs.into_iter().nth(3).expect("five")).await, Settled::Yes);
    let answer = beat().await;
    assert_eq!(answer.cancel, [held[1].0]);
    assert_eq!(answer.lost, [held[2].0, held[3].0]);
    // Once reaped, a claim is gone for good: the worker lost it all.
    db.expire_lease(held[0].0).await;
    db.reap().await;
    let answer = beat().await;
    assert_eq!(answer.lost, held.iter().map(|(id, _)| *id).collect::<Vec<_>>());
    assert_eq!(db.value::<i64>("select count(*) from leasehold.claims").await, 0);
}

#[tokio::test]
async fn a_job_may_run_for_longer_than_its_lease() {
    let db = TestDb::new().await;
    db.push(leasehold_tests::Upload::component("nap", &leasehold_tests::guests::nap())).await;
    let worker = db.worker_with(WorkerConfig { lease: LEASE, ..quick() });
    let id = db.enqueue(&leasehold_tests::guests::nap_of(2 * LEASE)).await;
    let job = db.wait_for(id, "done").await;
    assert_eq!((job.attempt, job.lease_no, job.crash_count), (1, 1, 0));
    worker.drain().await;
    assert_eq!(db.value::<i64>("select count(*) from leasehold.claims").await, 0, "and no lease is left behind");
}

#[tokio::test]
async fn a_guest_is_stopped_before_its_lease_can_run_out_when_the_database_is_silent() {
    let db = TestDb::new().await;
    for guest in ["sleep", "spin_in_host_calls"] {
        db.push(leasehold_tests::Upload {
            limits: leasehold::job::Limits {
                fuel: leasehold::job::Limits::MAX_FUEL,
                timeout: Duration::from_secs(3600),
                ..leasehold_tests::guests::LIMITS
            },
            ..leasehold_tests::Upload::component(guest, &leasehold_tests::guests::core(guest))
        })
        .await;
    }
    let ids = [db.enqueue("'sleep'").await, db.enqueue("'spin_in_host_calls'").await];
    let proxy = Proxy::before(db.url()).await;
    let worker = TestWorker::start(proxy.url(), WorkerConfig { lease: LEASE, ..quick() });
    worker.guests_run(2).await;
    proxy.freeze();
    let frozen = Instant::now();
    eventually("both guests are stopped", || worker.finished() == 2).await;
    // By the only clock that judges: whoever takes the jobs now, or later, overlaps with nobody.
    let still_leased: i64 = db
        .value("select count(*) from leasehold.jobs where state = 'running' and locked_until > clock_timestamp()")
        .await;
    assert_eq!(
        still_leased,
        2,
        "stopped {:?} after the last sign of the database, with a lease of {LEASE:?}",
        frozen.elapsed()
    );
    // The other side of the silence: somebody reaps and runs them while this worker is cut off.
    for id in ids {
        db.expire_lease(id).await;
    }
    let reaped = db.reap().await;
    assert_eq!(reaped.iter().filter(|job| job.state == "queued").count(), 2);
    let taken = db.claim(2).await;
    assert_eq!(taken.iter().map(|job| job.lease_no).collect::<Vec<_>>(), [2, 2]);
    proxy.thaw();
    eventually("the worker hears that it lost them", || worker.leases_lost() == 2).await;
    for job in taken {
        assert_eq!(db.complete(job).await, Settled::Yes);
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_was_stopped_for_its_lease_is_not_left_running() {
    let db = TestDb::new().await;
    db.push_wat("sleep").await;
    let id = db.enqueue("'sleep', timeout => '1 hour'").await;
    let worker = db.worker_with(WorkerConfig { lease: LEASE, ..quick() });
    worker.guests_run(1).await;
    // Heartbeats wait here; everything else works.
    let mut other = db.connect().await;
    let lock = other.transaction().await.expect("a transaction");
    lock.batch_execute("lock table leasehold.claims in share row exclusive mode").await.expect("a lock");
    eventually("the guest is stopped", || worker.finished() == 1).await;
    lock.rollback().await.expect("it ends");
    // The lease had not run out, and heartbeats get through again: nobody but the worker itself can give the job back.
    db.wait_until(
        "another run has begun",
        &format!("exists (select from leasehold.live_jobs where id = {id} and running and lease_no = 2)"),
    )
    .await;
    worker.stop().await;
    let job = db.job(id).await;
    assert_eq!((job.state.as_str(), job.attempt, job.crash_count), ("queued", 0, 1));
    assert!(
        db.attempts(id).await[0]
            .message
            .as_ref()
            .is_some_and(|message| message.contains("no answer from the database"))
    );
}

#[tokio::test]
async fn a_job_that_comes_back_to_the_same_worker_runs_once_at_a_time() {
    let db = TestDb::new().await;
    db.push_wat("sleep").await;
    let worker = db.worker_with(WorkerConfig { lease: Duration::from_secs(600), ..quick() });
    let id = db.enqueue("'sleep', timeout => '1 hour'").await;
    worker.guests_run(1).await;
    db.expire_lease(id).await;
    // By this worker's own reaper, and long before its next heartbeat.
    db.wait_until(
        "it is claimed again",
        &format!("exists (select from leasehold.live_jobs where id = {id} and running and lease_no = 2)"),
    )
    .await;
    eventually("the first run is stopped", || worker.finished() == 1).await;
    eventually("its settlement is refused", || worker.leases_lost() == 1).await;
    let job = db.job(id).await;
    assert_eq!((job.state.as_str(), job.lease_no), ("running", 2));
    assert_eq!(db.cancel(id).await, "running");
    db.wait_for(id, "cancelled").await;
    worker.drain().await;
    assert_eq!(db.value::<i64>("select count(*) from leasehold.claims").await, 0, "and no lease is left behind");
}

#[tokio::test]
async fn a_lost_lease_stops_the_guest_at_the_next_heartbeat() {
    let db = TestDb::new().await;
    db.push_wat("sleep").await;
    let mut config = WorkerConfig { lease: LEASE, ..quick() };
    config.queues = Queues::in_order(["first"]);
    let worker = db.worker_with(config);
    let id = db.enqueue("'sleep', queue => 'first', timeout => '1 hour'").await;
    worker.guests_run(1).await;
    // It is somebody else's from one moment to the next, in a queue that this worker does not serve.
    db.sql(&format!("update leasehold.live_jobs set lease_no = lease_no + 1, queue = 'second' where id = {id}")).await;
    eventually("the guest is stopped", || worker.finished() == 1).await;
    eventually("its settlement is refused", || worker.leases_lost() == 1).await;
    assert_eq!(db.job(id).await.state, "running", "the other's");
    worker.drain().await;
}
