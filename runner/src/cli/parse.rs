//! Sizes, durations and overrides as people write them in flags.

use std::io::Read;
use std::time::Duration;

use anyhow::Context;
use bytesize::ByteSize;

use crate::outcome::{FailureKind, OnFailure};

/// `64MiB`, `500kB` or a plain number of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|_| format!("{text:?} is not a size; write 64MiB, 500kB or a number of bytes"))
}

/// `5s`, `2m30s`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| format!("{text:?} is not a duration; write 5s, 2m or 500ms"))
}

/// `2026-12-01T13:00:00Z`, as the time since 1970.
pub fn moment(text: &str) -> Result<Duration, String> {
    let moment = humantime::parse_rfc3339_weak(text)
        .map_err(|_| format!("{text:?} is not a time; write 2026-12-01T13:00:00Z"))?;
    moment.duration_since(std::time::UNIX_EPOCH).map_err(|_| format!("{text:?} is before 1970"))
}

/// `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// `NAME=VALUE`, without showing the value.
pub fn secret(text: &str) -> Result<(String, String), String> {
    pair(text).map_err(|_| "a secret for a run is NAME=VALUE".into())
}

/// `mail`, or with a weight `mail=3`.
pub fn queue(text: &str) -> Result<(String, Option<u32>), String> {
    let Some((name, weight)) = text.split_once('=') else { return Ok((text.to_owned(), None)) };
    match weight.parse() {
        Ok(weight @ 1..=1000) => Ok((name.to_owned(), Some(weight))),
        _ => Err(format!("weight {weight:?} of queue {name} is not a number from 1 to 1000")),
    }
}

/// `fuel=fail`, `trap=dead`.
pub fn on_failure(text: &str) -> Result<(FailureKind, OnFailure), String> {
    let (kind, end) = text.split_once('=').ok_or_else(|| format!("{text:?} is not KIND=fail or KIND=dead"))?;
    let kind: FailureKind = kind.parse().map_err(|error: anyhow::Error| error.to_string())?;
    if !kind.overridable() {
        return Err(format!("{kind} is the worker's own fault; a module cannot say what it does to a job"));
    }
    Ok((kind, end.parse().map_err(|error: anyhow::Error| error.to_string())?))
}

/// JSON as it stands, or the bytes of `@FILE` or of standard input (`-`) as they are.
pub fn payload(text: &str) -> anyhow::Result<Vec<u8>> {
    if text == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("reading the payload from standard input")?;
        return Ok(bytes);
    }
    if let Some(path) = text.strip_prefix('@') {
        return std::fs::read(path).with_context(|| format!("reading the payload from {path}"));
    }
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .context("the payload is not JSON; write text in double quotes, or pass bytes as they are with @FILE or -")?;
    Ok(text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_read_as_people_write_them() {
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        assert_eq!(bytes("500kB"), Ok(500_000));
        assert_eq!(bytes("1024"), Ok(1024));
        assert_eq!(duration("2m30s"), Ok(Duration::from_secs(150)));
        assert!(bytes("many").is_err_and(|error| error.contains("64MiB")));
        assert!(duration("5").is_err_and(|error| error.contains("5s")));
    }

    #[test]
    fn a_queue_may_have_a_weight() {
        assert_eq!(queue("mail"), Ok(("mail".into(), None)));
        assert_eq!(queue("mail=3"), Ok(("mail".into(), Some(3))));
        assert!(queue("mail=0").is_err_and(|error| error.contains("1 to 1000")));
    }

    #[test]
    fn only_a_runs_own_failures_can_be_overridden() {
        assert_eq!(on_failure("fuel=fail"), Ok((FailureKind::Fuel, OnFailure::Fail)));
        assert!(on_failure("host=dead").is_err());
        assert!(on_failure("fuel").is_err());
        assert!(on_failure("fuel=maybe").is_err_and(|error| error.contains("fail or dead")));
    }
}
