//! From what wasmtime says to what became of the job. wasmtime's errors end in this file: everything above knows only
//! `Outcome`. The order of the questions matters, because an error may be several things at once: our own typed errors
//! come first (they say exactly what happened), then exits, then traps, and what is left had no type.

use std::any::Any;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use wasmtime::component::ResourceTableError;
use wasmtime::{Error, PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::backtrace;
use super::engine::WASM_STACK_BYTES;
use super::host::bindings::leasehold::job::types;
use super::limiter::{MemoryLimit, MemoryRefused, TableLimit};
use super::state::HANDLES;
use super::stdio::{OutputLimit, ResultBuffer};
use crate::job::{Limits, ModuleKind};
use crate::outcome::{Failure, FailureKind, Log, Outcome, Stop, clean_text, clip_text};
use crate::secrets::Secrets;

/// How much of a failure's message is kept, in bytes, as the contract says.
const MESSAGE_BYTES: usize = 64 << 10;
/// How far back the log is searched for a panic's message, in bytes, and how many lines of it are quoted.
const PANIC_SEARCH_BYTES: usize = 4 << 10;
const PANIC_LINES: usize = 8;

/// Exit codes with a meaning, from sysexits.h.
const EX_DATAERR: i32 = 65;

/// Why the epoch's callback or a host function ends a guest.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum Interrupt {
    #[error("the run's time is over")]
    Deadline,
    #[error("the run was stopped: {0}")]
    Stopped(Stop),
}

/// What is known about a run besides its error.
pub(super) struct Facts<'a> {
    pub kind: ModuleKind,
    pub limits: &'a Limits,
    pub elapsed: Duration,
    /// Whether the module was instantiated before it failed.
    pub instantiated: bool,
    /// The most bytes that the guest may pass to the host in one call.
    pub hostcall_bytes: usize,
    pub log: &'a Log,
    /// The result of a command so far.
    pub stdout: Option<&'a ResultBuffer>,
}

/// What an error of wasmtime means for the job.
pub(super) fn outcome_of(error: &Error, facts: &Facts<'_>) -> Outcome {
    let fail = |kind, message: String| {
        let backtrace = error.downcast_ref::<WasmBacktrace>().map(backtrace::text);
        Outcome::Failed(Failure { kind, message: bounded(&message), backtrace, delay: None })
    };
    if let Some(interrupt) = error.downcast_ref::<Interrupt>() {
        return match interrupt {
            Interrupt::Stopped(stop) => Outcome::Stopped(*stop),
            Interrupt::Deadline => fail(FailureKind::Timeout, timeout_message(facts)),
        };
    }
    if let Some(limit) = error.downcast_ref::<MemoryLimit>() {
        return fail(FailureKind::Memory, format!("{limit}; raise --memory"));
    }
    if let Some(limit) = error.downcast_ref::<TableLimit>() {
        return fail(FailureKind::Memory, limit.to_string());
    }
    if let Some(refused) = error.downcast_ref::<MemoryRefused>() {
        return fail(FailureKind::Host, refused.to_string());
    }
    if let Some(limit) = error.downcast_ref::<OutputLimit>() {
        return fail(FailureKind::Output, output_message(limit));
    }
    if let Some(full) = error.downcast_ref::<PoolConcurrencyLimitError>() {
        return fail(FailureKind::Host, format!("the worker has no free slot: {full}"));
    }
    if let Some(ResourceTableError::Full) = error.downcast_ref::<ResourceTableError>() {
        return fail(
            FailureKind::Abi,
            format!("holds {HANDLES} handles (streams, pollables) and wants more; drop them"),
        );
    }
    if is_hosts_fault(error) {
        return fail(FailureKind::Host, format!("the worker lacks what the run needs: {error:#}"));
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return exited(exit.0, facts);
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        let (kind, message) = trap_failure(*trap, error.downcast_ref::<WasmBacktrace>(), facts);
        return fail(kind, message);
    }
    if error.root_cause().to_string().contains(HOSTCALL_EXHAUSTED) {
        // While a host function reads its arguments there is wasm on the stack; while we read the result there is none.
        return if error.is::<WasmBacktrace>() {
            let bytes = facts.hostcall_bytes;
            fail(
                FailureKind::Abi,
                format!("passed more than {bytes} bytes to the worker in one call; pass less at a time"),
            )
        } else {
            let wanted = facts.hostcall_bytes as u64 + 1;
            let limit = OutputLimit { limit: facts.limits.result_bytes, wanted, complete: false };
            fail(FailureKind::Output, output_message(&limit))
        };
    }
    let text = error.root_cause().to_string();
    if facts.instantiated {
        fail(FailureKind::Abi, format!("the module broke the rules of its interface: {text}"))
    } else {
        fail(FailureKind::Link, format!("the module does not instantiate: {error:#}"))
    }
}

