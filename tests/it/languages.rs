//! Jobs in other languages (jobs/other), as their authors bring them: pushed with the real command, compiled by a process of
//! its own within the default limits, and run through the queue.
//!
//! Python and JavaScript bring a whole interpreter of 12 to 18 MB each, which takes the compiler up to a minute of a core the first
//! time; what it made is kept beside the tests' binary, by the module's digest.

use std::path::Path;

use leasehold::job::JobId;
use leasehold_tests::TestDb;
use leasehold_tests::binary::run;
use leasehold_tests::scenario::Job;
use leasehold_tests::workers::WorkerProcess;
use serde_json::{Value, json};

/// A database with these modules and a worker; None, with a word of why, where one of them is not built.
async fn with(modules: &[(&str, &str)]) -> Option<(TestDb, WorkerProcess)> {
    let db = TestDb::new().await;
    for (name, kind) in modules {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../jobs/target/modules/{name}.wasm"));
        if !path.exists() {
            let why = format!("{} is not there; scripts/build-languages builds it", path.display());
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            println!("skipped: {why}");
            return None;
        }
        let pushed = run(db.url(), &["module", "push", name, &path.display().to_string(), "--json"]).await.json();
        let verdict = &pushed["verdict"];
        assert_eq!((&verdict["problem"], &verdict["kind"]), (&Value::Null, &json!(kind)), "{name}");
        println!("{name}: {} bytes, compiled in {} ms", verdict["size_bytes"], verdict["compile_ms"]);
    }
    let worker = db.worker_process(&[]).await;
    Some((db, worker))
}

async fn enqueue(db: &TestDb, module: &str, payload: &[u8]) -> JobId {
    let sql = "select leasehold.enqueue($1, $2::bytea, backoff => '1 hour')";
    JobId(db.rows(sql, &[&module, &payload]).await[0].get(0))
}

async fn ended(db: &TestDb, module: &str, payload: &[u8], state: &str) -> Job {
    let id = enqueue(db, module, payload).await;
    db.wait_for(id, state).await
}

async fn stop(mut worker: WorkerProcess) {
    worker.terminate();
    assert!(worker.wait().await.success());
}

#[tokio::test]
async fn programs_in_c_ours_and_other_peoples() {
    let Some((db, worker)) = with(&[("c-redact", "command"), ("cmark-gfm", "command")]).await else { return };
    let redacted = ended(&db, "c-redact", b"paid with 4111 1111 1111 1111, order 1234567890123", "done").await;
    assert_eq!(redacted.result, Some(json!("paid with **** **** **** 1111, order 1234567890123")));
    assert_eq!(db.attempts(redacted.id).await[0].log.as_deref(), Some("1 numbers redacted\n"));
    let refused = ended(&db, "c-redact", b"a\0b", "dead").await;
    let message = "payload is no text: byte 1 of 3 is NUL (exit code 65)";
    assert_eq!((refused.failure_kind.as_deref(), refused.error.as_deref()), (Some("guest_dead"), Some(message)));
    let page = ended(&db, "cmark-gfm", b"# Hi\n\n*there* <script>", "done").await;
    assert_eq!(page.result, Some(json!("<h1>Hi</h1>\n<p><em>there</em> <!-- raw HTML omitted --></p>\n")));
    stop(worker).await;
}

#[tokio::test]
async fn a_job_in_python() {
    let name = "python-statistics";
    let Some((db, worker)) = with(&[(name, "component")]).await else { return };
    let done = ended(&db, name, b"[3, 1, 4, 1, 5]", "done").await;
    let result = done.result.expect("a result");
    assert_eq!((&result["count"], &result["mean"], &result["median"]), (&json!(5), &json!(2.8), &json!(3)));
    let log = db.attempts(done.id).await[0].log.clone().unwrap_or_default();
    assert_eq!(log, format!("[info] attempt 1 of job {}: 5 numbers\n", done.id));
    let refused = ended(&db, name, b"{}", "dead").await;
    let message = "the payload must be a list of numbers, one at least";
    assert_eq!((refused.failure_kind.as_deref(), refused.error.as_deref()), (Some("guest_dead"), Some(message)));
    // An exception that nobody expected: a number that no float can hold.
    let id = enqueue(&db, name, format!("[1{}]", "0".repeat(400)).as_bytes()).await;
    let ran = format!("exists (select from leasehold.live_jobs where id = {id} and lease_no = 1 and not running)");
    db.wait_until("it has run", &ran).await;
    assert_eq!(db.job(id).await.failure_kind.as_deref(), Some("trap"));
    let log = db.attempts(id).await[0].log.clone().unwrap_or_default();
    assert!(log.contains("OverflowError"), "{log}");
    stop(worker).await;
}

#[tokio::test]
async fn a_job_in_javascript() {
    let name = "javascript-template";
    let Some((db, worker)) = with(&[(name, "component")]).await else { return };
    let payload = "{\"template\": \"Dear {{ to.name }}, {{n}} gr\u{fc}\u{df}e\", \"values\": {\"to\": {\"name\": \"Ada\"}, \"n\": 3}}";
    let done = ended(&db, name, payload.as_bytes(), "done").await;
    assert_eq!(done.result, Some(json!({ "text": "Dear Ada, 3 gr\u{fc}\u{df}e" })));
    let log = db.attempts(done.id).await[0].log.clone().unwrap_or_default();
    assert_eq!(log, format!("[info] attempt 1 of job {}: 17 characters\n", done.id));
    let refused = ended(&db, name, b"{\"template\": \"{{a}} {{b.c}}\", \"values\": {}}", "dead").await;
    let message = "the template names what values lack: a, b.c";
    assert_eq!((refused.failure_kind.as_deref(), refused.error.as_deref()), (Some("guest_dead"), Some(message)));
    stop(worker).await;
}
