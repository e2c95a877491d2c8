//! `leasehold run -- FILE.wasm ARGS`: a WASI program in the place of a native one, as cargo starts what it built for wasm.

use std::process::{Output, Stdio};

use leasehold_tests::binary::Files;
use leasehold_tests::guests::{command, core, leasehold};

fn run(args: &[&str]) -> Output {
    leasehold().arg("run").args(args).stdin(Stdio::null()).output().expect("leasehold starts")
}

/// A program that prints its second argument and ends with the first letter of it as its exit code.
const PRINTS_ITS_ARGUMENT: &str = r#"(module
    (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (import "leasehold:job/host@1.0.0" "cancel-requested" (func $cancel_requested (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
      (drop (call $args_get (i32.const 0) (i32.const 1024)))
      (i32.store (i32.const 512) (i32.load (i32.const 4)))
      (i32.store (i32.const 516) (i32.const 3))
      (drop (call $write (i32.const 1) (i32.const 512) (i32.const 1) (i32.const 520)))
      (if (i32.eq (i32.load8_u (i32.load (i32.const 4))) (i32.const 63)) (then (drop (call $cancel_requested))))
      (call $exit (i32.load8_u (i32.load (i32.const 4))))))"#;

#[test]
fn a_program_gets_its_arguments_and_its_exit_code_is_the_commands() {
    let files = Files::new();
    let program = files.write("prints.wasm", &wat::parse_str(PRINTS_ITS_ARGUMENT).expect("it is WAT"));
    let output = run(&["--", &program, "abc", "--json"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(i32::from(b'a')), &b"abc"[..]), "{output:?}");
    assert_eq!(output.stderr, b"");
    // A test binary of a job's crate has a job's imports; only who calls one is ended.
    let output = run(&["--", &program, "?!?"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(134), &b"?!?"[..]), "{stderr}");
    assert!(stderr.contains("cancel-requested, which only a worker has; test that natively"), "{stderr}");
}

#[test]
fn what_ends_a_program_is_said_and_what_is_no_program_is_refused() {
    let files = Files::new();
    let spin = files.write("spin.wasm", &command("(loop $again (br $again))"));
    let output = run(&["--memory", "32MiB", "--fuel", "1000", "--", &spin]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(134), "{stderr}");
    for part in
        ["was ended: fuel: out of fuel: used all of 1000 instructions", "limits of a program stand before the --"]
    {
        assert!(stderr.contains(part), "{stderr}");
    }
    let job = files.write("job.wasm", &core("echo"));
    let output = run(&["--", &job]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("a program exports _start, and this module does not"), "{stderr}");
}
