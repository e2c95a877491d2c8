//! Write jobs for Leasehold in Rust.
//!
//! A job is one function. It gets a payload that somebody put into a queue and returns a result, or says why it has
//! none. The worker runs it as WebAssembly in a sandbox, as often as it takes and as the job allows.
//!
//! ```
//! use leasehold_guest::prelude::*;
//!
//! /// What whoever enqueues the job sends, as JSON.
//! #[derive(Deserialize)]
//! struct Input {
//!     text: String,
//!     #[serde(default)]
//!     shout: bool,
//! }
//!
//! /// What they read once the job is done, as JSON.
//! #[derive(Serialize)]
//! struct Output {
//!     title: String,
//!     words: usize,
//! }
//!
//! #[job]
//! fn title(ctx: &Context, input: Input) -> Result<Output, Failure> {
//!     let line = input.text.lines().find(|line| !line.is_empty()).or_dead("the text has no line")?;
//!     info!("attempt {} of job {}: {} bytes", ctx.attempt(), ctx.id(), input.text.len());
//!     let title = if input.shout { line.to_uppercase() } else { line.to_owned() };
//!     Ok(Output { words: title.split_whitespace().count(), title })
//! }
//!
//! # fn main() {
//! # use leasehold_guest::testing::{self, MockContext, json};
//! let payload = json!({ "text": "\nhello world", "shout": true });
//! let result = testing::run(title, &MockContext::new(), payload);
//! assert_eq!(result, Ok(json!({ "title": "HELLO WORLD", "words": 2 })));
//! # }
//! ```
//!
//! # From an empty folder to a run
//!
//! A job is a library crate of type `cdylib`, with `serde` beside this crate for the derives:
//!
//! ```toml
//! [package]
//! name = "my-job"
//! edition = "2024"
//!
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! leasehold-guest = "0.1"
//! serde = { version = "1", features = ["derive"] }
//!
//! [profile.release] # small modules start sooner
//! opt-level = "s"
//! lto = true
//! codegen-units = 1
//! panic = "abort"
//! strip = "debuginfo" # keeps the names that a failure's backtrace shows; `true` saves a tenth of the size
//! ```
//!
//! Build it, run it on the spot in the worker's own sandbox (no database needed), and upload it:
//!
//! ```console
//! $ rustup target add wasm32-wasip2
//! $ cargo build --release --target wasm32-wasip2
//! $ leasehold run target/wasm32-wasip2/release/my_job.wasm --payload '{"text": "hello"}'
//! $ leasehold module push my-job target/wasm32-wasip2/release/my_job.wasm
//! ```
//!
//! # Tests
//!
//! `#[job]` leaves the function as it is, so `cargo test` calls it natively, with a [`testing::MockContext`] in the
//! place of the worker; [`testing::run`] takes the way through JSON as well. See [`testing`].
//!
//! # How a run ends
//!
//! | the job | becomes |
//! | --- | --- |
//! | returns `Ok(output)` | done, with the output as its result |
//! | returns [`Failure::retry`], or any error through `?` | queued again with the retry policy's delay while attempts are left, then dead |
//! | returns [`Failure::retry_after`] | the same, with this delay |
//! | returns [`Failure::dead`] | dead at once |
//! | returns [`Failure::snooze`] | queued again after the delay; the attempt does not count |
//! | gets a payload that does not fit its input | dead at once, and the message names the field, line and column |
//! | panics, or reads out of bounds | as for a retry; the panic's message and place are in the log |
//! | runs out of fuel, memory or stack, or returns too much | dead at once: the same run would end the same way |
//! | runs out of time | as for a retry |
//!
//! Every failure is kept with the attempt, beside the log. [`OrFailure`] turns an error into the right failure and says
//! what the job was doing.
//!
//! # At least once
//!
//! A worker may die after the job did its work and before that was written down; then the job runs again. Where a job
//! acts on the outside, [`Context::id`] is the same on each attempt and makes a good idempotency key.
//!
//! # Limits
//!
//! Each module has its own, set where it is uploaded: fuel (instructions), memory, wall-clock time
//! ([`Context::timeout`], [`Context::time_left`]), the size of the result and of the log. `leasehold run` prints what a
//! run used of each. A job has no files, no environment and no network but what it was granted; clocks, random numbers,
//! stdout and stderr work (both end up in the log). It runs on one thread.
//!
//! A long job looks at [`Context::cancel_requested`] now and then, so that it can end in its own way when somebody
//! cancels it.
//!
//! # Jobs that put in jobs
//!
//! [`Context::enqueue`] puts in another job of the same tenant, if and only if this run ends well: the worker writes
//! both in one transaction. A module may do so where it was granted at upload (`leasehold module push --follow-ups
//! 10`).
//!
//! # Jobs that go on from where they were
//!
//! [`Context::checkpoint`] keeps a small value for the job's next run, whatever ended this one, and
//! [`Context::progress`] shows how far it is.
//!
//! # What a module is granted
//!
//! Where it is uploaded, a module gets values ([`Context::config`]), secrets ([`Context::secret`]) and places that it
//! may send requests to ([`Context::http`]); nothing of that by default.
//!
//! # Bytes instead of JSON
//!
//! A job that takes or returns [`Raw`] gets the payload, or gives the result, byte for byte.
//!
//! # Other targets
//!
//! `wasm32-wasip1` and `wasm32-unknown-unknown` make core modules, which the worker turns into components when they are
//! uploaded. The second makes the smallest ones, but has no clock, no random numbers and no stdout.

