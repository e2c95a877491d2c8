//! What was built against the first version of the contract runs for ever: binaries of that time, never built anew.

use std::path::Path;

use leasehold::job::JobId;
use leasehold_tests::guests::LIMITS;
use leasehold_tests::{TestDb, Upload};
use serde_json::json;

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/contract-1.0.0").join(format!("{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

async fn enqueue(db: &TestDb, module: &str, payload: &[u8]) -> JobId {
    let sql = "select leasehold.enqueue($1, $2::bytea, max_attempts => 3, backoff => '1 hour')";
    JobId(db.rows(sql, &[&module, &payload]).await[0].get(0))
}

#[tokio::test]
async fn modules_of_the_contracts_first_version_run_as_they_did_then() {
    let db = TestDb::new().await;
    for name in ["noop", "pause", "everything"] {
        db.push(Upload::component(name, &fixture(name))).await;
    }
    let worker = db.worker();
    let noop = enqueue(&db, "noop", b"\0\xff").await;
    let pause =
        JobId(db.value("select leasehold.enqueue('pause', '{\"ms\": 2, \"fails\": 1, \"after_ms\": 5}')").await);
    let mut ids = Vec::new();
    for payload in ["p", "l", "j", "r", "R", "d", "s", "c"] {
        ids.push(enqueue(&db, "everything", payload.as_bytes()).await);
    }
    let [plain, said, told, retry, retry_in, dead, snooze, cancelled] = ids[..] else { panic!("{ids:?}") };

    assert_eq!(db.wait_for(noop, "done").await.result_bytes, Some(b"\0\xff".to_vec()));
    assert_eq!(db.wait_for(pause, "done").await.result, Some(json!({ "attempt": 2, "waited_ms": 2 })));
    assert_eq!(db.wait_for(plain, "done").await.result_bytes.as_deref(), Some(b"p".as_slice()));

    db.wait_for(said, "done").await;
    let lines: String =
        ["trace", "debug", "info", "warn", "error"].map(|of| format!("[{of}] said in a line\n")).concat();
    assert_eq!(db.attempts(said).await[0].log, Some(lines));

    let told_bytes = db.wait_for(told, "done").await.result_bytes.expect("a result");
    let (numbers, names) = told_bytes.split_at(24);
    let (timeout, attempts) = (LIMITS.timeout.as_millis() as u64, [1_u32, 3]);
    let expected =
        [&told.0.to_le_bytes()[..], &timeout.to_le_bytes(), &attempts[0].to_le_bytes(), &attempts[1].to_le_bytes()];
    assert_eq!((numbers, names), (&expected.concat()[..], b"defaulteverythingdefault".as_slice()));

    db.wait_until("each has run", "not exists (select from leasehold.live_jobs where lease_no = 0)").await;
    db.cancel(cancelled).await;
    db.wait_for(cancelled, "cancelled").await;
    db.wait_until("nothing runs", "not exists (select from leasehold.live_jobs where running)").await;
    for (id, state, kind, attempt) in [
        (retry, "queued", Some("guest_retry"), 1),
        (retry_in, "queued", Some("guest_retry"), 1),
        (dead, "dead", Some("guest_dead"), 1),
        (snooze, "queued", None, 0),
    ] {
        let job = db.job(id).await;
        assert_eq!((job.state.as_str(), job.failure_kind.as_deref(), job.attempt), (state, kind, attempt), "{job:?}");
    }
    let (asked, own) = (db.job(retry_in).await.due_in_ms, db.job(snooze).await.due_in_ms);
    assert!(own > 3_000_000.0 && asked > 3_000_000.0, "an hour: {own}, {asked}");
    assert_eq!(db.job(dead).await.error.as_deref(), Some("d"));
    worker.drain().await;
}
