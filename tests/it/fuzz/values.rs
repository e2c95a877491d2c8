//! Values that a guest hands to the host: its answer, and what it calls `log` and `enqueue` with, of any bytes.

use std::sync::LazyLock;
use std::time::Duration;

use leasehold::job::Limits;
use leasehold::outcome::{FailureKind, Outcome, Run};
use leasehold::sandbox::{Prepared, RunControl};
use leasehold_tests::guests::{SANDBOX, core_from, job, prepare};
use rand::Rng as _;
use rand::rngs::StdRng;

pub const TARGET: super::Target = super::Target { name: "values", inputs: 1_000, share: 30, make, check };

const LIMITS: Limits = Limits {
    fuel: 1_000_000,
    memory_bytes: 4 << 20,
    timeout: Duration::from_secs(20),
    result_bytes: 16 << 10,
    log_bytes: 4 << 10,
    follow_ups: 3,
};
/// As much of a message as is kept, in bytes, when all of it becomes U+FFFD.
const MESSAGE_BYTES: usize = 3 * (64 << 10) + 100;

/// By its payload's first byte: answers with the rest as the answer itself, at the address that comes first; or calls the host
/// with the rest as arguments.
static GUEST: LazyLock<Prepared> = LazyLock::new(|| {
    prepare(&core_from(
        r#"(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
        (func $run (param $at i32) (param $len i32) (result i32)
          (local $what i32)
          (local.set $what (i32.load8_u (local.get $at)))
          (if (i32.eqz (local.get $what)) (then
            (memory.copy (i32.const 1024) (i32.add (local.get $at) (i32.const 8)) (i32.sub (local.get $len) (i32.const 8)))
            (return (i32.load offset=4 (local.get $at)))))
          (if (i32.eq (local.get $what) (i32.const 1)) (then
            (call $log (i32.load offset=8 (local.get $at)) (i32.load offset=12 (local.get $at)) (i32.load offset=16 (local.get $at)))))
          (if (i32.eq (local.get $what) (i32.const 2)) (then
            (call $enqueue
              (i32.load offset=8 (local.get $at)) (i32.load offset=12 (local.get $at)) (i32.load offset=16 (local.get $at))
              (i32.load offset=20 (local.get $at)) (i32.load offset=24 (local.get $at)) (i32.load offset=28 (local.get $at))
              (i32.load offset=32 (local.get $at)) (i32.load offset=36 (local.get $at)) (i32.load offset=40 (local.get $at))
              (i64.load offset=44 (local.get $at)) (i32.load offset=52 (local.get $at)) (i32.load offset=56 (local.get $at))
              (i32.load offset=60 (local.get $at)) (i32.load offset=64 (local.get $at)) (i32.load offset=68 (local.get $at))
              (i32.load offset=72 (local.get $at)) (i32.load offset=76 (local.get $at)))))
          (call $ok (local.get $at) (local.get $len)))"#,
    ))
});

fn make(random: &mut StdRng) -> Vec<u8> {
    let mut payload = vec![random.random_range(0..3), 0, 0, 0];
    let answer_at = if random.random_bool(0.9) { 1024 } else { number(random) };
    payload.extend(answer_at.to_le_bytes());
    for _ in 0..18 {
        payload.extend(number(random).to_le_bytes());
    }
    let mut text = vec![0; random.random_range(0..64)];
    random.fill(&mut text[..]);
    payload.extend(text);
    payload
}

/// Small ones are tags and lengths, larger ones addresses; some are neither.
fn number(random: &mut StdRng) -> u32 {
    match random.random_range(0..8) {
        0..4 => random.random_range(0..4),
        4..6 => random.random_range(0..70_000),
        6 => u32::MAX - random.random_range(0..70_000),
        _ => random.random(),
    }
}

fn check(payload: &[u8]) -> Result<(), String> {
    let run = block_on(SANDBOX.run(&GUEST, job(payload), &LIMITS, &RunControl::new()));
    bounded(&run)
}

fn bounded(run: &Run) -> Result<(), String> {
    if run.follow_ups.len() > 3 || run.log.bytes.len() as u64 > LIMITS.log_bytes {
        return Err(format!("{} follow-up jobs, {} bytes of log", run.follow_ups.len(), run.log.bytes.len()));
    }
    match &run.outcome {
        Outcome::Failed(failure) if failure.kind == FailureKind::Host => Err(failure.message.clone()),
        Outcome::Failed(failure) if failure.message.len() > MESSAGE_BYTES => Err("a message without end".into()),
        Outcome::Failed(failure) => super::stored::clean(&failure.message),
        Outcome::Done { result } if result.len() as u64 > LIMITS.result_bytes => Err("a result past its limit".into()),
        Outcome::Done { .. } | Outcome::Snoozed { .. } => Ok(()),
        Outcome::Stopped(stop) => Err(format!("nobody stopped it: {stop}")),
    }
}

/// On a runtime of this thread's own.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}
