//! The command line as scripts and people meet it: the shapes of --json, the exit codes, and errors that say what to do.

use leasehold_tests::binary::{Answer, Files, run, run_with_input};
use leasehold_tests::guests::{command, core};
use leasehold_tests::scenario::digest;
use leasehold_tests::{TestDb, Upload};
use serde_json::{Value, json};

/// The keys of a JSON object, in order of the alphabet.
#[track_caller]
fn keys(value: &Value) -> String {
    let mut keys: Vec<_> = value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().cloned().collect();
    keys.sort();
    keys.join(" ")
}

#[track_caller]
fn fails_with(answer: &Answer, code: i32, says: &[&str]) {
    assert_eq!(answer.code, code, "{answer:#?}");
    assert_eq!(answer.stdout, "", "errors go to standard error");
    for text in says {
        assert!(answer.stderr.contains(text), "it does not say {text:?}: {}", answer.stderr);
    }
}

const JOB: &str = "attempt attempts cancel_requested crash_count enqueued_at error expires_at failure_kind finished_at id lease_no \
                   locked_until max_attempts module options payload priority queue result run_at started_at state tenant usage version \
                   waiting worker_id";
const JOB_IN_LIST: &str = "attempt enqueued_at error expires_at failure_kind finished_at id max_attempts module options priority \
                           queue result run_at started_at state tenant usage version waiting";

#[tokio::test]
async fn from_an_empty_database_to_a_result() {
    let db = TestDb::empty().await;
    let files = Files::new();
    let wasm = files.write("says.wasm", &core("says"));
    run(db.url(), &["migrate"]).await.ok();
    run(db.url(), &["module", "push", "says", &wasm]).await.ok();
    let id = run(db.url(), &["enqueue", "says", "--payload", "{\"a\": [1, 2]}"]).await.ok().stdout;
    let id = id.trim();
    let queued = run(db.url(), &["job", "show", id, "--json"]).await.json();
    assert_eq!(keys(&queued), JOB);
    assert_eq!(
        (&queued["state"], &queued["payload"], &queued["attempts"]),
        (&json!("queued"), &json!({ "a": [1, 2] }), &json!([]))
    );
    let mut worker = db.worker_process(&[]).await;
    db.wait_for(leasehold::job::JobId(id.parse().expect("a number")), "done").await;
    worker.terminate();
    assert!(worker.wait().await.success());
    let done = run(db.url(), &["job", "show", id, "--json"]).await.json();
    assert_eq!(
        (&done["state"], &done["result"], &done["version"]),
        (&json!("done"), &json!({ "a": [1, 2] }), &json!(1))
    );
    assert_eq!(keys(&done["usage"]), "cpu_ms fuel memory_peak_bytes result_bytes wall_ms");
    let attempt = &done["attempts"][0];
    assert_eq!(
        keys(attempt),
        "attempt backtrace failure_kind finished_at lease_no log log_dropped_bytes message outcome started_at usage version worker_id"
    );
    assert_eq!(attempt["log"], "to stdout\n[warn] to the log\nto stderr\n");
    let text = run(db.url(), &["job", "show", id]).await.ok().stdout;
    for line in ["state         done", "module        says version 1", "  [warn] to the log"] {
        assert!(text.contains(line), "{text}");
    }
}

