//! WASI programs: payload on stdin, result on stdout, outcome by exit code.

use leasehold::job::{Limits, ModuleKind};
use leasehold::outcome::FailureKind;
use leasehold_tests::guests::{LIMITS, command, failure, prepare, result, run};

/// The command's own memory is larger than most tests' limit.
const ROOMY: Limits = Limits { memory_bytes: 64 << 20, ..LIMITS };

#[tokio::test]
async fn stdin_is_the_payload_and_stdout_the_result() {
    let cat = command("(call $cat)");
    assert_eq!(prepare(&cat).kind(), ModuleKind::Command);
    let payload: Vec<u8> = (0..50_000_u32).map(|n| n as u8).collect();
    assert_eq!(result(&run(&cat, &payload, &ROOMY).await), payload);
    assert_eq!(result(&run(&cat, b"", &ROOMY).await), b"");
}

#[tokio::test]
async fn the_exit_code_says_what_becomes_of_the_job() {
    let exit = async |code: i32| {
        let start =
            format!("(call $print (i32.const 2) (i32.const 2048) (i32.const 21)) (call $exit (i32.const {code}))");
        run(&command(&start), b"", &ROOMY).await
    };
    assert_eq!(result(&exit(0).await), b"");
    for (code, kind) in [(65, FailureKind::GuestDead), (75, FailureKind::Exit), (3, FailureKind::Exit)] {
        let exited = exit(code).await;
        assert_eq!(failure(&exited).kind, kind, "exit {code}");
        assert_eq!(failure(&exited).message, format!("last line (exit code {code})"));
        assert_eq!(exited.log.to_text(), "first line\nlast line\n");
    }
}

#[tokio::test]
async fn an_exit_without_a_word_says_so() {
    let exited = run(&command("(call $exit (i32.const 1))"), b"", &ROOMY).await;
    assert_eq!(failure(&exited).message, "exit code 1, and nothing on stderr");
}

#[tokio::test]
async fn a_result_one_byte_too_long_ends_the_run() {
    let print = |bytes: u32| command(&format!("(call $print (i32.const 1) (i32.const 65536) (i32.const {bytes}))"));
    assert_eq!(result(&run(&print(64 << 10), b"", &ROOMY).await).len(), 64 << 10);
    let larger = run(&print((64 << 10) + 1), b"", &ROOMY).await;
    assert_eq!(failure(&larger).kind, FailureKind::Output, "{:?}", larger.outcome);
    assert!(failure(&larger).message.contains("exceeds the limit of 65536 bytes"), "{}", failure(&larger).message);
    let giant = run(&print(20 << 20), b"", &ROOMY).await;
    assert_eq!(failure(&giant).kind, FailureKind::Output, "{:?}", giant.outcome);
}

#[tokio::test]
async fn a_command_that_traps_is_a_trap() {
    let trapped = run(&command("unreachable"), b"", &ROOMY).await;
    assert_eq!(failure(&trapped).kind, FailureKind::Trap);
}

#[tokio::test]
async fn a_command_runs_under_the_same_limits() {
    let spun = run(&command("(loop $again (br $again))"), b"", &Limits { fuel: 10_000, ..ROOMY }).await;
    assert_eq!(failure(&spun).kind, FailureKind::Fuel);
    let tight = run(&command(""), b"", &LIMITS).await;
    assert_eq!(failure(&tight).kind, FailureKind::Memory, "{:?}", tight.outcome);
}

/// A component that exports `wasi:cli/run` and answers with the given discriminant: 0 is ok, 1 an error.
fn command_component(answer: u32) -> Vec<u8> {
    let text = format!(
        r#"(component
            (core module $m (func (export "run") (result i32) (i32.const {answer})))
            (core instance $i (instantiate $m))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance $command (export "run" (func $run)))
            (export "wasi:cli/run@0.2.3" (instance $command)))"#
    );
    wat::parse_str(text).expect("the component parses")
}

#[tokio::test]
async fn a_component_that_is_a_program_runs_as_one() {
    assert_eq!(prepare(&command_component(0)).kind(), ModuleKind::Command);
    assert_eq!(result(&run(&command_component(0), b"", &ROOMY).await), b"");
    let failed = run(&command_component(1), b"", &ROOMY).await;
    assert_eq!(failure(&failed).kind, FailureKind::Exit);
    assert_eq!(failure(&failed).message, "exit code 1, and nothing on stderr");
}
