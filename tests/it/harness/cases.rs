//! `leasehold test`: case files, what they say when something is not as expected, and what they say when they are wrong.

use std::path::Path;

use leasehold::harness::{Ending, Harness, Job, TestOptions, junit};
use leasehold_tests::binary::run;
use leasehold_tests::guests::{command, core, core_from};
use serde_json::{Value, json};

use super::bench::{Bench, says};

fn plain() -> TestOptions {
    TestOptions::default()
}

#[test]
fn cases_that_are_as_expected_pass() {
    let bench = Bench::new(
        &core("says"),
        &[
            (
                "json",
                "payload = { n = 1, s = \"x\", list = [true, 2.5] }\n[expect]\nresult = { s = \"x\", list = [true, 2.5], n = 1.0 }\nlog = [\"to stdout\", \"[warn] to the log\"]",
            ),
            ("null", "payload_json = '{\"a\": null}'\n[expect]\nresult_json = '{ \"a\":null }'"),
            ("text", "payload_text = \"plain\\nwords\"\n[expect]\nresult_text = \"plain\\nwords\""),
            ("deep/file", "payload_file = \"in.bin\"\n[expect]\nresult_file = \"../golden/out.bin\"\n"),
            ("nothing-said", ""),
        ],
    );
    bench.write("cases/deep/in.bin", "\u{1}raw");
    bench.write("cases/golden/out.bin", "\u{1}raw");
    let tested = bench.test(&plain()).passed();
    assert_eq!(tested.text, "ok deep/file\nok json\nok nothing-said\nok null\nok text\n");
    let filtered = bench.test(&TestOptions { filter: Some("deep/".to_owned()), ..plain() });
    assert_eq!(filtered.text, "ok deep/file\n");
}

#[test]
fn each_outcome_can_be_expected() {
    for (guest, case) in [
        ("retry", "expect = { outcome = \"fail\", kind = \"guest_retry\", message = \"no luck\", delay = \"1500ms\" }"),
        ("retry", "job = { attempt = 3, max_attempts = 3 }\nexpect = { outcome = \"dead\", kind = \"guest_retry\" }"),
        ("retry_when_you_like", "job = { attempt = 2 }\nexpect = { outcome = \"fail\", delay = \"10s\" }"),
        ("dead", "expect = { outcome = \"dead\", kind = \"guest_dead\" }"),
        ("snooze", "expect = { outcome = \"snooze\", delay = \"1m\" }"),
        (
            "spin",
            "limits = { fuel = 1000 }\nexpect = { outcome = \"dead\", kind = \"fuel\", message = [\"1000 instructions\", \"raise --fuel\"] }",
        ),
        (
            "spin",
            "limits = { fuel = 1000 }\non = { fuel = \"fail\" }\nexpect = { outcome = \"fail\", kind = \"fuel\" }",
        ),
        ("spin", "limits = { timeout = \"20ms\" }\nexpect = { outcome = \"fail\", kind = \"timeout\" }"),
        ("grow_forever", "limits = { memory = \"1MiB\" }\nexpect = { outcome = \"dead\", kind = \"memory\" }"),
        ("unreachable", "expect = { outcome = \"fail\", kind = \"trap\" }"),
        (
            "wait_for_cancel",
            "job = { cancel_requested = true }\nexpect = { outcome = \"dead\", message = \"cancelled politely\" }",
        ),
        (
            "echo",
            "job = { attempt = 9 }\npayload = 1\nlimits = { result = 0 }\nexpect = { outcome = \"dead\", kind = \"output\" }",
        ),
    ] {
        let bench = Bench::new(&core(guest), &[("case", case)]);
        bench.test(&plain()).passed();
    }
    let program = Bench::new(
        &command("(call $cat)"),
        &[("cat", "payload_text = \"in\"\nexpect = { result_text = \"in\" }\nlimits = { memory = \"32MiB\" }")],
    );
    program.test(&plain()).passed();
}

#[test]
fn what_differs_is_shown_from_both_sides() {
    let bench = Bench::new(
        &core("says"),
        &[
            ("json", "payload = { a = 1, b = 2 }\n[expect]\nresult = { a = 1, b = 3 }"),
            ("log", "[expect]\nlog = [\"to stderr\", \"to stdout\"]"),
            ("outcome", "[expect]\noutcome = \"dead\"\nkind = \"guest_dead\""),
            ("fine", ""),
        ],
    );
    bench.test(&plain()).failed(
        3,
        &[
            "FAIL json\nresult:\n",
            "-  \"b\": 3",
            "+  \"b\": 2",
            "FAIL log\nlog: expected \"to stdout\" in it after the parts before it",
            "FAIL outcome\noutcome: expected dead, was done",
            "ok fine\n",
        ],
    );
    let failing = Bench::new(&core("dead"), &[("a", "")]);
    failing.test(&plain()).failed(1, &["outcome: expected done, was dead (guest_dead: "]);
}

