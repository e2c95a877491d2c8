//! How a job ends when it has no result. Any error that `?` meets means retry: most failures of background work pass,
//! and the attempts are bounded anyway. That another attempt is of no use has to be said.

use std::error::Error;
use std::fmt::{self, Display};
use std::time::Duration;

/// Why a job has no result, and what the worker should do about it.
///
/// Whatever turns into a `Box<dyn Error>` turns into a [`Failure::Retry`] with `?`: each `std::error::Error`, an
/// `anyhow::Error`, a `String`. The message then holds the error and all its sources.
///
/// ```
/// use leasehold_guest::prelude::*;
///
/// fn port(text: &str) -> Result<u16, Failure> {
///     let number: u32 = text.parse()?; // retry: "invalid digit found in string"
///     if number == 0 {
///         return Err(Failure::dead("port 0 is never free"));
///     }
///     number.try_into().or_dead("reading the port") // dead: "reading the port: out of range ..."
/// }
///
/// assert!(matches!(port("x"), Err(Failure::Retry { .. })));
/// assert_eq!(port("0"), Err(Failure::dead("port 0 is never free")));
/// assert!(matches!(port("70000"), Err(Failure::Dead { message }) if message.starts_with("reading the port: ")));
/// ```
// Not an `Error` itself: then `?` could not turn every error into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Run the job again while attempts are left.
    Retry {
        /// Why, for people. The worker keeps at most 64 KiB of it.
        message: String,
        /// How long to wait before that. `None`: the job's retry policy decides.
        delay: Option<Duration>,
    },
    /// No further attempt can succeed; the job is dead.
    Dead {
        /// Why, for people. The worker keeps at most 64 KiB of it.
        message: String,
    },
    /// Not now: run the job again later. This attempt does not count.
    Snooze {
        /// How long to wait, rounded up to milliseconds.
        delay: Duration,
    },
}

impl Failure {
    /// Try again when the retry policy says so, while attempts are left.
    pub fn retry(message: impl Display) -> Self {
        Self::Retry { message: message.to_string(), delay: None }
    }

    /// Try again after `delay` (rounded up to milliseconds), while attempts are left.
    pub fn retry_after(message: impl Display, delay: Duration) -> Self {
        Self::Retry { message: message.to_string(), delay: Some(delay) }
    }

    /// Give up: no further attempt can succeed.
    pub fn dead(message: impl Display) -> Self {
        Self::Dead { message: message.to_string() }
    }

    /// Run again after `delay` (rounded up to milliseconds), without counting this attempt.
    pub fn snooze(delay: Duration) -> Self {
        Self::Snooze { delay }
    }

    /// Why the job failed; nothing for a snooze.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Retry { message, .. } | Self::Dead { message } => Some(message),
            Self::Snooze { .. } => None,
        }
    }

    /// How long the job wants to wait, where it says so.
    pub fn delay(&self) -> Option<Duration> {
        match self {
            Self::Retry { delay, .. } => *delay,
            Self::Snooze { delay } => Some(*delay),
            Self::Dead { .. } => None,
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { message, delay: None } => write!(f, "retry: {message}"),
            Self::Retry { message, delay: Some(delay) } => write!(f, "retry after {delay:?}: {message}"),
            Self::Dead { message } => write!(f, "dead: {message}"),
            Self::Snooze { delay } => write!(f, "snooze for {delay:?}"),
        }
    }
}

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retry(chain(&*error.into()))
    }
}

/// An error and its sources, outermost first. Errors whose own text already ends with their source's are common, and
/// nobody wants to read it twice.
fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.ends_with(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        source = cause.source();
    }
    message
}

/// Says what a job was doing when something failed, and what that means for the job. For a `Result` with any error
/// that `?` would take, and for an `Option`.
///
/// On a `Result` whose error is a [`Failure`] already, the message gets the new words in front and the last call
/// decides between dead and retry, except that a snooze stays a snooze: it is no error.
pub trait OrFailure<T>: Sized {
    /// No further attempt can succeed: `"{doing}: {error}"`.
    ///
    /// # Errors
    /// [`Failure::Dead`] where there is no value.
    fn or_dead(self, doing: impl Display) -> Result<T, Failure>;

    /// Another attempt may succeed: `"{doing}: {error}"`.
    ///
    /// # Errors
    /// [`Failure::Retry`] where there is no value.
    fn or_retry(self, doing: impl Display) -> Result<T, Failure>;

