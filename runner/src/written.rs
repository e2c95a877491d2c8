//! Values as people write them, in flags and in files: sizes, durations, overrides.

use std::time::Duration;

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

/// `fuel=fail`, `trap=dead`.
pub fn on_failure(text: &str) -> Result<(FailureKind, OnFailure), String> {
    let (kind, end) = text.split_once('=').ok_or_else(|| format!("{text:?} is not KIND=fail or KIND=dead"))?;
    let kind: FailureKind = kind.parse().map_err(|error: anyhow::Error| error.to_string())?;
    if !kind.overridable() {
        return Err(format!("{kind} is the worker's own fault; a module cannot say what it does to a job"));
    }
    Ok((kind, end.parse().map_err(|error: anyhow::Error| error.to_string())?))
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
    fn only_a_runs_own_failures_can_be_overridden() {
        assert_eq!(on_failure("fuel=fail"), Ok((FailureKind::Fuel, OnFailure::Fail)));
        assert!(on_failure("host=dead").is_err());
        assert!(on_failure("fuel").is_err());
        assert!(on_failure("fuel=maybe").is_err_and(|error| error.contains("fail or dead")));
    }
}
