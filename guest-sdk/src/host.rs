//! What goes to whoever runs the job: the worker on wasm, the mock in a native test.

pub(crate) use imp::{Handle, log};

#[cfg(target_family = "wasm")]
mod imp {
    use crate::bindings::leasehold::job::host;
    use crate::http::{Request, Response, wire};
    use crate::{Failure, FollowUp, Level};

    /// Nothing to hold: the worker knows which job is asking.
    #[derive(Debug)]
    pub(crate) struct Handle;

    impl Handle {
        pub(crate) fn cancel_requested(&self) -> bool {
            host::cancel_requested()
        }

        pub(crate) fn enqueue(&self, job: FollowUp) -> Result<(), String> {
            let FollowUp { module, payload, queue, priority, delay, unique_key, concurrency_key } = job;
            let delay_ms = delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
            host::enqueue(&host::FollowUp { module, payload, queue, priority, delay_ms, unique_key, concurrency_key })
        }

        pub(crate) fn save_checkpoint(&self, bytes: &[u8]) -> Result<(), String> {
            host::checkpoint_save(bytes)
        }

        pub(crate) fn load_checkpoint(&self) -> Option<Vec<u8>> {
            host::checkpoint_load()
        }

        pub(crate) fn progress(&self, fraction: f32, message: &str) -> bool {
            host::progress(fraction, message)
        }

        pub(crate) fn send(&self, request: &Request) -> Result<Response, Failure> {
            wire::send(request)
        }

        pub(crate) fn config(&self, key: &str) -> Option<String> {
            host::config(key)
        }

        pub(crate) fn secret(&self, name: &str) -> Result<String, Failure> {
            host::secret(name).map_err(|error| match error {
                host::SecretError::NotGranted(message) => Failure::dead(message),
                host::SecretError::Unavailable(message) => Failure::retry(message),
            })
        }
    }

    pub(crate) fn log(level: Level, message: &str) {
        let level = match level {
            Level::Trace => host::Level::Trace,
            Level::Debug => host::Level::Debug,
            Level::Info => host::Level::Info,
            Level::Warn => host::Level::Warn,
            Level::Error => host::Level::Error,
        };
        host::log(level, message);
    }
}

#[cfg(not(target_family = "wasm"))]
mod imp {
    use std::rc::Rc;

    use crate::http::{Request, Response};
    use crate::testing::Recorder;
    use crate::{Failure, FollowUp, Level};

    #[derive(Debug)]
    pub(crate) struct Handle(pub(crate) Rc<Recorder>);

    impl Handle {
        pub(crate) fn cancel_requested(&self) -> bool {
            self.0.cancel_requested()
        }

        pub(crate) fn enqueue(&self, job: FollowUp) -> Result<(), String> {
            self.0.enqueue(job)
        }

        pub(crate) fn save_checkpoint(&self, bytes: &[u8]) -> Result<(), String> {
            self.0.save_checkpoint(bytes)
        }

        pub(crate) fn load_checkpoint(&self) -> Option<Vec<u8>> {
            self.0.load_checkpoint()
        }

        pub(crate) fn progress(&self, fraction: f32, message: &str) -> bool {
            self.0.progress(fraction, message)
        }

        pub(crate) fn send(&self, request: &Request) -> Result<Response, Failure> {
            self.0.send(request)
        }

        pub(crate) fn config(&self, key: &str) -> Option<String> {
            self.0.config(key)
        }

        pub(crate) fn secret(&self, name: &str) -> Result<String, Failure> {
            self.0.secret(name)
        }
    }

    pub(crate) fn log(level: Level, message: &str) {
        eprintln!("{level:>5} {message}");
        Recorder::add_to_current(level, message);
    }
}
