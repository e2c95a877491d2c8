//! `leasehold bench` with few jobs: that each bench runs, says what it found under these keys, and leaves nothing behind.

use std::path::Path;

use leasehold_tests::TestDb;
use leasehold_tests::binary::{Files, run};
use leasehold_tests::guests::core;
use serde_json::{Value, json};

/// Runs a bench on a database that has no schema, and answers its JSON.
async fn bench(args: &[&str]) -> Value {
    let db = TestDb::empty().await;
    let files = Files::new();
    let wasm = files.write("echo.wasm", &core("echo"));
    let few = ["bench", "--jobs", "400", "--slots", "4", "--latency-jobs", "4", "--no-sync", "--json"];
    let module: &[&str] = if args.contains(&"--module") { &[] } else { &["--module", &wasm] };
    let found = run(db.url(), &[&few, module, args].concat()).await.json();
    let schemas = "select count(*) from pg_namespace where nspname in ('leasehold', 'bare', 'article')";
    assert_eq!(db.value::<i64>(schemas).await, 0, "it wrote into a database that is not its own");
    found
}

#[track_caller]
fn has(found: &Value, keys: &str) {
    let mut found: Vec<_> = found.as_object().expect("an object").keys().map(String::as_str).collect();
    let mut keys: Vec<_> = keys.split_whitespace().chain(["synchronous_commit"]).collect();
    found.sort_unstable();
    keys.sort_unstable();
    assert_eq!(found, keys);
}

#[track_caller]
fn is_ratio(found: &Value, key: &str, target: Value) {
    let mut ratio = found[key].clone();
    let value = ratio["value"].take();
    assert!(value.as_f64().is_some_and(|value| value > 0.0), "{key} is {value}");
    let mut expected = target;
    expected["value"] = Value::Null;
    assert_eq!(ratio, expected, "{key}");
}

#[tokio::test]
async fn claims_beside_a_plain_table() {
    let found = bench(&["--no-run"]).await;
    has(
        &found,
        "jobs claim_and_settle_per_second bare_done_per_second bare_deleted_per_second ratio_to_bare_done ratio_to_bare_deleted",
    );
    is_ratio(&found, "ratio_to_bare_done", json!({ "at_least": 0.6 }));
    is_ratio(&found, "ratio_to_bare_deleted", json!({ "at_least": 0.6 }));
    assert_eq!((&found["jobs"], &found["synchronous_commit"]), (&json!(400), &json!(false)));
}

#[tokio::test]
async fn a_drain_under_an_old_snapshot() {
    let found = bench(&["snapshot"]).await;
    has(
        &found,
        "jobs drain_at_start_per_second drain_at_end_per_second drain_ratio fresh_pickup_p50_ms pickup_p50_ms pickup_ratio",
    );
    is_ratio(&found, "drain_ratio", json!({ "at_least": 0.8 }));
    is_ratio(&found, "pickup_ratio", json!({ "at_most": 1.5 }));
}

#[tokio::test]
async fn a_drain_beside_a_history_and_future_jobs() {
    let found = bench(&["history", "--finished", "100001", "--future", "3000"]).await;
    has(&found, "finished future jobs empty_drain_per_second drain_per_second drain_ratio");
    is_ratio(&found, "drain_ratio", json!({ "at_least": 0.9 }));
    assert_eq!((&found["finished"], &found["future"]), (&json!(100_001), &json!(3_000)));
}

#[tokio::test]
async fn enqueues_beside_bare_inserts() {
    let found = bench(&["enqueue", "--seconds", "0.5"]).await;
    has(
        &found,
        "bulk_per_second bare_bulk_per_second bulk_ratio single_per_second bare_single_per_second single_ratio",
    );
    is_ratio(&found, "bulk_ratio", json!({ "at_least": 0.3 }));
    is_ratio(&found, "single_ratio", json!({ "at_least": 0.5 }));
}

#[tokio::test]
async fn an_idle_worker() {
    let found = bench(&["idle", "--seconds", "6"]).await;
    has(&found, "statements_per_second pickup_p50_ms pickup_p99_ms done_p50_ms done_p99_ms");
    is_ratio(&found, "statements_per_second", json!({ "at_most": 2.0 }));
}

