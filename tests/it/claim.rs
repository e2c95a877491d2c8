//! Which jobs a claim brings, in which order, and that none is ever passed over.

use std::collections::HashSet;
use std::time::Duration;

use leasehold::job::JobId;
use leasehold::settlement::Settled;
use leasehold::store::{Bounds, ClaimedJob};
use leasehold_tests::{Claimer, TestDb, Upload};

async fn with_module() -> TestDb {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db
}

fn ids(jobs: &[ClaimedJob]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

#[tokio::test]
async fn a_higher_priority_comes_first_and_among_equals_the_earlier() {
    let db = with_module().await;
    let late = db.enqueue("'echo', priority => -100").await;
    let first = db.enqueue("'echo'").await;
    let second = db.enqueue("'echo'").await;
    let urgent = db.enqueue("'echo', priority => 100").await;
    let also_urgent = db.enqueue("'echo', priority => 100").await;
    assert_eq!(ids(&db.claim(3).await), [urgent, also_urgent, first]);
    assert_eq!(ids(&db.claim(3).await), [second, late]);
}

#[tokio::test]
async fn a_job_that_became_due_earlier_comes_first_whatever_its_id() {
    let db = with_module().await;
    let soon = db.enqueue("'echo', run_at => now() + interval '1 hour'").await;
    let now = db.enqueue("'echo'").await;
    db.sql("update leasehold.live_jobs set run_at = run_at - interval '2 hours' where id = 1").await;
    assert_eq!(ids(&db.claim(2).await), [soon, now]);
}

#[tokio::test]
async fn a_claim_never_brings_more_than_its_limit() {
    let db = with_module().await;
    let all = db.enqueue_many("echo", 10).await;
    db.enqueue("'echo', priority => 1").await;
    let claimer = db.claimer().await;
    let sizes = [4, 1, 6, 100].map(|limit| (limit, limit.min(11)));
    let mut claimed = Vec::new();
    for (limit, most) in sizes {
        let batch = claimer.claim_ids(limit).await;
        assert!(batch.len() <= most, "asked for {limit}, got {}", batch.len());
        claimed.extend(batch);
    }
    assert_eq!(claimed.len(), all.len() + 1);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), claimed.len());
}

#[tokio::test]
async fn queues_are_apart_and_earlier_named_ones_come_first_among_equals() {
    let db = with_module().await;
    let [slow, fast] = [db.enqueue("'echo', queue => 'slow'").await, db.enqueue("'echo', queue => 'fast'").await];
    let urgent = db.enqueue("'echo', queue => 'slow', priority => 1").await;
    let other = db.enqueue("'echo', queue => 'other'").await;
    let claimer = Claimer::new(db.store().clone(), &["fast", "slow"]).await;
    for next in [urgent, fast, slow] {
        assert_eq!(claimer.claim_ids(1).await, [next]);
    }
    assert!(claimer.claim(1).await.is_empty());
    assert_eq!(db.state(other).await, "queued");
}

#[tokio::test]
async fn many_jobs_of_one_moment_are_each_claimed_once() {
    let db = with_module().await;
    let all = db.enqueue_many("echo", 1000).await;
    assert_eq!(db.value::<i64>("select count(distinct run_at) from leasehold.live_jobs").await, 1);
    let claimer = db.claimer().await;
    let mut claimed = Vec::new();
    while claimed.len() < all.len() {
        let batch = claimer.claim_ids(7).await;
        assert!(!batch.is_empty(), "{} of {} claimed, and then none", claimed.len(), all.len());
        claimed.extend(batch);
    }
    assert_eq!(claimed, all, "in order, without a gap");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claimers_never_share_a_job() {
    const CLAIMERS: usize = 12;
    const JOBS: usize = 3_000;
    let db = with_module().await;
    let all: HashSet<JobId> = db.enqueue_many("echo", JOBS).await.into_iter().collect();
    let mut hammering = tokio::task::JoinSet::new();
    for limit in 1..=CLAIMERS {
        let store = leasehold_tests::db::store(db.url());
        hammering.spawn(async move {
            let claimer = Claimer::new(store, &["default"]).await;
            let mut claimed = Vec::new();
            loop {
                let batch = claimer.claim(limit * 3).await;
                assert!(batch.len() <= limit * 3);
                if batch.is_empty() {
                    return claimed;
                }
                claimed.extend(batch.iter().map(|job| (job.id, job.lease_no)));
            }
        });
    }
    let claimed: Vec<(JobId, i32)> = hammering.join_all().await.concat();
    assert_eq!(claimed.len(), JOBS, "each job once");
    assert!(claimed.iter().all(|(_, lease_no)| *lease_no == 1));
    assert_eq!(claimed.into_iter().map(|(id, _)| id).collect::<HashSet<_>>(), all);
    let (leased, in_claims): (i64, i64) = (
        db.value("select count(*) from leasehold.live_jobs where running").await,
        db.value("select sum(cardinality(job_ids))::bigint from leasehold.claims").await,
    );
    assert_eq!((leased, in_claims), (JOBS as i64, JOBS as i64), "each under one lease");
}

#[tokio::test]
async fn a_transaction_that_commits_late_is_not_passed_over() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    let mut slow = db.connect().await;
    let open = slow.transaction().await.expect("a transaction");
    let early: i64 = open.query_one("select leasehold.enqueue('echo')", &[]).await.expect("it is taken").get(0);
    // Newer jobs come and go meanwhile, so the claimer gets far beyond the open one's place.
    for _ in 0..5 {
        let newer = db.enqueue("'echo'").await;
        assert_eq!(claimer.claim_ids(10).await, [newer]);
    }
    assert!(claimer.claim(10).await.is_empty());
    open.commit().await.expect("it commits");
    assert_eq!(claimer.claim_ids(10).await, [JobId(early)], "by the very next claim");
}

