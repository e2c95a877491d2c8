//! What a guest writes. Everything that is not the result goes into one buffer, in order, which keeps the beginning and
//! the end and counts what it drops between: a guest must not die of its own logging, nor fill the host's memory with
//! it.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use crate::outcome::{Log, LogLine, LogStream};
use crate::secrets::{Cut, Secrets, without as without_places};

/// How much a guest may hand over in one write, in bytes. wasi-libc writes at most 4 KiB at a time anyway.
const WRITE_BYTES: usize = 64 << 10;

/// The longest piece of a line, as a share of the limit and in bytes: pieces are dropped as a whole.
const PIECES: usize = 16;
const PIECE_BYTES: std::ops::RangeInclusive<usize> = 64..=4 << 10;

/// A log that never fails: it keeps the lines of the first and the last half of its limit. Clones share one buffer.
#[derive(Debug, Clone)]
pub(super) struct LogBuffer(Arc<Mutex<Lines>>);

impl LogBuffer {
    /// What is taken out of it again has none of the secrets' values.
    pub fn new(limit_bytes: usize, secrets: &Arc<Secrets>) -> Self {
        Self(Arc::new(Mutex::new(Lines::new(limit_bytes, Arc::clone(secrets)))))
    }

    /// Adds bytes of a stream, which may be part of a line or many lines.
    pub fn write(&self, stream: LogStream, bytes: &[u8]) {
        let mut lines = lock(&self.0);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let ends = line.ends_with(b"\n");
            lines.add(stream, line.strip_suffix(b"\n").unwrap_or(line), ends);
        }
    }

    /// Adds a line that is whole, and may hold line breaks.
    pub fn write_line(&self, stream: LogStream, text: &[u8]) {
        lock(&self.0).add(stream, text, true);
    }

    pub fn limit(&self) -> usize {
        lock(&self.0).limit
    }

    /// The lines with this number and later ones that have ended, as rows, the last of them where they have more bytes
    /// than that; and the number of the line that comes next.
    pub fn rows_from(&self, number: u64, bytes: usize) -> Option<(String, u64)> {
        let lines = lock(&self.0);
        let open = lines.last().filter(|last| !last.ends).map(|last| last.number);
        let mut weight = 0;
        let new = lines.tail.iter().rev().chain(lines.head.iter().rev()).skip_while(|line| open == Some(line.number));
        let fitting = new.take_while(|line| {
            weight += line.weight();
            line.number >= number && weight <= bytes
        });
        let mut fitting: Vec<LogLine> = fitting.cloned().collect();
        fitting.reverse();
        let next = fitting.last()?.number + 1;
        let secrets = Arc::clone(&lines.secrets);
        // What follows takes a while.
        drop(lines);
        let log = Log { lines: fitting, dropped_bytes: 0, dropped_at: 0 };
        // What goes over the end of these rows may go on in the next.
        Some((without(log, None, &secrets).to_rows(), next))
    }

    /// Takes what was kept; the buffer is empty afterwards.
    pub fn take(&self) -> Log {
        let mut lines = lock(&self.0);
        let empty = Lines::new(lines.limit, Arc::clone(&lines.secrets));
        let taken = std::mem::replace(&mut *lines, empty);
        drop(lines);
        let secrets = Arc::clone(&taken.secrets);
        let next = taken.next_number;
        without(taken.into_log(), Some(next), &secrets)
    }
}

/// The log without the values of secrets, also where one goes over several lines, or goes on in a line that is not here.
/// `next` is the number of the line that would follow if none were missing.
fn without(mut log: Log, next: Option<u64>, secrets: &Secrets) -> Log {
    if secrets.is_empty() {
        return log;
    }
    let mut follows = 0;
    for stretch in log.lines.chunk_by_mut(|line, after| line.number + 1 == after.number) {
        let cut = Cut { before: stretch[0].number != follows, after: true };
        follows = stretch[stretch.len() - 1].number + 1;
        let streams: BTreeSet<&str> = stretch.iter().map(|line| line.stream.as_str()).collect();
        for stream in streams {
            let mut lines: Vec<_> = stretch.iter_mut().filter(|line| line.stream.as_str() == stream).collect();
            clean(&mut lines, Cut { after: next != Some(follows), ..cut }, secrets);
        }
    }
    log
}