    /// Another attempt may succeed, but not before `delay`: `"{doing}: {error}"`.
    ///
    /// # Errors
    /// [`Failure::Retry`] with the delay where there is no value.
    fn or_retry_after(self, doing: impl Display, delay: Duration) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> OrFailure<T> for Result<T, E> {
    fn or_dead(self, doing: impl Display) -> Result<T, Failure> {
        self.map_err(|error| reword(error.into(), &doing, |message| Failure::Dead { message }))
    }

    fn or_retry(self, doing: impl Display) -> Result<T, Failure> {
        self.map_err(|error| {
            let error = error.into();
            let delay = error.delay();
            reword(error, &doing, |message| Failure::Retry { message, delay })
        })
    }

    fn or_retry_after(self, doing: impl Display, delay: Duration) -> Result<T, Failure> {
        self.map_err(|error| reword(error.into(), &doing, |message| Failure::Retry { message, delay: Some(delay) }))
    }
}

impl<T> OrFailure<T> for Option<T> {
    fn or_dead(self, doing: impl Display) -> Result<T, Failure> {
        self.ok_or_else(|| Failure::dead(doing))
    }

    fn or_retry(self, doing: impl Display) -> Result<T, Failure> {
        self.ok_or_else(|| Failure::retry(doing))
    }

    fn or_retry_after(self, doing: impl Display, delay: Duration) -> Result<T, Failure> {
        self.ok_or_else(|| Failure::retry_after(doing, delay))
    }
}

fn reword(failure: Failure, doing: &dyn Display, become_: impl FnOnce(String) -> Failure) -> Failure {
    match failure {
        Failure::Retry { message, .. } | Failure::Dead { message } => become_(format!("{doing}: {message}")),
        Failure::Snooze { delay } => Failure::Snooze { delay },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapped(&'static str, Option<Box<dyn Error + Send + Sync>>);

    impl Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_ref().map(|cause| &**cause as _)
        }
    }

    fn nested() -> Wrapped {
        let refused = Wrapped("connection refused", None);
        let connect = Wrapped("connecting to the mailer: connection refused", Some(refused.into()));
        Wrapped("sending the mail", Some(connect.into()))
    }

    #[test]
    fn the_question_mark_means_retry_with_the_whole_chain_once() {
        let failing = || -> Result<(), Failure> { Err(nested())? };
        let wanted = "sending the mail: connecting to the mailer: connection refused";
        assert_eq!(failing(), Err(Failure::Retry { message: wanted.to_owned(), delay: None }));
    }

    #[test]
    fn an_anyhow_error_keeps_its_context() {
        let failing = || -> Result<(), Failure> { Err(anyhow::Error::new(nested()).context("job 7"))? };
        let wanted = "job 7: sending the mail: connecting to the mailer: connection refused";
        assert_eq!(failing(), Err(Failure::retry(wanted)));
    }

    #[test]
    fn strings_and_boxes_turn_into_retries_too() {
        assert_eq!(Failure::from("no"), Failure::retry("no"));
        assert_eq!(Failure::from(String::from("no")), Failure::retry("no"));
        let boxed: Box<dyn Error> = "no".into();
        assert_eq!(Failure::from(boxed), Failure::retry("no"));
    }

    #[test]
    fn or_dead_says_what_was_being_done() {
        let parsed = "x".parse::<u8>().or_dead("reading the age");
        assert_eq!(parsed, Err(Failure::dead("reading the age: invalid digit found in string")));
        assert_eq!(None::<u8>.or_dead("the order has no age"), Err(Failure::dead("the order has no age")));
    }

    #[test]
    fn the_last_word_decides_but_a_snooze_stays_one() {
        let minute = Duration::from_secs(60);
        let dead: Result<(), _> = Err(Failure::dead("gone"));
        assert_eq!(dead.or_retry_after("fetching", minute), Err(Failure::retry_after("fetching: gone", minute)));
        let delayed: Result<(), _> = Err(Failure::retry_after("busy", minute));
        assert_eq!(delayed.clone().or_retry("fetching"), Err(Failure::retry_after("fetching: busy", minute)));
        assert_eq!(delayed.or_dead("fetching"), Err(Failure::dead("fetching: busy")));
        let snooze: Result<(), _> = Err(Failure::snooze(minute));
        assert_eq!(snooze.or_dead("fetching"), Err(Failure::snooze(minute)));
    }
}
