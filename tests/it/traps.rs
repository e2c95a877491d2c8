//! The trap table, row by row, through a real worker and read back from the database: what became of the job, of which kind
//! the failure is, and whether its message has the numbers that would have sufficed.

use std::time::Duration;

use leasehold::job::{JobId, Limits};
use leasehold::outcome::{FailureKind, OnFailure};
use leasehold_tests::guests::{self, LIMITS, command, core};
use leasehold_tests::{TestDb, Upload};

/// A module, what its run comes to, and what the message must say.
struct Row {
    name: &'static str,
    bytes: Vec<u8>,
    is_command: bool,
    limits: Limits,
    payload: &'static str,
    state: &'static str,
    kind: Option<&'static str>,
    says: &'static [&'static str],
}

/// A component of tests/wat.
fn guest(name: &'static str, state: &'static str, kind: Option<&'static str>, says: &'static [&'static str]) -> Row {
    let (bytes, limits) = (core(name), LIMITS);
    Row { name, bytes, is_command: false, limits, payload: "'{}'", state, kind, says }
}

/// A WASI program.
fn program(
    name: &'static str,
    start: &str,
    state: &'static str,
    kind: Option<&'static str>,
    says: &'static [&'static str],
) -> Row {
    let limits = Limits { memory_bytes: 64 << 20, ..LIMITS };
    Row { bytes: command(start), is_command: true, limits, ..guest_named(name, state, kind, says) }
}

fn guest_named(
    name: &'static str,
    state: &'static str,
    kind: Option<&'static str>,
    says: &'static [&'static str],
) -> Row {
    Row { name, bytes: Vec::new(), is_command: false, limits: LIMITS, payload: "'{}'", state, kind, says }
}

/// Prints a line to stderr and exits.
fn exit(code: i32) -> String {
    format!("(call $print (i32.const 2) (i32.const 2048) (i32.const 21)) (call $exit (i32.const {code}))")
}

fn table() -> Vec<Row> {
    let little_fuel = Limits { fuel: 1_000_000, ..LIMITS };
    let little_time = Limits { timeout: Duration::from_millis(60), fuel: Limits::MAX_FUEL, ..LIMITS };
    vec![
        guest("echo", "done", None, &[]),
        program("exit_0", &exit(0), "done", None, &[]),
        program("cat", "(call $cat)", "done", None, &[]),
        guest("retry", "queued", Some("guest_retry"), &["no luck yet"]),
        guest("retry_when_you_like", "queued", Some("guest_retry"), &["no luck yet"]),
        program("exit_75", &exit(75), "queued", Some("exit"), &["last line (exit code 75)"]),
        program("exit_3", &exit(3), "queued", Some("exit"), &["last line (exit code 3)"]),
        program("exit_65", &exit(65), "dead", Some("guest_dead"), &["last line (exit code 65)"]),
        guest("dead", "dead", Some("guest_dead"), &["bad\u{FFFD}input\u{FFFD}[31m"]),
        guest("snooze", "queued", None, &[]),
        guest("unreachable", "queued", Some("trap"), &["panicked at src/lib.rs:7:5", "boom"]),
        guest("out_of_bounds", "queued", Some("trap"), &["out of bounds"]),
        guest("divide_by_zero", "queued", Some("trap"), &["divide by zero"]),
        guest("null_call", "queued", Some("trap"), &[]),
        guest("shadow_stack", "queued", Some("trap"), &["out of bounds", "recurs"]),
        program("program_traps", "unreachable", "queued", Some("trap"), &[]),
        Row { limits: little_fuel, ..guest("spin", "dead", Some("fuel"), &["1000000 instructions"]) },
        guest("grow_forever", "dead", Some("memory"), &["4194304 bytes", "wanted 4194312 bytes"]),
        guest("recursion", "dead", Some("stack"), &["524288 bytes"]),
        Row {
            payload: "'\\x01000100'::bytea",
            ..guest("result_of", "dead", Some("output"), &["65537 bytes", "65536 bytes"])
        },
        Row { limits: little_time, ..guest("spin_in_host_calls", "queued", Some("timeout"), &["60 ms"]) },
        Row { limits: little_time, ..guest("sleep", "queued", Some("timeout"), &["60 ms"]) },
        Row { limits: little_time, ..guest("spin_at_start", "queued", Some("timeout"), &["60 ms"]) },
        guest("bad_pointer", "dead", Some("abi"), &[]),
        guest("bad_discriminant", "dead", Some("abi"), &[]),
        // Not as an upload would let it through.
        Row { bytes: b"#!/bin/sh".to_vec(), ..guest_named("not_wasm", "dead", Some("link"), &["not wasm"]) },
        Row {
            bytes: wat("(module (import \"env\" \"launch\" (func)) (func (export \"_start\")))"),
            is_command: true,
            ..guest_named("imports_what_is_not_there", "dead", Some("link"), &["env", "launch"])
        },
    ]
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("it is WAT")
}

async fn push(db: &TestDb, row: &Row, on_failure: &[(FailureKind, OnFailure)]) {
    let upload =
        if row.is_command { Upload::command(row.name, &row.bytes) } else { Upload::component(row.name, &row.bytes) };
    db.push(Upload { limits: row.limits, on_failure, ..upload }).await;
}

