//! A wasm backtrace as text for people. The names in it are the guest's own, so they are cleaned and bounded; what only
//! compilers need (hashes in Rust's names, the same frame thirty times) is left out.

use std::fmt::{self, Write};

use wasmtime::{FrameInfo, WasmBacktrace};

use super::engine::BACKTRACE_FRAMES;
use crate::outcome::clean_text;

/// How much of a backtrace is looked at, in bytes, before anything is left out.
const TEXT_BYTES: usize = 16 << 10;

/// One frame a line, innermost first; more lines where a frame has inlined calls and places in the source.
pub(super) fn text(backtrace: &WasmBacktrace) -> String {
    let mut text = Bounded { text: String::new(), room: TEXT_BYTES };
    // It stops with an error when it is full, and what is there by then is what we want.
    let _ = write!(text, "{backtrace}");
    let frames = text.text.split_once('\n').map_or("", |(_title, frames)| frames);
    fold(&without_hashes(&clean_text(frames.as_bytes())))
}

/// Says so when the backtrace is full and only few functions take turns in it. Rust and C keep a stack of their own in
/// linear memory, so their runaway recursion mostly ends out of bounds rather than with an overflow of wasm's stack.
pub(super) fn recursion(backtrace: Option<&WasmBacktrace>) -> &'static str {
    let Some(frames) = backtrace.map(WasmBacktrace::frames) else { return "" };
    let mut functions: Vec<_> = frames.iter().map(FrameInfo::func_index).collect();
    functions.sort_unstable();
    functions.dedup();
    if frames.len() >= BACKTRACE_FRAMES && functions.len() <= BACKTRACE_FRAMES / 4 {
        "; the backtrace repeats itself, which looks like recursion without an end"
    } else {
        ""
    }
}

struct Bounded {
    text: String,
    room: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let kept = &s[..s.floor_char_boundary(self.room)];
        self.text.push_str(kept);
        self.room -= kept.len();
        if kept.len() < s.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Rust's names carry a hash of their crate: `std[2b8d1553ebf29eec]::process::abort`.
fn without_hashes(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        kept.push_str(&rest[..open]);
        rest = &rest[open..];
        let is_hash =
            rest.as_bytes().get(17) == Some(&b']') && rest.as_bytes()[1..17].iter().all(u8::is_ascii_hexdigit);
        let (skipped, shown) = if is_hash { (18, "") } else { (1, "[") };
        kept.push_str(shown);
        rest = &rest[skipped..];
    }
    kept.push_str(rest);
    kept
}

/// Frames that follow each other and are the same, but for their number and address, become one.
fn fold(text: &str) -> String {
    let mut folded: Vec<String> = Vec::new();
    let mut last = "";
    let mut more = 0;
    let flush = |folded: &mut Vec<String>, more: &mut usize| {
        if *more > 0 {
            folded.push(format!("        and {more} more of the same"));
            *more = 0;
        }
    };
    for line in text.lines() {
        // A line without an address belongs to the frame above it; such frames are left as they are.
        match line.split_once(" - ").filter(|(head, _)| head.contains(": ")) {
            Some((_, name)) if name == last => more += 1,
            Some((_, name)) => {
                flush(&mut folded, &mut more);
                folded.push(line.to_owned());
                last = name;
            }
            None => {
                flush(&mut folded, &mut more);
                folded.push(line.to_owned());
                last = "";
            }
        }
    }
    flush(&mut folded, &mut more);
    folded.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_frame_again_and_again_is_told_once() {
        let text =
            "    0:   0x10 - a.wasm!f\n    1:   0x20 - a.wasm!f\n    2:   0x20 - a.wasm!f\n    3:   0x30 - a.wasm!g";
        assert_eq!(fold(text), "    0:   0x10 - a.wasm!f\n        and 2 more of the same\n    3:   0x30 - a.wasm!g");
    }

    #[test]
    fn frames_with_places_in_the_source_stay_as_they_are() {
        let text = "    0:   0x10 - f\n                    at a.rs:1\n    1:   0x20 - f\n                    at a.rs:2";
        assert_eq!(fold(text), text);
    }

    #[test]
    fn hashes_go_and_other_brackets_stay() {
        assert_eq!(without_hashes("std[2b8d1553ebf29eec]::f::<[u8]>[x"), "std::f::<[u8]>[x");
        assert_eq!(without_hashes("[2b8d1553ebf29ee"), "[2b8d1553ebf29ee");
    }
}
