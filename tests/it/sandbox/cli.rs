//! `leasehold run`, as a job's author meets it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use leasehold_tests::guests::{command, core, leasehold};
use serde_json::{Value, json};

/// A directory of a test's own that goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("leasehold-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("a scratch file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(module: &Path, args: &[&str]) -> Output {
    leasehold().arg("run").arg(module).args(args).stdin(Stdio::null()).output().expect("leasehold starts")
}

fn run_json(module: &Path, args: &[&str]) -> (i32, Value) {
    let output = run(module, &[&["--json"], args].concat());
    let object = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code().expect("it exits"), object)
}

#[test]
fn done_prints_the_result_alone_on_stdout_and_the_rest_on_stderr() {
    let scratch = Scratch::new("done");
    let output = run(&scratch.file("says.wasm", &core("says")), &["--payload", "{\"n\": 1}"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "{\"n\": 1}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("to stdout\n[warn] to the log\nto stderr\noutcome: done\n"), "{stderr}");
    for row in ["fuel", "memory", "result", "time", "cpu"] {
        assert!(stderr.lines().any(|line| line.trim_start().starts_with(row)), "{row} is missing: {stderr}");
    }
}

#[test]
fn json_has_everything_in_one_object() {
    let scratch = Scratch::new("json");
    let (code, object) = run_json(&scratch.file("echo.wasm", &core("echo")), &["--fuel", "100000"]);
    assert_eq!((code, &object["outcome"], &object["result"]), (0, &json!("done"), &json!({})), "{object}");
    assert_eq!(object["failure"], Value::Null);
    assert_eq!(object["limits"]["fuel"], 100_000);
    assert_eq!(object["limits"]["timeout_ms"], 30_000);
    assert!(object["usage"]["fuel"].as_u64().is_some_and(|fuel| fuel > 0 && fuel < 100_000), "{object}");
    for number in ["wall_ms", "cpu_ms", "memory_peak_bytes", "result_bytes"] {
        assert!(object["usage"][number].is_number(), "{number}: {object}");
    }
    assert_eq!(object["log_dropped_bytes"], 0);
}

#[test]
fn a_result_is_json_text_or_base64() {
    let scratch = Scratch::new("result");
    let echo = scratch.file("echo.wasm", &core("echo"));
    let result = |bytes: &[u8]| {
        let payload = scratch.file("payload", bytes);
        run_json(&echo, &["--payload", &format!("@{}", payload.display())]).1
    };
    assert_eq!(result(b"[1, 2]")["result"], json!([1, 2]));
    assert_eq!(result(b"plain words")["result"], json!("plain words"));
    let bytes = result(b"\xff\x00");
    assert_eq!((&bytes["result"], &bytes["result_base64"]), (&Value::Null, &json!("/wA=")));
}

#[test]
fn the_exit_code_and_the_outcome_are_what_a_worker_would_decide() {
    let scratch = Scratch::new("outcome");
    let retry = scratch.file("retry.wasm", &core("retry"));
    let (code, object) = run_json(&retry, &[]);
    assert_eq!((code, &object["outcome"], &object["delay_ms"]), (10, &json!("fail"), &json!(1500)));
    assert_eq!(object["failure"]["kind"], "guest_retry");
    assert_eq!(object["failure"]["message"], "no luck yet");
    let (code, object) = run_json(&retry, &["--attempt", "3", "--max-attempts", "3"]);
    assert_eq!((code, &object["outcome"], &object["delay_ms"]), (11, &json!("dead"), &Value::Null));
    let (code, object) = run_json(&scratch.file("policy.wasm", &core("retry_when_you_like")), &["--attempt", "2"]);
    assert_eq!((code, &object["delay_ms"]), (10, &json!(10_000)));
    let (code, object) = run_json(&scratch.file("dead.wasm", &core("dead")), &[]);
    assert_eq!((code, &object["outcome"]), (11, &json!("dead")));
    let (code, object) = run_json(&scratch.file("snooze.wasm", &core("snooze")), &[]);
    assert_eq!((code, &object["outcome"], &object["delay_ms"]), (12, &json!("snooze"), &json!(60_000)));
    let spin = scratch.file("spin.wasm", &core("spin"));
    let (code, object) = run_json(&spin, &["--fuel", "1000"]);
    assert_eq!((code, &object["failure"]["kind"]), (11, &json!("fuel")));
    let (code, _) = run_json(&spin, &["--fuel", "1000", "--on", "fuel=fail"]);
    assert_eq!(code, 10);
    let (code, object) = run_json(&spin, &["--timeout", "20ms"]);
    assert_eq!((code, &object["failure"]["kind"]), (10, &json!("timeout")));
    let nothing_to_call = wat::parse_str("(module)").expect("it parses");
    let (code, object) = run_json(&scratch.file("nothing.wasm", &nothing_to_call), &[]);
    assert_eq!((code, &object["failure"]["kind"]), (11, &json!("link")));
    for garbage in [&b"garbage"[..], b"", b"(module)"] {
        let output = run(&scratch.file("garbage.wasm", garbage), &["--json"]);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{output:?}");
    }
}

#[test]
fn a_program_gets_an_empty_stdin_by_default_and_a_pipe_if_asked() {
    let scratch = Scratch::new("program");
    let cat = scratch.file("cat.wasm", &command("(call $cat)"));
    let output = run(&cat, &["--memory", "32MiB"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{output:?}");
    let mut piped = leasehold()
        .arg("run")
        .arg(&cat)
        .args(["--memory", "32MiB", "--payload", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("leasehold starts");
    piped.stdin.take().expect("it is piped").write_all(b"raw \xff bytes").expect("it reads");
    assert_eq!(piped.wait_with_output().expect("it ends").stdout, b"raw \xff bytes");
}

#[test]
fn bad_use_exits_with_2_and_says_what_to_do() {
    let scratch = Scratch::new("bad-use");
    let echo = scratch.file("echo.wasm", &core("echo"));
    for (args, says) in [
        (&["--payload", "not json"][..], "@FILE"),
        (&["--payload", "@/no/such/file"], "/no/such/file"),
        (&["--timeout", "5"], "5s"),
        (&["--memory", "lots"], "64MiB"),
        (&["--memory", "1kB"], "65536 to 4294967296 bytes"),
        (&["--fuel", "0"], "fuel of 0 instructions"),
        (&["--on", "host=fail"], "worker's own fault"),
        (&["--attempt", "6"], "after the last of 5"),
        (&["--attempt", "0"], "--attempt"),
    ] {
        let output = run(&echo, args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(run(Path::new("/no/such/module.wasm"), &[]).status.code(), Some(2));
}

/// Runs a guest where a process may have but so much address space.
fn run_cramped(echo: &Path, address_space_kib: u32, memory: &str) -> Output {
    std::process::Command::new("bash")
        .args(["-c", "ulimit -v \"$3\"; exec \"$0\" run \"$1\" --memory \"$2\" --payload 1"])
        .arg(leasehold().get_program())
        .arg(echo)
        .arg(memory)
        .arg(address_space_kib.to_string())
        .output()
        .expect("bash starts")
}

#[test]
fn without_address_space_for_a_pool_it_runs_all_the_same_and_says_so() {
    let scratch = Scratch::new("no-pool");
    let echo = scratch.file("echo.wasm", &core("echo"));
    let output = run_cramped(&echo, 3_000_000, "16MiB");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"1"[..]), "{stderr}");
    assert!(stderr.contains("no room for a pool"), "{stderr}");
}

#[test]
fn without_address_space_for_a_memory_it_is_the_hosts_fault() {
    let scratch = Scratch::new("no-memory");
    let echo = scratch.file("echo.wasm", &core("echo"));
    let output = run_cramped(&echo, 3_000_000, "4GiB");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(10), "{stderr}");
    assert!(stderr.contains("host: the worker lacks what the run needs"), "{stderr}");
}