#[test]
fn a_golden_file_is_written_only_when_asked_for() {
    let bench =
        Bench::new(&core("echo"), &[("gold", "payload = { b = 2, a = 1 }\n[expect]\nresult_file = \"gold.json\"")]);
    let update = TestOptions { update: true, ..plain() };
    let missing = &["gold.json: No such file", "--update writes what the run gives"];
    bench.test(&plain()).failed(1, missing);
    assert!(bench.test(&update).passed().report.cases[0].updated);
    assert_eq!(bench.read("cases/gold.json"), "{\n  \"a\": 1,\n  \"b\": 2\n}\n");
    assert!(!bench.test(&update).passed().report.cases[0].updated, "it is as it should be");
    // Another layout means the same.
    bench.write("cases/gold.json", "{\"b\":2, \"a\":1}");
    bench.test(&plain()).passed();
    bench.write("cases/gold.json", "{\"b\":2, \"a\":7}");
    bench.test(&plain()).failed(1, &["-  \"a\": 7", "+  \"a\": 1", "--update takes the new one"]);
    bench.test(&update).passed();
    // What failed has no result that could be written.
    let dead = Bench::new(&core("dead"), &[("gold", "[expect]\nresult_file = \"gold.json\"")]);
    dead.test(&update).failed(1, &[]);
    assert!(!Path::new(&dead.files.path("cases/gold.json")).exists());
}

#[test]
fn who_meets_a_limit_learns_what_would_have_been_enough() {
    let bench = Bench::new(
        &core("result_of"),
        &[
            ("fuel", "payload_text = \"\\u0000\\u0000\\u0000\\u0000\"\n[limits]\nfuel = 20"),
            ("result", "payload_text = \"\\u0040\\u0000\\u0000\\u0000\"\n[limits]\nresult = 10"),
        ],
    );
    let tested = bench.test(&plain()).failed(2, &["FAIL result\n", "enough: a result of 64 bytes (then done)"]);
    let told = tested.report.cases[0].would_suffice().expect("it was run again");
    let needed: u64 = told.split(' ').find_map(|word| word.parse().ok()).expect("a number");
    // The number is true: with exactly so much it passes.
    let exact = format!("payload_text = \"\\u0000\\u0000\\u0000\\u0000\"\n[limits]\nfuel = {needed}");
    Bench::new(&core("result_of"), &[("fuel", &exact)]).test(&plain()).passed();
    // And so are the limits that are advised for all.
    assert!(tested.report.advice().fuel > needed, "{:?}", tested.report.advice());
    let endless = Bench::new(&core("spin"), &[("spin", "[limits]\nfuel = 1000")]);
    let told = &["with much more of it, it ends no better", "out of fuel: used all of 100000"];
    endless.test(&plain()).failed(1, told);
}

