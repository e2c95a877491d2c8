//! The state machine, row by row, read back from the tables; and the rows that cannot be written.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::job::JobId;
use leasehold::settlement::{Settled, Settlement};
use leasehold_tests::TestDb;
use leasehold_tests::scenario::{report, trap};
use serde_json::{Value, json};

async fn with_module() -> TestDb {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db
}

/// What the tables themselves hold of a job: (table, columns of interest).
async fn stored(db: &TestDb, id: JobId) -> (&'static str, Value) {
    let live: Vec<Value> = db
        .column(&format!(
            "select jsonb_build_object('running', running, 'attempt', attempt, 'lease_no', lease_no, 'crash_count', crash_count,
                    'claimed', claim_id is not null, 'started', started_at is not null, 'version', version,
                    'leases', (select count(*) from leasehold.claims c where j.id = any(c.job_ids)))
               from leasehold.live_jobs j where id = {id}"
        ))
        .await;
    let history: Vec<Value> = db
        .column(&format!(
            "select jsonb_build_object('state', state, 'attempt', attempt, 'lease_no', lease_no, 'crash_count', crash_count,
                    'started', started_at is not null, 'version', version, 'failure_kind', failure_kind, 'error', error,
                    'result', convert_from(result, 'UTF8'))
               from leasehold.history where id = {id}"
        ))
        .await;
    match (live.as_slice(), history.as_slice()) {
        ([row], []) => ("live", row.clone()),
        ([], [row]) => ("history", row.clone()),
        other => panic!("job {id} is not in one place: {other:?}"),
    }
}

/// A queued row that was claimed `lease_no` times, of which `attempt` count.
fn queued(attempt: i32, lease_no: i32, crash_count: i32, leases: i32) -> (&'static str, Value) {
    let row = json!({
        "running": false, "attempt": attempt, "lease_no": lease_no, "crash_count": crash_count, "claimed": false,
        "started": false, "version": null, "leases": leases,
    });
    ("live", row)
}

fn ended(state: &str, attempt: i32, lease_no: i32, crash_count: i32) -> Value {
    json!({
        "state": state, "attempt": attempt, "lease_no": lease_no, "crash_count": crash_count, "started": true, "version": 1,
        "failure_kind": null, "error": null, "result": null,
    })
}

#[tokio::test]
async fn enqueue_makes_a_queued_job() {
    let db = with_module().await;
    let id = db.enqueue("'echo'").await;
    assert_eq!(stored(&db, id).await, queued(0, 0, 0, 0));
    assert_eq!(db.state(id).await, "queued");
}

#[tokio::test]
async fn claim_makes_it_running_under_a_lease() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    assert_eq!((job.attempt, job.lease_no, job.version), (1, 1, 1));
    let wanted = json!({
        "running": true, "attempt": 1, "lease_no": 1, "crash_count": 0, "claimed": true, "started": true, "version": 1, "leases": 1,
    });
    assert_eq!(stored(&db, job.id).await, ("live", wanted));
    let shown = db.job(job.id).await;
    assert_eq!((shown.state.as_str(), shown.worker_id), ("running", Some(db.worker_id().await.0)));
    let left: f64 = db
        .value(&format!(
            "select extract(epoch from locked_until - clock_timestamp())::float8 from leasehold.jobs where id = {}",
            job.id
        ))
        .await;
    assert!((500.0..=600.0).contains(&left), "the lease is that of the claim, 600 s, and has {left} s left");
}