#[tokio::test]
async fn nor_is_one_that_commits_late_and_is_the_newest_of_all() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    assert!(claimer.claim(10).await.is_empty());
    let mut slow = db.connect().await;
    let open = slow.transaction().await.expect("a transaction");
    let late: i64 = open.query_one("select leasehold.enqueue('echo')", &[]).await.expect("it is taken").get(0);
    // Nothing else is written meanwhile, so no snapshot's upper edge lies beyond the open one.
    for _ in 0..3 {
        assert!(claimer.claim(10).await.is_empty());
    }
    open.commit().await.expect("it commits");
    assert_eq!(claimer.claim_ids(10).await, [JobId(late)], "by the very next claim");
}

#[tokio::test]
async fn a_late_commit_of_another_statement_is_not_passed_over_either() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    let jobs = db.enqueue_many("echo", 4).await;
    let held = db.claim(4).await;
    let (failing, snoozing) = (&held[0], &held[1]);
    db.cancel(jobs[2]).await;
    db.expire_lease(failing.id).await; // all four came with one claim
    let mut slow = db.connect().await;
    let open = slow.transaction().await.expect("a transaction");
    open.batch_execute(&format!(
        "select * from leasehold.fail(1, array[{}]::bigint[], '{{1}}', '{{0}}', '{{trap}}', '{{m}}', '{{null}}', '{{1}}', '{{1}}', '{{1}}', '{{1}}', '{{null}}', '{{0}}');
         select * from leasehold.snooze(1, array[{}]::bigint[], '{{1}}', '{{0}}', '{{1}}', '{{1}}', '{{1}}', '{{1}}', '{{null}}', '{{0}}');
         select * from leasehold.reap(10, 3)",
        failing.id, snoozing.id
    ))
    .await
    .expect("they are settled");
    for _ in 0..3 {
        let newer = db.enqueue("'echo'").await;
        assert_eq!(claimer.claim_ids(10).await, [newer]);
    }
    open.commit().await.expect("it commits");
    assert_eq!(db.state(jobs[2]).await, "cancelled");
    let mut back = claimer.claim_ids(10).await;
    back.sort();
    assert_eq!(back, [jobs[0], jobs[1], jobs[3]]);
}

#[tokio::test]
async fn a_redriven_job_is_found_by_whoever_is_far_beyond_its_first_place() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    let job = db.enqueue_and_claim("echo").await;
    let id = job.id;
    db.bury(job).await;
    for _ in 0..3 {
        db.enqueue("'echo'").await;
        assert_eq!(claimer.claim(10).await.len(), 1);
    }
    assert!(db.redrive(id).await);
    assert_eq!(claimer.claim_ids(10).await, [id]);
}

#[tokio::test]
async fn a_job_is_not_passed_over_while_a_claim_that_rolls_back_hides_it() {
    let db = with_module().await;
    let [claimer, other] = [db.claimer().await, db.claimer().await];
    let hidden = db.enqueue("'echo'").await;
    let mut dying = db.connect().await;
    let claim = dying.transaction().await.expect("a transaction");
    let sql = "select * from leasehold.claim($1, '{default}', 10, 1000000, 60000, '{}', '{}', '{}', '{}')";
    assert_eq!(claim.query(sql, &[&other.id.0]).await.expect("a claim").len(), 2, "its head and the job");
    for _ in 0..3 {
        let newer = db.enqueue("'echo'").await;
        assert_eq!(claimer.claim_ids(10).await, [newer], "the other one is locked");
    }
    claim.rollback().await.expect("it rolls back");
    let job = &claimer.claim(10).await[0];
    assert_eq!((job.id, job.attempt, job.lease_no), (hidden, 1, 1));
}