#[tokio::test]
async fn a_module_is_pushed_listed_shown_activated_and_removed() {
    let db = TestDb::new().await;
    let files = Files::new();
    let (first, second) = (core("echo"), core("attempt"));
    let (first_file, second_file) = (files.write("first.wasm", &first), files.write("second.wasm", &second));
    let push = async |file: &str, more: &[&str]| {
        run(db.url(), &[&["module", "push", "greet", file, "--json"], more].concat()).await.json()
    };
    let pushed = push(&first_file, &[]).await;
    assert_eq!(keys(&pushed), "active created module tenant verdict version");
    assert_eq!((&pushed["version"], &pushed["created"], &pushed["active"]), (&json!(1), &json!(true), &json!(true)));
    let verdict = &pushed["verdict"];
    assert_eq!(
        (&verdict["kind"], &verdict["problem"], &verdict["missing"]),
        (&json!("component"), &Value::Null, &json!([]))
    );
    assert_eq!((&verdict["digest"], &verdict["size_bytes"]), (&json!(digest(&first)), &json!(first.len())));
    // The same again is the same version; other bytes or other settings are a new one.
    let again = push(&first_file, &[]).await;
    assert_eq!((&again["version"], &again["created"]), (&json!(1), &json!(false)));
    let limits = [
        "--fuel",
        "5000",
        "--memory",
        "1MiB",
        "--timeout",
        "2s",
        "--result-limit",
        "1kB",
        "--log-limit",
        "0",
        "--on",
        "fuel=fail",
        "--on",
        "trap=dead",
    ];
    assert_eq!(push(&first_file, &limits).await["version"], 2);
    let third = push(&second_file, &["--no-activate"]).await;
    assert_eq!((&third["version"], &third["active"]), (&json!(3), &json!(false)));

    let shown = run(db.url(), &["module", "show", "greet", "--json"]).await.json();
    let versions: Vec<_> =
        shown.as_array().expect("a list").iter().map(|v| (v["version"].clone(), v["active"].clone())).collect();
    assert_eq!(versions, [(json!(3), json!(false)), (json!(2), json!(true)), (json!(1), json!(false))]);
    assert_eq!(keys(&shown[1]), "active created_at digest imports kind limits on_failure retry size_bytes version");
    assert_eq!(
        (&shown[1]["limits"], &shown[1]["on_failure"]),
        (
            &json!({ "fuel": 5000, "memory_bytes": 1 << 20, "timeout_ms": 2000, "result_bytes": 1000, "log_bytes": 0, "follow_ups": 0 }),
            &json!({ "fuel": "fail", "trap": "dead" })
        )
    );
    let listed = run(db.url(), &["module", "list", "--json"]).await.json();
    assert_eq!(keys(&listed[0]), "active_version created_at digest kind name size_bytes tenant versions");
    assert_eq!(
        (&listed[0]["name"], &listed[0]["versions"], &listed[0]["active_version"]),
        (&json!("greet"), &json!(3), &json!(2))
    );
    assert_eq!(run(db.url(), &["module", "list", "--tenant", "nobody", "--json"]).await.json(), json!([]));

    let activated = run(db.url(), &["module", "activate", "greet", "3", "--json"]).await.json();
    assert_eq!(activated, json!({ "module": "greet", "active_version": 3, "active_before": 2 }));
    let off = run(db.url(), &["module", "activate", "greet", "--none", "--json"]).await.json();
    assert_eq!(off, json!({ "module": "greet", "active_version": null, "active_before": 3 }));
    fails_with(
        &run(db.url(), &["module", "activate", "greet", "4"]).await,
        1,
        &["module 'greet' of tenant 'default' has no version 4"],
    );
    assert_eq!(run(db.url(), &["module", "activate", "greet"]).await.code, 2);

    run(db.url(), &["enqueue", "greet"]).await.ok();
    let refused = run(db.url(), &["module", "remove", "greet"]).await;
    fails_with(&refused, 1, &["module 'greet' has 1 queued and 0 running jobs", "--force cancels the queued ones"]);
    let removed = run(db.url(), &["module", "remove", "greet", "--force", "--json"]).await.json();
    assert_eq!(removed, json!({ "module": "greet", "removed": true, "cancelled_jobs": 1 }));
    assert_eq!(run(db.url(), &["module", "list", "--json"]).await.json(), json!([]));
    assert_eq!(db.value::<i64>("select count(*) from leasehold.module_bytes").await, 0);
    // Its finished jobs still name it, and the name is free again.
    let job = run(db.url(), &["job", "show", "1", "--json"]).await.json();
    assert_eq!((&job["module"], &job["state"]), (&json!("greet"), &json!("cancelled")));
    assert_eq!(push(&first_file, &[]).await["version"], 1);
    fails_with(
        &run(db.url(), &["module", "show", "nothing"]).await,
        1,
        &["tenant default has no module named nothing"],
    );
    fails_with(
        &run(db.url(), &["module", "remove", "nothing"]).await,
        1,
        &["tenant 'default' has no module named 'nothing'"],
    );
}