/// Takes values out of lines of one stream that follow one another.
fn clean(lines: &mut [&mut LogLine], cut: Cut, secrets: &Secrets) {
    let mut text = Vec::new();
    let mut begins = Vec::with_capacity(lines.len());
    for line in lines.iter() {
        begins.push(text.len());
        text.extend_from_slice(&line.text);
        if line.ends {
            text.push(b'\n');
        }
    }
    let places = secrets.places(&text, cut);
    for (line, begin) in lines.iter_mut().zip(begins) {
        let end = begin + line.text.len();
        let within = |place: &Range<usize>| place.start.max(begin) - begin..place.end.min(end).max(begin) - begin;
        // Ends come in order, so the first that matters is found by halving.
        let first = places.partition_point(|place| place.end <= begin);
        let touching = places[first..].iter().take_while(|place| place.start < end).map(within);
        let here: Vec<_> = touching.filter(|place| !place.is_empty()).collect();
        if !here.is_empty() {
            line.text = without_places(&line.text, &here);
        }
    }
}

/// A lock that a panic poisoned still guards plain bytes, which no panic can leave half-made.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Lines {
    limit: usize,
    started: Instant,
    head: Vec<LogLine>,
    head_weight: usize,
    /// Whether the head has met its limit, so that everything goes to the tail.
    head_is_full: bool,
    tail: VecDeque<LogLine>,
    tail_weight: usize,
    dropped_bytes: u64,
    next_number: u64,
    secrets: Arc<Secrets>,
}

impl Lines {
    fn new(limit: usize, secrets: Arc<Secrets>) -> Self {
        Self {
            secrets,
            limit,
            started: Instant::now(),
            head: Vec::new(),
            head_weight: 0,
            head_is_full: false,
            tail: VecDeque::new(),
            tail_weight: 0,
            dropped_bytes: 0,
            next_number: 0,
        }
    }

    /// Amortised O(1) a byte: each byte enters the tail once and leaves it at most once.
    fn add(&mut self, stream: LogStream, text: &[u8], ends: bool) {
        let piece_bytes = (self.limit / PIECES).clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end());
        let mut rest = text;
        loop {
            let open = self.last().filter(|last| !last.ends && last.stream == stream);
            let begins = open.is_none();
            let room = open.map_or(0, |open| piece_bytes.saturating_sub(open.text.len()));
            // The first thing to do to an open piece is to fill it; a full one goes on in the next. What has no more
            // room in the head goes on in the tail.
            let extends = room > 0 && (self.head_is_full || self.head_weight + rest.len().min(room) <= self.limit / 2);
            let (piece, more) = cut(rest, if extends { room } else { piece_bytes });
            rest = more;
            let ends = ends && rest.is_empty();
            if extends {
                self.extend(piece, ends);
            } else {
                let after_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
                let number = self.next_number;
                self.next_number += 1;
                self.push(LogLine { number, after_us, stream, text: piece.to_vec(), begins, ends });
            }
            if rest.is_empty() {
                return;
            }
        }
    }

    fn last(&self) -> Option<&LogLine> {
        if self.head_is_full { self.tail.back() } else { self.head.last() }
    }

    fn extend(&mut self, text: &[u8], ends: bool) {
        let (last, weight) = if self.head_is_full {
            (self.tail.back_mut(), &mut self.tail_weight)
        } else {
            (self.head.last_mut(), &mut self.head_weight)
        };
        let last = last.expect("somebody saw it");
        last.text.extend_from_slice(text);
        last.ends = ends;
        *weight += text.len();
        self.drop_from_tail();
    }

    fn push(&mut self, line: LogLine) {
        let head_limit = self.limit / 2;
        if !self.head_is_full && self.head_weight + line.weight() <= head_limit {
            self.head_weight += line.weight();
            self.head.push(line);
        } else {
            self.head_is_full = true;
            self.tail_weight += line.weight();
            self.tail.push_back(line);
            self.drop_from_tail();
        }
    }

    fn drop_from_tail(&mut self) {
        let tail_limit = self.limit - self.limit / 2;
        while self.tail_weight > tail_limit {
            let Some(line) = self.tail.pop_front() else { return };
            self.tail_weight -= line.weight();
            self.dropped_bytes += line.text.len() as u64 + u64::from(line.ends);
        }
    }

    fn into_log(self) -> Log {
        let dropped_at = self.head.len();
        let mut lines = self.head;
        lines.extend(self.tail);
        Log { lines, dropped_bytes: self.dropped_bytes, dropped_at }
    }
}

