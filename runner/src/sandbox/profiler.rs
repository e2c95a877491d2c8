//! Where the fuel of a run goes, by the guest's functions. Samples are taken by fuel and not by time, so that the same run
//! gives the same profile on any machine, however busy: wasmtime hands the run back to us every so many instructions, we
//! advance the epoch, and the guest meets its callback, which may look at the stack, at that same place. (A hook for the
//! first would do without the second; wasmtime has none.) Each sample is charged with all fuel since the one before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use wasmtime::{FrameInfo, StoreContextMut, WasmBacktrace};

use super::state::State;
use crate::outcome::clip_text;

/// A stack may be looked at after so much fuel. The smallest job of a Rust guest uses some ten thousand.
pub(super) const EVERY_FUEL: u64 = 1_000;
/// After so many looks only every second one is taken, and so on: a long run needs no more samples than a short one.
const SAMPLES: u64 = 4_096;
/// How much of a function's name is kept, in bytes.
const NAME_BYTES: usize = 200;

/// How much fuel went into which stack of calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Function names from the outermost call inwards, separated by `;`, and their fuel; in the order of their names.
    pub stacks: Vec<(String, u64)>,
    pub samples: u64,
}

impl Profile {
    /// The format that tools for flame graphs read.
    pub fn folded(&self) -> String {
        self.stacks.iter().map(|(stack, fuel)| format!("{stack} {fuel}\n")).collect()
    }
}

/// Shared by whoever polls a run and its epoch's callback.
#[derive(Clone, Default)]
pub(super) struct Profiler(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_due: AtomicBool,
    samples: Mutex<Samples>,
}

#[derive(Default)]
struct Samples {
    by_stack: HashMap<Vec<u32>, u64>,
    numbers: HashMap<Function, u32>,
    names: Vec<String>,
    /// The fuel that was left at the last look, and at the last sample.
    left_at_look: u64,
    left_at_sample: u64,
    taken: u64,
    /// Looks since the last sample, and how many make one.
    looks: u64,
    looks_a_sample: u64,
}

/// A function's module, as it calls itself, its number in it and its name. The modules of a component have nothing else that tells
/// them apart.
type Function = (Option<String>, u32, Option<String>);

impl Profiler {
    pub fn new(fuel: u64) -> Self {
        let samples = Samples { left_at_look: fuel, left_at_sample: fuel, looks_a_sample: 1, ..Samples::default() };
        Self(Arc::new(Shared { is_due: AtomicBool::new(false), samples: Mutex::new(samples) }))
    }

    /// The next time that the guest meets its epoch's callback is time for a look.
    pub fn look(&self) {
        self.0.is_due.store(true, Relaxed);
    }

    /// Takes a sample, if it is time for one.
    pub fn meet(&self, store: &StoreContextMut<'_, State>) {
        if !self.0.is_due.swap(false, Relaxed) {
            return;
        }
        let left = store.get_fuel().unwrap_or(0);
        let mut samples = self.0.samples.lock().unwrap_or_else(PoisonError::into_inner);
        // A guest that waits in a host call comes by as well, or not, as the clock has it. It has used less since the last look:
        // else it would have been handed back on the way.
        if samples.left_at_look.saturating_sub(left) < EVERY_FUEL {
            return;
        }
        samples.left_at_look = left;
        samples.looks += 1;
        if samples.looks >= samples.looks_a_sample {
            let used = samples.left_at_sample.saturating_sub(left);
            samples.take(&WasmBacktrace::force_capture(store), used);
            samples.left_at_sample = left;
        }
    }

    pub fn finish(&self) -> Profile {
        let samples = self.0.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |number: &u32| samples.names[*number as usize].as_str();
        let stacks = samples.by_stack.iter().map(|(stack, fuel)| {
            let names: Vec<_> = stack.iter().map(name).collect();
            (names.join(";"), *fuel)
        });
        let mut stacks: Vec<_> = stacks.collect();
        stacks.sort_unstable();
        Profile { stacks, samples: samples.taken }
    }
}

impl Samples {
    fn take(&mut self, backtrace: &WasmBacktrace, used: u64) {
        let stack = backtrace.frames().iter().rev().map(|frame| self.number(frame)).collect();
        *self.by_stack.entry(stack).or_default() += used;
        self.looks = 0;
        self.taken += 1;
        if self.taken.is_multiple_of(SAMPLES) {
            self.looks_a_sample *= 2;
        }
    }

    fn number(&mut self, frame: &FrameInfo) -> u32 {
        let function =
            (frame.module().name().map(str::to_owned), frame.func_index(), frame.func_name().map(str::to_owned));
        let names = &mut self.names;
        *self.numbers.entry(function).or_insert_with(|| {
            names.push(name_of(frame));
            u32::try_from(names.len() - 1).expect("a module has fewer functions")
        })
    }
}

/// Without what separates names and numbers in a profile, nor the hashes that compilers add.
fn name_of(frame: &FrameInfo) -> String {
    let Some(name) = frame.func_name() else { return format!("function-{}", frame.func_index()) };
    let name = format!("{:#}", rustc_demangle::demangle(name));
    clip_text(name.replace(';', ":").replace('\n', " ").as_bytes(), NAME_BYTES)
}
