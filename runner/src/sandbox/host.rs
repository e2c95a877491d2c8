//! What a component may call: `leasehold:job/host`. None of it can fail, block or grow without bound. After a stop every
//! call ends the guest instead, so that a run whose lease is lost can do nothing more.

use super::failure::Interrupt;
use super::state::State;
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
}

impl State {
    fn refuse_after_stop(&self) -> Result<(), Interrupt> {
        match self.control.stopped() {
            Some(stop) => Err(Interrupt::Stopped(stop)),
            None => Ok(()),
        }
    }
}
