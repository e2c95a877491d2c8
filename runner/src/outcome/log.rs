//! What a run wrote to stdout, stderr and the log, line by line and in order: the head and the tail, never more than
//! the limit.
//!
//! A finished run's log is one text in the database (`Log::to_rows`), in which each line has a head between two control
//! characters that no guest's text can hold. So a log of any length costs a settlement one column, and SQL still sees
//! rows (leasehold.job_logs).

use std::fmt::Write as _;

use super::clean_text;

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogStream {
    Stdout,
    Stderr,
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl LogStream {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// What stands before such a line in plain text.
    fn prefix(self) -> &'static str {
        match self {
            Self::Stdout | Self::Stderr => "",
            Self::Trace => "[trace] ",
            Self::Debug => "[debug] ",
            Self::Info => "[info] ",
            Self::Warn => "[warn] ",
            Self::Error => "[error] ",
        }
    }
}

/// A line, or a piece of a very long one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Counted from 0 within the run; numbers are missing where lines were dropped.
    pub number: u64,
    /// Microseconds after the run's start.
    pub after_us: u64,
    pub stream: LogStream,
    /// May be broken UTF-8 or hold NUL: a guest wrote it.
    pub text: Vec<u8>,
    /// Whether this is a line's beginning.
    pub begins: bool,
    /// Whether this is a line's end.
    pub ends: bool,
}

impl LogLine {
    /// What a line weighs besides its text, in bytes: its number, time and stream.
    pub const OVERHEAD: usize = 16;

    pub fn weight(&self) -> usize {
        self.text.len() + Self::OVERHEAD
    }
}

/// What was kept of a run's output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    pub lines: Vec<LogLine>,
    /// How many bytes of text are missing in the middle.
    pub dropped_bytes: u64,
    /// Before which of `lines` they are missing.
    pub dropped_at: usize,
}

/// Before each line's head, and between a line's head and its text.
const RECORD: char = '\u{1e}';
const UNIT: char = '\u{1f}';

impl Log {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped_bytes == 0
    }

    /// What it weighs, in bytes.
    pub fn weight(&self) -> usize {
        self.lines.iter().map(LogLine::weight).sum()
    }

    /// The log as text for people: no NUL, no terminal escapes, and the gap is named where it is.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.render(|part| match part {
            Part::Line(line) => text.push_str(if line.begins { line.stream.prefix() } else { "" }),
            Part::Gap { .. } => {}
            Part::Text(shown) => text.push_str(shown),
        });
        text
    }

    /// The same as leasehold.log_rows reads it: each line after a head with its number, time and stream.
    pub fn to_rows(&self) -> String {
        let mut rows = String::new();
        self.render(|part| {
            let _ = match part {
                Part::Line(LogLine { number, after_us, stream, begins, .. }) => {
                    let goes_on = if *begins { "" } else { "+" };
                    write!(rows, "{RECORD}{number} {after_us} {}{goes_on}{UNIT}", stream.as_str())
                }
                Part::Gap { number, after_us } => write!(rows, "{RECORD}{number} {after_us} dropped{UNIT}"),
                Part::Text(shown) => {
                    rows.push_str(shown);
                    Ok(())
                }
            };
        });
        rows
    }

    fn render(&self, mut take: impl FnMut(Part<'_>)) {
        let dropped_at = self.dropped_at.min(self.lines.len());
        for (at, line) in self.lines.iter().enumerate() {
            if at == dropped_at {
                self.render_gap(&mut take);
            }
            take(Part::Line(line));
            take(Part::Text(&clean_text(&line.text)));
            let gap_follows = at + 1 == dropped_at && self.dropped_bytes > 0;
            let goes_on = self.lines.get(at + 1).is_none_or(|next| !next.begins) && !gap_follows;
            if line.ends || !goes_on {
                take(Part::Text("\n"));
            }
        }
        if dropped_at == self.lines.len() {
            self.render_gap(&mut take);
        }
    }

    fn render_gap(&self, take: &mut impl FnMut(Part<'_>)) {
        if self.dropped_bytes == 0 {
            return;
        }
        let at = self.dropped_at.min(self.lines.len());
        let before = at.checked_sub(1).map(|before| &self.lines[before]);
        let number = before.map_or(0, |line| line.number + 1);
        take(Part::Gap { number, after_us: before.map_or(0, |line| line.after_us) });
        take(Part::Text(&format!("[... {} bytes dropped ...]\n", self.dropped_bytes)));
    }

    /// The last bytes of the text, at least so many where there are so many.
    pub fn tail(&self, bytes: usize) -> Vec<u8> {
        let mut from = self.lines.len();
        let mut found = 0;
        while from > 0 && found < bytes {
            from -= 1;
            found += self.lines[from].text.len() + 1;
        }
        let mut tail = Vec::with_capacity(found);
        for line in &self.lines[from..] {
            tail.extend_from_slice(&line.text);
            if line.ends {
                tail.push(b'\n');
            }
        }
        tail
    }

    /// Of plain text on one stream.
    pub fn of(stream: LogStream, text: &[u8]) -> Self {
        let line = |(number, line): (usize, &[u8])| LogLine {
            number: number as u64,
            after_us: 0,
            stream,
            text: line.strip_suffix(b"\n").unwrap_or(line).to_vec(),
            begins: true,
            ends: line.ends_with(b"\n"),
        };
        let lines = text.split_inclusive(|byte| *byte == b'\n').enumerate().map(line).collect();
        Self { lines, dropped_bytes: 0, dropped_at: 0 }
    }
}

/// What a log is put together from.
enum Part<'a> {
    Line(&'a LogLine),
    Gap { number: u64, after_us: u64 },
    Text(&'a str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_names_its_gap_where_it_is() {
        let log = Log { dropped_bytes: 30, dropped_at: 1, ..Log::of(LogStream::Stdout, b"one\nnine\n") };
        assert_eq!(log.to_text(), "one\n[... 30 bytes dropped ...]\nnine\n");
        let torn = Log { dropped_bytes: 30, dropped_at: 2, ..Log::of(LogStream::Stdout, b"one\ntw") };
        assert_eq!(torn.to_text(), "one\ntw\n[... 30 bytes dropped ...]\n");
    }

    #[test]
    fn rows_have_heads_that_no_guest_can_write() {
        let log = Log { dropped_bytes: 5, dropped_at: 1, ..Log::of(LogStream::Warn, b"a\x1e9 9 stderr\x1fb\nc") };
        assert_eq!(
            log.to_rows(),
            "\u{1e}0 0 warn\u{1f}a\u{fffd}9 9 stderr\u{fffd}b\n\u{1e}1 0 dropped\u{1f}[... 5 bytes dropped ...]\n\u{1e}1 0 warn\u{1f}c"
        );
        assert_eq!(log.to_text(), "[warn] a\u{fffd}9 9 stderr\u{fffd}b\n[... 5 bytes dropped ...]\n[warn] c");
    }

    #[test]
    fn a_line_in_pieces_is_one_line() {
        let mut log = Log::of(LogStream::Info, b"one\n\n");
        (log.lines[0].ends, log.lines[1].begins) = (false, false);
        log.lines[1].text = b" and more".to_vec();
        assert_eq!(log.to_text(), "[info] one and more\n");
        assert_eq!(log.to_rows(), "\u{1e}0 0 info\u{1f}one\u{1e}1 0 info+\u{1f} and more\n");
        assert_eq!(log.tail(3), b" and more\n");
    }
}