#[tokio::test]
async fn complete_makes_it_done_with_its_result() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    let mut done = report(&job, Settlement::Complete { result: b"{\"n\": 1}".to_vec() });
    done.usage = leasehold::outcome::Usage {
        fuel: 12_345,
        wall: Duration::from_micros(2_500),
        cpu: Duration::from_micros(1_250),
        memory_peak_bytes: 65_536,
        result_bytes: 8,
    };
    assert_eq!(db.settle_all(vec![done]).await, [Settled::Yes]);
    let mut wanted = ended("done", 1, 1, 0);
    wanted["result"] = "{\"n\": 1}".into();
    assert_eq!(stored(&db, job.id).await, ("history", wanted));
    let shown = db.job(job.id).await;
    assert_eq!(shown.result, Some(json!({ "n": 1 })));
    assert_eq!(
        shown.usage,
        Some(json!({ "fuel": 12_345, "wall_ms": 2.5, "cpu_ms": 1.25, "memory_peak_bytes": 65_536, "result_bytes": 8 }))
    );
    assert_eq!(shown.worker_id, Some(db.worker_id().await.0));
    assert!(db.attempts(job.id).await.is_empty(), "a good run without a log leaves no attempt record");
}

#[tokio::test]
async fn fail_queues_it_again_after_the_delay() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    let delay = Duration::from_secs(100);
    assert_eq!(db.settle(&job, Settlement::Fail { failure: trap("boom"), delay }).await, Settled::Yes);
    assert_eq!(stored(&db, job.id).await, queued(1, 1, 0, 1));
    let shown = db.job(job.id).await;
    assert!((90_000.0..=100_000.0).contains(&shown.due_in_ms), "due in {} ms", shown.due_in_ms);
    assert_eq!((shown.failure_kind.as_deref(), shown.error.as_deref()), (Some("trap"), Some("boom")));
    let attempts = db.attempts(job.id).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].outcome.as_str(), attempts[0].attempt, attempts[0].lease_no), ("fail", 1, 1));
    assert_eq!(attempts[0].message.as_deref(), Some("boom"));
    assert!(db.claim(1).await.is_empty(), "not due yet");
}

#[tokio::test]
async fn fail_at_the_last_attempt_makes_it_dead() {
    let db = with_module().await;
    let id = db.enqueue("'echo', max_attempts => 2").await;
    for (attempt, state) in [(1, "queued"), (2, "dead")] {
        let job = db.claim_one().await;
        assert_eq!((job.id, job.attempt), (id, attempt));
        assert_eq!(db.fail(job).await, Settled::Yes);
        assert_eq!(db.state(id).await, state, "after attempt {attempt}");
    }
    let mut wanted = ended("dead", 2, 2, 0);
    (wanted["failure_kind"], wanted["error"]) = ("trap".into(), "it failed".into());
    assert_eq!(stored(&db, id).await, ("history", wanted));
    let outcomes: Vec<_> =
        db.attempts(id).await.into_iter().map(|attempt| (attempt.lease_no, attempt.outcome)).collect();
    assert_eq!(outcomes, [(1, "fail".into()), (2, "dead".into())]);
}

#[tokio::test]
async fn bury_makes_it_dead_with_attempts_left() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    let mut hopeless = trap("hopeless");
    hopeless.backtrace = Some("0: main".into());
    assert_eq!(db.settle(&job, Settlement::Bury { failure: hopeless }).await, Settled::Yes);
    let mut wanted = ended("dead", 1, 1, 0);
    (wanted["failure_kind"], wanted["error"]) = ("trap".into(), "hopeless".into());
    assert_eq!(stored(&db, job.id).await, ("history", wanted));
    let attempt = &db.attempts(job.id).await[0];
    assert_eq!((attempt.outcome.as_str(), attempt.backtrace.as_deref()), ("dead", Some("0: main")));
}

#[tokio::test]
async fn snooze_gives_the_attempt_back() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    let id = job.id;
    assert_eq!(db.settle(&job, Settlement::Snooze { delay: Duration::from_secs(50) }).await, Settled::Yes);
    assert_eq!(stored(&db, id).await, queued(0, 1, 0, 1));
    let due_in_ms = db.job(id).await.due_in_ms;
    assert!((40_000.0..=50_000.0).contains(&due_in_ms), "due in {due_in_ms} ms");
}

