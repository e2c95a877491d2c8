//! Runs with a clock and random numbers of their own: the same each time, and no time goes by.

use std::time::{Duration, Instant};

use leasehold::job::{Deterministic, Limits};
use leasehold::outcome::{FailureKind, Run};
use leasehold::sandbox::{JobInput, RunControl};
use leasehold_tests::guests::{LIMITS, SANDBOX, command, core_from, failure, job, prepare, result};

const HOUR: Duration = Duration::from_secs(3600);
/// The time of day at which they all begin, in seconds since 1970.
const STARTS_AT: u64 = 1_767_225_600;
/// Room for a day of virtual time and for the command's memory.
const LONG: Limits = Limits { timeout: Duration::from_secs(86_400), memory_bytes: 64 << 20, ..LIMITS };

async fn run(module: &[u8], limits: &Limits, seed: u64) -> Run {
    let deterministic = Some(Deterministic { starts_at: Duration::from_secs(STARTS_AT), seed });
    let job = JobInput { deterministic, ..job(b"") };
    SANDBOX.run(&prepare(module), job, limits, &RunControl::new()).await
}

/// The same guest as a component and as a command: 16 random bytes, then the wall clock after a sleep of an hour.
fn guests() -> [Vec<u8>; 2] {
    let body = |random, poll, time| {
        format!(
            r#"(drop (call {random} (i32.const 3000) (i32.const 16)))
            (i32.store (i32.const 3088) (i32.const 1))
            (i64.store (i32.const 3096) (i64.const 3600000000000))
            (drop (call {poll} (i32.const 3072) (i32.const 3208) (i32.const 1) (i32.const 3200)))
            (drop (call {time} (i32.const 0) (i64.const 1) (i32.const 3016)))"#
        )
    };
    let body = body("$random", "$poll", "$time");
    let imports = r#"(import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "clock_time_get" (func $time (param i32 i64 i32) (result i32)))"#;
    let component = core_from(&format!(
        "{imports}\n(import \"wasi_snapshot_preview1\" \"poll_oneoff\" (func $poll (param i32 i32 i32 i32) (result i32)))
        (func $run (param i32 i32) (result i32) {body} (call $ok (i32.const 3000) (i32.const 24)))"
    ));
    let program = format!(
        r#"(module
        {imports}
        (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "_start")
          {body}
          (i32.store (i32.const 1024) (i32.const 3000))
          (i32.store (i32.const 1028) (i32.const 24))
          (drop (call $write (i32.const 1) (i32.const 1024) (i32.const 1) (i32.const 1032)))))"#
    );
    [component, wat::parse_str(&program).expect("it parses")]
}

#[tokio::test]
async fn the_same_seed_makes_the_same_run_and_an_hour_takes_no_time() {
    for guest in guests() {
        let began = Instant::now();
        let first = run(&guest, &LONG, 7).await;
        let (numbers, clock) = result(&first).split_at(16);
        assert_eq!(result(&run(&guest, &LONG, 7).await), result(&first), "the same numbers and the same time");
        assert_ne!(&result(&run(&guest, &LONG, 8).await)[..16], numbers, "another seed");
        let nanos = u64::from_le_bytes(clock.try_into().expect("8 bytes"));
        assert_eq!(nanos / 1_000_000_000, STARTS_AT + HOUR.as_secs());
        assert!(first.usage.wall >= HOUR, "the run says how long it would have taken: {:?}", first.usage.wall);
        assert!(began.elapsed() < HOUR / 60, "and took {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_run_whose_time_is_over_by_its_own_clock_has_timed_out() {
    let limits = Limits { timeout: Duration::from_secs(60), ..LONG };
    for guest in guests() {
        let late = run(&guest, &limits, 1).await;
        assert_eq!(failure(&late).kind, FailureKind::Timeout);
        assert!(failure(&late).message.starts_with("ran for 60000 ms; the limit is 60000 ms"), "{:?}", late.outcome);
    }
}

#[tokio::test]
async fn of_several_clocks_the_first_ends_a_programs_poll() {
    // The second of a minute, the first of an hour.
    let program = command(
        r#"(i32.store (i32.const 3088) (i32.const 1))
        (i64.store (i32.const 3096) (i64.const 3600000000000))
        (i64.store (i32.const 3120) (i64.const 77))
        (i32.store (i32.const 3136) (i32.const 0))
        (i64.store (i32.const 3144) (i64.const 60000000000))
        (drop (call $poll (i32.const 3072) (i32.const 3208) (i32.const 2) (i32.const 3200)))
        (call $print (i32.const 1) (i32.const 3200) (i32.const 16))"#,
    );
    let polled = run(&program, &LONG, 1).await;
    assert_eq!(result(&polled)[..4], 1_u32.to_le_bytes(), "one event");
    assert_eq!(result(&polled)[8..], 77_u64.to_le_bytes(), "of the second");
    assert!((60..61).contains(&polled.usage.wall.as_secs()), "{:?}", polled.usage.wall);
}