/// The first bytes, at most so many, and the rest. Never through a character, as long as there are characters.
fn cut(bytes: &[u8], limit: usize) -> (&[u8], &[u8]) {
    if bytes.len() <= limit {
        return (bytes, &[]);
    }
    let starts_one = |at: &usize| bytes[*at] & 0xc0 != 0x80;
    let at = (limit.saturating_sub(3).max(1)..=limit).rev().find(starts_one).unwrap_or(limit);
    bytes.split_at(at)
}

/// What takes in the bytes of a stream; it always has room.
pub(super) trait Sink: Clone + Send + Sync + 'static {
    fn take_in(&self, bytes: &[u8]) -> StreamResult<()>;
}

/// stdout or stderr of a guest.
#[derive(Debug, Clone)]
pub(super) struct Stream<S>(pub S);

impl<S> IsTerminal for Stream<S> {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl<S: Sink> StdoutStream for Stream<S> {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Only WASI 0.3 asks for this one, and we do not offer it.
        Box::new(tokio::io::sink())
    }

    /// The default would wrap the stream above into one that lets a guest grow the host's memory with empty writes.
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl<S: Sink> OutputStream for Stream<S> {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.take_in(&bytes)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES)
    }
}

#[wasmtime_wasi::async_trait]
impl<S: Sink> Pollable for Stream<S> {
    async fn ready(&mut self) {}
}

/// stdout or stderr, into the log.
#[derive(Debug, Clone)]
pub(super) struct Logged(pub LogBuffer, pub LogStream);

impl Sink for Logged {
    fn take_in(&self, bytes: &[u8]) -> StreamResult<()> {
        self.0.write(self.1, bytes);
        Ok(())
    }
}

/// The result is larger than its limit.
#[derive(Debug, thiserror::Error)]
#[error("result of {}{wanted} bytes exceeds the limit of {limit} bytes", if *complete { "" } else { "at least " })]
pub(super) struct OutputLimit {
    pub limit: u64,
    pub wanted: u64,
    /// Whether `wanted` is the whole result or only what had been written when it was stopped.
    pub complete: bool,
}

/// stdout of a command: its result. A result must be whole, so one byte too many ends the run.
#[derive(Debug, Clone)]
pub(super) struct ResultBuffer {
    bytes: Arc<Mutex<Vec<u8>>>,
    limit: usize,
}

impl ResultBuffer {
    pub fn new(limit_bytes: usize) -> Self {
        Self { bytes: Arc::default(), limit: limit_bytes }
    }

    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.bytes))
    }
}

