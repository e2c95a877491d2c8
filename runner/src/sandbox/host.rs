//! What a component may call: `leasehold:job/host`. None of it can fail, block or grow without bound. After a stop every
//! call ends the guest instead, so that a run whose lease is lost can do nothing more.

use super::failure::Interrupt;
use super::state::State;
use crate::outcome::FollowUp;
use bindings::leasehold::job::host::Host;
use bindings::leasehold::job::types::{self, Level};

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

/// The payloads and names of all follow-up jobs of a run together, in bytes: the worker holds them until the run is settled.
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
    fn log(&mut self, level: Level, message: String) -> wasmtime::Result<()> {
        self.refuse_after_stop()?;
        let prefix = match level {
            Level::Trace => "[trace] ",
            Level::Debug => "[debug] ",
            Level::Info => "[info] ",
            Level::Warn => "[warn] ",
            Level::Error => "[error] ",
        };
        let kept = &message[..message.floor_char_boundary(MESSAGE_BYTES)];
        // One write, so that a message lies whole between what else is written.
        self.log.write([prefix.as_bytes(), kept.as_bytes(), b"\n"].concat().as_slice());
        self.log.drop_bytes((message.len() - kept.len()) as u64);
        Ok(())
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
}

impl State {
    fn refuse_after_stop(&self) -> Result<(), Interrupt> {
        match self.control.stopped() {
            Some(stop) => Err(Interrupt::Stopped(stop)),
            None => Ok(()),
        }
    }
}