#[tokio::test]
async fn a_job_may_snooze_more_often_than_it_may_fail() {
    let db = with_module().await;
    let id = db.enqueue("'echo', max_attempts => 1").await;
    for lease_no in 1..=5 {
        let job = db.claim_one().await;
        assert_eq!((job.attempt, job.lease_no), (1, lease_no));
        assert_eq!(db.snooze(job).await, Settled::Yes);
    }
    let job = db.claim_one().await;
    assert_eq!(db.fail(job).await, Settled::Yes);
    assert_eq!(db.state(id).await, "dead");
}

#[tokio::test]
async fn release_gives_the_attempt_back() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    let id = job.id;
    assert_eq!(db.release(job).await, Settled::Yes);
    assert_eq!(stored(&db, id).await, queued(0, 1, 0, 1));
    assert!(db.attempts(id).await.is_empty(), "nothing happened that anybody should read about");
}

#[tokio::test]
async fn release_after_a_fault_of_the_host_counts_a_crash() {
    let db = with_module().await;
    let id = db.enqueue("'echo'").await;
    for crashes in 1..=2 {
        let job = db.claim_one().await;
        assert_eq!(db.release_after_a_fault(job).await, Settled::Yes);
        assert_eq!(stored(&db, id).await, queued(0, crashes, crashes, crashes));
    }
    let job = db.claim_one().await;
    assert_eq!(db.release_after_a_fault(job).await, Settled::Yes);
    let (table, row) = stored(&db, id).await;
    assert_eq!((table, &row["state"], &row["crash_count"]), ("history", &json!("dead"), &json!(3)));
    assert_eq!(row["error"], "the worker's disk is full (crash number 3, the limit)");
    let outcomes: Vec<_> =
        db.attempts(id).await.into_iter().map(|attempt| (attempt.outcome, attempt.failure_kind)).collect();
    let host = Some("host".to_owned());
    assert_eq!(outcomes, [("release".into(), host.clone()), ("release".into(), host.clone()), ("dead".into(), host)]);
}

#[tokio::test]
async fn one_release_settles_drained_faulty_and_poisonous_jobs_alike() {
    let db = with_module().await;
    let ids = db.enqueue_many("echo", 3).await;
    let [drained, faulty, poison] = &db.claim(3).await[..] else { panic!("three jobs") };
    db.sql(&format!("update leasehold.live_jobs set crash_count = 2 where id = {}", poison.id)).await;
    let fault =
        |message| Some(leasehold::outcome::Failure { kind: leasehold::outcome::FailureKind::Host, ..trap(message) });
    let release = |job, fault| report(job, Settlement::Release { fault, delay: Duration::ZERO });
    let answers = db
        .settle_all(vec![
            release(drained, None),
            release(faulty, fault("a fault")),
            release(poison, fault("the last straw")),
        ])
        .await;
    assert_eq!(answers, [Settled::Yes; 3]);
    assert_eq!(stored(&db, ids[0]).await.1["crash_count"], 0);
    assert_eq!(stored(&db, ids[1]).await.1["crash_count"], 1);
    assert_eq!(stored(&db, ids[2]).await.1["error"], "the last straw (crash number 3, the limit)");
}

#[tokio::test]
async fn cancel_ends_a_queued_job_at_once() {
    let db = with_module().await;
    let id = db.enqueue("'echo'").await;
    assert_eq!(db.cancel(id).await, "cancelled");
    let (table, row) = stored(&db, id).await;
    assert_eq!((table, &row["state"], &row["started"]), ("history", &json!("cancelled"), &json!(false)));
    assert!(db.claim(1).await.is_empty());
    assert_eq!(db.cancel(id).await, "cancelled", "asking again changes nothing");
}