impl Sink for ResultBuffer {
    fn take_in(&self, chunk: &[u8]) -> StreamResult<()> {
        let mut bytes = lock(&self.bytes);
        let wanted = bytes.len() + chunk.len();
        if wanted > self.limit {
            let error = OutputLimit { limit: self.limit as u64, wanted: wanted as u64, complete: false };
            return Err(StreamError::Trap(error.into()));
        }
        bytes.extend_from_slice(chunk);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: LogStream = LogStream::Stdout;

    fn log_of(limit: usize, writes: &[&[u8]]) -> Log {
        let buffer = LogBuffer::new(limit, Secrets::none());
        for write in writes {
            buffer.write(OUT, write);
        }
        buffer.take()
    }

    #[test]
    fn a_short_log_is_whole_and_has_lines() {
        let log = log_of(1 << 10, &[b"one ", b"two\nthr", b"ee\n\n", b"four"]);
        assert_eq!((log.to_text().as_str(), log.dropped_bytes), ("one two\nthree\n\nfour", 0));
        let lines: Vec<_> = log.lines.iter().map(|line| (line.number, line.text.as_slice(), line.ends)).collect();
        let wanted: [(u64, &[u8], bool); 4] =
            [(0, b"one two", true), (1, b"three", true), (2, b"", true), (3, b"four", false)];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn a_long_log_keeps_both_ends_and_counts_the_middle() {
        let numbers: Vec<String> = (0..1_000).map(|number| format!("line {number}\n")).collect();
        let writes: Vec<&[u8]> = numbers.iter().map(|line| line.as_bytes()).collect();
        let log = log_of(1 << 10, &writes);
        assert!(log.weight() <= 1 << 10 && log.weight() > 900, "{}", log.weight());
        let kept: usize = log.lines.iter().map(|line| line.text.len() + 1).sum();
        assert_eq!(kept as u64 + log.dropped_bytes, numbers.concat().len() as u64);
        let text = log.to_text();
        assert!(text.starts_with("line 0\nline 1\n") && text.ends_with("\nline 999\n"), "{text}");
        assert!(text.contains(&format!("\n[... {} bytes dropped ...]\nline 9", log.dropped_bytes)), "{text}");
        assert_eq!(log_of(1 << 10, &[numbers.concat().as_bytes()]).to_text(), text, "in one write");
    }

    #[test]
    fn a_line_without_an_end_is_bounded_too_and_never_cut_through_a_character() {
        let log = log_of(1 << 10, &[b"begin ", &"\u{e4}".repeat(100_000).into_bytes(), b" end"]);
        assert!(log.weight() <= 1 << 10, "{}", log.weight());
        let text = log.to_text();
        assert!(
            text.starts_with("begin \u{e4}") && text.ends_with("\u{e4} end") && !text.contains('\u{fffd}'),
            "{text}"
        );
    }

    #[test]
    fn empty_lines_are_bounded_too() {
        let log = log_of(1 << 10, &[&[b'\n'; 100_000]]);
        assert!(log.lines.len() <= 64, "{}", log.lines.len());
        assert_eq!(log.dropped_bytes + log.lines.len() as u64, 100_000);
    }

    #[test]
    fn streams_that_take_turns_keep_their_lines() {
        let buffer = LogBuffer::new(1 << 10, Secrets::none());
        buffer.write(OUT, b"half a line");
        buffer.write_line(LogStream::Warn, b"two\nlines");
        buffer.write(LogStream::Stderr, b"other\n");
        assert_eq!(buffer.take().to_text(), "half a line\n[warn] two\nlines\nother\n");
    }

    #[test]
    fn values_of_secrets_are_taken_out_over_lines_pieces_and_gaps() {
        let value = "-----BEGIN KEY-----\nabcdefghijklmnopqrstuvwxyz\nABCDEFGHIJKLMNOPQRSTUVWXYZ\n-----END KEY-----";
        let secrets = Arc::new([("key".to_owned(), Ok(value.to_owned()))].into_iter().collect::<Secrets>());
        let logged = |writes: &[&str]| {
            let buffer = LogBuffer::new(4 << 10, &secrets);
            for write in writes {
                buffer.write(OUT, write.as_bytes());
            }
            buffer
        };
        let log = logged(&["a ", value, " z\n"]).take().to_text();
        assert_eq!(log, "a [secret]\n[secret]\n[secret]\n[secret] z\n");
        // Over the pieces of a long line: these have 64 bytes.
        let one_line = Arc::new([("key".to_owned(), Ok("k".repeat(20) + "end"))].into_iter().collect::<Secrets>());
        let buffer = LogBuffer::new(1 << 10, &one_line);
        buffer.write(OUT, format!("{}{}end{}\n", "x".repeat(54), "k".repeat(20), "y".repeat(50)).as_bytes());
        let log = buffer.take().to_text();
        assert!(!log.contains("kk") && !log.contains("end") && log.contains("x[secret]"), "{log}");
        // A level of its own between the lines of a stream is no hiding place.
        let buffer = logged(&["a ", &value[..30]]);
        buffer.write_line(LogStream::Info, b"hello");
        buffer.write(OUT, &value.as_bytes()[30..]);
        let log = buffer.take().to_text();
        assert!(log.contains("hello") && !log.contains("KEY") && !log.contains("klmn"), "{log}");
        // Rows that are written before the value is whole, and those after it.
        let buffer = logged(&["a\n", &value[..50]]);
        let (rows, next) = buffer.rows_from(0, 4 << 10).expect("rows");
        assert!(!rows.contains("BEGIN"), "{rows}");
        buffer.write(OUT, &value.as_bytes()[50..]);
        buffer.write(OUT, b"\nz\n");
        let (rows, _) = buffer.rows_from(next, 4 << 10).expect("rows");
        assert!(!rows.contains("klmn") && !rows.contains("END") && rows.contains('z'), "{rows}");
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing() {
        let log = log_of(0, &[b"gone"]);
        assert_eq!((log.lines.len(), log.dropped_bytes), (0, 4));
    }

    #[test]
    fn a_result_may_be_as_long_as_its_limit_and_no_longer() {
        let buffer = ResultBuffer::new(4);
        buffer.take_in(b"full").expect("it fits");
        let Err(StreamError::Trap(error)) = buffer.take_in(b"!") else { panic!("it must not fit") };
        assert_eq!(error.to_string(), "result of at least 5 bytes exceeds the limit of 4 bytes");
        assert_eq!(buffer.take(), b"full");
    }
}
