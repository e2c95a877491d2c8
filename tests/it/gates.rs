//! Concurrency keys, caps, rates and pauses: who may not run now waits at a gate, exactly, and costs the others nothing.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::job::JobId;
use leasehold::settlement::{Settled, Settlement};
use leasehold::store::{Bounds, ClaimedJob, is_locked};
use leasehold_tests::{Claimer, TestDb, report};

async fn with_module() -> TestDb {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db
}

fn ids(jobs: &[ClaimedJob]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

async fn keyed(db: &TestDb, key: &str, limit: i32) -> JobId {
    db.enqueue(&format!("'echo', concurrency_key => '{key}', concurrency_limit => {limit}")).await
}

/// What no history may break: a gate counts exactly the running jobs that hold a place in it, and who waits is in a line.
async fn check_gates(db: &TestDb) {
    let wrong: Vec<String> = db
        .column(
            "select format('gate %s counts %s running, %s hold a place', g.gate_id, g.running, h.count) from leasehold.gates g,
                lateral (select count(*) from leasehold.live_jobs j where j.running and g.gate_id = any(j.held_gates)) h
              where h.count <> g.running
             union all
             select format('job %s waits at gate %s and is in no line', j.id, j.waits_at) from leasehold.live_jobs j
              where j.waits_at > 0 and not exists (select from leasehold.waiting_jobs w join leasehold.gate_lines l using (gate_id, queue)
                    where (w.gate_id, w.queue, w.priority, w.due_at, w.job_id) = (j.waits_at, j.queue, j.priority, j.due_at, j.id))
             union all
             select format('job %s is in line %s and does not wait there', w.job_id, w.gate_id) from leasehold.waiting_jobs w
              where not exists (select from leasehold.live_jobs j where j.id = w.job_id and j.waits_at = w.gate_id)",
        )
        .await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn a_key_lets_one_job_run_at_a_time_in_order_and_others_pass() {
    let db = with_module().await;
    let [first, second, third] = [keyed(&db, "k", 1).await, keyed(&db, "k", 1).await, keyed(&db, "k", 1).await];
    let other = keyed(&db, "another", 1).await;
    let plain = db.enqueue("'echo'").await;
    let claimer = db.claimer().await;
    // The first claim makes the gates, and looks no further than it must.
    let mut jobs = claimer.claim(10).await;
    jobs.extend(claimer.claim(10).await);
    assert_eq!(ids(&jobs), [first, other, plain]);
    assert!(claimer.claim(10).await.is_empty());
    check_gates(&db).await;
    for next in [second, third] {
        let ended = jobs.remove(0);
        assert_eq!(db.complete(ended).await, Settled::Yes);
        let claimed = claimer.claim(10).await;
        assert_eq!(ids(&claimed), [next]);
        jobs.splice(0..0, claimed);
        check_gates(&db).await;
    }
}

#[tokio::test]
async fn a_limit_of_n_lets_n_run() {
    let db = with_module().await;
    for _ in 0..10 {
        keyed(&db, "k", 3).await;
    }
    let claimer = db.claimer().await;
    let mut running = claimer.claim(10).await;
    assert_eq!(running.len(), 3, "within one batch too");
    assert!(claimer.claim(10).await.is_empty());
    let mut done = 0;
    while let Some(job) = running.pop() {
        assert_eq!(db.complete(job).await, Settled::Yes);
        done += 1;
        running.extend(claimer.claim(10).await);
        assert_eq!(running.len(), 3.min(10 - done));
    }
    assert_eq!(done, 10);
    check_gates(&db).await;
}

#[tokio::test]
async fn every_end_of_a_run_frees_its_key() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    let ends: [(&str, Settlement); 5] = [
        ("complete", Settlement::Complete { result: b"1".to_vec() }),
        ("fail", Settlement::Fail { failure: leasehold_tests::trap("no"), delay: Duration::from_secs(600) }),
        ("bury", Settlement::Bury { failure: leasehold_tests::trap("no") }),
        ("snooze", Settlement::Snooze { delay: Duration::from_secs(600) }),
        ("release", Settlement::Release { fault: None, delay: Duration::from_secs(600) }),
    ];
    for (name, settlement) in ends {
        let [first, second] = [keyed(&db, name, 1).await, keyed(&db, name, 1).await];
        let job = claimer.claim(10).await;
        assert_eq!(ids(&job), [first], "{name}");
        let batch = leasehold::store::Batch::sort(vec![report(&job[0], settlement)]).remove(0);
        assert_eq!(db.store().settle(claimer.id, &batch).await.expect(name), [Settled::Yes]);
        let next = claimer.claim(10).await;
        assert_eq!(ids(&next), [second], "{name} must free the key");
        db.complete(next.into_iter().next().expect("just seen")).await;
        check_gates(&db).await;
    }
    // A cancel that ends, and a reap.
    for name in ["cancel", "reap"] {
        let [first, second] = [keyed(&db, name, 1).await, keyed(&db, name, 1).await];
        let job = claimer.claim(10).await.remove(0);
        assert_eq!(job.id, first);
        if name == "cancel" {
            db.cancel(first).await;
            db.finish_cancel(job).await;
        } else {
            db.expire_lease(first).await;
            db.store().reap().await.expect("reaping");
            assert_eq!(db.state(first).await, "queued");
            // The one that was reaped comes back behind the one that waited.
        }
        assert_eq!(claimer.claim(1).await[0].id, second, "{name} must free the key");
        check_gates(&db).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_holds_under_contention() {
    let db = with_module().await;
    const KEYS: usize = 5;
    const JOBS: usize = 300;
    db.sql(&format!(
        "select leasehold.enqueue('echo', concurrency_key => 'k' || n % {KEYS}, concurrency_limit => 1 + n % {KEYS}) from generate_series(0, {}) n",
        JOBS - 1
    ))
    .await;
    let db = std::sync::Arc::new(db);
    let mut claimers = tokio::task::JoinSet::new();
    for n in 0..4 {
        let db = db.clone();
        claimers.spawn(async move {
            let claimer = Claimer::new(db.store().clone(), &["default"]).await;
            let mut done = 0;
            let mut idle = 0;
            while idle < 100 {
                let jobs = claimer.claim(1 + n * 3).await;
                if jobs.is_empty() {
                    idle += 1;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
                idle = 0;
                // The CHECK of the gates would have refused more; this is what it would look like from outside.
                let over: Vec<String> = db
                    .column(
                        "select key from (select options ->> 'concurrency_key' as key, max(coalesce((options ->> 'concurrency_limit')::int, 1)) as most,
                                count(*) as running from leasehold.live_jobs where running group by 1) k where running > most",
                    )
                    .await;
                assert!(over.is_empty(), "{over:?}");
                for job in jobs {
                    let report = report(&job, Settlement::Complete { result: b"1".to_vec() });
                    let batch = leasehold::store::Batch::sort(vec![report]).remove(0);
                    // As the settler does: a claim whose snapshot is older may hold the row for as long as it takes.
                    let settled = loop {
                        match db.store().settle(claimer.id, &batch).await {
                            Err(error) if is_locked(&error) => tokio::time::sleep(Duration::from_millis(10)).await,
                            answer => break answer.expect("settling"),
                        }
                    };
                    assert_eq!(settled, [Settled::Yes]);
                    done += 1;
                }
            }
            done
        });
    }
    let mut done = 0;
    while let Some(count) = claimers.join_next().await {
        done += count.expect("a claimer panicked");
    }
    assert_eq!(done, JOBS);
    check_gates(&db).await;
}

#[tokio::test]
async fn the_database_refuses_more_than_a_key_allows_whatever_a_claim_does() {
    let db = with_module().await;
    keyed(&db, "k", 1).await;
    db.claim_one().await;
    let refusal = db.refusal("update leasehold.gates set running = running + 1 where kind = 'key'").await;
    assert_eq!(refusal.constraint.as_deref(), Some("gates_never_over_max"));
}

#[tokio::test]
async fn a_retry_waits_for_its_key_like_any_other() {
    let db = with_module().await;
    let first = keyed(&db, "k", 1).await;
    let claimer = db.claimer().await;
    let job = claimer.claim(1).await.remove(0);
    let second = keyed(&db, "k", 1).await;
    db.fail(job).await;
    let running = claimer.claim(10).await;
    assert_eq!(ids(&running), [second], "it is earlier in the queue than the retry");
    db.complete(running.into_iter().next().expect("just seen")).await;
    assert_eq!(ids(&claimer.claim(10).await), [first]);
}

#[tokio::test]
async fn thirty_thousand_blocked_jobs_cost_a_claim_nothing() {
    let db = with_module().await;
    db.sql("select leasehold.enqueue_many('echo', array_fill('1'::jsonb, array[30000]), concurrency_key => 'k')").await;
    let claimer = db.claimer().await;
    let mut running = claimer.claim(1).await;
    // Each blocked job is moved out of the way once.
    let waiting = || db.value::<i64>("select count(*) from leasehold.waiting_jobs");
    for _ in 0..200 {
        assert!(claimer.claim(1000).await.is_empty());
        if waiting().await == 29_999 {
            break;
        }
    }
    assert_eq!(waiting().await, 29_999);
    db.sql("set enable_seqscan = off").await;
    let walked = || {
        db.value::<i64>("select coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::bigint from pg_stat_xact_user_tables where relname in ('live_jobs', 'waiting_jobs')")
    };
    // In one transaction, whose own counters say how many rows a claim looked at.
    db.sql("begin").await;
    let before = walked().await;
    let plain = db.value::<i64>("select leasehold.enqueue('echo')").await;
    let claimed: Vec<i64> = db
        .column("select id from leasehold.claim(1, '{default}', 10, 1000000, 1000, '{default}', '{0}', array[now() - interval '1 day'], '{0}') where id is not null")
        .await;
    assert_eq!(claimed, [plain]);
    let rows = walked().await - before;
    assert!(rows < 20, "a claim fetched {rows} rows");
    db.sql("rollback").await;
    // The next in line is found as quickly.
    db.complete(running.remove(0)).await;
    assert_eq!(claimer.claim(10).await.len(), 1);
}

#[tokio::test]
async fn a_cap_holds_for_a_tenant_and_for_a_module() {
    let db = with_module().await;
    db.push_nothing("other").await;
    db.sql("select leasehold.set_cap(3); select leasehold.set_cap(2, module => 'echo')").await;
    let echo = db.enqueue_many("echo", 5).await;
    let other = db.enqueue_many("other", 5).await;
    let claimer = db.claimer().await;
    let running = claimer.claim(20).await;
    assert_eq!(ids(&running), [echo[0], echo[1], other[0]]);
    assert!(claimer.claim(20).await.is_empty());
    check_gates(&db).await;
    // Lowered below what runs: nobody is stopped, and nobody begins.
    assert_eq!(db.value::<Option<i32>>("select leasehold.set_cap(1)").await, Some(3));
    let mut running = running.into_iter();
    db.complete(running.next().expect("three run")).await;
    db.complete(running.next().expect("three run")).await;
    assert!(claimer.claim(20).await.is_empty(), "one runs still");
    db.complete(running.next().expect("three run")).await;
    assert_eq!(claimer.claim(20).await.len(), 1);
    // Taken away.
    db.sql("select leasehold.set_cap(null); select leasehold.set_cap(null, module => 'echo')").await;
    let mut rest = claimer.claim(20).await.len();
    rest += claimer.claim(20).await.len();
    assert_eq!(rest, 6);
    check_gates(&db).await;
}

#[tokio::test]
async fn a_new_cap_counts_what_runs_already() {
    let db = with_module().await;
    db.push_nothing("other").await;
    let echo = db.enqueue_many("echo", 4).await;
    db.enqueue_many("other", 1).await;
    let claimer = db.claimer().await;
    let mut running = claimer.claim(3).await.into_iter();
    // More than may; another module's jobs do not count for it.
    db.sql("select leasehold.set_cap(2, module => 'echo')").await;
    let next = claimer.claim(20).await;
    assert_eq!(next.len(), 1);
    assert_eq!(
        db.value::<String>(&format!("select module from leasehold.jobs where id = {}", next[0].id)).await,
        "other"
    );
    db.complete(running.next().expect("three run")).await;
    assert!(claimer.claim(20).await.is_empty(), "two run still");
    db.complete(running.next().expect("three run")).await;
    assert_eq!(ids(&claimer.claim(20).await), [echo[3]]);
    check_gates(&db).await;
}

#[tokio::test]
async fn a_rate_gives_out_its_burst_and_then_token_by_token() {
    let db = with_module().await;
    db.sql("select leasehold.set_rate(20, burst => 5)").await;
    db.enqueue_many("echo", 30).await;
    let claimer = db.claimer().await;
    let begun = std::time::Instant::now();
    let claimed = claimer.claim_within(30, Duration::from_secs(60), &claimer.bounds).await;
    assert_eq!(claimed.jobs.len(), 5);
    // Two claimers at once take no more than there is.
    let second = db.claimer().await;
    let mut count = 5;
    while count < 15 {
        let (a, b) = tokio::join!(claimer.claim(30), second.claim(30));
        count += a.len() + b.len();
        let most = 5.0 + begun.elapsed().as_secs_f64() * 20.0 + 1e-3;
        assert!(count as f64 <= most, "{count} began, {most} may have");
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    assert!(db.value::<bool>("select leasehold.set_rate(null)").await);
    assert_eq!(claimer.claim(30).await.len(), 30 - count, "without a limit all go");
}

#[tokio::test]
async fn a_claim_that_meets_an_empty_bucket_says_when_the_next_token_comes() {
    let db = with_module().await;
    db.sql("select leasehold.set_rate(3, per => '1 minute', burst => 1)").await;
    db.enqueue_many("echo", 3).await;
    let claimer = db.claimer().await;
    assert_eq!(claimer.claim(10).await.len(), 1);
    for _ in 0..2 {
        let none = claimer.claim_within(10, Duration::from_secs(60), &claimer.bounds).await;
        assert!(none.jobs.is_empty());
        let due = none.next_due.expect("within a minute");
        assert!((15..=20).contains(&due.as_secs()), "{due:?}");
    }
}

#[tokio::test]
async fn rates_of_a_key_and_of_a_module_hold_side_by_side() {
    let db = with_module().await;
    db.push_nothing("other").await;
    db.sql("select leasehold.set_rate(1, per => '1 hour', key => 'stripe'); select leasehold.set_rate(2, per => '1 hour', module => 'other')")
        .await;
    let mut jobs = Vec::new();
    for options in ["'echo', rate_key => 'stripe'", "'echo', rate_key => 'nobody set this one'", "'other'"] {
        for _ in 0..4 {
            jobs.push(db.enqueue(options).await);
        }
    }
    let claimed = ids(&db.claimer().await.claim(20).await);
    assert_eq!(claimed, [jobs[0], jobs[4], jobs[5], jobs[6], jobs[7], jobs[8], jobs[9]]);
}

#[tokio::test]
async fn what_is_paused_does_not_begin_and_goes_on_in_order() {
    let db = with_module().await;
    db.push_nothing("other").await;
    db.sql("insert into leasehold.tenants (name) values ('acme')").await;
    for (pause, resume) in [
        ("queue => 'default'", "queue => 'default'"),
        ("tenant => 'default', reason => 'moving house'", "tenant => 'default'"),
        ("tenant => 'default', module => 'echo'", "tenant => 'default', module => 'echo'"),
    ] {
        let claimer = db.claimer().await;
        let jobs = db.enqueue_many("echo", 3).await;
        assert!(db.value::<bool>(&format!("select leasehold.pause({pause})")).await);
        assert!(!db.value::<bool>(&format!("select leasehold.pause({pause})")).await, "it was paused already");
        assert!(claimer.claim(10).await.is_empty(), "{pause}");
        let held = "select leasehold.schedule_is_held(tenant_id, module_id) from leasehold.modules where name = 'echo'";
        assert_eq!(db.value::<bool>(held).await, pause.contains("tenant"), "its schedules wait too: {pause}");
        if pause.contains("module") {
            let other = db.enqueue("'other'").await;
            assert_eq!(ids(&claimer.claim(10).await), [other], "another module is not paused");
        }
        let late = db.enqueue("'echo'").await;
        assert!(claimer.claim(10).await.is_empty(), "{pause}");
        assert_eq!(db.value::<i64>("select count(*) from leasehold.limits where kind = 'pause'").await, 1);
        assert!(db.value::<bool>(&format!("select leasehold.resume({resume})")).await);
        assert!(!db.value::<bool>(&format!("select leasehold.resume({resume})")).await);
        let claimed = claimer.claim(10).await;
        assert_eq!(ids(&claimed), [&jobs[..], &[late]].concat(), "{pause}");
        for job in claimed {
            db.complete(job).await;
        }
        check_gates(&db).await;
    }
    let refusal = db.refusal("select leasehold.pause(module => 'echo')").await;
    assert_eq!(
        (refusal.code.as_str(), refusal.message.as_str()),
        ("LH003", "pause takes a queue, or a tenant, or a tenant and a module")
    );
}

#[tokio::test]
async fn a_module_that_is_switched_off_holds_its_jobs_and_goes_on_at_once() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    let jobs = db.enqueue_many("echo", 3).await;
    db.sql("select leasehold.activate_module('default', 'echo', null)").await;
    for _ in 0..3 {
        assert!(claimer.claim(10).await.is_empty());
    }
    db.sql("select leasehold.activate_module('default', 'echo', 1)").await;
    assert_eq!(ids(&claimer.claim(10).await), jobs);
    check_gates(&db).await;
}

#[tokio::test]
async fn a_job_that_expires_is_dead_and_never_begins_after() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    let soon = db.enqueue("'echo', expires_at => now() + interval '200 milliseconds'").await;
    let scheduled = db
        .enqueue("'echo', run_at => now() + interval '150 milliseconds', expires_at => now() + interval '200 milliseconds', concurrency_key => 'k'")
        .await;
    let blocked = db.enqueue("'echo', concurrency_key => 'k', expires_at => now() + interval '210 milliseconds'").await;
    let plain = keyed(&db, "k", 1).await;
    let job = claimer.claim(1).await.remove(0);
    assert_eq!(job.id, soon);
    assert!(
        job.timeout.is_some_and(|timeout| timeout <= Duration::from_millis(200)),
        "no run goes on past it: {:?}",
        job.timeout
    );
    tokio::time::sleep(Duration::from_millis(250)).await;
    // Its next attempt would begin too late.
    assert_eq!(db.fail(job).await, Settled::Yes);
    assert_eq!(db.state(soon).await, "dead");
    assert_eq!(ids(&claimer.claim(10).await), [plain], "the claim meets what has expired, and passes it over");
    db.store().sweep().await.expect("sweeping");
    for id in [scheduled, blocked] {
        let job = db.job(id).await;
        assert_eq!((job.state.as_str(), job.failure_kind.as_deref()), ("dead", Some("expired")));
        assert!(job.error.is_some_and(|error| error.starts_with("not done by ")));
    }
    check_gates(&db).await;
    assert!(db.redrive(blocked).await, "a redriven job has no end any more");
    let refusal = db.refusal("select leasehold.enqueue('echo', expires_at => now() - interval '1 second')").await;
    assert_eq!(refusal.code, "LH003");
}

#[tokio::test]
async fn a_cancelled_job_leaves_its_line() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    let [first, second, third] = [keyed(&db, "k", 1).await, keyed(&db, "k", 1).await, keyed(&db, "k", 1).await];
    let job = claimer.claim(10).await.remove(0);
    assert_eq!(job.id, first);
    assert_eq!(db.cancel(second).await, "cancelled");
    check_gates(&db).await;
    db.complete(job).await;
    assert_eq!(ids(&claimer.claim(10).await), [third]);
}

#[tokio::test]
async fn gates_that_nobody_needs_are_dropped() {
    let db = with_module().await;
    let claimer = db.claimer().await;
    for n in 0..20 {
        keyed(&db, &format!("k{n}"), 1).await;
    }
    db.sql("select leasehold.pause(tenant => 'default', module => 'echo'); select leasehold.resume(tenant => 'default', module => 'echo')").await;
    for job in claimer.claim(100).await {
        db.complete(job).await;
    }
    assert!(db.value::<i64>("select count(*) from leasehold.gates").await >= 21);
    db.sql("update leasehold.gates set used_at = now() - interval '1 hour'").await;
    db.store().drop_unused().await.expect("dropping");
    assert_eq!(db.value::<i64>("select count(*) from leasehold.gates").await, 0);
}

#[tokio::test]
async fn an_unkeyed_claim_by_the_call_of_the_previous_version_still_works() {
    let db = with_module().await;
    let job = db.enqueue("'echo'").await;
    let claimed: Vec<i64> = db
        .column("select id from leasehold.claim(1, '{default}', 10, 1000000, 1000, '{}', '{}', '{}', '{}') where id is not null")
        .await;
    assert_eq!(claimed, [job.0]);
}

#[tokio::test]
async fn weights_hold_between_queues() {
    let db = with_module().await;
    for queue in ["heavy", "light"] {
        db.sql(&format!(
            "select leasehold.enqueue_many('echo', array_fill('1'::jsonb, array[400]), queue => '{queue}')"
        ))
        .await;
    }
    let queues = leasehold::worker::Queues::by_weight([("heavy".into(), 3), ("light".into(), 1)]);
    let worker = db.store().register_worker(queues.names(), 1).await.expect("registering");
    let bounds = Bounds::default();
    let mut counts = HashMap::<String, usize>::new();
    for _ in 0..400 {
        let (drawn, queue_first) = queues.draw();
        let claimed = db
            .store()
            .claim(worker, (&drawn, queue_first), 1, Duration::from_secs(60), &bounds, None)
            .await
            .expect("claiming");
        *counts.entry(claimed.jobs[0].queue.clone()).or_default() += 1;
    }
    assert!((250..350).contains(&counts["heavy"]), "{counts:?}");
}