#[tokio::test]
async fn cancel_asks_a_running_job_and_finish_cancel_ends_it() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    let id = job.id;
    assert_eq!(db.settle(&job, Settlement::FinishCancel).await, Settled::LeaseLost, "nobody asked");
    assert_eq!(db.state(id).await, "running");
    assert_eq!(db.cancel(id).await, "running");
    assert!(db.job(id).await.cancel_requested);
    assert_eq!(db.cancel(id).await, "running", "asking again changes nothing");
    assert_eq!(db.finish_cancel(job).await, Settled::Yes);
    assert_eq!(stored(&db, id).await, ("history", ended("cancelled", 1, 1, 0)));
    assert_eq!(db.attempts(id).await[0].outcome, "cancelled");
}

#[tokio::test]
async fn a_job_that_ended_well_before_it_could_be_cancelled_is_done() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    let id = job.id;
    assert_eq!(db.cancel(id).await, "running");
    assert_eq!(db.complete(job).await, Settled::Yes);
    assert_eq!(db.cancel(id).await, "done");
}

#[tokio::test]
async fn a_job_that_was_asked_to_cancel_is_never_queued_again() {
    let db = with_module().await;
    let again = [
        Settlement::Fail { failure: trap("it failed first"), delay: Duration::ZERO },
        Settlement::Snooze { delay: Duration::ZERO },
        Settlement::Release { fault: None, delay: Duration::ZERO },
        Settlement::Release { fault: Some(trap("a fault")), delay: Duration::ZERO },
    ];
    for settlement in again {
        let job = db.enqueue_and_claim("echo").await;
        db.cancel(job.id).await;
        // The worker had not heard of it when the run ended.
        assert_eq!(db.settle(&job, settlement.clone()).await, Settled::Yes, "{settlement:?}");
        assert_eq!(db.state(job.id).await, "cancelled", "{settlement:?}");
        assert!(db.claim(1).await.is_empty(), "{settlement:?}");
        assert_eq!(db.attempts(job.id).await[0].outcome, "cancelled", "{settlement:?}");
    }
}

#[tokio::test]
async fn reap_queues_a_lost_job_and_counts_the_attempt_and_a_crash() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    assert!(db.reap().await.is_empty(), "its lease still holds");
    db.expire_lease(job.id).await;
    let reaped = db.reap().await;
    assert_eq!(reaped.iter().map(|r| (r.job_id, r.state.as_str())).collect::<Vec<_>>(), [(job.id, "queued")]);
    assert_eq!(stored(&db, job.id).await, queued(1, 1, 1, 0));
    let attempt = &db.attempts(job.id).await[0];
    assert_eq!((attempt.outcome.as_str(), attempt.failure_kind.as_deref()), ("crash", Some("crash")));
    assert!(attempt.message.as_ref().is_some_and(|m| m.contains("the lease ran out")), "{attempt:?}");
    assert!(db.reap().await.is_empty(), "reaping again changes nothing");
    assert_eq!(db.claim_one().await.id, job.id, "due at once");
}

#[tokio::test]
async fn reap_buries_a_job_at_its_crash_limit() {
    let db = with_module().await;
    let id = db.enqueue("'echo', max_attempts => 100").await;
    for state in ["queued", "queued", "dead"] {
        let job = db.claim_one().await;
        db.expire_lease(job.id).await;
        assert_eq!(db.reap().await[0].state, state);
    }
    let (table, row) = stored(&db, id).await;
    assert_eq!((table, &row["crash_count"], &row["failure_kind"]), ("history", &json!(3), &json!("crash")));
    assert!(row["error"].as_str().is_some_and(|error| error.ends_with("(crash number 3, the limit)")), "{row}");
}

#[tokio::test]
async fn reap_buries_a_job_at_its_last_attempt() {
    let db = with_module().await;
    let id = db.enqueue("'echo', max_attempts => 1").await;
    let job = db.claim_one().await;
    db.expire_lease(job.id).await;
    assert_eq!(db.reap().await[0].state, "dead");
    assert_eq!(stored(&db, id).await.1["crash_count"], 1);
}