/// Whether the operating system refused something: memory, address space, a file descriptor.
pub(super) fn is_hosts_fault(error: &Error) -> bool {
    error.is::<wasmtime::OutOfMemory>() || error.is::<io::Error>() || error.is::<Errno>()
}

/// The text of wasmtime's error without a type for "copies too much between guest and host". Pinned by a test.
const HOSTCALL_EXHAUSTED: &str = "fuel allocated for hostcalls has been exhausted";

fn trap_failure(trap: Trap, frames: Option<&WasmBacktrace>, facts: &Facts<'_>) -> (FailureKind, String) {
    match trap {
        Trap::OutOfFuel => {
            (FailureKind::Fuel, format!("out of fuel: used all of {} instructions; raise --fuel", facts.limits.fuel))
        }
        // The callback answers every tick with an error of our own, so this is a deadline too, whoever set it.
        Trap::Interrupt => (FailureKind::Timeout, timeout_message(facts)),
        Trap::StackOverflow => (
            FailureKind::Stack,
            format!("call stack exhausted: it has {WASM_STACK_BYTES} bytes{}", backtrace::recursion(frames)),
        ),
        Trap::UnreachableCodeReached => (FailureKind::Trap, panic_message(facts.log)),
        Trap::CannotEnterComponent
        | Trap::CannotLeaveComponent
        | Trap::NoAsyncResult
        | Trap::AsyncDeadlock
        | Trap::CannotBlockSyncTask
        | Trap::InvalidChar
        | Trap::StringOutOfBounds
        | Trap::ListOutOfBounds
        | Trap::InvalidDiscriminant
        | Trap::UnalignedPointer
        | Trap::ReferenceCountOverflow => {
            (FailureKind::Abi, format!("the module broke the rules of its interface: {}", trap_text(trap)))
        }
        // wasmtime may add kinds of traps; until we know better, each is the guest's own.
        _ => (FailureKind::Trap, format!("{}{}", trap_text(trap), backtrace::recursion(frames))),
    }
}

fn trap_text(trap: Trap) -> String {
    trap.to_string().trim_start_matches("wasm trap: ").to_owned()
}

/// A command's end.
pub(super) fn exited(code: i32, facts: &Facts<'_>) -> Outcome {
    let kind = match (facts.kind, code) {
        (ModuleKind::Command, 0) => {
            return Outcome::Done { result: facts.stdout.map(ResultBuffer::take).unwrap_or_default() };
        }
        (ModuleKind::Command, EX_DATAERR) => FailureKind::GuestDead,
        (ModuleKind::Command, _) => FailureKind::Exit,
        (ModuleKind::Component, _) => {
            // Which code it was is lost: WASI 0.2 only knows success and failure.
            let how = if code == 0 { "" } else { " with an error code" };
            return failed(FailureKind::Exit, &format!("the handler called exit{how} instead of returning"));
        }
    };
    let message = match last_line(facts.log) {
        Some(line) => format!("{line} (exit code {code})"),
        None => format!("exit code {code}, and nothing on stderr"),
    };
    failed(kind, &message)
}

