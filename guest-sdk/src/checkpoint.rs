//! What a job keeps for its next attempt.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Failure, host};

/// A job's checkpoint: see [`Context::checkpoint`](crate::Context::checkpoint). It is there in all further runs of the
/// job, until the job has ended. The worker writes it within a second of a save, and before it gives the job back; of a
/// worker that dies, the saves of the last second are lost. So what is done twice must do no harm.
///
/// ```
/// # use leasehold_guest::prelude::*;
/// # use leasehold_guest::testing::{self, MockContext, json};
/// #[job]
/// fn import(ctx: &Context, rows: Vec<String>) -> Result<usize, Failure> {
///     let mut next: usize = ctx.checkpoint().load()?.unwrap_or(0);
///     while let Some(row) = rows.get(next) {
///         // ... take it in
///         next += 1;
///         ctx.checkpoint().save(&next)?;
///         if ctx.progress(next as f32 / rows.len() as f32, row) {
///             return Err(Failure::dead("cancelled"));
///         }
///     }
///     Ok(next)
/// }
/// # fn main() {
/// let mock = MockContext::new().with_checkpoint(b"1");
/// assert_eq!(testing::run(import, &mock, json!(["a", "b"])), Ok(json!(2)));
/// assert_eq!(mock.checkpoint_bytes().as_deref(), Some(&b"2"[..]));
/// assert_eq!(mock.progress_shown(), [(1.0, "b".to_owned())]);
/// # }
/// ```
#[derive(Debug)]
pub struct Checkpoint<'a>(pub(crate) &'a host::Handle);

impl Checkpoint<'_> {
    /// What an earlier run saved, or this one; none at first.
    ///
    /// # Errors
    /// [`Failure::Dead`] where it is JSON of another shape: saved by an older version of the module, perhaps.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, Failure> {
        let Some(bytes) = self.load_bytes() else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|error| Failure::dead(format_args!("the checkpoint does not fit: {error}")))
    }

    /// Keeps a value, as JSON.
    ///
    /// # Errors
    /// [`Failure::Dead`] where it cannot be written as JSON, or is larger than the module was granted (`module push
    /// --checkpoint`).
    pub fn save(&self, value: &impl Serialize) -> Result<(), Failure> {
        let bytes = serde_json::to_vec(value)
            .map_err(|error| Failure::dead(format_args!("the checkpoint is no JSON: {error}")))?;
        self.save_bytes(&bytes)
    }

    /// The same as plain bytes.
    pub fn load_bytes(&self) -> Option<Vec<u8>> {
        self.0.load_checkpoint()
    }

    /// The same as plain bytes.
    ///
    /// # Errors
    /// [`Failure::Dead`] where there are more than the module was granted (`module push --checkpoint`).
    pub fn save_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.save_checkpoint(bytes).map_err(Failure::dead)
    }
}
