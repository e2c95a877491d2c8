//! What a component may call: `leasehold:job/host`. None of it can fail, block or grow without bound. After a stop
//! every call ends the guest instead, so that a run whose lease is lost can do nothing more.

use wasmtime::StoreContextMut;
use wasmtime::component::Linker;

use super::bounded_text::BoundedText;
use super::failure::Interrupt;
use super::imports::{CONTRACT_VERSION, NAME_BYTES};
use super::state::State;
use crate::outcome::{FollowUp, LogStream, Progress, clip_text};
use crate::secrets::MAX_VALUE_BYTES;
use bindings::leasehold::job::host::Host;
use bindings::leasehold::job::types::{self, Level, SecretError};

pub(super) mod bindings {
    wasmtime::component::bindgen!({
        path: "../guest-sdk/wit",
        world: "job",
        imports: { default: trappable },
        exports: { default: async },
    });
}

/// How much of one message is kept, in bytes. One giant message must not push all others out of the log.
const MESSAGE_BYTES: usize = 16 << 10;

/// How much of a progress message is kept, in bytes: it is a column of a list.
const PROGRESS_BYTES: usize = 1 << 10;

/// The payloads and names of all follow-up jobs of a run together, in bytes: the worker holds them until the run is
/// settled.
const FOLLOW_UP_BYTES: usize = 4 << 20;

/// The jobs that a guest has asked for.
pub(super) struct FollowUps {
    jobs: Vec<FollowUp>,
    bytes: usize,
    limit: u32,
}

impl FollowUps {
    pub fn new(limit: u32) -> Self {
        Self { jobs: Vec::new(), bytes: 0, limit }
    }

    pub fn take(self) -> Vec<FollowUp> {
        self.jobs
    }

    fn add(&mut self, job: FollowUp) -> Result<(), String> {
        if self.limit == 0 {
            return Err("this module may put in no jobs; it is granted at upload: module push --follow-ups N".into());
        }
        if self.jobs.len() as u64 >= u64::from(self.limit) {
            return Err(format!("this run has asked for {} jobs; the limit is {}", self.jobs.len() + 1, self.limit));
        }
        let names = [Some(&job.module), job.queue.as_ref(), job.unique_key.as_ref(), job.concurrency_key.as_ref()];
        if names.into_iter().flatten().any(|name| name.contains('\0')) {
            return Err("a name or key of this job has a NUL in it, which no text of the database can hold".into());
        }
        let bytes = self.bytes + job.payload.len() + names.into_iter().flatten().map(String::len).sum::<usize>();
        if bytes > FOLLOW_UP_BYTES {
            return Err(format!("this run's follow-up jobs have {bytes} bytes; the limit is {FOLLOW_UP_BYTES} bytes"));
        }
        self.bytes = bytes;
        self.jobs.push(job);
        Ok(())
    }
}

impl types::Host for State {}

impl Host for State {
    /// Not the one that is linked: see `add_log_to_linker`.
    fn log(&mut self, level: Level, message: String) -> wasmtime::Result<()> {
        self.add_to_log(level, &message, 0)
    }

    fn cancel_requested(&mut self) -> wasmtime::Result<bool> {
        self.refuse_after_stop()?;
        Ok(self.control.cancel_requested())
    }

    fn enqueue(&mut self, job: types::FollowUp) -> wasmtime::Result<Result<(), String>> {
        self.refuse_after_stop()?;
        let types::FollowUp { module, payload, queue, priority, delay_ms, unique_key, concurrency_key } = job;
        Ok(self.follow_ups.add(FollowUp { module, payload, queue, priority, delay_ms, unique_key, concurrency_key }))
    }

    fn checkpoint_save(&mut self, bytes: Vec<u8>) -> wasmtime::Result<Result<(), String>> {
        self.refuse_after_stop()?;
        let limit = self.grants.checkpoint_bytes;
        if limit == 0 {
            return Ok(Err(
                "this module may keep no checkpoint; it is granted at upload: module push --checkpoint SIZE".into(),
            ));
        }
        if bytes.len() as u64 > limit {
            let size = bytes.len();
            return Ok(Err(format!(
                "checkpoint of {size} bytes exceeds the limit of {limit} bytes; save less or raise --checkpoint"
            )));
        }
        self.control.notes().save(bytes);
        Ok(Ok(()))
    }

    fn checkpoint_load(&mut self) -> wasmtime::Result<Option<Vec<u8>>> {
        self.refuse_after_stop()?;
        Ok(self.control.notes().checkpoint().map(|bytes| bytes.to_vec()))
    }

    fn progress(&mut self, fraction: f32, message: String) -> wasmtime::Result<bool> {
        self.refuse_after_stop()?;
        // What is no number is no progress.
        let fraction = if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) };
        // No more of it is searched than what may lie across the cut.
        let begin = &message.as_bytes()[..message.len().min(PROGRESS_BYTES + MAX_VALUE_BYTES)];
        let message = clip_text(&self.secrets.redact(begin), PROGRESS_BYTES);
        self.control.notes().set_progress(Progress { fraction, message });
        Ok(self.control.cancel_requested())
    }

    fn config(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        self.refuse_after_stop()?;
        Ok(self.grants.config.get(&key).cloned())
    }

    fn secret(&mut self, name: String) -> wasmtime::Result<Result<String, SecretError>> {
        self.refuse_after_stop()?;
        let shown = clip_text(name.as_bytes(), NAME_BYTES);
        if !self.grants.secrets.contains(&name) {
            let message = format!(
                "secret {shown} is not granted to this module; it is granted at upload: module push --secret {shown}"
            );
            return Ok(Err(SecretError::NotGranted(message)));
        }
        Ok(match self.secrets.get(&name) {
            Some(Ok(value)) => Ok(value.to_owned()),
            Some(Err(why)) => Err(SecretError::Unavailable(why.to_owned())),
            None => Err(SecretError::Unavailable(format!(
                "secret {shown} is not set; set it with: leasehold secret set {shown}"
            ))),
        })
    }
}

/// Replaces the `log` that bindgen made, which takes a message as a whole or ends the guest.
pub(super) fn add_log_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    type Message = BoundedText<MESSAGE_BYTES>;
    linker.allow_shadowing(true);
    let mut host = linker.instance(&format!("leasehold:job/host@{CONTRACT_VERSION}"))?;
    host.func_wrap("log", |mut store: StoreContextMut<'_, State>, (level, message): (Level, Message)| {
        store.data_mut().add_to_log(level, &message.text, message.more_bytes)
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

impl State {
    fn add_to_log(&mut self, level: Level, message: &str, more_bytes: usize) -> wasmtime::Result<()> {
        self.refuse_after_stop()?;
        let stream = match level {
            Level::Trace => LogStream::Trace,
            Level::Debug => LogStream::Debug,
            Level::Info => LogStream::Info,
            Level::Warn => LogStream::Warn,
            Level::Error => LogStream::Error,
        };
        if more_bytes == 0 {
            self.log.write_line(stream, message.as_bytes());
        } else {
            self.log.write_line(stream, format!("{message}[... {more_bytes} bytes more]").as_bytes());
        }
        Ok(())
    }

    fn refuse_after_stop(&self) -> Result<(), Interrupt> {
        match self.control.stopped() {
            Some(stop) => Err(Interrupt::Stopped(stop)),
            None => Ok(()),
        }
    }
}
