//! The trap table, row by row: what a guest does against what becomes of its job.

use std::time::Duration;

use leasehold::job::Limits;
use leasehold::outcome::{FailureKind, Outcome};
use leasehold_tests::guests::{LIMITS, command, core, core_from, failure, result, run};

#[tokio::test]
async fn a_result_comes_back_as_it_is() {
    let echoed = run(&core("echo"), b"{\"n\": 1}", &LIMITS).await;
    assert_eq!(result(&echoed), b"{\"n\": 1}");
    assert_eq!(echoed.usage.result_bytes, 8);
    assert_eq!(echoed.usage.memory_peak_bytes, (64 << 10) + 8, "a page, and a table of one element");
    assert!(echoed.usage.fuel > 0 && echoed.usage.fuel < 10_000, "used {}", echoed.usage.fuel);
    assert!(echoed.usage.cpu > Duration::ZERO && echoed.usage.wall > Duration::ZERO);
}

#[tokio::test]
async fn a_guest_knows_which_attempt_it_is() {
    assert_eq!(result(&run(&core("attempt"), b"", &LIMITS).await), b"1");
}

#[tokio::test]
async fn retry_carries_its_message_and_its_delay() {
    let with_delay = run(&core("retry"), b"", &LIMITS).await;
    assert_eq!(failure(&with_delay).kind, FailureKind::GuestRetry);
    assert_eq!(failure(&with_delay).message, "no luck yet");
    assert_eq!(failure(&with_delay).delay, Some(Duration::from_millis(1500)));
    let without = run(&core("retry_when_you_like"), b"", &LIMITS).await;
    assert_eq!(failure(&without).delay, None);
}

#[tokio::test]
async fn dead_carries_its_message_without_nul_and_escapes() {
    let dead = run(&core("dead"), b"", &LIMITS).await;
    assert_eq!(failure(&dead).kind, FailureKind::GuestDead);
    assert_eq!(failure(&dead).message, "bad\u{fffd}input\u{fffd}[31m");
}

#[tokio::test]
async fn snooze_is_no_failure() {
    let snoozed = run(&core("snooze"), b"", &LIMITS).await;
    assert_eq!(snoozed.outcome, Outcome::Snoozed { delay: Duration::from_secs(60) });
}

#[tokio::test]
async fn a_panic_is_told_in_its_own_words() {
    let panicked = run(&core("unreachable"), b"", &LIMITS).await;
    let failure = failure(&panicked);
    assert_eq!(failure.kind, FailureKind::Trap);
    assert_eq!(failure.message, "panicked at src/lib.rs:7:5:\nboom");
    assert!(failure.backtrace.as_ref().is_some_and(|frames| frames.contains("run")), "{:?}", failure.backtrace);
}

#[tokio::test]
async fn traps_are_named() {
    for (guest, says) in [
        ("out_of_bounds", "out of bounds memory access"),
        ("divide_by_zero", "integer divide by zero"),
        ("null_call", "uninitialized element"),
    ] {
        let trapped = run(&core(guest), b"", &LIMITS).await;
        let failure = failure(&trapped);
        assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Trap, says), "{guest}");
        assert!(failure.backtrace.is_some(), "{guest} has a backtrace");
    }
}

#[tokio::test]
async fn endless_recursion_is_said_to_be_that_on_either_stack() {
    let wasm_stack = run(&core("recursion"), b"", &LIMITS).await;
    assert_eq!(failure(&wasm_stack).kind, FailureKind::Stack);
    assert!(failure(&wasm_stack).message.contains("524288 bytes"), "{}", failure(&wasm_stack).message);
    let shadow_stack = run(&core("shadow_stack"), b"", &LIMITS).await;
    assert_eq!(failure(&shadow_stack).kind, FailureKind::Trap);
    assert!(failure(&shadow_stack).message.contains("recursion without an end"), "{}", failure(&shadow_stack).message);
}

