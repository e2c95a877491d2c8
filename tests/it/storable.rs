//! Whatever bytes a guest leaves behind, the write that records them works; and one row that cannot be written keeps no other.

use std::time::Duration;

use leasehold::job::Limits;
use leasehold::outcome::{Failure, FailureKind, Log, LogStream};
use leasehold::settlement::{Settled, Settlement};
use leasehold_tests::guests::{LIMITS, command, core, core_from};
use leasehold_tests::scenario::{eventually, report, trap};
use leasehold_tests::{TestDb, Upload};
use serde_json::{Value, json};

/// Bytes that neither text nor JSON can hold.
const NASTY: &[u8] = b"\0\xff\xfe{\"a\": \"\\u0000\"}\xed\xa0\x80\x1b[31m";

#[tokio::test]
async fn results_logs_and_messages_of_any_bytes_are_kept() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db.enqueue_many("echo", 4).await;
    let jobs = db.claim(4).await;
    let log = Log {
        dropped_bytes: 7,
        dropped_at: 1,
        ..Log::of(LogStream::Stdout, &[NASTY, b"\x1e1 1 info\x1f\n", NASTY].concat())
    };
    let nasty_text = "nul \0, escape \u{1b}[31m, noncharacter \u{ffff}, ".to_owned() + &"x".repeat(100_000);
    let failure =
        Failure { kind: FailureKind::Trap, message: nasty_text.clone(), backtrace: Some(nasty_text), delay: None };
    let settlements = [
        Settlement::Complete { result: NASTY.to_vec() },
        Settlement::Fail { failure: failure.clone(), delay: Duration::from_secs(3600) },
        Settlement::Bury { failure: failure.clone() },
        Settlement::Release { fault: Some(failure), delay: Duration::from_secs(3600) },
    ];
    let reports = jobs.iter().zip(settlements).map(|(job, settlement)| {
        let mut nasty = report(job, settlement);
        nasty.log = log.clone();
        nasty
    });
    assert_eq!(db.settle_all(reports.collect()).await, [Settled::Yes; 4]);
    for (job, state) in jobs.iter().zip(["done", "queued", "dead", "queued"]) {
        let (shown, attempts) = (db.job(job.id).await, db.attempts(job.id).await);
        assert_eq!(shown.state, state);
        let [attempt] = &attempts[..] else { panic!("{attempts:?}") };
        assert_eq!(
            (attempt.log.as_deref(), attempt.log_dropped_bytes),
            (Some(log.to_text().as_str()), 7),
            "{state}: what can be stored of the guest's bytes"
        );
        if state == "done" {
            assert_eq!((shown.result_bytes.as_deref(), shown.result), (Some(NASTY), None));
        } else {
            let message = attempt.message.as_ref().expect("a message");
            assert!(
                message.starts_with("nul \u{FFFD}, escape \u{FFFD}[31m, noncharacter \u{ffff}, xxx"),
                "{message:.60}"
            );
            assert!(message.ends_with(" bytes more]") && message.len() < 10_000, "cut, and it says so");
            assert!(attempt.backtrace.is_none() || attempt.backtrace.as_ref().is_some_and(|text| text.len() < 20_000));
        }
    }
    // And everybody who looks at them gets an answer.
    for job in &jobs {
        let shown = leasehold_tests::binary::run(db.url(), &["job", "show", &job.id.to_string()]).await.ok();
        assert!(!shown.stdout.contains('\0'));
        leasehold_tests::binary::run(db.url(), &["job", "show", &job.id.to_string(), "--json"]).await.json();
    }
    leasehold_tests::binary::run(db.url(), &["job", "list"]).await.ok();
}

#[tokio::test]
async fn a_terminal_is_never_sent_what_a_guest_wrote_for_it() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let job = db.enqueue_and_claim("echo").await;
    let id = job.id.to_string();
    let mut nasty = report(&job, Settlement::Bury { failure: trap("\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m") });
    nasty.log = Log::of(LogStream::Stderr, b"\x1b[31mred\x07\n");
    db.settle_all(vec![nasty]).await;
    for args in [&["job", "show", &id][..], &["job", "list"]] {
        let shown = leasehold_tests::binary::run(db.url(), args).await.ok().stdout;
        let controls: Vec<char> = shown.chars().filter(|c| c.is_control() && *c != '\n' && *c != '\t').collect();
        assert_eq!(controls, ['\0'; 0], "{args:?}: {shown:?}");
    }
}

