//! Goes wrong in the way that its payload names, to show and to test what the worker makes of it.
//!
//! Example payload: `{"fault": "dead"}`. The faults, and what ends them:
//!
//! | fault | the job |
//! | --- | --- |
//! | `dead`, `retry`, `snooze` | returns that failure; the last two take `after_ms` |
//! | `panic`, `exit` | panics; exits with code 3, as only a command may |
//! | `loop`, `fuel` | spins in an empty loop; computes, both until something stops them |
//! | `memory`, `recursion` | allocates, calls itself, both until a limit is met |
//! | `flood`, `big_result` | logs 20 MB and is done; returns 8 MiB |
//! | `sleep` | sleeps for `ms`, by default an hour, without looking up |
//! | `wait_for_cancel` | waits until somebody cancels it, and then ends in its own way |

use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

use leasehold_guest::prelude::*;

/// Many times what a log keeps.
const FLOOD_LINES: usize = 10_000;
const FLOOD_LINE_BYTES: usize = 1000;
/// Many times what a result may have, and little enough to fit into the memory of a job.
const BIG_RESULT_BYTES: usize = 8 << 20;
/// How much the memory fault takes at a time.
const BLOCK_BYTES: usize = 1 << 20;
/// How often a job that waits looks up: often enough for people, seldom enough to cost nothing.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const AN_HOUR_MS: u64 = 60 * 60 * 1000;

#[derive(Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
enum Fault {
    Dead,
    Retry { after_ms: Option<u64> },
    Snooze { after_ms: Option<u64> },
    Panic,
    Exit,
    Loop,
    Fuel,
    Memory,
    Recursion,
    Flood,
    BigResult,
    Sleep { ms: Option<u64> },
    WaitForCancel,
}

#[job]
fn faults(ctx: &Context, fault: Fault) -> Result<String, Failure> {
    match fault {
        Fault::Dead => Err(Failure::dead("the payload asked for dead")),
        Fault::Retry { after_ms: None } => Err(Failure::retry("the payload asked for a retry")),
        Fault::Retry { after_ms: Some(after_ms) } => {
            Err(Failure::retry_after("the payload asked for a retry", Duration::from_millis(after_ms)))
        }
        Fault::Snooze { after_ms } => Err(Failure::snooze(Duration::from_millis(after_ms.unwrap_or(1000)))),
        Fault::Panic => panic!("the payload asked for a panic"),
        Fault::Exit => std::process::exit(3),
        Fault::Loop => spin(),
        Fault::Fuel => compute(),
        Fault::Memory => allocate(),
        Fault::Recursion => Ok(descend(1).to_string()),
        Fault::Flood => Ok(flood()),
        Fault::BigResult => Ok("x".repeat(BIG_RESULT_BYTES)),
        Fault::Sleep { ms } => {
            let ms = ms.unwrap_or(AN_HOUR_MS);
            sleep(Duration::from_millis(ms));
            Ok(format!("slept for {ms} ms"))
        }
        Fault::WaitForCancel => wait_for_cancel(ctx),
    }
}

/// Nothing but a jump backwards: no call, no memory, no host.
fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Work that looks like work, with calls and memory.
fn compute() -> ! {
    let mut numbers: Vec<u64> = (0..1024).collect();
    loop {
        for number in &mut numbers {
            *number = scramble(*number);
        }
    }
}

#[inline(never)]
fn scramble(number: u64) -> u64 {
    black_box(number).wrapping_mul(6_364_136_223_846_793_005).rotate_left(17)
}

/// Every block is written to, so that it is memory and no mere promise.
fn allocate() -> ! {
    let mut blocks = Vec::new();
    loop {
        blocks.push(black_box(vec![1_u8; BLOCK_BYTES]));
    }
}

/// Has work left to do after its call, so that the call cannot become a jump.
#[allow(unconditional_recursion)] // is the point
fn descend(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    descend(depth + 1).wrapping_add(frame[3])
}

fn flood() -> String {
    let line = "x".repeat(FLOOD_LINE_BYTES);
    for number in 0..FLOOD_LINES {
        info!("{number} {line}");
        println!("{number} {line}");
    }
    format!("logged {FLOOD_LINES} lines of {FLOOD_LINE_BYTES} bytes, and printed as many")
}

fn wait_for_cancel(ctx: &Context) -> Result<String, Failure> {
    info!("waiting for somebody to cancel job {}", ctx.id());
    while !ctx.cancel_requested() {
        sleep(LOOK_EVERY);
    }
    info!("somebody did; tidying up");
    Err(Failure::dead("cancelled, and tidied up"))
}

// The faults that nothing but a sandbox can end have no test here.
#[cfg(test)]
mod tests {
    use leasehold_guest::testing::{self, MockContext, Value, json};

    use super::*;

    fn run(payload: Value) -> Result<Value, Failure> {
        testing::run(faults, &MockContext::new(), payload)
    }

    #[test]
    fn the_failures_are_those_that_were_asked_for() {
        assert_eq!(run(json!({ "fault": "dead" })), Err(Failure::dead("the payload asked for dead")));
        assert_eq!(run(json!({ "fault": "retry" })), Err(Failure::retry("the payload asked for a retry")));
        let retry = Failure::retry_after("the payload asked for a retry", Duration::from_millis(5));
        assert_eq!(run(json!({ "fault": "retry", "after_ms": 5 })), Err(retry));
        assert_eq!(run(json!({ "fault": "snooze" })), Err(Failure::snooze(Duration::from_secs(1))));
    }

    #[test]
    #[should_panic(expected = "the payload asked for a panic")]
    fn a_panic_is_one() {
        let _ = run(json!({ "fault": "panic" }));
    }

    #[test]
    fn a_fault_that_is_none_is_refused_with_the_list() {
        let failure = run(json!({ "fault": "earthquake" })).expect_err("there is no such fault");
        assert!(failure.message().is_some_and(|message| message.contains("`wait_for_cancel`")), "{failure}");
    }

    #[test]
    fn a_flood_is_logged_whole() {
        let mock = MockContext::new();
        testing::run(faults, &mock, json!({ "fault": "flood" })).expect("the job is done afterwards");
        assert_eq!(mock.log().len(), FLOOD_LINES);
    }

    #[test]
    fn a_big_result_is_big() {
        let result = run(json!({ "fault": "big_result" })).expect("natively nothing limits it");
        assert_eq!(result.as_str().map(str::len), Some(BIG_RESULT_BYTES));
    }

    #[test]
    fn it_sleeps_as_long_as_it_was_told_to() {
        assert_eq!(run(json!({ "fault": "sleep", "ms": 1 })), Ok(json!("slept for 1 ms")));
    }

    #[test]
    fn a_job_that_looks_ends_in_its_own_way_when_cancelled() {
        let mock = MockContext::new().with_cancel_requested_after(2);
        let result = testing::run(faults, &mock, json!({ "fault": "wait_for_cancel" }));
        assert_eq!(result, Err(Failure::dead("cancelled, and tidied up")));
        assert!(mock.log_text().ends_with("info somebody did; tidying up\n"));
    }
}