#[test]
fn a_wrong_case_file_is_refused_with_its_place_and_what_is_allowed() {
    for (text, parts) in [
        ("paylod = 1", &["case.toml:1: paylod: unknown field `paylod`", "`payload`", "`expect`"][..]),
        ("\n[limits]\nfule = 1", &["case.toml:3: limits.fule: unknown field `fule`", "`fuel`"]),
        ("[limits]\nfuel = \"much\"", &["case.toml:2: limits.fuel", "invalid type: string \"much\", expected u64"]),
        ("[limits]\nmemory = \"lots\"", &["case.toml:2: limits.memory", "\"lots\" is not a size; write 64MiB"]),
        ("[limits]\nmemory = -1", &["limits.memory", "-1 bytes are less than none"]),
        ("[limits]\nmemory = true", &["limits.memory", "a number of bytes, or a size like \"64MiB\""]),
        (
            "[limits]\nmemory = 1000",
            &["case.toml: limits: memory of 1000 bytes is out of range; it may be 65536 to 4294967296"],
        ),
        ("[limits]\ntimeout = 5", &["limits.timeout", "expected a string"]),
        ("[limits]\ntimeout = \"5\"", &["limits.timeout", "\"5\" is not a duration; write 5s"]),
        ("[expect]\noutcome = \"ok\"", &["expect.outcome", "unknown outcome \"ok\"; write done, fail, dead or snooze"]),
        ("[expect]\noutcome = \"dead\"\nkind = \"fule\"", &["expect.kind", "unknown kind of failure \"fule\"", "fuel"]),
        ("[expect]\nkind = \"fuel\"", &["expect.kind: only with outcome = \"fail\" or \"dead\", not \"done\""]),
        ("[expect]\noutcome = \"dead\"\nresult = 1", &["expect.result: only with outcome = \"done\", not \"dead\""]),
        ("[expect]\ndelay = \"1s\"", &["expect.delay: only with outcome = \"fail\" or \"snooze\""]),
        ("[expect]\nresult = 1\nresult_text = \"1\"", &["expect.result: give one of result, result_json"]),
        ("payload = 1\npayload_text = \"1\"", &["payload: give one of payload, payload_json"]),
        ("payload = 2026-01-01", &["payload", "JSON has no times; write it in quotes: \"2026-01-01\""]),
        ("payload = { n = nan }", &["payload", "JSON has no number NaN", "payload_json"]),
        ("payload_json = \"{\"", &["payload_json", "not JSON"]),
        ("payload_file = \"nowhere.bin\"", &["payload_file", "nowhere.bin: No such file"]),
        ("[on]\nhost = \"dead\"", &["on: host is the worker's own fault"]),
        ("[on]\nfuel = \"never\"", &["on: unknown end \"never\"; write fail or dead"]),
        ("[job]\nattempt = 4\nmax_attempts = 3", &["job.attempt: attempt 4 is not one of 1 to max_attempts, 3"]),
        ("[expect]\nfollow_ups = [{ modul = \"x\" }]", &["expect.follow_ups[0].modul: unknown field `modul`"]),
        ("[expect]\nfollow_ups = [{ queue = \"x\" }]", &["missing field `module`"]),
        ("a = = 1", &["case.toml:1"]),
    ] {
        let errors = Bench::new(b"", &[("case", text)]).errors();
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        says(&errors[0].to_string(), parts);
    }
    // All wrong files are named.
    let errors = Bench::new(b"", &[("a", "x = 1"), ("b", "y = 1"), ("c", "")]).errors();
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 2);
    says(&errors.join("\n"), &["a.toml:1", "b.toml:1"]);
    says(&Bench::new(b"", &[]).errors()[0].to_string(), &["there is no case in it; a case is a file NAME.toml"]);
}

#[test]
fn follow_up_jobs_are_compared_field_by_field() {
    let guest = core_from(
        r#"(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
        (data (i32.const 3000) "mail{\"to\":1}bulk")
        (func $run (param $at i32) (param $len i32) (result i32)
          (call $enqueue
            (i32.const 3000) (i32.const 4)                                  ;; module
            (i32.const 3004) (i32.const 8)                                  ;; payload
            (i32.const 1) (i32.const 3012) (i32.const 4)                    ;; queue
            (i32.const 7)                                                   ;; priority
            (i32.const 0) (i64.const 0)                                     ;; no delay
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)  ;; and no keys
            (i32.const 2160))
          (call $ok (local.get $at) (local.get $len)))"#,
    );
    let bench = Bench::new(
        &guest,
        &[
            (
                "as-it-is",
                "[limits]\nfollow_ups = 1\n[expect]\nfollow_ups = [{ module = \"mail\", payload = { to = 1 }, queue = \"bulk\", priority = 7 }]",
            ),
            ("not-granted", "[expect]\nfollow_ups = []"),
            (
                "wrong",
                "[limits]\nfollow_ups = 1\n[expect]\nfollow_ups = [{ module = \"post\", payload = { to = 2 }, priority = 8, delay = \"1s\" }]",
            ),
            ("too-many", "[limits]\nfollow_ups = 1\n[expect]\nfollow_ups = []"),
        ],
    );
    bench.test(&plain()).failed(
        2,
        &[
            "ok as-it-is\n",
            "ok not-granted\n",
            "module of number 1: expected post, was mail",
            "priority of number 1: expected 8, was 7",
            "delay in ms of number 1: expected 1000, was none",
            "-  \"to\": 2",
            "+  \"to\": 1",
            "expected 0 jobs, were 1: mail",
        ],
    );
}

#[test]
fn a_junit_report_has_each_case_with_what_is_wrong_with_it() {
    let bench = Bench::new(&core("says"), &[("good", ""), ("bad", "[expect]\nlog = \"<nothing & more>\"")]);
    let report = bench.test(&plain()).report;
    let xml = junit(&[report]).expect("it is a document");
    says(
        &xml,
        &[
            "<testsuites name=\"leasehold test\" tests=\"2\" skipped=\"0\" failures=\"1\"",
            "<testsuite name=\"guest\"",
            "<testcase name=\"bad\" classname=\"guest\"",
            "&lt;nothing &amp; more&gt;",
            "<testcase name=\"good\"",
            "[warn] to the log",
            "<property name=\"fuel\"",
        ],
    );
}