#[tokio::test]
async fn a_result_shows_as_json_where_it_is_json_and_as_text_where_it_is_text() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases: Vec<(&[u8], Option<Value>)> = vec![
        (b"{\"a\": [1, 2.50]}", Some(json!({ "a": [1, 2.50] }))),
        (b" null ", Some(Value::Null)),
        (b"", Some(json!(""))),
        (b"plain text", Some(json!("plain text"))),
        (b"{\"a\": 1", Some(json!("{\"a\": 1"))),
        (b"\"\\u0000\"", Some(json!("\"\\u0000\""))),
        ("\"gr\u{fc}n\"".as_bytes(), Some(json!("gr\u{fc}n"))),
        (b"\xff", None),
        (b"a\0b", None),
        (deep.as_bytes(), Some(json!(deep))),
        (b"1e300", None),
        (b"1e999999999", Some(json!("1e999999999"))),
    ];
    for (result, shown) in cases {
        let job = db.enqueue_and_claim("echo").await;
        assert_eq!(db.settle(&job, Settlement::Complete { result: result.to_vec() }).await, Settled::Yes);
        let job = db.job(job.id).await;
        assert_eq!(job.result_bytes.as_deref(), Some(result));
        if result == b"1e300" {
            assert!(job.result.is_some_and(|value| value.is_number()));
        } else {
            assert_eq!(job.result, shown, "{}", String::from_utf8_lossy(&result[..result.len().min(40)]));
        }
    }
}

#[tokio::test]
async fn a_result_of_huge_numbers_does_not_blow_up_for_whoever_looks() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    // 100 KB as the guest wrote it, 1.3 GB as the numbers' digits.
    let huge = format!("[{}]", vec!["1e131071"; 10_000].join(","));
    let tiny = format!("[{}]", vec!["1e-16383"; 10_000].join(","));
    // Shorter exponents, more of them: fifty times as many would be more than the server can send.
    let many = format!("[{}]", vec!["1e99"; 200_000].join(","));
    for result in [huge, tiny, many] {
        let job = db.enqueue_and_claim("echo").await;
        assert_eq!(db.settle(&job, Settlement::Complete { result: result.clone().into_bytes() }).await, Settled::Yes);
        assert_eq!(db.job(job.id).await.result, Some(json!(result)), "as text");
    }
    assert_eq!(
        leasehold_tests::binary::run(db.url(), &["job", "list", "--json"]).await.json().as_array().map(Vec::len),
        Some(3)
    );
}

#[tokio::test]
async fn a_real_guests_nul_and_broken_utf8_end_in_a_settled_job() {
    let db = TestDb::new().await;
    db.push_wat("bad_utf8").await; // logs broken bytes
    db.push_wat("dead").await; // a NUL and an escape in its message
    let stderr = "(i32.store8 (i32.const 3000) (i32.const 0)) (i32.store8 (i32.const 3001) (i32.const 255))
        (call $print (i32.const 1) (i32.const 3000) (i32.const 2))
        (call $print (i32.const 2) (i32.const 3000) (i32.const 2)) (call $exit (i32.const 65))";
    let broken = command(stderr);
    db.push(Upload::command("broken", &broken)).await;
    let raw = core_from(
        "(data (i32.const 2048) \"\\00\\ff\\fe\")
         (func $run (param i32 i32) (result i32) (call $ok (i32.const 2048) (i32.const 3)))",
    );
    db.push(Upload::component("raw", &raw)).await;
    let worker = db.worker();
    let mut ids = Vec::new();
    for (module, state) in [("bad_utf8", None), ("dead", Some("dead")), ("broken", Some("dead")), ("raw", Some("done"))]
    {
        ids.push((module, state, db.enqueue(&format!("'{module}', max_attempts => 1")).await));
    }
    db.wait_until("all have ended", "not exists (select from leasehold.live_jobs)").await;
    for (module, state, id) in ids {
        let job = db.job(id).await;
        assert!(state.is_none_or(|state| job.state == state), "{module}: {job:?}");
        assert_eq!(job.crash_count, 0, "{module}: {job:?}");
        if module == "raw" {
            assert_eq!(job.result_bytes.as_deref(), Some(b"\0\xff\xfe".as_slice()));
        }
    }
    worker.drain().await;
}

/// Makes the database refuse a job at its end, as a full disk or a broken index would, but for this one alone.
async fn refuse_end_of(db: &TestDb, id: leasehold::job::JobId) {
    db.sql(&format!(
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'history refuses job {id}'; end $$;
         create trigger refuse before insert on leasehold.history for each row when (new.id = {id}) execute function refuse()"
    ))
    .await;
}

/// Without touching the trigger: that would wait for whatever a worker writes meanwhile, and may deadlock with it.
async fn refuse_no_more(db: &TestDb) {
    db.sql("create or replace function refuse() returns trigger language plpgsql as $$ begin return new; end $$").await;
}

#[tokio::test]
async fn one_row_that_cannot_be_written_keeps_no_other() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let ids = db.enqueue_many("echo", 300).await;
    let poison = ids[137];
    refuse_end_of(&db, poison).await;
    let worker = db.worker();
    db.wait_until("all others are done", "(select count(*) from leasehold.history) >= 299").await;
    let job = db.wait_for(poison, "queued").await;
    assert_eq!((job.attempt, job.failure_kind.as_deref()), (0, Some("host")));
    assert!(job.error.as_ref().is_some_and(|error| error.contains("history refuses job")), "{job:?}");
    // Once the database takes it, it is done like any other.
    refuse_no_more(&db).await;
    db.wait_for(poison, "done").await;
    worker.drain().await;
}