/// A job that comes with Leasehold.
fn job(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../jobs/target/modules/{name}.wasm")).display().to_string()
}

#[tokio::test]
async fn good_jobs_beside_hostile_ones() {
    let found = bench(&["hostile", "--runs", "90", "--faults", &job("faults")]).await;
    has(
        &found,
        "runs left memory_before_mib memory_after_mib memory_ratio alone_pickup_p50_ms alone_pickup_p99_ms pickup_p50_ms \
         pickup_p99_ms pickup_ratio",
    );
    is_ratio(&found, "memory_ratio", json!({ "at_most": 1.1 }));
    is_ratio(&found, "pickup_ratio", json!({ "at_most": 2.0 }));
}

#[tokio::test]
async fn the_articles_experiments() {
    let found = bench(&["article", "--module", &job("pause")]).await;
    has(
        &found,
        "lease_skip_locked lease lock_skip_locked lock dead_worker leasehold_1000 leasehold_200 leasehold_dead_worker",
    );
    for thousand in ["lease_skip_locked", "lease", "leasehold_1000"] {
        let found = &found[thousand];
        let account = (&found["done"], &found["run_more_than_once"], &found["failures"]);
        assert_eq!(account, (&json!(1000), &json!(1), &json!(2)), "{thousand}");
    }
    for dead in ["dead_worker", "leasehold_dead_worker"] {
        let expected =
            json!({ "queued": 2, "running": 1, "reaped_at_once": 0, "reaped_after_the_lease": 1, "next_attempt": 2 });
        assert_eq!(found[dead], expected, "{dead}");
    }
}

#[tokio::test]
async fn what_a_killed_bench_left_behind_is_dropped_and_text_says_what_json_does() {
    let db = TestDb::new().await;
    let left_over = format!("leasehold_bench_left_over_{:08x}", rand::random::<u32>());
    db.sql(&format!("create database {left_over}")).await;
    let text = run(db.url(), &["bench", "--no-run", "--jobs", "100"]).await.ok().stdout;
    assert!(text.contains("claim and settle / claim and delete"), "{text}");
    assert!(text.contains("(should be at least 0.6)"), "{text}");
    let left = format!("select count(*) from pg_database where datname = '{left_over}'");
    assert_eq!(db.value::<i64>(&left).await, 0);
    let refused = run(db.url(), &["bench", "--no-run", "idle"]).await;
    assert!(refused.code == 1 && refused.stderr.contains("takes no subcommand"), "{refused:#?}");
}

#[tokio::test]
async fn the_plain_run_uses_the_database_itself() {
    let db = TestDb::new().await;
    let files = Files::new();
    let wasm = files.write("echo.wasm", &core("echo"));
    let args = ["bench", "--jobs", "300", "--tenants", "2", "--slots", "4", "--latency-jobs", "3", "--module", &wasm];
    let found = run(db.url(), &[&args[..], &["--json"]].concat()).await.json();
    for (key, expected) in [("jobs", 300), ("tenants", 2), ("lost", 0), ("settled_twice", 0)] {
        assert_eq!(found[key], expected, "{key}");
    }
    assert!(found["pickup"]["p50_ms"].is_number() && found["drain_per_second"].is_number(), "{found}");
    let done = "select count(*) from leasehold.history where state = 'done' and queue = 'bench'";
    assert!(db.value::<i64>(done).await >= 303);
}

#[tokio::test]
async fn tenants_that_want_more_than_there_is() {
    let found = bench(&["fair", "weights", "--cpu-seconds", "0.0002"]).await;
    has(&found, "heavy_cpu_seconds light_cpu_seconds weights_off");
    let found = bench(&["fair", "pickup", "--backlog", "2000"]).await;
    has(
        &found,
        "backlog unloaded_pickup_p50_ms unloaded_pickup_p99_ms pickup_p50_ms pickup_p99_ms done_p50_ms done_p99_ms neighbour_run_ms pickup_ratio",
    );
    let found = bench(&["fair", "drain", "--singles", "20"]).await;
    has(&found, "singles first_drain_per_second one_drain_per_second many_drain_per_second drain_ratio");
    is_ratio(&found, "drain_ratio", json!({ "at_least": 0.7 }));
}