#[tokio::test]
async fn reap_cancels_a_job_that_was_asked_to() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    db.cancel(job.id).await;
    db.expire_lease(job.id).await;
    assert_eq!(db.reap().await[0].state, "cancelled");
    assert_eq!(db.state(job.id).await, "cancelled");
}

#[tokio::test]
async fn redrive_starts_attempts_and_crashes_anew_and_the_lease_number_goes_on() {
    let db = with_module().await;
    let id = db.enqueue("'echo', '\"the payload\"', max_attempts => 1, priority => 4, queue => 'default'").await;
    let stale = db.claim_one().await;
    assert_eq!(db.settle(&stale, Settlement::Bury { failure: trap("hopeless") }).await, Settled::Yes);
    assert!(db.redrive(id).await);
    assert_eq!(stored(&db, id).await, queued(0, 1, 0, 1));
    let again = db.claim_one().await;
    assert_eq!(
        (again.id, again.attempt, again.lease_no, again.payload.as_slice()),
        (id, 1, 2, b"\"the payload\"".as_slice())
    );
    assert_eq!(db.complete(stale).await, Settled::LeaseLost, "whoever held it before stays fenced");
    assert_eq!(db.complete(again).await, Settled::Yes);
    assert_eq!(db.attempts(id).await.len(), 1, "what happened before is still told");
}

#[tokio::test]
async fn redrive_moves_only_what_is_dead_or_cancelled() {
    let db = with_module().await;
    let queued = db.enqueue("'echo', run_at => now() + interval '1 hour'").await;
    assert!(!db.redrive(queued).await);
    let job = db.enqueue_and_claim("echo").await;
    let id = job.id;
    assert!(!db.redrive(id).await, "running");
    db.complete(job).await;
    assert!(!db.redrive(id).await, "done");
    assert_eq!(db.state(id).await, "done");
    assert_eq!(db.cancel(queued).await, "cancelled");
    assert!(db.redrive(queued).await);
    assert_eq!(db.claim_one().await.id, queued, "due at once");
}

#[tokio::test]
async fn a_job_of_a_removed_module_cannot_be_redriven() {
    let db = with_module().await;
    let job = db.enqueue_and_claim("echo").await;
    let id = job.id;
    db.bury(job).await;
    db.sql("select leasehold.remove_module('default', 'echo', false)").await;
    let refused = db.refusal(&format!("select leasehold.redrive({id})")).await;
    assert_eq!((refused.code.as_str(), refused.message.contains("'echo'")), ("LH002", true), "{refused}");
    assert_eq!(db.state(id).await, "dead", "nothing would ever run it");
}

#[tokio::test]
async fn a_pinned_job_keeps_its_version_and_another_runs_the_active_one() {
    let db = with_module().await;
    let [pinned, free] = [db.enqueue("'echo', version => 1").await, db.enqueue("'echo'").await];
    assert_eq!(db.push(leasehold_tests::Upload::command("echo", b"\0asm\x01\0\0\0\0\x01\0")).await, 2);
    let jobs = db.claim(2).await;
    assert_eq!(jobs.iter().map(|job| (job.id, job.version)).collect::<Vec<_>>(), [(pinned, 1), (free, 2)]);
    for job in jobs {
        db.fail(job).await;
    }
    let versions: Vec<Option<i32>> = db.column("select version from leasehold.live_jobs order by id").await;
    assert_eq!(versions, [Some(1), None], "only a pin outlives the run");
    db.sql("select leasehold.activate_module('default', 'echo', 1)").await;
    assert_eq!(db.claim(2).await.iter().map(|job| job.version).collect::<Vec<_>>(), [1, 1]);
}