/// A handler's own answer when it has no result. Values of secrets go before the message is cleaned and cut, or they would
/// not be known again.
pub(super) fn returned(failure: types::Failure, secrets: &Secrets) -> Outcome {
    let (kind, message, delay) = match failure {
        types::Failure::Retry(retry) => {
            (FailureKind::GuestRetry, retry.message, retry.delay_ms.map(Duration::from_millis))
        }
        types::Failure::Dead(message) => (FailureKind::GuestDead, message, None),
        types::Failure::Snooze(delay_ms) => return Outcome::Snoozed { delay: Duration::from_millis(delay_ms) },
    };
    Outcome::Failed(Failure { kind, message: bounded(&secrets.redact_text(message)), backtrace: None, delay })
}

/// The deadline passed while the guest waited in a host call.
pub(super) fn timed_out(facts: &Facts<'_>) -> Outcome {
    failed(FailureKind::Timeout, &timeout_message(facts))
}

/// The result is complete and too large.
pub(super) fn result_too_large(wanted: u64, facts: &Facts<'_>) -> Outcome {
    let limit = OutputLimit { limit: facts.limits.result_bytes, wanted, complete: true };
    failed(FailureKind::Output, &output_message(&limit))
}

/// The payload alone is larger than all the memory that the guest may have.
pub(super) fn payload_too_large(payload_bytes: usize, limits: &Limits) -> Outcome {
    let limit = limits.memory_bytes;
    failed(
        FailureKind::Memory,
        &format!(
            "payload of {payload_bytes} bytes does not fit into the memory limit of {limit} bytes; raise --memory"
        ),
    )
}

/// A host function panicked, which is our own fault.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> Outcome {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    failed(FailureKind::Host, &format!("the worker panicked during the run: {text}"))
}

fn failed(kind: FailureKind, message: &str) -> Outcome {
    Outcome::Failed(Failure { kind, message: bounded(message), backtrace: None, delay: None })
}

fn timeout_message(facts: &Facts<'_>) -> String {
    format!(
        "ran for {} ms; the limit is {} ms; raise --timeout",
        facts.elapsed.as_millis(),
        facts.limits.timeout.as_millis()
    )
}

fn output_message(limit: &OutputLimit) -> String {
    format!("{limit}; return less or raise --result-limit")
}

/// What a Rust panic said, from the end of the log; without one, the last line of the log.
fn panic_message(log: &Log) -> String {
    let text = clean_text(&log.tail(PANIC_SEARCH_BYTES));
    if let Some(start) = text.rfind("panicked at ") {
        let lines: Vec<_> = text[start..]
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with("note: run with `RUST_BACKTRACE"))
            .take(PANIC_LINES)
            .collect();
        return lines.join("\n");
    }
    let trap = trap_text(Trap::UnreachableCodeReached);
    match last_line(log) {
        Some(line) => format!("{trap}; the log ends with: {line}"),
        None => format!("{trap}, and nothing in the log"),
    }
}

fn last_line(log: &Log) -> Option<String> {
    let end = log.lines.iter().rposition(|line| !line.text.trim_ascii().is_empty())?;
    let begin = log.lines[..=end].iter().rposition(|line| line.begins).unwrap_or(end);
    let line = log.lines[begin..=end].iter().flat_map(|line| line.text.iter().copied()).collect::<Vec<_>>();
    let line = line.split(|byte| *byte == b'\n').rfind(|line| !line.trim_ascii().is_empty())?;
    Some(clip_text(line.trim_ascii(), MESSAGE_BYTES))
}

/// A message that is safe to keep: no control characters, and of a bounded length.
fn bounded(message: &str) -> String {
    clip_text(message.as_bytes(), MESSAGE_BYTES)
}