/// Each row's job, with a backoff that ends after the test.
async fn enqueue(db: &TestDb, rows: &[Row]) -> Vec<JobId> {
    let mut ids = Vec::new();
    for row in rows {
        ids.push(db.enqueue(&format!("'{}', {}, backoff => '1 hour'", row.name, row.payload)).await);
    }
    ids
}

async fn wait_for_one_run_each(db: &TestDb) {
    db.wait_until("each has run", "not exists (select from leasehold.live_jobs where running or lease_no = 0)").await;
}

#[tokio::test]
async fn each_way_to_end_has_its_state_its_kind_and_its_numbers() {
    let db = TestDb::new().await;
    let rows = table();
    for row in &rows {
        push(&db, row, &[]).await;
    }
    let worker = db.worker();
    let ids = enqueue(&db, &rows).await;
    wait_for_one_run_each(&db).await;
    worker.drain().await;
    for (row, id) in rows.iter().zip(ids) {
        let (name, job, attempts) = (row.name, db.job(id).await, db.attempts(id).await);
        assert_eq!((job.state.as_str(), job.failure_kind.as_deref()), (row.state, row.kind), "{name}: {job:#?}");
        let Some(kind) = row.kind else {
            assert_eq!(job.attempt, i32::from(name != "snooze"), "{name}");
            continue;
        };
        assert_eq!((job.attempt, job.lease_no, job.crash_count), (1, 1, 0), "{name}");
        let message = job.error.expect("a failure has a message");
        for text in row.says {
            assert!(message.contains(text), "{name}: {message:?} does not say {text:?}");
        }
        let [attempt] = &attempts[..] else { panic!("{name}: {attempts:#?}") };
        assert_eq!(attempt.outcome, if row.state == "dead" { "dead" } else { "fail" }, "{name}");
        assert_eq!((attempt.failure_kind.as_deref(), attempt.message.as_ref()), (Some(kind), Some(&message)), "{name}");
        if matches!(kind, "trap" | "fuel" | "stack") {
            assert!(
                attempt
                    .backtrace
                    .as_ref()
                    .is_some_and(|text| text.contains("run") || text.contains("_start") || !text.is_empty()),
                "{name}: {attempt:#?}"
            );
        }
    }
}

#[tokio::test]
async fn a_delay_that_the_guest_asks_for_is_kept_and_the_policy_decides_otherwise() {
    let db = TestDb::new().await;
    for name in ["retry", "retry_when_you_like", "snooze"] {
        db.push_wat(name).await;
    }
    let worker = db.worker();
    let asked = db.enqueue("'retry', backoff => '1 hour', max_attempts => 2").await;
    let policy = db.enqueue("'retry_when_you_like', backoff => '1 hour'").await;
    let default = db.enqueue("'retry_when_you_like'").await;
    let snoozing = db.enqueue("'snooze'").await;
    wait_for_one_run_each(&db).await;
    let due = async |id| db.job(id).await.due_in_ms;
    let hour_ms = 3_600_000.0;
    assert!((0.8 * hour_ms - 60_000.0..=1.2 * hour_ms).contains(&due(policy).await), "an hour, and a fifth either way");
    assert!(due(default).await <= 6_000.0, "5 s, and a fifth either way");
    assert!((1.0..=60_000.0).contains(&due(snoozing).await), "a minute");
    // The guest's 1.5 s, where the policy would have said an hour.
    let job = db.wait_for(asked, "dead").await;
    assert_eq!((job.attempt, job.lease_no), (2, 2));
    worker.drain().await;
}

#[tokio::test]
async fn a_module_can_say_what_its_failures_do_to_a_job() {
    let db = TestDb::new().await;
    // Each kind once, turned to the end that the table does not give it.
    let rows: Vec<Row> = table()
        .into_iter()
        .filter(|row| {
            [
                "retry",
                "exit_3",
                "exit_65",
                "dead",
                "unreachable",
                "spin",
                "grow_forever",
                "recursion",
                "result_of",
                "sleep",
                "bad_pointer",
                "not_wasm",
            ]
            .contains(&row.name)
        })
        .collect();
    let mut kinds = Vec::new();
    for row in &rows {
        let kind: FailureKind = row.kind.expect("they fail").parse().expect("a kind");
        let turned = match kind.default_on_failure() {
            OnFailure::Fail => OnFailure::Dead,
            OnFailure::Dead => OnFailure::Fail,
        };
        push(&db, row, &[(kind, turned)]).await;
        kinds.push(kind);
    }
    let overridable = FailureKind::ALL.into_iter().filter(|kind| kind.overridable());
    assert_eq!(overridable.filter(|kind| !kinds.contains(kind)).collect::<Vec<_>>(), [], "each kind has its row");
    let worker = db.worker();
    let ids = enqueue(&db, &rows).await;
    wait_for_one_run_each(&db).await;
    worker.drain().await;
    for (row, id) in rows.iter().zip(ids) {
        let job = db.job(id).await;
        let turned = if row.state == "dead" { "queued" } else { "dead" };
        assert_eq!((job.state.as_str(), job.failure_kind.as_deref()), (turned, row.kind), "{}", row.name);
    }
}