#[test]
fn a_rust_test_runs_jobs_and_cases_itself() {
    let bench = Bench::new(
        &core("retry"),
        &[("last", "job = { attempt = 5 }\nexpect = { outcome = \"dead\", message = \"no luck\" }")],
    );
    let harness = Harness::open(&bench.module).expect("it is a module");
    let tried = harness.try_once(&Job { attempt: 2, ..Job::json(&json!({})) });
    assert_eq!(
        (tried.ending, tried.failure().map(|failure| failure.message.as_str())),
        (Ending::Fail, Some("no luck yet"))
    );
    assert!(tried.result_json().is_err_and(|error| error.to_string().contains("no luck yet")));
    harness.test(bench.files.path("cases")).expect("the cases are in order").assert_passed();
    bench.write("cases/never.toml", "");
    let report = bench.test(&plain()).report;
    let failed = std::panic::catch_unwind(|| report.assert_passed()).expect_err("one does not pass");
    let message = failed.downcast_ref::<String>().expect("a message");
    says(
        message,
        &["1 of 2 cases have not passed", "never:\noutcome: expected done, was fail (guest_retry: no luck yet)"],
    );
}

#[test]
fn many_cases_run_at_once_and_none_is_lost() {
    let bench = Bench::new(&core("echo"), &[]);
    for number in 0..200 {
        let case = format!("payload = {number}\nexpect = {{ result = {number} }}");
        bench.write(&format!("cases/case-{number}.toml"), &case);
    }
    let tested = bench.test(&TestOptions { jobs: Some(16), ..plain() }).passed();
    assert_eq!(tested.report.cases.len(), 200);
}

#[test]
fn a_case_with_a_seed_is_the_same_each_time() {
    let guest = core_from(
        r#"(import "wasi:random/random@0.2.0" "get-random-bytes" (func $random (param i64 i32)))
        (func $run (param i32 i32) (result i32)
          (call $random (i64.const 8) (i32.const 2048))
          (call $ok (i32.load (i32.const 2048)) (i32.load (i32.const 2052))))"#,
    );
    let bench = Bench::new(
        &guest,
        &[("a", "[sandbox]\nseed = 7\nstarts_at = 2026-05-01T00:00:00Z\n[expect]\nresult_file = \"a.bin\"")],
    );
    bench.test(&TestOptions { update: true, ..plain() }).passed();
    bench.test(&plain()).passed();
    bench.write("cases/a.toml", "[sandbox]\nseed = 8\n[expect]\nresult_file = \"a.bin\"");
    bench.test(&plain()).failed(1, &["from byte 0 on"]);
}

/// One test by the command, since each start of it takes a second.
#[tokio::test]
async fn the_command_prints_all_of_it_and_its_exit_code_says_how_it_went() {
    let bench = Bench::new(&core("says"), &[("bad", "[expect]\nlog = \"nothing\""), ("good", "")]);
    let report = bench.files.path("report.xml");
    let failed = bench.command(&["--junit", &report]).await;
    assert_eq!(failed.code, 1);
    says(
        &failed.stdout,
        &[
            "FAIL  bad\n      log: expected \"nothing\" in it\n      log:\n      to stdout\n      [warn] to the log\n",
            "ok    good\n",
            "FUEL",
            "--fuel ",
            "1 passed, 1 failed",
        ],
    );
    says(&bench.read("report.xml"), &["<testcase name=\"bad\""]);
    let passed = bench.command(&["--filter", "good", "--json"]).await.json();
    assert_eq!((passed["cases"].as_array().map(Vec::len), &passed["failed"]), (Some(1), &json!(0)));
    assert_eq!(
        (&passed["cases"][0]["passed"], &passed["cases"][0]["run"]["outcome"], &passed["cases"][0]["problems"]),
        (&json!(true), &json!("done"), &Value::Array(vec![]))
    );
    bench.write("cases/wrong.toml", "x = 1");
    let wrong = bench.command(&[]).await;
    assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""));
    says(&wrong.stderr, &["error: ", "wrong.toml:1: x: unknown field `x`"]);
    let nowhere = run("", &["test", &bench.module, "/nowhere/at/all"]).await;
    assert_eq!(nowhere.code, 2);
    says(&nowhere.stderr, &["/nowhere/at/all", "name a folder of cases"]);
}
