//! Jobs that a job puts in.

use std::time::Duration;

use serde::Serialize;

use crate::{Failure, Raw};

/// A job to put in once this run has ended well: see [`Context::enqueue`](crate::Context::enqueue).
///
/// ```
/// # use leasehold_guest::FollowUp;
/// # use std::time::Duration;
/// # fn main() -> Result<(), leasehold_guest::Failure> {
/// let job = FollowUp::new("mail", &serde_json::json!({ "to": "ann" }))?.with_delay(Duration::from_secs(60));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowUp {
    pub(crate) module: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) queue: Option<String>,
    pub(crate) priority: i32,
    pub(crate) delay: Option<Duration>,
    pub(crate) unique_key: Option<String>,
    pub(crate) concurrency_key: Option<String>,
}

impl FollowUp {
    /// A job of the module with this name, of the same tenant, with a payload in JSON.
    ///
    /// # Errors
    /// [`Failure::Dead`] where the payload cannot be written as JSON.
    pub fn new(module: impl Into<String>, payload: &impl Serialize) -> Result<Self, Failure> {
        let payload = serde_json::to_vec(payload)
            .map_err(|error| Failure::dead(format_args!("the payload of a follow-up job is no JSON: {error}")))?;
        Ok(Self::raw(module, payload))
    }

    /// The same with a payload of plain bytes.
    pub fn raw(module: impl Into<String>, payload: impl Into<Raw>) -> Self {
        Self {
            module: module.into(),
            payload: payload.into().0,
            queue: None,
            priority: 0,
            delay: None,
            unique_key: None,
            concurrency_key: None,
        }
    }

    /// Into another queue than this job's own.
    pub fn with_queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Another priority than 0: -100 to 100, higher comes first.
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Not before so long after this run has ended.
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// One live job of the tenant with this key: where there is one already, this one is not put in.
    pub fn with_unique_key(mut self, key: impl Into<String>) -> Self {
        self.unique_key = Some(key.into());
        self
    }

    /// One job of the tenant with this key runs at a time.
    pub fn with_concurrency_key(mut self, key: impl Into<String>) -> Self {
        self.concurrency_key = Some(key.into());
        self
    }

    /// The module's name.
    pub fn module(&self) -> &str {
        &self.module
    }

    /// The payload's bytes.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}