#[tokio::test]
async fn a_fault_of_the_worker_costs_no_attempt_and_three_bury_the_job() {
    let db = TestDb::new().await;
    // The module may hold more than the worker has.
    let limits = Limits { memory_bytes: 256 << 20, ..LIMITS };
    db.push(Upload { limits, ..Upload::component("grow_forever", &core("grow_forever")) }).await;
    let worker = db.worker();
    let id = db.enqueue("'grow_forever', max_attempts => 5").await;
    let job = db.wait_for(id, "dead").await;
    worker.drain().await;
    assert_eq!((job.failure_kind.as_deref(), job.crash_count, job.lease_no), (Some("host"), 3, 3));
    assert!(job.error.is_some_and(|error| error.ends_with("(crash number 3, the limit)")));
    let attempts = db.attempts(id).await;
    let outcomes: Vec<_> = attempts.iter().map(|attempt| (attempt.attempt, attempt.outcome.as_str())).collect();
    assert_eq!(outcomes, [(1, "release"), (1, "release"), (1, "dead")]);
}

#[tokio::test]
async fn a_module_whose_bytes_are_gone_or_changed_is_the_hosts_fault() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    db.sql("alter table leasehold.module_bytes drop constraint module_bytes_digest_is_their_sha256").await;
    db.sql("update leasehold.module_bytes set bytes = 'something else'").await;
    let worker = db.worker();
    let id = db.enqueue("'echo'").await;
    let job = db.wait_for(id, "dead").await;
    worker.drain().await;
    assert_eq!(job.failure_kind.as_deref(), Some("host"));
    assert!(
        job.error.as_ref().is_some_and(|error| error.contains("digest") && error.contains("upload it again")),
        "{job:?}"
    );
}

#[tokio::test]
async fn a_run_leaves_its_usage_and_its_log() {
    let db = TestDb::new().await;
    db.push_wat("says").await;
    db.push_wat("log_flood").await;
    let worker = db.worker();
    let [says, flood] = [db.enqueue("'says', '\"x\"'").await, db.enqueue("'log_flood', '\"x\"'").await];
    for id in [says, flood] {
        let job = db.wait_for(id, "done").await;
        let usage = job.usage.expect("a run has usage");
        for part in ["fuel", "wall_ms", "cpu_ms", "memory_peak_bytes"] {
            assert!(usage[part].as_f64().is_some_and(|used| used > 0.0), "{part} in {usage}");
        }
        assert_eq!(usage["result_bytes"], 3);
    }
    worker.drain().await;
    let attempt = &db.attempts(says).await[0];
    assert_eq!((attempt.outcome.as_str(), attempt.log_dropped_bytes), ("done", 0));
    assert_eq!(attempt.log.as_deref(), Some("to stdout\n[warn] to the log\nto stderr\n"));
    let attempt = &db.attempts(flood).await[0];
    // Head and tail are as long as the limit together, which counts 16 bytes a line besides; between them stands what is missing.
    let (log, limit) = (attempt.log.as_deref().expect("a log"), usize::try_from(LIMITS.log_bytes).expect("small"));
    assert!(log.contains("bytes dropped") && (limit * 3 / 4..limit + 100).contains(&log.len()), "{} bytes", log.len());
    assert!(attempt.log_dropped_bytes > 2_000_000, "{}", attempt.log_dropped_bytes);
}

#[tokio::test]
async fn a_jobs_own_timeout_goes_before_the_modules() {
    let db = TestDb::new().await;
    db.push_wat("spin").await;
    let worker = db.worker();
    let id = db.enqueue("'spin', timeout => '70 ms', max_attempts => 1").await;
    let job = db.wait_for(id, "dead").await;
    assert_eq!(job.failure_kind.as_deref(), Some("timeout"));
    assert!(job.error.as_ref().is_some_and(|error| error.contains("70 ms")), "{job:?}");
    worker.drain().await;
}

#[tokio::test]
async fn each_attempt_is_told_its_number() {
    let db = TestDb::new().await;
    // Fails on attempts 1 and 2, then returns its number.
    let third = "(data (i32.const 3000) \"not yet\")
        (func $run (param i32 i32) (result i32)
          (if (i32.lt_u (global.get $attempt) (i32.const 3)) (then (return (call $retry (i32.const 3000) (i32.const 7) (i64.const 0)))))
          (i32.store8 (i32.const 2048) (i32.add (global.get $attempt) (i32.const 48)))
          (call $ok (i32.const 2048) (i32.const 1)))";
    db.push(Upload::component("third", &guests::core_from(third))).await;
    let worker = db.worker();
    let id = db.enqueue("'third'").await;
    let job = db.wait_for(id, "done").await;
    assert_eq!((job.attempt, job.result_bytes.as_deref()), (3, Some(b"3".as_slice())));
    assert_eq!(db.attempts(id).await.len(), 2);
    worker.drain().await;
}