/// Each CHECK and the statement that it refuses, given job 1 queued, job 2 running and job 3 done.
const ILLEGAL: &[(&str, &str)] = &[
    ("tenants_name_is_1_to_63_plain_characters", "insert into leasehold.tenants (name) values ('Not Plain')"),
    ("modules_named_or_removed", "update leasehold.modules set name = null"),
    ("modules_name_is_1_to_63_plain_characters", "update leasehold.modules set name = ''"),
    (
        "modules_name_is_unique_in_its_tenant",
        "insert into leasehold.modules (tenant_id, name) select tenant_id, name from leasehold.modules",
    ),
    ("modules_active_version_exists", "update leasehold.modules set active_version = 9"),
    ("module_bytes_digest_is_their_sha256", "update leasehold.module_bytes set bytes = 'other'"),
    ("module_versions_limits_are_positive", "update leasehold.module_versions set fuel = 0"),
    ("live_jobs_leased_iff_running", "update leasehold.live_jobs set running = true, version = 1 where id = 1"),
    ("live_jobs_leased_iff_running", "update leasehold.live_jobs set running = false, version = null where id = 2"),
    (
        "live_jobs_attempt_within_max",
        "update leasehold.live_jobs set attempt = max_attempts + 1, lease_no = max_attempts + 1 where id = 1",
    ),
    ("live_jobs_attempts_were_claims", "update leasehold.live_jobs set attempt = lease_no + 1 where id = 1"),
    ("live_jobs_versioned_when_running_or_pinned", "update leasehold.live_jobs set version = 1 where id = 1"),
    ("live_jobs_versioned_when_running_or_pinned", "update leasehold.live_jobs set version = null where id = 2"),
    (
        "live_jobs_attempts_left_when_queued",
        "update leasehold.live_jobs set attempt = max_attempts, lease_no = max_attempts where id = 1",
    ),
    (
        "live_jobs_cancel_requested_only_while_running",
        "update leasehold.live_jobs set cancel_requested = true where id = 1",
    ),
    ("live_jobs_priority_in_range", "update leasehold.live_jobs set priority = 101 where id = 1"),
    ("live_jobs_queue_is_1_to_63_plain_characters", "update leasehold.live_jobs set queue = '' where id = 1"),
    (
        "live_jobs_payload_fits_into_a_claim",
        "update leasehold.live_jobs set payload = convert_to(repeat(' ', 16777217), 'UTF8') where id = 1",
    ),
    ("live_jobs_due_at_iff_waiting", "update leasehold.live_jobs set waits_at = 0, run_at = 'infinity' where id = 1"),
    (
        "live_jobs_waiting_is_not_running",
        "update leasehold.live_jobs set waits_at = 0, run_at = 'infinity', due_at = now() where id = 2",
    ),
    ("live_jobs_waiting_is_out_of_the_way", "update leasehold.live_jobs set waits_at = 0, due_at = now() where id = 1"),
    ("live_jobs_places_only_while_running", "update leasehold.live_jobs set held_gates = '{1}' where id = 1"),
    ("gates_kind_is_known", "insert into leasehold.gates (tenant_id, kind) values (1, 'door')"),
    ("gates_max_where_counted", "insert into leasehold.gates (tenant_id, kind) values (1, 'cap')"),
    ("gates_never_over_max", "insert into leasehold.gates (tenant_id, kind, max, running) values (1, 'cap', 1, 2)"),
    ("gates_only_keys_have_names", "insert into leasehold.gates (tenant_id, kind, name) values (1, 'pause', 'k')"),
    ("gates_rate_where_rated", "insert into leasehold.gates (tenant_id, kind) values (1, 'rate')"),
    (
        "gates_rate_is_positive",
        "insert into leasehold.gates (tenant_id, kind, per_second, burst, tokens, refilled_at) values (1, 'rate', 0, 1, 1, now())",
    ),
    ("timetable_name_is_1_to_63_plain_characters", "update leasehold.timetable set name = 'Not Plain'"),
    ("timetable_cron_is_short", "update leasehold.timetable set cron = repeat('*', 256)"),
    (
        "timetable_payload_is_at_most_1_mib",
        "update leasehold.timetable set payload = convert_to(repeat(' ', 1048577), 'UTF8')",
    ),
    ("timetable_missed_limit_in_range", "update leasehold.timetable set missed_limit = 0"),
    ("timetable_spread_offset_within_spread", "update leasehold.timetable set spread_offset_ms = 5, spread_ms = 5"),
    ("timetable_next_fire_is_a_whole_second", "update leasehold.timetable set next_fire = '2026-01-01 00:00:00.5'"),
    ("timetable_error_has_its_time", "update leasehold.timetable set error = 'e', error_at = null"),
    ("claims_one_lease_number_a_job", "update leasehold.claims set lease_nos = '{}'"),
    ("history_is_finished", "update leasehold.history set state = 'running'"),
    ("history_error_iff_dead", "update leasehold.history set failure_kind = 'trap'"),
    ("history_result_only_when_done", "update leasehold.history set state = 'cancelled', result = 'r'"),
    ("tenants_weight_is_1_to_1000", "update leasehold.tenants set weight = 0"),
    ("sharing_is_one_row", "insert into leasehold.sharing values (false)"),
    (
        "quota_slots_only_the_first_owes",
        "insert into leasehold.quota_slots (tenant_id, slot, jobs_free, bytes_free) values (1, 1, -1, 0)",
    ),
    (
        "tenant_roles_level_is_known",
        "insert into leasehold.tenant_roles (tenant_id, role_oid, role_name, level) values (1, 1, 'r', 'owner')",
    ),
    (
        "notes_fraction_is_one",
        "insert into leasehold.notes (tenant_id, job_id, lease_no, fraction, message, noted_at) values (1, 1, 1, 2, '', now())",
    ),
    (
        "notes_fraction_has_a_message",
        "insert into leasehold.notes (tenant_id, job_id, lease_no, fraction, noted_at) values (1, 1, 1, 0.5, now())",
    ),
    (
        "notes_checkpoint_is_at_most_4_mib",
        "insert into leasehold.notes (tenant_id, job_id, lease_no, noted_at, checkpoint)
         values (1, 1, 1, now(), convert_to(repeat(' ', 4194305), 'UTF8'))",
    ),
    (
        "secrets_name_is_1_to_63_plain_characters",
        "insert into leasehold.secrets (tenant_id, name, key_id, nonce, sealed) values (1, '', 'k', repeat('n', 12)::bytea, repeat('s', 17)::bytea)",
    ),
    (
        "secrets_nonce_has_12_bytes",
        "insert into leasehold.secrets (tenant_id, name, key_id, nonce, sealed) values (1, 's', 'k', 'n', repeat('s', 17)::bytea)",
    ),
    (
        "secrets_sealed_has_a_tag_and_at_most_64_kib",
        "insert into leasehold.secrets (tenant_id, name, key_id, nonce, sealed) values (1, 's', 'k', repeat('n', 12)::bytea, 's')",
    ),
];

#[tokio::test]
async fn illegal_rows_are_refused_by_name() {
    let db = with_module().await;
    let ids = db.enqueue_many("echo", 3).await;
    assert_eq!(ids, [JobId(1), JobId(2), JobId(3)], "as the statements say");
    let jobs = db.claim(3).await;
    let [queued, _running, done] = <[_; 3]>::try_from(jobs).unwrap_or_else(|_| panic!("three jobs"));
    db.release(queued).await;
    db.complete(done).await;
    db.sql("select leasehold.schedule('daily', '0 0 * * *', 'echo')").await;
    for (constraint, sql) in ILLEGAL {
        let refused = db.refusal(sql).await;
        assert_eq!(refused.constraint.as_deref(), Some(*constraint), "{sql}: {refused}");
    }
    let known: BTreeSet<String> = db
        .column::<String>(
            "select conname::text from pg_constraint where connamespace = 'leasehold'::regnamespace and contype = 'c' and conislocal",
        )
        .await
        .into_iter()
        .collect();
    let tested: BTreeSet<String> = ILLEGAL.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(known.difference(&tested).collect::<Vec<_>>(), [""; 0], "each CHECK has a row here");
}
