//! Guests that sleep: never for less than they asked, not for much longer, and not past a stop.

use std::time::{Duration, Instant};

use leasehold::job::Limits;
use leasehold::outcome::{FailureKind, Outcome, Run, Stop};
use leasehold::sandbox::RunControl;
use leasehold_tests::guests::{LIMITS, SANDBOX, command, failure, job, nap, prepare, result, run};

/// The command's own memory is larger than most tests' limit.
const ROOMY: Limits = Limits { memory_bytes: 64 << 20, ..LIMITS };

/// A program that polls `count` clocks, of which the first has the given time and flags and the second an hour. Its result
/// is the number of events, poll's answer and the first event.
fn polls(count: u32, clock: u32, time: Duration, flags: u32) -> Vec<u8> {
    let nanos = time.as_nanos();
    command(&format!(
        r#"(i64.store (i32.const 3072) (i64.const 0x1122334455667788))
        (i32.store (i32.const 3088) (i32.const {clock}))
        (i64.store (i32.const 3096) (i64.const {nanos}))
        (i32.store (i32.const 3112) (i32.const {flags}))
        (i32.store (i32.const 3136) (i32.const 1))
        (i64.store (i32.const 3144) (i64.const 3600000000000))
        (i64.store (i32.const 3208) (i64.const -1))
        (i32.store (i32.const 3204) (call $poll (i32.const 3072) (i32.const 3208) (i32.const {count}) (i32.const 3200)))
        (call $print (i32.const 1) (i32.const 3200) (i32.const 40))"#
    ))
}

/// One event, poll's own success, and in the event the guest's number, no error, and a clock.
const SLEPT: [u8; 19] = [1, 0, 0, 0, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0];

#[track_caller]
fn assert_slept(run: &Run, time: Duration, what: &str) {
    let answer = result(run);
    assert_eq!(answer[..19], SLEPT, "{what}");
    assert!(run.usage.wall >= time, "{what} ended early, after {:?}", run.usage.wall);
}

#[tokio::test]
async fn a_component_never_sleeps_for_less_than_it_asked() {
    let module = nap();
    for nanos in [1, 999, 100_000, 2_000_000, 12_345_678] {
        let slept = run(&module, &u64::to_le_bytes(nanos), &LIMITS).await;
        assert_eq!(result(&slept), nanos.to_le_bytes());
        assert!(slept.usage.wall >= Duration::from_nanos(nanos), "{nanos} ns took {:?}", slept.usage.wall);
    }
}

#[tokio::test]
async fn a_program_never_sleeps_for_less_than_it_asked() {
    for micros in [0, 1, 100, 2_000, 12_345] {
        let time = Duration::from_micros(micros);
        for clock in [0, 1] {
            assert_slept(&run(&polls(1, clock, time, 0), b"", &ROOMY).await, time, "alone");
        }
        // Monotonic time counts from a moment before the program began.
        let until = run(&polls(1, 1, time, 1), b"", &ROOMY).await;
        assert_eq!(result(&until)[..19], SLEPT, "until {time:?}");
        assert_slept(&run(&polls(2, 1, time, 0), b"", &ROOMY).await, time, "beside an hour");
    }
}

#[tokio::test]
async fn a_program_that_waits_until_a_moment_waits_for_it() {
    let time = Duration::from_millis(50);
    let until = run(&polls(1, 1, time, 1), b"", &ROOMY).await;
    // The clock was started after the run was and the sleep ends by the clock.
    assert_slept(&until, time, "until a moment");
    assert!(until.usage.cpu < time / 2, "it slept: {:?}", until.usage);
}

#[tokio::test]
async fn a_clock_that_cannot_be_waited_for_and_a_bad_pointer_are_told() {
    let cpu_time = run(&polls(1, 2, Duration::from_millis(1), 0), b"", &ROOMY).await;
    assert_eq!(result(&cpu_time)[4..8], 28_u32.to_le_bytes(), "EINVAL");
    let outside = command(
        r#"(i32.store (i32.const 3088) (i32.const 1))
        (i64.store (i32.const 3096) (i64.const 1000))
        (i32.store (i32.const 3204) (call $poll (i32.const 3072) (i32.const -8) (i32.const 1) (i32.const 3200)))
        (call $print (i32.const 1) (i32.const 3200) (i32.const 40))"#,
    );
    let outside = run(&outside, b"", &ROOMY).await;
    assert_eq!(failure(&outside).kind, FailureKind::Abi, "{:?}", outside.outcome);
}

/// tokio's timers make about 3.1 ms of each, and less only of the few that begin just before a tick. A busy machine delays
/// some, hardly all: of the quickest tenth the slowest is asked.
#[tokio::test]
async fn two_milliseconds_are_not_three() {
    let time = Duration::from_millis(2);
    let programs = [(nap(), time.as_nanos().to_le_bytes()[..8].to_vec()), (polls(1, 1, time, 0), Vec::new())];
    for (bytes, payload) in programs {
        let module = prepare(&bytes);
        let mut took = Vec::new();
        for _ in 0..200 {
            let slept = SANDBOX.run(&module, job(&payload), &ROOMY, &RunControl::new()).await;
            assert!(matches!(slept.outcome, Outcome::Done { .. }), "{:?}", slept.outcome);
            took.push(slept.usage.wall);
        }
        took.sort_unstable();
        assert!(took[0] >= time, "one took {:?}", took[0]);
        assert!(took[20] < Duration::from_micros(2_900), "nearly all of 200 took {:?} and more", took[20]);
    }
}

#[tokio::test]
async fn a_stop_wakes_a_sleeping_program() {
    let module = prepare(&polls(1, 1, Duration::from_secs(3_600), 0));
    for stop in [Stop::Cancelled, Stop::LeaseLost, Stop::Shutdown] {
        let control = RunControl::new();
        let run = SANDBOX.run(&module, job(b""), &ROOMY, &control);
        let asked = Instant::now();
        let (run, ()) = tokio::join!(run, async { control.stop(stop) });
        assert_eq!(run.outcome, Outcome::Stopped(stop));
        assert!(asked.elapsed() < Duration::from_secs(2), "it took {:?} to stop", asked.elapsed());
    }
}

#[tokio::test]
async fn many_guests_sleep_at_once() {
    let module = prepare(&nap());
    let sleeps = (0..50_u64).map(async |n| {
        let nanos = n * 1_000_003 % 20_000_000;
        let slept = SANDBOX.run(&module, job(&nanos.to_le_bytes()), &LIMITS, &RunControl::new()).await;
        assert_eq!(result(&slept), nanos.to_le_bytes());
        assert!(slept.usage.wall >= Duration::from_nanos(nanos), "{nanos} ns took {:?}", slept.usage.wall);
    });
    futures_util::future::join_all(sleeps).await;
}
