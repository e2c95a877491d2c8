//! Uploads: modules and components that nobody would write, real ones with bytes changed, and what is hardly wasm at all. Each
//! gets a verdict; what the verdict lets through is run, within little.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arbitrary::{Arbitrary as _, Unstructured};
use leasehold::job::Limits;
use leasehold::outcome::{FailureKind, Outcome};
use leasehold::sandbox::{PrepareError, RunControl};
use leasehold_tests::guests::{SANDBOX, command, core, job};
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::entry;

pub const TARGET: super::Target = super::Target { name: "upload", inputs: 600, share: 60, make, check };

/// A run takes milliseconds, whatever it does.
const LIMITS: Limits = Limits {
    fuel: 200_000,
    memory_bytes: 4 << 20,
    timeout: Duration::from_millis(20),
    result_bytes: 16 << 10,
    log_bytes: 4 << 10,
    follow_ups: 2,
};
/// How much chance a generated module is made of, in bytes.
const CHANCE_BYTES: usize = 4 << 10;

/// Modules that work, small ones, to be changed.
static REAL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/contract-1.0.0/noop.wasm");
    let mut real: Vec<_> = ["echo", "says", "random", "two_memories", "grow_table", "dead"].map(core).into();
    real.push(command("(call $cat)"));
    real.push(std::fs::read(fixture).expect("the fixture is there"));
    real
});

fn make(random: &mut StdRng) -> Vec<u8> {
    match random.random_range(0..10) {
        0..3 => program(random),
        3..5 => component(random),
        5..9 => changed(random),
        _ => hardly_wasm(random),
    }
}

fn chance(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = vec![0; random.random_range(16..CHANCE_BYTES)];
    random.fill(&mut bytes[..]);
    bytes
}

fn config(u: &mut Unstructured<'_>) -> wasm_smith::Config {
    let mut config = wasm_smith::Config::arbitrary(u).expect("there is chance left");
    // One module in a few uses what the engine refuses; else none would get any further.
    if u.ratio(9, 10).unwrap_or(true) {
        config.gc_enabled = false;
        config.exceptions_enabled = false;
        config.threads_enabled = false;
        config.memory64_enabled = false;
        config.custom_page_sizes_enabled = false;
        config.wide_arithmetic_enabled = false;
        config.custom_descriptors_enabled = false;
        config.shared_everything_threads_enabled = false;
    }
    config
}

fn program(random: &mut StdRng) -> Vec<u8> {
    let chance = chance(random);
    let mut u = Unstructured::new(&chance);
    let mut config = config(&mut u);
    // Names of imports are chance too, and nobody would offer them.
    (config.min_imports, config.max_imports) = (0, if u.ratio(9, 10).unwrap_or(true) { 0 } else { 3 });
    config.max_memories = 2;
    let Ok(module) = wasm_smith::Module::new(config, &mut u) else { return Vec::new() };
    let bytes = module.to_bytes();
    entry::with_entry(&bytes).unwrap_or(bytes)
}

fn component(random: &mut StdRng) -> Vec<u8> {
    let chance = chance(random);
    let mut u = Unstructured::new(&chance);
    let config = config(&mut u);
    wasm_smith::Component::new(config, &mut u).map(|component| component.to_bytes()).unwrap_or_default()
}

/// A real module with some bytes flipped, set, cut out, doubled, or taken from another one.
fn changed(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = REAL.choose(random).expect("some").clone();
    for _ in 0..random.random_range(1..8) {
        let at = random.random_range(0..bytes.len());
        let length = random.random_range(0..64.min(bytes.len() - at) + 1);
        match random.random_range(0..6) {
            0 | 1 => bytes[at] ^= 1 << random.random_range(0..8),
            2 => bytes[at] = *[0, 1, 0x7f, 0x80, 0xff].choose(random).expect("some"),
            3 => drop(bytes.drain(at..at + length)),
            4 => {
                let again = bytes[at..at + length].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let other = REAL.choose(random).expect("some");
                let from = random.random_range(0..other.len());
                let taken = other[from..other.len().min(from + length)].to_vec();
                bytes.splice(at..at + length, taken);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

fn hardly_wasm(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = chance(random);
    let start: &[u8] = match random.random_range(0..4) {
        0 => b"\0asm\x01\0\0\0",
        1 => b"\0asm\x0d\0\x01\0",
        2 => b"\x7fELF\x02\x01\x01\xc8",
        _ => b"",
    };
    bytes.splice(0..0, start.iter().copied());
    bytes
}

/// How many were let through and run.
static RAN: AtomicU64 = AtomicU64::new(0);

/// Says what share of the inputs was more than a verdict; without any, this would test half of what it should.
pub fn assert_some_ran() {
    let ran = RAN.load(Relaxed);
    println!("upload: {ran} of them were let through, and run");
    assert!(ran > 0, "nothing that was generated could be run");
}

fn check(bytes: &[u8]) -> Result<(), String> {
    let module = match SANDBOX.prepare(bytes) {
        Ok(module) => module,
        Err(problem @ (PrepareError::Compiler(_) | PrepareError::Host(_))) => return Err(problem.to_string()),
        Err(problem) if problem.to_string().chars().any(|c| c.is_control() && c != '\n' && c != '\t') => {
            return Err(format!("a verdict that is no clean text: {problem:?}"));
        }
        Err(_) => return Ok(()),
    };
    RAN.fetch_add(1, Relaxed);
    let run = super::values::block_on(SANDBOX.run(&module, job(b"payload"), &LIMITS, &RunControl::new()));
    match run.outcome {
        Outcome::Failed(failure) if failure.kind == FailureKind::Host => Err(failure.message),
        _ => Ok(()),
    }
}
