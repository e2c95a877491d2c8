//! The jobs that come with Leasehold, written with the guest SDK, through the queue as customers' jobs go.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use leasehold::job::{JobId, Limits, ModuleKind};
use leasehold_tests::scenario::Job;
use leasehold_tests::workers::TestWorker;
use leasehold_tests::{TestDb, Upload};
use serde_json::{Value, json};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A database with these jobs uploaded under their default limits, and a worker.
async fn with(jobs: &[&str]) -> (TestDb, TestWorker) {
    let db = TestDb::new().await;
    for job in jobs {
        push(&db, job, Limits::default()).await;
    }
    let worker = db.worker();
    (db, worker)
}

async fn push(db: &TestDb, job: &str, limits: Limits) {
    let path = repository().join("jobs/target/modules").join(format!("{job}.wasm"));
    let bytes = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; build the jobs first: scripts/build-jobs", path.display()));
    let kind = if job == "wordcount" { ModuleKind::Command } else { ModuleKind::Component };
    db.push(Upload { kind, limits, ..Upload::component(job, &bytes) }).await;
}

async fn enqueue(db: &TestDb, job: &str, payload: &Value, options: &str) -> JobId {
    let sql = format!("select leasehold.enqueue($1, $2::jsonb{options})");
    JobId(db.rows(&sql, &[&job, payload]).await[0].get(0))
}

async fn done(db: &TestDb, job: &str, payload: Value) -> Value {
    let id = enqueue(db, job, &payload, "").await;
    db.wait_for(id, "done").await.result.expect("a result")
}

async fn dead(db: &TestDb, job: &str, payload: Value) -> Job {
    let id = enqueue(db, job, &payload, "").await;
    db.wait_for(id, "dead").await
}

fn sample(path: &str) -> Vec<u8> {
    let path = repository().join("jobs").join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test]
async fn a_photo_becomes_a_thumbnail() {
    let (db, worker) = with(&["thumbnail"]).await;
    let image = BASE64.encode(sample("thumbnail/sample/rocket.jpg"));
    let small = done(&db, "thumbnail", json!({ "image": image, "max_width": 160, "max_height": 120 })).await;
    assert_eq!((&small["width"], &small["height"]), (&json!(160), &json!(107)));
    let png = BASE64.decode(small["image"].as_str().expect("text")).expect("base64");
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    assert_eq!(
        (&small["bytes_in"], &small["bytes_out"]),
        (&json!(sample("thumbnail/sample/rocket.jpg").len()), &json!(png.len()))
    );
    let job = dead(&db, "thumbnail", json!({ "image": "bm8gaW1hZ2U=", "max_width": 160, "max_height": 120 })).await;
    assert_eq!(job.failure_kind.as_deref(), Some("guest_dead"));
    assert!(job.error.is_some_and(|error| error.starts_with("reading the image's header")));
    worker.drain().await;
}

#[tokio::test]
async fn a_csv_file_becomes_a_report() {
    let (db, worker) = with(&["csv-report"]).await;
    let csv = "city,sales\nOslo,3\nOslo,4\nBergen,5\n";
    let report = done(&db, "csv-report", json!({ "csv": csv, "group_by": "city", "value": "sales" })).await;
    assert_eq!(report["rows"], 3);
    assert_eq!(report["groups"]["Oslo"], json!({ "rows": 2, "sum": 7.0, "mean": 3.5 }));
    // As raw bytes, a file of some size.
    let weather = sample("csv-report/sample/weather.csv");
    let rows = weather.iter().filter(|byte| **byte == b'\n').count() - 1;
    let id = JobId(db.rows("select leasehold.enqueue('csv-report', $1::bytea)", &[&weather]).await[0].get(0));
    let report = db.wait_for(id, "done").await.result.expect("a report");
    assert_eq!(report["rows"], rows);
    worker.drain().await;
}

#[tokio::test]
async fn markdown_becomes_harmless_html() {
    let (db, worker) = with(&["markdown"]).await;
    let page = done(
        &db,
        "markdown",
        json!({ "markdown": "# Hi\n\n<script>alert(1)</script>\n\n[x](javascript:alert(1)) *y*" }),
    )
    .await;
    let html = page["html"].as_str().expect("text");
    assert!(html.contains("<h1>Hi</h1>") && html.contains("<em>y</em>"), "{html}");
    assert!(!html.contains("<script") && !html.contains("javascript:"), "{html}");
    worker.drain().await;
}

#[tokio::test]
async fn words_are_counted_by_a_plain_wasi_program() {
    let (db, worker) = with(&["wordcount"]).await;
    let count = async |payload: &[u8]| {
        JobId(
            db.rows("select leasehold.enqueue('wordcount', $1::bytea, backoff => '1 hour')", &[&payload]).await[0]
                .get(0),
        )
    };
    let id = count("gr\u{fc}n ist\nsie\n".as_bytes()).await;
    assert_eq!(
        db.wait_for(id, "done").await.result,
        Some(json!({ "lines": 2, "words": 3, "characters": 13, "bytes": 14 }))
    );
    let id = count(b"a\xffb").await;
    let job = db.wait_for(id, "dead").await;
    assert_eq!(
        (job.failure_kind.as_deref(), job.error.as_deref()),
        (Some("guest_dead"), Some("payload is not UTF-8: byte 1 of 3 starts no character (exit code 65)"))
    );
    let id = count(b"").await;
    db.wait_until(
        "it has run",
        &format!("exists (select from leasehold.live_jobs where id = {id} and lease_no = 1 and not running)"),
    )
    .await;
    assert_eq!(db.job(id).await.failure_kind.as_deref(), Some("exit"));
    worker.drain().await;
}

