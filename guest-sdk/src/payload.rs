//! How a payload becomes a job's input and its output the result: by default through JSON, with [`Raw`] byte for byte.
//! A payload that does not fit makes the job dead, since the same run would end the same way.

use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;

/// How much of serde's message is kept, in bytes. It repeats the value that did not fit, which may be most of the
/// payload; its start says what was found, its end where.
const MAX_MISMATCH_BYTES: usize = 2 << 10;

/// Plain bytes: the payload as it is when a job takes it, the result as it is when a job returns it.
///
/// ```
/// use leasehold_guest::prelude::*;
///
/// #[job]
/// fn reverse(_ctx: &Context, Raw(mut bytes): Raw) -> Result<Raw, Failure> {
///     bytes.reverse();
///     Ok(bytes.into())
/// }
/// # let mock = leasehold_guest::testing::MockContext::new();
/// # assert_eq!(leasehold_guest::testing::run_raw(reverse, &mock, "abc"), Ok(b"cba".to_vec()));
/// ```
// Never `Serialize` or `Deserialize`: that it is not keeps the two ways apart.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    /// The bytes as text.
    ///
    /// # Errors
    /// [`Failure::Dead`] with the position of the first byte that is not UTF-8.
    pub fn text(&self) -> Result<&str, Failure> {
        std::str::from_utf8(&self.0).map_err(|error| {
            let (at, length) = (error.valid_up_to(), self.0.len());
            Failure::dead(format_args!("payload is not UTF-8: byte {at} of {length} starts no character"))
        })
    }
}

impl Deref for Raw {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Raw {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl From<Vec<u8>> for Raw {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for Raw {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<String> for Raw {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&str> for Raw {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({:?})", String::from_utf8_lossy(&self.0))
    }
}

/// What a job may take: any type that `serde` reads, from JSON, or [`Raw`].
///
/// An empty payload reads as JSON's `null`, so that a job which takes `()` or an `Option` needs none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the input of a job",
    note = "derive `serde::Deserialize` for it, without borrowed fields, or take `Raw` for the payload's bytes"
)]
pub trait Input: Sized + sealed::Input {}

/// What a job may return: any type that `serde` writes, as JSON, or [`Raw`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of a job",
    note = "derive `serde::Serialize` for it, or return `Raw` for plain bytes"
)]
pub trait Output: sealed::Output {}

impl<T: sealed::Input> Input for T {}
impl<T: sealed::Output> Output for T {}

pub(crate) mod sealed {
    use super::{DeserializeOwned, Failure, Raw, Serialize, parse};

    pub trait Input: Sized {
        fn from_payload(payload: Vec<u8>) -> Result<Self, Failure>;
    }

    pub trait Output {
        fn into_result(self) -> Result<Vec<u8>, Failure>;
    }

    impl<T: DeserializeOwned> Input for T {
        fn from_payload(payload: Vec<u8>) -> Result<Self, Failure> {
            parse(&payload)
        }
    }

    impl Input for Raw {
        fn from_payload(payload: Vec<u8>) -> Result<Self, Failure> {
            Ok(Self(payload))
        }
    }

    impl<T: Serialize> Output for T {
        fn into_result(self) -> Result<Vec<u8>, Failure> {
            serde_json::to_vec(&self)
                .map_err(|error| Failure::dead(format_args!("the job's output has no form in JSON: {error}")))
        }
    }

    impl Output for Raw {
        fn into_result(self) -> Result<Vec<u8>, Failure> {
            Ok(self.0)
        }
    }
}

fn parse<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Failure> {
    if payload.is_empty() {
        return serde_json::from_slice(b"null")
            .map_err(|_| Failure::dead("the payload is empty; this job needs one, as JSON"));
    }
    let mut json = serde_json::Deserializer::from_slice(payload);
    let input = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        mismatch(if path == "." { "" } else { &path }, error.inner())
    })?;
    json.end().map_err(|error| mismatch("", &error))?;
    Ok(input)
}

fn mismatch(path: &str, error: &serde_json::Error) -> Failure {
    let at = if path.is_empty() { String::new() } else { format!(" at {}", shortened(path)) };
    Failure::dead(format_args!("payload does not fit this job's input{at}: {}", shortened(&error.to_string())))
}

/// The text with its middle left out where it is longer than [`MAX_MISMATCH_BYTES`].
fn shortened(text: &str) -> String {
    if text.len() <= MAX_MISMATCH_BYTES {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(MAX_MISMATCH_BYTES / 2);
    let tail = text.ceil_char_boundary(text.len() - MAX_MISMATCH_BYTES / 2);
    format!("{} ... {} bytes ... {}", &text[..head], tail - head, &text[tail..])
}