#[tokio::test]
async fn a_module_that_could_not_run_is_refused_with_all_that_is_wrong() {
    let db = TestDb::new().await;
    let files = Files::new();
    let missing = "(module (import \"env\" \"launch\" (func)) (import \"env\" \"abort\" (func)) (import \"wasi_snapshot_preview1\" \"sock_open\" (func)) (func (export \"_start\")))";
    let missing = wat::parse_str(missing).expect("it is WAT");
    let roomy = command("");
    for (name, bytes, more, says) in [
        ("text.wasm", b"(module)".as_slice(), &[][..], &["cannot run as a job", "is text", "wat2wasm"][..]),
        ("script.wasm", b"#!/bin/sh", &[], &["cannot run as a job", "not wasm"]),
        ("empty.wasm", b"", &[], &["is empty"]),
        ("missing.wasm", &missing, &[], &["launch", "abort", "sock_open"]),
        ("broken.wasm", b"\0asm\x01\0\0\0\x01\x02\x03", &[], &["not valid"]),
        ("library.wasm", b"\0asm\x01\0\0\0", &[], &["no entry"]),
        ("roomy.wasm", &roomy, &["--memory", "1MiB"], &["26214400 bytes", "1048576 bytes"]),
    ] {
        let file = files.write(name, bytes);
        let answer = run(db.url(), &[&["module", "push", "bad", &file], more].concat()).await;
        fails_with(&answer, 1, says);
    }
    fails_with(
        &run(db.url(), &["module", "push", "bad", &files.path("nowhere.wasm")]).await,
        1,
        &["reading", "nowhere.wasm", "No such file"],
    );
    let echo = files.write("echo.wasm", &core("echo"));
    for (more, code, says) in [
        (&["--fuel", "0"][..], 1, &["fuel of 0 instructions is out of range"][..]),
        (&["--memory", "1kB"], 1, &["memory of 1000 bytes", "65536"]),
        (&["--timeout", "2days"], 1, &["timeout of 172800000 ms", "86400000"]),
        (&["--memory", "lots"], 2, &["\"lots\" is not a size; write 64MiB"]),
        (&["--timeout", "5"], 2, &["\"5\" is not a duration; write 5s"]),
        (&["--on", "fuel=maybe"], 2, &["write fail or dead"]),
        (&["--on", "host=dead"], 2, &["worker's own fault"]),
        (&["--on", "fule=dead"], 2, &["unknown kind of failure \"fule\"", "fuel"]),
        (&["--tenant", "nobody"], 1, &["no tenant is named 'nobody'", "leasehold tenant create"]),
    ] {
        fails_with(&run(db.url(), &[&["module", "push", "bad", &echo], more].concat()).await, code, says);
    }
    fails_with(
        &run(db.url(), &["module", "push", "Not Plain", &echo]).await,
        1,
        &["module name 'Not Plain' is not 1 to 63 characters of"],
    );
    assert_eq!(db.value::<i64>("select count(*) from leasehold.modules").await, 0, "nothing of all that was kept");
}

