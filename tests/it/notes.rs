//! What runs leave behind while they go on: a checkpoint for the next run, how far they are, their logs so far. Never
//! under a lost lease.

use std::time::Duration;

use leasehold::grants::Grants;
use leasehold::job::{JobId, Limits};
use leasehold::outcome::{LogChunk, Noted, Progress};
use leasehold::store::{ClaimedJob, Note};
use leasehold::worker::WorkerConfig;
use leasehold_tests::guests::{LIMITS, core};
use leasehold_tests::workers::quick;
use leasehold_tests::{TestDb, Upload, binary};
use serde_json::json;

const PATIENT: Limits = Limits { timeout: Duration::from_secs(3600), fuel: Limits::MAX_FUEL, ..LIMITS };

fn saved(bytes: &[u8]) -> Noted {
    Noted { checkpoint: Some(bytes.into()), ..Noted::default() }
}

async fn note(db: &TestDb, job: &ClaimedJob, noted: Noted) {
    let note = Note { job_id: job.id, lease_no: job.lease_no, noted };
    db.store().note(&[note], &[]).await.unwrap_or_else(|error| panic!("{error:#}"));
}

async fn checkpoint(db: &TestDb, job: &ClaimedJob) -> Option<Vec<u8>> {
    db.store().checkpoint(job.id, job.lease_no).await.unwrap_or_else(|error| panic!("{error:#}"))
}

async fn rows(db: &TestDb, table: &str) -> i64 {
    db.value(&format!("select count(*) from leasehold.{table}")).await
}

#[tokio::test]
async fn a_checkpoint_survives_failures_and_dead_workers_and_goes_with_the_job() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let first = db.enqueue_and_claim("echo").await;
    let id = first.id;
    assert_eq!(checkpoint(&db, &first).await, None);
    note(&db, &first, saved(b"one")).await;
    db.fail(first).await;

    let second = db.claim_one().await;
    assert_eq!(checkpoint(&db, &second).await.as_deref(), Some(&b"one"[..]));
    note(&db, &second, saved(b"two")).await;
    db.expire_lease(id).await;
    db.reap().await;

    let third = db.claim_one().await;
    assert_eq!(checkpoint(&db, &third).await.as_deref(), Some(&b"two"[..]));
    db.bury(third).await;
    // Whoever finds it before somebody has tidied up begins anew.
    assert_eq!(rows(&db, "notes").await, 1);
    assert!(db.redrive(id).await);
    let fourth = db.claim_one().await;
    assert_eq!(checkpoint(&db, &fourth).await, None);
    note(&db, &fourth, saved(b"four")).await;
    db.complete(fourth).await;
    db.store().note(&[], &[id]).await.expect("tidying up");
    assert_eq!(rows(&db, "notes").await, 0);
}

#[tokio::test]
async fn a_lost_lease_leaves_nothing_behind() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let stale = db.enqueue_and_claim("echo").await;
    db.expire_lease(stale.id).await;
    db.reap().await;
    let everything = || Noted {
        progress: Some(Progress { fraction: 0.5, message: "half".into() }),
        log: Some(LogChunk { number: 0, rows: "\u{1e}0 0 info\u{1f}late\n".into(), dropped: (0, 0) }),
        ..saved(b"late")
    };
    note(&db, &stale, everything()).await;
    assert_eq!((rows(&db, "notes").await, rows(&db, "live_logs").await), (0, 0), "queued again");
    let fresh = db.claim_one().await;
    note(&db, &fresh, saved(b"fresh")).await;
    note(&db, &stale, everything()).await;
    assert_eq!(checkpoint(&db, &fresh).await.as_deref(), Some(&b"fresh"[..]));
    assert_eq!(checkpoint(&db, &stale).await, None, "nor is it told anything");
    assert_eq!(rows(&db, "job_logs").await, 0);
}

#[tokio::test]
async fn what_dead_workers_left_behind_is_dropped_within_the_hour() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let log = LogChunk { number: 0, rows: "\u{1e}0 0 info\u{1f}line\n".into(), dropped: (0, 0) };
    let job = db.enqueue_and_claim("echo").await;
    note(&db, &job, Noted { log: Some(log), ..saved(b"one") }).await;
    db.store().drop_unused().await.expect("dropping");
    assert_eq!((rows(&db, "notes").await, rows(&db, "live_logs").await), (1, 1), "it runs");
    db.complete(job).await;
    db.store().drop_unused().await.expect("dropping");
    assert_eq!((rows(&db, "notes").await, rows(&db, "live_logs").await), (0, 0));
}

#[tokio::test]
async fn a_job_goes_on_from_its_checkpoint_and_costs_nothing_after() {
    let db = TestDb::new().await;
    db.push_wat("resumes").await;
    let worker = db.worker();
    let id = db.enqueue("'resumes', '\"from here\"'").await;
    let job = db.wait_for(id, "done").await;
    assert_eq!((job.result, job.attempt), (Some(json!("from here")), 2));
    db.wait_until("its checkpoint is dropped", "not exists (select from leasehold.notes)").await;
    worker.drain().await;
}