#[tokio::test]
async fn every_byte_comes_back_from_noop() {
    let (db, worker) = with(&["noop"]).await;
    let bytes: Vec<u8> = (0..=255).collect();
    let id = JobId(db.rows("select leasehold.enqueue('noop', $1::bytea)", &[&bytes]).await[0].get(0));
    assert_eq!(db.wait_for(id, "done").await.result_bytes, Some(bytes));
    worker.drain().await;
}

#[tokio::test]
async fn what_panics_twice_gets_through_the_third_time() {
    let (db, worker) = with(&["flaky", "pause"]).await;
    let flaky = enqueue(&db, "flaky", &json!({ "panics": 2 }), ", backoff => '10 ms'").await;
    let job = db.wait_for(flaky, "done").await;
    assert_eq!((job.attempt, job.result), (3, Some(json!({ "attempt": 3 }))));
    let attempts = db.attempts(flaky).await;
    let kinds: Vec<_> =
        attempts.iter().map(|attempt| (attempt.outcome.as_str(), attempt.failure_kind.as_deref())).collect();
    assert_eq!(kinds, [("fail", Some("trap")), ("fail", Some("trap")), ("done", None)]);
    assert!(
        attempts[0].message.as_ref().is_some_and(|message| message.contains("attempt 1 of the 2 that panic")),
        "{attempts:?}"
    );
    assert!(attempts[0].backtrace.is_some(), "{attempts:?}");
    let pause = enqueue(&db, "pause", &json!({ "ms": 2, "fails": 2, "after_ms": 20 }), "").await;
    assert_eq!(db.wait_for(pause, "done").await.result, Some(json!({ "attempt": 3, "waited_ms": 2 })));
    worker.drain().await;
}

#[tokio::test]
async fn each_fault_meets_its_end() {
    let (db, worker) = with(&[]).await;
    let limits = Limits { fuel: 2_000_000_000, ..Limits::default() };
    push(&db, "faults", limits).await;
    let table = [
        ("dead", "dead", Some("guest_dead"), "the payload asked for dead"),
        ("retry", "queued", Some("guest_retry"), "the payload asked for a retry"),
        ("panic", "queued", Some("trap"), "the payload asked for a panic"),
        ("exit", "queued", Some("trap"), "exit"),
        ("loop", "dead", Some("fuel"), "2000000000 instructions"),
        ("fuel", "dead", Some("fuel"), "2000000000 instructions"),
        ("memory", "dead", Some("memory"), "67108864 bytes"),
        ("recursion", "queued", Some("trap"), "recurs"),
        ("flood", "done", None, ""),
        ("big_result", "dead", Some("output"), "1048576 bytes"),
    ];
    let mut ids = Vec::new();
    for (fault, ..) in table {
        ids.push(enqueue(&db, "faults", &json!({ "fault": fault }), ", backoff => '1 hour'").await);
    }
    let asleep = enqueue(&db, "faults", &json!({ "fault": "sleep" }), ", timeout => '100 ms', max_attempts => 1").await;
    let snoozing = enqueue(&db, "faults", &json!({ "fault": "snooze", "after_ms": 3_600_000 }), "").await;
    db.wait_until("each has run", "not exists (select from leasehold.live_jobs where running or lease_no = 0)").await;
    for ((fault, state, kind, says), id) in table.into_iter().zip(ids) {
        let job = db.job(id).await;
        // What a component's exit is told from a trap by lies in the sandbox; that it fails is what counts here.
        let kind = if fault == "exit" { job.failure_kind.as_deref() } else { kind };
        assert_eq!((job.state.as_str(), job.failure_kind.as_deref()), (state, kind), "{fault}: {job:?}");
        assert!(job.error.unwrap_or_default().contains(says) || fault == "exit", "{fault}");
        if fault == "flood" {
            let attempt = &db.attempts(id).await[0];
            assert!(attempt.log_dropped_bytes > 19_000_000, "{}", attempt.log_dropped_bytes);
        }
    }
    assert_eq!(db.job(asleep).await.failure_kind.as_deref(), Some("timeout"));
    let snoozing = db.job(snoozing).await;
    assert_eq!((snoozing.state.as_str(), snoozing.attempt), ("queued", 0));
    let waiting = enqueue(&db, "faults", &json!({ "fault": "wait_for_cancel" }), "").await;
    worker.guests_run(1).await;
    db.cancel(waiting).await;
    db.wait_for(waiting, "cancelled").await;
    let log = db.attempts(waiting).await[0].log.clone().unwrap_or_default();
    assert!(log.contains("somebody did; tidying up"), "{log}");
    worker.drain().await;
}

#[tokio::test]
async fn a_misspelled_payload_is_dead_with_the_name_of_what_is_wrong() {
    let (db, worker) = with(&["pause"]).await;
    let job = dead(&db, "pause", json!({ "ms": 0, "fail": 1 })).await;
    assert!(job.error.as_ref().is_some_and(|error| error.contains("unknown field `fail`")), "{job:?}");
    worker.drain().await;
}
