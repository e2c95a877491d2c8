//! What a guest writes. Everything that is not the result goes into one buffer, in order, which keeps the beginning and
//! the end and counts what it drops between: a guest must not die of its own logging, nor fill the host's memory with it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use crate::outcome::Log;

/// How much a guest may hand over in one write, in bytes. wasi-libc writes at most 4 KiB at a time anyway.
const WRITE_BYTES: usize = 64 << 10;

/// A log that never fails: it keeps the first and the last half of its limit. Clones share one buffer.
#[derive(Debug, Clone)]
pub(super) struct LogBuffer(Arc<Mutex<HeadAndTail>>);

impl LogBuffer {
    pub fn new(limit_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(HeadAndTail::new(limit_bytes))))
    }

    pub fn write(&self, bytes: &[u8]) {
        lock(&self.0).write(bytes);
    }

    /// Counts bytes that the caller has left out itself.
    pub fn drop_bytes(&self, count: u64) {
        lock(&self.0).dropped += count;
    }

    /// Takes what was kept; the buffer is empty afterwards.
    pub fn take(&self) -> Log {
        let mut buffer = lock(&self.0);
        let empty = HeadAndTail::new(buffer.limit);
        std::mem::replace(&mut *buffer, empty).into_log()
    }
}

/// A lock that a panic poisoned still guards plain bytes, which no panic can leave half-made.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct HeadAndTail {
    limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl HeadAndTail {
    fn new(limit: usize) -> Self {
        Self { limit, head: Vec::new(), tail: VecDeque::new(), dropped: 0 }
    }

    /// Amortised O(1) a byte: each byte enters the tail once and leaves it at most once.
    fn write(&mut self, bytes: &[u8]) {
        let head_limit = self.limit / 2;
        let tail_limit = self.limit - head_limit;
        let (head, rest) = bytes.split_at(bytes.len().min(head_limit - self.head.len()));
        self.head.extend_from_slice(head);
        let (skipped, kept) = rest.split_at(rest.len().saturating_sub(tail_limit));
        let overflow = (self.tail.len() + kept.len()).saturating_sub(tail_limit);
        self.tail.drain(..overflow);
        self.tail.extend(kept);
        self.dropped += (skipped.len() + overflow) as u64;
    }

    fn into_log(mut self) -> Log {
        let mut dropped_bytes = self.dropped;
        if dropped_bytes > 0 {
            // The cut may go through a character; its halves would only show as rubbish on both sides of the gap.
            let torn = torn_end(&self.head);
            self.head.truncate(self.head.len() - torn);
            let continuing = self.tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            self.tail.drain(..continuing);
            dropped_bytes += (torn + continuing) as u64;
        }
        let dropped_at = self.head.len();
        let mut bytes = self.head;
        bytes.extend(self.tail);
        Log { bytes, dropped_bytes, dropped_at }
    }
}

/// How many bytes at the end begin a UTF-8 character without finishing it.
fn torn_end(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let width = match byte {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if width > back { back } else { 0 };
    }
    0
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
impl Sink for LogBuffer {
    fn take_in(&self, bytes: &[u8]) -> StreamResult<()> {
        self.write(bytes);
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

    fn log_of(limit: usize, writes: &[&[u8]]) -> Log {
        let buffer = LogBuffer::new(limit);
        for write in writes {
            buffer.write(write);
        }
        buffer.take()
    }

    #[test]
    fn a_short_log_is_whole() {
        let log = log_of(16, &[b"one ", b"two ", b"three"]);
        assert_eq!((log.bytes.as_slice(), log.dropped_bytes), (&b"one two three"[..], 0));
    }

    #[test]
    fn a_long_log_keeps_both_ends_and_counts_the_middle() {
        let log = log_of(8, &[b"0123", b"456789", b"ab", b"cdef"]);
        assert_eq!((log.bytes.as_slice(), log.dropped_bytes, log.dropped_at), (&b"0123cdef"[..], 8, 4));
        let at_once = log_of(8, &[b"0123456789abcdef"]);
        assert_eq!(at_once, log);
    }

    #[test]
    fn the_cut_never_leaves_half_a_character() {
        // Two bytes each; both halves of the limit of 6 are odd, so the cut goes through a character on both sides.
        let log = log_of(6, &["ääääää".as_bytes()]);
        assert_eq!((std::str::from_utf8(&log.bytes), log.dropped_bytes), (Ok("ää"), 8));
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing() {
        let log = log_of(0, &[b"gone"]);
        assert_eq!((log.bytes.len(), log.dropped_bytes), (0, 4));
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