#[tokio::test]
async fn all_stragglers_of_all_lanes_are_found() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    let jobs = db.enqueue_many("echo", 20).await;
    let mut urgent = Vec::new();
    for _ in 0..20 {
        urgent.push(db.enqueue("'echo', priority => 1").await);
    }
    let claimed = claimer.claim(100).await;
    assert_eq!(claimed.len(), 40);
    claimer.move_on(&db).await;
    // As if each had been locked by somebody who rolled back: queued, in its old place, below every bound.
    db.sql(
        "update leasehold.live_jobs set running = false, claim_id = null, started_at = null, version = null, attempt = attempt - 1
          where id % 3 = 0",
    )
    .await;
    let mut wanted: Vec<JobId> = jobs.into_iter().chain(urgent).filter(|id| id.0 % 3 == 0).collect();
    let mut found = Vec::new();
    while claimer.find_stragglers().await {
        // In small bites, and as long as something comes, as a worker does.
        loop {
            let bite = claimer.claim_ids(2).await;
            if bite.is_empty() {
                break;
            }
            found.extend(bite);
        }
    }
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
}

#[tokio::test]
async fn a_future_job_is_not_claimed_before_it_is_due_and_its_time_is_told() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    let far = db.enqueue("'echo', run_at => now() + interval '1 hour'").await;
    let claim = async || claimer.claim_within(10, Duration::from_secs(60), &claimer.bounds).await;
    assert_eq!(claim().await.next_due, None, "beyond a minute nobody plans");
    let soon = db.enqueue("'echo', run_at => clock_timestamp() + interval '20 seconds'").await;
    let sooner = db.enqueue("'echo', run_at => clock_timestamp() + interval '2 seconds', priority => -5").await;
    let due = claim().await.next_due.expect("within a minute");
    assert!(due <= Duration::from_secs(2), "{due:?}");
    let mut jobs = Vec::new();
    while jobs.is_empty() {
        jobs = claim().await.jobs;
    }
    assert_eq!(ids(&jobs), [sooner]);
    let due_in_ms = db.job(sooner).await.due_in_ms;
    assert!(due_in_ms <= 0.0, "claimed {due_in_ms} ms before it was due");
    assert!(claim().await.next_due.is_some_and(|due| due <= Duration::from_secs(20)));
    assert_eq!((db.state(far).await, db.state(soon).await), ("queued".into(), "queued".into()));
}

#[tokio::test]
async fn a_module_that_is_switched_off_holds_its_jobs_and_on_again_lets_them_go() {
    let db = with_module().await;
    db.push_nothing("other").await;
    let claimer = db.claimer().await;
    let held = db.enqueue("'echo'").await;
    let pinned = db.enqueue("'echo', version => 1").await;
    db.sql("select leasehold.activate_module('default', 'echo', null)").await;
    // A queue full of held jobs does not hide the others behind them.
    db.enqueue_many("echo", 50).await;
    let mut last = JobId(0);
    for _ in 0..5 {
        last = db.enqueue("'other'").await;
        assert_eq!(claimer.claim_ids(2).await, [last]);
    }
    assert!(!claimer.find_stragglers().await, "what is held is no straggler");
    db.sql("select leasehold.activate_module('default', 'echo', 1)").await;
    let mut let_go = claimer.claim_ids(100).await;
    while claimer.find_stragglers().await {
        let_go.extend(claimer.claim_ids(100).await);
    }
    assert_eq!(let_go.len(), 52);
    assert!(let_go.contains(&held) && let_go.contains(&pinned) && !let_go.contains(&last));
}

#[tokio::test]
async fn a_version_that_is_uploaded_inactive_holds_the_jobs_of_a_new_module() {
    let db = TestDb::new().await;
    db.push(Upload { activate: false, ..Upload::command("draft", b"\0asm\x01\0\0\0") }).await;
    let id = db.enqueue("'draft'").await;
    let pinned = db.enqueue("'draft', version => 1").await;
    assert!(db.claim(10).await.is_empty());
    db.sql("select leasehold.activate_module('default', 'draft', 1)").await;
    assert_eq!(ids(&db.claim(10).await), [id, pinned]);
}

#[tokio::test]
async fn a_claim_brings_as_many_payloads_as_fit_and_one_at_least() {
    let db = with_module().await;
    let claim = async |bytes: i64| -> Vec<i64> {
        let sql = "select id from leasehold.claim(1, '{default}', 100, $1, 60000, '{}', '{}', '{}', '{}') where id is not null";
        db.rows(sql, &[&bytes]).await.iter().map(|row| row.get(0)).collect()
    };
    db.sql("select leasehold.enqueue('echo', convert_to(repeat('x', 1000), 'UTF8')) from generate_series(1, 10)").await;
    db.sql("select leasehold.enqueue('echo', convert_to(repeat('x', 10), 'UTF8'), priority => -1) from generate_series(1, 3)").await;
    assert_eq!(claim(1).await, [1], "one, however large");
    assert_eq!(claim(3_999).await, [2, 3, 4]);
    assert_eq!(claim(4_000).await, [5, 6, 7, 8]);
    assert_eq!(claim(2_005).await, [9, 10], "and the next lane has no room for its first");
    assert_eq!(claim(20).await, [11, 12]);
    assert_eq!(claim(1_000_000).await, [13]);
}