#[tokio::test]
async fn jobs_are_enqueued_listed_cancelled_and_redriven() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db.sql("insert into leasehold.tenants (name) values ('acme')").await;
    db.push(Upload { tenant: "acme", ..Upload::command("mail", b"\0asm\x01\0\0\0") }).await;
    let enqueued = run(db.url(), &["enqueue", "echo", "--json"]).await.json();
    assert_eq!(enqueued, json!({ "id": 1 }));
    let all = [
        "enqueue",
        "mail",
        "--tenant",
        "acme",
        "--queue",
        "slow",
        "--priority",
        "-7",
        "--delay",
        "1h",
        "--max-attempts",
        "2",
        "--timeout",
        "3s",
        "--backoff",
        "9s",
        "--version",
        "1",
        "--payload",
        "[]",
    ];
    assert_eq!(run(db.url(), &all).await.ok().stdout, "2\n");
    let row = db.rows("select timeout_ms, backoff_ms, version from leasehold.live_jobs where id = 2", &[]).await;
    assert_eq!((row[0].get::<_, i32>(0), row[0].get::<_, i32>(1), row[0].get::<_, i32>(2)), (3000, 9000, 1));
    let due_in_ms = db.job(leasehold::job::JobId(2)).await.due_in_ms;
    assert!((3_500_000.0..=3_600_000.0).contains(&due_in_ms), "due in {due_in_ms} ms");
    let piped = run_with_input(db.url(), &["enqueue", "echo", "--payload", "-"], b"\0raw").await.ok();
    assert_eq!(db.value::<Vec<u8>>("select payload from leasehold.jobs where id = 3").await, b"\0raw");
    assert_eq!(piped.stdout, "3\n");
    let files = Files::new();
    let file = files.write("payload.bin", b"\xff");
    run(db.url(), &["enqueue", "echo", "--payload", &format!("@{file}")]).await.ok();
    assert_eq!(db.value::<Vec<u8>>("select payload from leasehold.jobs where id = 4").await, b"\xff");

    let listed = run(db.url(), &["job", "list", "--json"]).await.json();
    assert_eq!(keys(&listed[0]), JOB_IN_LIST);
    let ids = |listed: Value| -> Vec<i64> {
        listed.as_array().expect("a list").iter().map(|job| job["id"].as_i64().expect("a number")).collect()
    };
    assert_eq!(ids(listed), [4, 3, 2, 1], "newest first");
    for (filter, wanted) in [
        (&["--tenant", "acme"][..], &[2][..]),
        (&["--module", "echo", "--limit", "2"], &[4, 3]),
        (&["--queue", "slow"], &[2]),
        (&["--state", "dead"], &[]),
        (&["--state", "queued", "--tenant", "default"], &[4, 3, 1]),
    ] {
        assert_eq!(
            ids(run(db.url(), &[&["job", "list", "--json"], filter].concat()).await.json()),
            wanted,
            "{filter:?}"
        );
    }

    assert_eq!(run(db.url(), &["job", "cancel", "1", "--json"]).await.json(), json!({ "id": 1, "state": "cancelled" }));
    assert_eq!(run(db.url(), &["job", "cancel", "2"]).await.ok().stdout, "job 2 is cancelled\n");
    assert_eq!(run(db.url(), &["job", "redrive", "1", "--json"]).await.json(), json!({ "id": 1, "redriven": true }));
    assert_eq!(run(db.url(), &["job", "redrive", "1", "--json"]).await.json(), json!({ "id": 1, "redriven": false }));
    fails_with(&run(db.url(), &["job", "redrive", "1"]).await, 1, &["job 1 is neither dead nor cancelled"]);
    let running = db.claim_one().await;
    assert_eq!(
        run(db.url(), &["job", "cancel", &running.id.to_string()]).await.ok().stdout,
        format!("job {} is running and was asked to stop\n", running.id)
    );
    db.complete(running).await;
    assert!(run(db.url(), &["job", "cancel", "3"]).await.ok().stdout.starts_with("job 3 "));
}

#[tokio::test]
async fn statistics_and_tenants_have_their_shapes() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db.enqueue_many("echo", 3).await;
    let job = db.claim_one().await;
    db.complete(job).await;
    let stats = run(db.url(), &["stats", "--json"]).await.json();
    assert_eq!(keys(&stats[0]), "count oldest_due_age_seconds queue state tenant");
    let counts: Vec<_> =
        stats.as_array().expect("a list").iter().map(|line| (line["state"].clone(), line["count"].clone())).collect();
    assert_eq!(counts, [(json!("done"), json!(1)), (json!("queued"), json!(2))]);
    assert!(stats[1]["oldest_due_age_seconds"].as_f64().is_some_and(|age| age > 0.0));
    assert_eq!(run(db.url(), &["stats", "--tenant", "nobody", "--json"]).await.json(), json!([]));

    assert_eq!(
        run(db.url(), &["tenant", "create", "acme", "--json"]).await.json(),
        json!({ "tenant": "acme", "created": true })
    );
    assert_eq!(
        run(db.url(), &["tenant", "create", "acme", "--json"]).await.json(),
        json!({ "tenant": "acme", "created": false })
    );
    assert_eq!(run(db.url(), &["tenant", "list", "--json"]).await.json(), json!(["acme", "default"]));
    assert_eq!(run(db.url(), &["tenant", "list"]).await.ok().stdout, "acme\ndefault\n");
    fails_with(
        &run(db.url(), &["tenant", "create", "Not Plain"]).await,
        1,
        &["tenant name 'Not Plain' is not 1 to 63 characters of"],
    );
}

