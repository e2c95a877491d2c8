//! Generated input for whatever reads what a stranger wrote: no panic, no hang, no fault of the worker's own.
//!
//! An ordinary run takes seconds and is the same each time. A long one:
//!
//!     LEASEHOLD_FUZZ_INPUTS=100000 LEASEHOLD_FUZZ_SEED=7 cargo nextest run --workspace --test it -E 'test(/^fuzz::/)' --no-capture
//!
//! An input that fails is written to tests/fuzz/seeds/TARGET and met by every run from then on.

mod entry;
mod stored;
mod upload;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;

pub use entry::write as write_number;

/// How long one input may take on a machine that has other things to do. The longest seen took a second.
const HANG: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Something that reads input: how one is made, and what must hold for it.
#[derive(Clone, Copy)]
struct Target {
    name: &'static str,
    /// Inputs of an ordinary run, which takes seconds.
    inputs: u64,
    /// Its share of a long run's inputs, in percent.
    share: u64,
    make: fn(&mut StdRng) -> Vec<u8>,
    /// Panics, or says what is wrong.
    check: fn(&[u8]) -> Result<(), String>,
}

impl Target {
    fn run(self) {
        let inputs = setting("LEASEHOLD_FUZZ_INPUTS").map_or(self.inputs, |all: u64| all * self.share / 100);
        let first: u64 = setting("LEASEHOLD_FUZZ_SEED").unwrap_or(0);
        let started = Instant::now();
        let kept = self.kept();
        for (path, input) in &kept {
            self.check(input).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()));
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (next, slots) = (AtomicU64::new(0), vec![Slot::default(); threads]);
        std::thread::scope(|scope| {
            let all: Vec<_> = slots.iter().map(|slot| scope.spawn(|| self.work(first, inputs, &next, slot))).collect();
            while !all.iter().all(|thread| thread.is_finished()) {
                std::thread::sleep(LOOK);
                if let Some((input, _)) = slots.iter().find_map(Slot::hangs) {
                    // Nothing can end a thread that hangs but the end of the process.
                    eprintln!("{}: an input takes more than {HANG:?}: {}", self.name, self.keep(&input).display());
                    std::process::exit(1);
                }
            }
        });
        println!("{}: {} kept and {inputs} generated inputs in {:?}", self.name, kept.len(), started.elapsed());
    }

    fn work(self, first: u64, inputs: u64, next: &AtomicU64, slot: &Slot) {
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= inputs {
                return;
            }
            let mut random = StdRng::seed_from_u64(first.wrapping_add(number));
            let input = (self.make)(&mut random);
            slot.begin(&input);
            if let Err(problem) = self.check(&input) {
                panic!("{} of seed {}: {problem}; kept as {}", self.name, first + number, self.keep(&input).display());
            }
            slot.end();
        }
    }

    fn check(self, input: &[u8]) -> Result<(), String> {
        catch_unwind(AssertUnwindSafe(|| (self.check)(input))).unwrap_or_else(|_| Err("it panicked".into()))
    }

    fn folder(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(self.name)
    }

    fn kept(self) -> Vec<(PathBuf, Vec<u8>)> {
        let Ok(entries) = std::fs::read_dir(self.folder()) else { return Vec::new() };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths.into_iter().map(|path| (path.clone(), std::fs::read(&path).expect("a seed can be read"))).collect()
    }

    fn keep(self, input: &[u8]) -> PathBuf {
        let path = self.folder().join(format!("{}.bin", &leasehold_tests::scenario::digest(input)[..12]));
        std::fs::create_dir_all(self.folder()).and_then(|()| std::fs::write(&path, input)).expect("seeds can be kept");
        path
    }
}

/// What a thread is at, and since when.
#[derive(Default)]
struct Slot(Mutex<Option<(Vec<u8>, Instant)>>);

impl Clone for Slot {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Slot {
    fn begin(&self, input: &[u8]) {
        *self.0.lock().expect("nobody panics with it") = Some((input.to_vec(), Instant::now()));
    }

    fn end(&self) {
        *self.0.lock().expect("nobody panics with it") = None;
    }

    fn hangs(&self) -> Option<(Vec<u8>, Instant)> {
        self.0.lock().expect("nobody panics with it").clone().filter(|(_, since)| since.elapsed() > HANG)
    }
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

#[test]
fn no_upload_is_more_than_a_verdict() {
    upload::TARGET.run();
    upload::assert_some_ran();
}

#[test]
fn no_value_of_a_guest_is_more_than_its_own_failure() {
    values::TARGET.run();
}

#[test]
fn no_text_of_a_guest_is_more_than_text() {
    stored::TARGET.run();
}
