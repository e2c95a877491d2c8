//! What runs used of their limits, and which limits would do.

use std::time::Duration;

use crate::job::Limits;
use crate::outcome::Usage;

/// How much more than the most that was seen is advised of what is exact: other payloads need other amounts.
const SPARE: f64 = 1.5;
/// The same of time: other machines, and busier ones, take longer.
const SPARE_TIME: u32 = 10;
/// The least time that is advised. A host that is busy for a moment should fail no job.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The least size of a result that is advised, in bytes.
const MIN_RESULT_BYTES: u64 = 1 << 10;

/// Limits that would do for runs like those that were seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Advice {
    pub fuel: u64,
    pub memory_bytes: u64,
    pub timeout_ms: u64,
    pub result_bytes: u64,
}

/// Half as much again as the most of each, ten times the longest, and round.
pub fn advice<'a>(usages: impl IntoIterator<Item = &'a Usage>) -> Advice {
    let mut most = Usage::default();
    for usage in usages {
        most.fuel = most.fuel.max(usage.fuel);
        most.memory_peak_bytes = most.memory_peak_bytes.max(usage.memory_peak_bytes);
        most.wall = most.wall.max(usage.wall);
        most.result_bytes = most.result_bytes.max(usage.result_bytes);
    }
    let mebibytes = with_spare(most.memory_peak_bytes).div_ceil(1 << 20).max(1);
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let timeout = most.wall.saturating_mul(SPARE_TIME).clamp(MIN_TIMEOUT, Limits::MAX_TIMEOUT);
    Advice {
        fuel: round(with_spare(most.fuel).max(1)).min(Limits::MAX_FUEL),
        memory_bytes: (mebibytes << 20).min(Limits::MAX_MEMORY_BYTES),
        timeout_ms: round(millis(timeout)).min(millis(Limits::MAX_TIMEOUT)),
        result_bytes: with_spare(most.result_bytes)
            .next_multiple_of(MIN_RESULT_BYTES)
            .clamp(MIN_RESULT_BYTES, Limits::MAX_RESULT_BYTES),
    }
}

impl Advice {
    /// As `module push` takes them.
    pub fn flags(&self) -> String {
        let Self { fuel, memory_bytes, timeout_ms, result_bytes } = self;
        format!(
            "--fuel {fuel} --memory {}MiB --timeout {timeout_ms}ms --result-limit {}KiB",
            memory_bytes >> 20,
            result_bytes >> 10
        )
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // half as much again
fn with_spare(most: u64) -> u64 {
    (most as f64 * SPARE).ceil() as u64
}

/// Up to two digits that are not zero.
fn round(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(1));
    number.div_ceil(unit).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_round_and_has_room() {
        assert_eq!([round(0), round(7), round(99), round(101), round(12_345)], [0, 7, 99, 110, 13_000]);
        let used = |fuel, memory_peak_bytes, wall, result_bytes| Usage {
            fuel,
            memory_peak_bytes,
            wall: Duration::from_millis(wall),
            result_bytes,
            ..Usage::default()
        };
        let advice = advice(&[used(10_000, 65_536, 2, 10), used(1, 2 << 20, 700, 2_000)]);
        assert_eq!(advice, Advice { fuel: 15_000, memory_bytes: 3 << 20, timeout_ms: 7_000, result_bytes: 3 << 10 });
        assert_eq!(advice.flags(), "--fuel 15000 --memory 3MiB --timeout 7000ms --result-limit 3KiB");
    }

    #[test]
    fn what_is_advised_is_allowed() {
        let most = Usage {
            fuel: u64::MAX,
            memory_peak_bytes: u64::MAX / 2,
            wall: Duration::MAX,
            result_bytes: u64::MAX / 2,
            ..Usage::default()
        };
        for usage in [most, Usage::default()] {
            let Advice { fuel, memory_bytes, timeout_ms, result_bytes } = advice(&[usage]);
            let timeout = Duration::from_millis(timeout_ms);
            let limits = Limits { fuel, memory_bytes, timeout, result_bytes, ..Limits::default() };
            assert_eq!(limits.validate(), Ok(()));
        }
    }
}