#[tokio::test]
async fn what_is_wrong_is_named_and_what_to_do_is_said() {
    let db = TestDb::new().await;
    for (args, code, says) in [
        (
            &["enqueue", "nothing"][..],
            1,
            &["tenant 'default' has no module named 'nothing'", "leasehold module push"][..],
        ),
        (&["enqueue", "echo", "--tenant", "nobody"], 1, &["no tenant is named 'nobody'", "leasehold tenant create"]),
        (&["enqueue", "echo", "--payload", "not json"], 1, &["the payload is not JSON", "@FILE"]),
        (&["enqueue", "echo", "--payload", "@/nowhere"], 1, &["reading the payload from /nowhere"]),
        (&["enqueue"], 2, &["<MODULE>"]),
        (&["job", "show", "77"], 1, &["there is no job 77"]),
        (&["job", "cancel", "77"], 1, &["there is no job 77"]),
        (&["job", "redrive", "77"], 1, &["there is no job 77"]),
        (&["job", "show", "seven"], 2, &["seven"]),
        (&["job", "list", "--state", "finished"], 2, &["queued", "cancelled"]),
        (&["job", "list", "--limit", "0"], 2, &["0"]),
        (&["worker", "--slots", "0"], 1, &["slot"]),
        (&["worker", "--lease", "100ms"], 1, &["lease of 100 ms is below the least of 1000 ms"]),
        (&["worker", "--retention-days", "0"], 2, &["0"]),
        (&["no-such-command"], 2, &["no-such-command"]),
    ] {
        fails_with(&run(db.url(), args).await, code, says);
    }
    for (url, says) in [
        ("nonsense", &["database URL", "postgres://user:password@host:5432/name"][..]),
        ("postgres:///name", &["names no host"]),
        ("postgres://nobody@127.0.0.1:1/name", &["connecting to database \"name\" on 127.0.0.1:1"]),
        ("postgres://nobody:sesame@localhost:1/name", &["connecting to database \"name\""]),
    ] {
        let answer = run(url, &["stats"]).await;
        fails_with(&answer, 1, says);
        assert!(!answer.stderr.contains("sesame"), "no password in what people paste: {}", answer.stderr);
    }
    let missing = format!("{}_missing", db.url());
    fails_with(&run(&missing, &["stats"]).await, 1, &["does not exist"]);
}

#[tokio::test]
async fn a_run_without_a_database_says_by_its_exit_code_what_a_worker_would_do() {
    let files = Files::new();
    for (guest, code, outcome, kind) in [
        ("echo", 0, "done", Value::Null),
        ("retry", 10, "fail", json!("guest_retry")),
        ("unreachable", 10, "fail", json!("trap")),
        ("dead", 11, "dead", json!("guest_dead")),
        ("snooze", 12, "snooze", Value::Null),
    ] {
        let file = files.write(&format!("{guest}.wasm"), &core(guest));
        // No database is there, and none is asked for.
        let answer = run("nonsense", &["run", &file, "--payload", "[1]", "--json"]).await;
        assert_eq!(answer.code, code, "{guest}: {answer:#?}");
        let said: Value = serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:#?}"));
        assert_eq!((&said["outcome"], &said["failure"]["kind"]), (&json!(outcome), &kind), "{guest}");
        if guest == "echo" {
            assert_eq!(said["result"], json!([1]));
        }
    }
}