#[tokio::test]
async fn out_of_fuel_names_the_fuel() {
    let spun = run(&core("spin"), b"", &Limits { fuel: 1_000_000, ..LIMITS }).await;
    assert_eq!(failure(&spun).kind, FailureKind::Fuel);
    assert_eq!(failure(&spun).message, "out of fuel: used all of 1000000 instructions; raise --fuel");
    assert_eq!(spun.usage.fuel, 1_000_000);
}

#[tokio::test]
async fn a_broken_abi_is_the_modules_fault() {
    for guest in ["bad_pointer", "bad_discriminant", "bad_utf8"] {
        let broken = run(&core(guest), b"", &LIMITS).await;
        assert_eq!(failure(&broken).kind, FailureKind::Abi, "{guest}: {:?}", broken.outcome);
    }
}

#[tokio::test]
async fn too_much_in_one_call_is_the_modules_fault() {
    let flooded = run(&core("giant_checkpoint"), b"", &Limits { memory_bytes: 64 << 20, ..LIMITS }).await;
    assert_eq!(failure(&flooded).kind, FailureKind::Abi, "{:?}", flooded.outcome);
    assert!(failure(&flooded).message.contains("16777216 bytes"), "{}", failure(&flooded).message);
}

#[tokio::test]
async fn a_giant_message_is_cut_and_ends_nothing() {
    let logged =
        run(&core("giant_log"), b"ok", &Limits { memory_bytes: 64 << 20, log_bytes: 64 << 10, ..LIMITS }).await;
    assert_eq!(result(&logged), b"ok");
    let kept = 16 << 10;
    assert!(logged.log.to_text().ends_with(&format!("[... {} bytes more]\n", (20 << 20) - kept)));
}

#[tokio::test]
async fn exit_in_a_handler_is_no_result() {
    let exited = run(&core("exits"), b"", &LIMITS).await;
    assert_eq!(failure(&exited).kind, FailureKind::Exit);
    assert!(failure(&exited).message.contains("called exit"), "{}", failure(&exited).message);
}

#[tokio::test]
async fn a_trap_while_instantiating_is_a_trap() {
    let guest = "(func $boom unreachable) (start $boom)\n(func $run (param i32 i32) (result i32) unreachable)";
    let trapped = run(&core_from(guest), b"", &LIMITS).await;
    assert_eq!(failure(&trapped).kind, FailureKind::Trap);
}

#[tokio::test]
async fn a_guest_gets_no_arguments_no_environment_and_no_directories() {
    assert_eq!(result(&run(&core("looks_around"), b"", &LIMITS).await), b"000");
}

#[tokio::test]
async fn a_guest_cannot_hoard_handles_or_random_numbers() {
    for (guest, says) in
        [("hoards_handles", "holds 4096 handles"), ("random", "requested len 104857600 exceeds limit 1048576")]
    {
        let limits = Limits { memory_bytes: 256 << 20, ..LIMITS };
        let refused = run(&core(guest), b"", &limits).await;
        assert_eq!(failure(&refused).kind, FailureKind::Abi, "{guest}: {:?}", refused.outcome);
        assert!(failure(&refused).message.contains(says), "{guest}: {}", failure(&refused).message);
        assert!(refused.usage.memory_peak_bytes < 1 << 20, "{guest}: {:?}", refused.usage);
    }
}

#[tokio::test]
async fn limits_without_bound_are_no_mistake_of_the_hosts() {
    let limits = Limits {
        fuel: u64::MAX,
        memory_bytes: u64::MAX,
        timeout: Duration::MAX,
        result_bytes: u64::MAX,
        log_bytes: u64::MAX,
        follow_ups: u32::MAX,
    };
    assert_eq!(result(&run(&core("says"), b"1", &limits).await), b"1");
    assert_eq!(result(&run(&command("(call $cat)"), b"1", &limits).await), b"1");
}