// The generated bindings and the macro's code name this crate as an author's crate does.
extern crate self as leasehold_guest;

#[cfg(all(
    target_family = "wasm",
    not(all(
        target_arch = "wasm32",
        not(target_feature = "atomics"),
        any(target_os = "unknown", all(target_os = "wasi", any(target_env = "p1", target_env = "p2")))
    ))
))]
compile_error!(
    "a job cannot be built for this target: a worker takes wasm32-wasip2 (best), wasm32-wasip1 and \
     wasm32-unknown-unknown, without threads; try `cargo build --release --target wasm32-wasip2`"
);

#[cfg(target_family = "wasm")]
#[rustfmt::skip] // tests/bindings.rs compares it
#[doc(hidden)]
pub mod bindings;
mod checkpoint;
mod context;
mod export;
mod failure;
mod follow_up;
mod host;
pub mod http;
#[cfg(target_family = "wasm")]
#[rustfmt::skip] // tests/bindings.rs compares it
#[doc(hidden)]
pub mod http_bindings;
mod log;
mod payload;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use checkpoint::Checkpoint;
pub use context::Context;
pub use failure::{Failure, OrFailure};
pub use follow_up::FollowUp;
/// Makes a function the crate's job.
///
/// The function has the form `fn name(ctx: &Context, input: I) -> Result<O, Failure>`. Its name is the author's own.
/// The input is any type that `serde` reads from JSON without borrowing, or [`Raw`] for the payload's bytes; the output
/// any type that `serde` writes, or [`Raw`]; see [`Input`] and [`Output`]. In the place of [`Failure`] may stand
/// whatever `?` turns into one.
///
/// The function stays an ordinary function. On wasm targets the macro adds the export `leasehold:job/handler`, which a
/// crate can have only once: one crate, one job.
///
/// ```
/// use leasehold_guest::prelude::*;
///
/// #[job]
/// fn sum(_ctx: &Context, numbers: Vec<i64>) -> Result<i64, Failure> {
///     numbers.into_iter().try_fold(0, i64::checked_add).or_dead("the sum is too large")
/// }
/// # fn main() {
/// # let mock = leasehold_guest::testing::MockContext::new();
/// assert_eq!(sum(&mock, vec![20, 22]), Ok(42));
/// # }
/// ```
///
/// ```compile_fail
/// use leasehold_guest::prelude::*;
///
/// #[job]
/// async fn nothing(ctx: &mut Context) {} // four things to mend, and one build names all of them
/// ```
pub use leasehold_guest_macros::job;
pub use log::Level;
pub use payload::{Input, Output, Raw};

/// What a job needs: `use leasehold_guest::prelude::*;`.
pub mod prelude {
    pub use crate::{Context, Failure, FollowUp, OrFailure, Raw, debug, error, info, job, trace, warn};
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
