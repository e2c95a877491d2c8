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

    /// The bytes read as JSON, for a job that takes it among other things.
    ///
    /// # Errors
    /// [`Failure::Dead`], in the same words as for a job whose input is a `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        parse(&self.0)
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
/// An empty payload reads as JSON's `null`, for a job which takes `()` or an `Option`. Whoever enqueues without naming a
/// payload sends `{}`, which suits a struct whose fields all have defaults.
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

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::sealed::{Input as _, Output as _};
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Order {
        items: Vec<Item>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Item {
        price: u32,
    }

    fn refusal<T: Input + fmt::Debug>(payload: &str) -> String {
        match T::from_payload(payload.as_bytes().to_vec()) {
            Err(Failure::Dead { message }) => message,
            other => panic!("{payload} gave {other:?}"),
        }
    }

    #[test]
    fn a_payload_that_does_not_fit_is_dead_and_named_by_path_line_and_column() {
        let wanted = "payload does not fit this job's input at items[1].price: \
                      invalid value: integer `-1`, expected u32 at line 2 column 41";
        assert_eq!(refusal::<Order>("{\n  \"items\": [{ \"price\": 1 }, { \"price\": -1 }] }"), wanted);
    }

    #[test]
    fn broken_json_and_trailing_words_are_refused() {
        assert!(refusal::<Order>("{\"items\": [").ends_with("EOF while parsing a list at line 1 column 11"));
        assert!(refusal::<u32>("1 2").ends_with("input: trailing characters at line 1 column 3"));
    }

    #[test]
    fn nesting_is_bounded_before_the_stack_is() {
        assert!(refusal::<serde_json::Value>(&"[".repeat(100_000)).contains("recursion limit exceeded"));
    }

    #[test]
    fn an_empty_payload_reads_as_null() {
        assert_eq!(<()>::from_payload(vec![]), Ok(()));
        assert_eq!(Option::<u32>::from_payload(vec![]), Ok(None));
        assert_eq!(refusal::<Order>(""), "the payload is empty; this job needs one, as JSON");
    }

    #[test]
    fn a_message_does_not_repeat_a_huge_payload() {
        let payload = format!("{{\"items\": \"{}\"}}", "ä".repeat(1 << 20));
        let message = refusal::<Order>(&payload);
        assert!(message.len() < MAX_MISMATCH_BYTES + 200, "{} bytes", message.len());
        assert!(message.contains("at items: invalid type: string \"ää"));
        assert!(message.ends_with("ää\", expected a sequence at line 1 column 2097164"));
    }

    #[test]
    fn raw_bytes_pass_untouched_both_ways() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(Raw::from_payload(bytes.clone()).and_then(Raw::into_result), Ok(bytes));
    }

    #[test]
    fn an_output_without_a_form_in_json_is_dead() {
        let keys_are_no_strings = std::collections::BTreeMap::from([((1, 2), 3)]);
        let Err(Failure::Dead { message }) = keys_are_no_strings.into_result() else { panic!("JSON has no such keys") };
        assert_eq!(message, "the job's output has no form in JSON: key must be a string");
    }

    #[test]
    fn text_names_the_first_bad_byte() {
        assert_eq!(Raw::from("grün").text(), Ok("grün"));
        let wanted = Failure::dead("payload is not UTF-8: byte 2 of 4 starts no character");
        assert_eq!(Raw(vec![b'a', b'b', 0xff, b'c']).text(), Err(wanted));
    }
}