#[tokio::test]
async fn a_job_that_cannot_be_settled_at_all_is_not_left_running_for_ever() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let id = db.enqueue("'echo'").await;
    // Neither its end nor its release can be written.
    db.sql(&format!(
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'job {id} is refused'; end $$;
         create trigger refuse before insert on leasehold.history for each row execute function refuse();
         create trigger refuse before insert on leasehold.attempts for each row execute function refuse()"
    ))
    .await;
    let config = leasehold::worker::WorkerConfig { lease: Duration::from_secs(2), ..leasehold_tests::workers::quick() };
    let worker = db.worker_with(config);
    eventually("it has run", || worker.finished() == 1).await;
    db.wait_until("its lease has run out", "not exists (select from leasehold.claims where locked_until > clock_timestamp() and locked_until < clock_timestamp() + interval '3 s')").await;
    refuse_no_more(&db).await;
    // The reaper may have met the refusal too and look again in a minute; that minute is over.
    db.sql("update leasehold.claims set locked_until = clock_timestamp() - interval '1 s' where locked_until > clock_timestamp() + interval '5 s'").await;
    let job = db.wait_for(id, "done").await;
    assert_eq!(job.crash_count, 1, "reaped once");
    worker.drain().await;
}

#[tokio::test]
async fn one_job_that_cannot_be_reaped_keeps_no_other() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    // Two claims of two jobs each.
    let (first, second) = (db.enqueue_many("echo", 2).await, db.enqueue_many("echo", 2).await);
    assert_eq!((db.claim(2).await.len(), db.claim(2).await.len()), (2, 2));
    let poison = first[0];
    refuse_end_of(&db, poison).await;
    db.sql(&format!("update leasehold.live_jobs set crash_count = 2 where id = {poison}")).await;
    db.expire_lease(first[0]).await;
    db.expire_lease(second[0]).await;
    let reaped: Vec<_> = db.reap().await.into_iter().map(|job| job.job_id).collect();
    assert_eq!(reaped, [first[1], second[0], second[1]]);
    assert_eq!(db.state(poison).await, "running", "as it was");
    assert!(db.reap().await.is_empty(), "and it is not tried again at once");
    refuse_no_more(&db).await;
    db.expire_lease(poison).await;
    assert_eq!(db.reap().await.len(), 1);
    assert_eq!(db.state(poison).await, "dead");
}

#[tokio::test]
async fn forty_results_of_a_mebibyte_are_all_kept_and_no_statement_carries_them_all() {
    let db = TestDb::new().await;
    let limits = Limits { memory_bytes: 8 << 20, result_bytes: 1 << 20, ..LIMITS };
    db.push(Upload { limits, ..Upload::component("result_of", &core("result_of")) }).await;
    db.sql(
        "create table batches (results bigint, bytes bigint);
         create function measure() returns trigger language plpgsql as $$
         begin insert into public.batches select count(*), sum(octet_length(result)) from ended; return null; end $$;
         create trigger measure after insert on leasehold.history referencing new table as ended for each statement execute function measure()",
    )
    .await;
    // While the first of them waits for this lock, the others pile up behind it.
    let mut other = db.connect().await;
    let lock = other.transaction().await.expect("a transaction");
    lock.batch_execute("lock table leasehold.history in share row exclusive mode").await.expect("a lock");
    // 1 MiB, little-endian.
    db.sql("select leasehold.enqueue('result_of', '\\x00001000'::bytea) from generate_series(1, 40)").await;
    let worker = db.worker();
    eventually("all have run", || worker.finished() == 40).await;
    lock.rollback().await.expect("it ends");
    db.wait_until("all are done", "(select count(*) from leasehold.history where state = 'done') = 40").await;
    worker.drain().await;
    let sizes: Vec<i32> = db.column("select distinct octet_length(result) from leasehold.history").await;
    assert_eq!(sizes, [1 << 20]);
    assert_eq!(
        db.value::<i64>("select count(*) from leasehold.history where attempt <> 1 or crash_count > 0").await,
        0
    );
    let batches: Vec<i64> = db.column("select results from batches where results > 0 order by 1 desc").await;
    assert!(
        batches[0] <= 16 && batches[0] > 1,
        "16 MiB a statement, and no more statements than that takes: {batches:?}"
    );
}

#[tokio::test]
async fn a_guest_cannot_put_a_job_off_for_longer_than_a_year() {
    let db = TestDb::new().await;
    let never = core_from("(func $run (param i32 i32) (result i32) (call $snooze (i64.const -1)))");
    let later = core_from(
        "(data (i32.const 2048) \"later\") (func $run (param i32 i32) (result i32) (call $retry (i32.const 2048) (i32.const 5) (i64.const -2)))",
    );
    db.push(Upload::component("never", &never)).await;
    db.push(Upload::component("later", &later)).await;
    let worker = db.worker();
    for id in [db.enqueue("'never'").await, db.enqueue("'later'").await] {
        db.wait_until(
            "it has run",
            &format!("exists (select from leasehold.live_jobs where id = {id} and not running and lease_no = 1)"),
        )
        .await;
        let days = db.job(id).await.due_in_ms / 86_400_000.0;
        assert!((364.0..=365.0).contains(&days), "due in {days} days");
    }
    worker.drain().await;
}
