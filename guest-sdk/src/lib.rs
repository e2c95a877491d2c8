#![doc = "Write jobs for Leasehold in Rust."]
// The generated bindings and the macro's code name this crate as an author's crate does.
extern crate self as leasehold_guest;

#[cfg(target_family = "wasm")]
#[rustfmt::skip] // tests/bindings.rs compares it
#[doc(hidden)]
pub mod bindings;
mod context;
#[doc(hidden)]
mod export;
mod failure;
mod host;
mod log;
mod payload;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use context::Context;
pub use failure::{Failure, OrFailure};
pub use leasehold_guest_macros::job;
pub use log::Level;
pub use payload::{Input, Output, Raw};

/// What a job needs.
pub mod prelude {
    pub use crate::{Context, Failure, OrFailure, Raw, debug, error, info, job, trace, warn};
    pub use serde::{Deserialize, Serialize};
}

/// What the macros' code calls. No part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::export::*;
    pub use crate::log::write as log;
    #[cfg(target_family = "wasm")]
    pub use {
        crate::bindings::{self, export, exports::leasehold::job::handler::Guest, leasehold::job::types::Job},
        wit_bindgen,
    };
}