#[tokio::test]
async fn payloads_beyond_what_one_claim_may_bring_come_one_claim_after_another() {
    let db = with_module().await;
    // Three of them are more than the 32 MiB that a worker takes at once.
    db.sql("select leasehold.enqueue('echo', convert_to(repeat('x', 12000000), 'UTF8')) from generate_series(1, 5)")
        .await;
    let claimer = db.claimer().await;
    let mut sizes = Vec::new();
    let mut claimed = Vec::new();
    while claimed.len() < 5 {
        let jobs = claimer.claim(10).await;
        assert!(jobs.iter().all(|job| job.payload.len() == 12_000_000));
        sizes.push(jobs.len());
        claimed.extend(ids(&jobs));
    }
    assert_eq!(sizes, [2, 2, 1]);
    assert_eq!(claimed, [1, 2, 3, 4, 5].map(JobId));
}

#[tokio::test]
async fn a_job_whose_time_lies_before_all_bounds_is_found() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    db.enqueue("'echo'").await;
    assert_eq!(claimer.claim(10).await.len(), 1);
    claimer.move_on(&db).await;
    // As a server leaves it whose clock was set back by an hour.
    let behind = db.enqueue("'echo'").await;
    db.sql(&format!("update leasehold.live_jobs set run_at = run_at - interval '1 hour' where id = {behind}")).await;
    assert!(claimer.claim(10).await.is_empty(), "it lies below the bound: else this test shows nothing");
    assert!(claimer.find_stragglers().await);
    assert_eq!(claimer.claim_ids(10).await, [behind]);
}

#[tokio::test]
async fn another_claimers_bounds_do_not_matter() {
    let db = with_module().await;
    let [ahead, behind] = [db.claimer().await, db.claimer().await];
    for _ in 0..5 {
        db.enqueue("'echo'").await;
        assert_eq!(ahead.claim(1).await.len(), 1);
    }
    let [first, second] = [db.enqueue("'echo'").await, db.enqueue("'echo'").await];
    assert_eq!(behind.claim_ids(1).await, [first]);
    assert_eq!(ahead.claim_ids(1).await, [second]);
}

#[tokio::test]
async fn a_claim_that_gives_up_waiting_takes_no_jobs_with_it() {
    let db = with_module().await;
    let id = db.enqueue("'echo'").await;
    let mut migrating = db.connect().await;
    let lock = migrating.transaction().await.expect("a transaction");
    lock.batch_execute("lock table leasehold.live_jobs in access exclusive mode").await.expect("a lock");
    let claimer = db.claimer().await;
    let queues = ["default".to_owned()];
    let lease = Duration::from_secs(600);
    let claimed = db.store().claim(claimer.id, (&queues, false), 10, lease, &Bounds::default(), None).await;
    let error = claimed.err().expect("the lock is still held").to_string();
    assert!(error.contains("claiming jobs"), "{error}");
    lock.rollback().await.expect("it ends");
    // Whatever the server still did for the claim that nobody waits for any more is over.
    db.wait_until(
        "no claim is under way",
        "not exists (select from pg_stat_activity where query like '-- claim%' and state <> 'idle' and datname = current_database())",
    )
    .await;
    assert_eq!(db.state(id).await, "queued", "a job that nobody runs would wait for its lease to run out");
    let job = db.claim_one().await;
    assert_eq!((job.id, job.lease_no), (id, 1));
    assert_eq!(db.complete(job).await, Settled::Yes);
}

#[tokio::test]
async fn no_job_of_many_clients_is_passed_over_by_a_claimer_that_keeps_up() {
    const CLIENTS: usize = 4;
    const JOBS: usize = 100;
    let db = with_module().await;
    let claimer = db.claimer().await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let client = db.connect().await;
        clients.spawn(async move {
            for _ in 0..JOBS {
                client.execute("select leasehold.enqueue('echo')", &[]).await.expect("it is taken");
            }
        });
    }
    // Claims all the while, as fast as it can; what it passed over it would never see again.
    let mut claimed = 0;
    while !clients.is_empty() {
        claimed += claimer.claim(10).await.len();
        while clients.try_join_next().is_some() {}
    }
    loop {
        match claimer.claim(100).await.len() {
            0 => break,
            more => claimed += more,
        }
    }
    assert_eq!(claimed, CLIENTS * JOBS);
}