#[tokio::test]
async fn a_checkpoint_larger_than_its_grant_is_refused_with_both_numbers() {
    let db = TestDb::new().await;
    let grants = Grants { checkpoint_bytes: 5, ..Grants::default() };
    let none = Grants { checkpoint_bytes: 0, ..Grants::default() };
    let bytes = core("resumes");
    db.push(Upload { grants: &grants, ..Upload::component("little", &bytes) }).await;
    db.push(Upload { grants: &none, ..Upload::component("none", &bytes) }).await;
    let worker = db.worker();
    for (module, says) in [
        ("little", "checkpoint of 6 bytes exceeds the limit of 5 bytes; save less or raise --checkpoint"),
        ("none", "this module may keep no checkpoint; it is granted at upload: module push --checkpoint SIZE"),
    ] {
        let id = db.enqueue(&format!("'{module}', '\"many\"'")).await;
        assert_eq!(db.wait_for(id, "done").await.result, Some(json!(says)));
    }
    worker.drain().await;
}

/// A run that has saved, shown its progress and logged a line, and goes on.
async fn going_on(db: &TestDb) -> JobId {
    let id = db.enqueue("'saves_and_spins'").await;
    db.wait_until(
        "it has left everything behind",
        &format!(
            "exists (select from leasehold.jobs j join leasehold.job_logs l on l.job_id = j.id join leasehold.notes n on n.job_id = j.id
                      where j.id = {id} and j.progress = 0.5 and n.checkpoint is not null)"
        ),
    )
    .await;
    id
}

#[tokio::test]
async fn a_killed_workers_job_goes_on_from_its_checkpoint_and_keeps_its_log() {
    let db = TestDb::new().await;
    db.push(Upload { limits: PATIENT, ..Upload::component("saves_and_spins", &core("saves_and_spins")) }).await;
    let mut doomed = db.worker_process(&["--lease", "1s"]).await;
    let id = going_on(&db).await;
    doomed.kill_9().await;
    let heir = db.worker();
    let job = db.wait_for(id, "done").await;
    assert_eq!(job.result, Some(json!("saved")));
    let attempts = db.attempts(id).await;
    assert_eq!((attempts[0].outcome.as_str(), attempts[0].log.as_deref()), ("crash", Some("[warn] half done\n")));
    heir.drain().await;
}

#[tokio::test]
async fn progress_and_log_are_seen_while_it_runs_and_progress_answers_a_cancel() {
    let db = TestDb::new().await;
    db.push(Upload { limits: PATIENT, ..Upload::component("saves_and_spins", &core("saves_and_spins")) }).await;
    let worker = db.worker_with(WorkerConfig { cancel_grace: Duration::from_secs(3600), ..quick() });
    let id = going_on(&db).await;
    let shown = binary::run(db.url(), &["job", "show", &id.to_string()]).await.ok().stdout;
    assert!(shown.contains("progress      50 % half done\n"), "{shown}");
    let logs = binary::run(db.url(), &["job", "logs", &id.to_string()]).await.ok().stdout;
    assert!(logs.starts_with("attempt 1, lease 1\n") && logs.ends_with(" s  warn    half done\n"), "{logs}");
    let (url, of) = (db.url().to_owned(), id.to_string());
    let followed = tokio::spawn(async move { binary::run(&url, &["job", "logs", "-f", &of, "--json"]).await.ok() });

    db.cancel(id).await;
    db.wait_for(id, "cancelled").await;
    let lines: Vec<serde_json::Value> =
        followed.await.expect("it ends").stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 1, "a line is shown once: {lines:?}");
    assert_eq!((&lines[0]["level"], &lines[0]["text"]), (&json!("warn"), &json!("half done")));
    let progress: Option<f32> = db.value(&format!("select progress from leasehold.jobs where id = {id}")).await;
    assert_eq!(progress, None, "of a run that is over");
    db.wait_until(
        "everything is tidied up",
        "not exists (select from leasehold.notes) and not exists (select from leasehold.live_logs)",
    )
    .await;
    worker.drain().await;
}

#[tokio::test]
async fn an_attempts_log_is_rows_with_streams_and_levels() {
    let db = TestDb::new().await;
    db.push_wat("says").await;
    let worker = db.worker();
    let id = db.enqueue("'says'").await;
    db.wait_for(id, "done").await;
    let rows: Vec<String> = db
        .column(&format!(
            "select concat_ws('|', attempt, line, stream, level, text, at between now() - interval '1 minute' and now())
               from leasehold.job_logs where job_id = {id} order by line"
        ))
        .await;
    assert_eq!(rows, ["1|0|stdout|to stdout|t", "1|1|log|warn|to the log|t", "1|2|stderr|to stderr|t"]);
    assert_eq!(db.attempts(id).await[0].log.as_deref(), Some("to stdout\n[warn] to the log\nto stderr\n"));
    worker.drain().await;
}

/// Takes seconds, since a log is passed on once a second.
#[tokio::test]
async fn a_log_without_end_takes_bounded_room_and_does_not_end_the_run() {
    let db = TestDb::new().await;
    let limits = Limits { log_bytes: 16 << 10, ..PATIENT };
    db.push(Upload { limits, ..Upload::component("log_forever", &core("log_forever")) }).await;
    let worker = db.worker();
    let id = db.enqueue("'log_forever'").await;
    db.wait_until("chunks have come", "exists (select from leasehold.live_logs where chunk_no >= 1)").await;
    let bytes: i64 = db.value("select sum(octet_length(rows)) from leasehold.live_logs").await;
    // Twice the limit, and each NUL that the guest logs is three bytes of text.
    assert!(bytes <= 6 * (16 << 10), "{bytes} bytes");
    db.cancel(id).await;
    db.wait_for(id, "cancelled").await;
    let dropped: i64 =
        db.value(&format!("select count(*) from leasehold.job_logs where job_id = {id} and stream = 'dropped'")).await;
    assert_eq!(dropped, 1, "the gap is named");
    worker.drain().await;
}
