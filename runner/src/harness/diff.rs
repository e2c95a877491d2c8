//! How two results differ, for people: by lines where they are text, by the first byte where they are not.

use serde_json::Value;
use similar::TextDiff;

use crate::outcome::clean_text;

/// How many lines of a difference are shown.
const LINES: usize = 100;
/// How many unchanged lines around a changed one.
const CONTEXT: usize = 3;
/// How much of each side is compared by lines, in bytes: the time it takes grows with the square.
const TEXT_BYTES: usize = 256 << 10;
/// How many bytes are shown where two sides begin to differ.
const SHOWN_BYTES: usize = 16;

/// JSON on several lines, its keys in order.
pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("a value has a text")
}

/// What was expected on lines with `-`, what was on lines with `+`.
pub(super) fn texts(expected: &str, actual: &str) -> String {
    if expected.len().max(actual.len()) > TEXT_BYTES {
        return places(expected.as_bytes(), actual.as_bytes());
    }
    let diff = TextDiff::from_lines(expected, actual);
    let text = diff.unified_diff().context_radius(CONTEXT).header("expected", "actual").to_string();
    let mut lines: Vec<_> = text.lines().collect();
    let more = lines.len().saturating_sub(LINES);
    lines.truncate(LINES);
    let mut shown = clean_text(lines.join("\n").as_bytes());
    if more > 0 {
        shown.push_str(&format!("\n[... {more} more lines]"));
    }
    shown
}

/// The same of bytes, which may be text.
pub(super) fn bytes(expected: &[u8], actual: &[u8]) -> String {
    match (std::str::from_utf8(expected), std::str::from_utf8(actual)) {
        (Ok(expected), Ok(actual)) if !expected.contains('\0') && !actual.contains('\0') => texts(expected, actual),
        _ => places(expected, actual),
    }
}

fn places(expected: &[u8], actual: &[u8]) -> String {
    let at = expected.iter().zip(actual).take_while(|(a, b)| a == b).count();
    let part = |bytes: &[u8]| match bytes.get(at..) {
        None | Some([]) => "the end".to_owned(),
        Some(rest) => hex::encode(&rest[..rest.len().min(SHOWN_BYTES)]),
    };
    format!(
        "expected {} bytes, were {}; from byte {at} on expected {}, was {}",
        expected.len(),
        actual.len(),
        part(expected),
        part(actual)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_differ_at_a_place() {
        assert_eq!(
            bytes(b"\x00\x01\xff", b"\x00\x02"),
            "expected 3 bytes, were 2; from byte 1 on expected 01ff, was 02"
        );
        assert_eq!(bytes(b"\xff", b"\xff\x00"), "expected 1 bytes, were 2; from byte 1 on expected the end, was 00");
    }

    #[test]
    fn a_terminal_obeys_nothing_of_it() {
        assert!(!texts("a\n", "\x1b[2J\n").contains('\x1b'));
    }

    #[test]
    fn a_long_difference_is_cut() {
        let long: String = (0..1_000).map(|line| format!("{line}\n")).collect();
        let shown = texts("", &long);
        assert!(shown.lines().count() == LINES + 1 && shown.ends_with("more lines]"), "{shown}");
    }
}
