//! `leasehold replay`: a failure of a worker's, once more on another machine.

use leasehold::job::JobId;
use leasehold_tests::TestDb;
use leasehold_tests::Upload;
use leasehold_tests::binary::{Files, run};
use leasehold_tests::guests::{core, core_from};
use serde_json::json;

use super::bench::says;

#[tokio::test]
async fn a_failed_attempt_fails_the_same_way_on_another_machine() {
    let db = TestDb::new().await;
    // Traps at its first attempt, in a function of its own, and returns its payload at the second.
    let guest = core_from(
        r#"(func $divides (param $by i32) (result i32) (i32.div_u (i32.const 1) (local.get $by)))
        (func $run (param $at i32) (param $len i32) (result i32)
          (drop (call $divides (i32.sub (global.get $attempt) (i32.const 1))))
          (call $ok (local.get $at) (local.get $len)))"#,
    );
    db.push(Upload::component("divides", &guest)).await;
    let worker = db.worker();
    let id: i64 = db.value("select leasehold.enqueue('divides', '{\"n\": 7}', backoff => '1 ms')").await;
    db.wait_for(JobId(id), "done").await;
    worker.drain().await;

    // Not the last attempt, but the last that failed.
    let id = id.to_string();
    let again = run(db.url(), &["replay", &id]).await;
    assert_eq!(again.code, 0, "{again:#?}");
    says(
        &again.stderr,
        &[
            "attempt 1 (lease 1) of job",
            "module divides version 1 of tenant default, was: fail (trap: integer divide by zero)",
            "divides\n",
            "outcome: fail, next run in",
            "it ended as it did then",
        ],
    );
    let second = run(db.url(), &["replay", &id, "--lease", "2", "--json"]).await.json();
    assert_eq!(
        (&second["same"], &second["attempt"], &second["now"]["result"]),
        (&json!(true), &json!(2), &json!({ "n": 7 }))
    );
    // With the mistake mended it ends otherwise, and nothing of all this was written down.
    let files = Files::new();
    let mended = files.write("mended.wasm", &core("echo"));
    let other = run(db.url(), &["replay", &id, "--module", &mended]).await;
    assert_eq!((other.code, other.stdout.as_str()), (1, "{\"n\": 7}"));
    says(&other.stderr, &["it did NOT end as it did then"]);
    assert_eq!(db.value::<i64>("select count(*) from leasehold.job_attempts where job_id = 1").await, 1);
    for (args, says_what) in [
        (&["replay", "99"][..], "there is no job 99"),
        (&["replay", &id, "--lease", "9"], "has no attempt with lease 9; its last lease is 2"),
    ] {
        let refused = run(db.url(), args).await;
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
        says(&refused.stderr, &[says_what]);
    }
}

#[tokio::test]
async fn what_cannot_be_replayed_is_refused_with_the_reason() {
    let db = TestDb::new().await;
    db.push(Upload::component("echo", &core("echo"))).await;
    let store = db.store();
    let id: i64 = db.value("select leasehold.enqueue('echo', '1')").await;
    let refused = store.attempt_to_replay(JobId(id), None).await.expect_err("it has not run").to_string();
    says(&refused, &["fetching the attempt"]);
    let refused = format!("{:#}", store.attempt_to_replay(JobId(id), None).await.expect_err("it has not run"));
    says(&refused, &["has not run yet"]);
    let worker = db.worker();
    db.wait_for(JobId(id), "done").await;
    worker.drain().await;
    let done = store.attempt_to_replay(JobId(id), None).await.expect("it left no row, and is known all the same");
    assert_eq!((done.outcome.as_str(), done.lease_no, done.payload.as_slice()), ("done", 1, &b"1"[..]));
    db.sql("select leasehold.remove_module('default', 'echo', false)").await;
    let refused = format!("{:#}", store.attempt_to_replay(JobId(id), None).await.expect_err("it is gone"));
    says(&refused, &["the module was removed"]);
}

#[tokio::test]
async fn a_producer_may_not_fetch_modules() {
    let db = TestDb::new().await;
    let granted: bool = db
        .value("select has_function_privilege('leasehold_producer', 'leasehold.attempt_to_replay(bigint, int)', 'execute')")
        .await;
    assert!(!granted);
    let granted: bool = db
        .value(
            "select has_function_privilege('leasehold_worker', 'leasehold.attempt_to_replay(bigint, int)', 'execute')",
        )
        .await;
    assert!(granted);
}
