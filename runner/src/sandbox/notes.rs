//! What a run leaves with its worker while it goes on: a checkpoint, how far it is, and lines of its log. The guest
//! never waits for the database; the worker looks here now and then, and writes what is new for all its runs at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::stdio::LogBuffer;
use crate::outcome::{LogChunk, Noted, Progress};

/// How much of a run's log one write carries, in bytes. What a run says beyond that is only in its log at the end.
const LIVE_BYTES: usize = 64 << 10;

/// One run's.
#[derive(Debug, Default)]
pub struct Notes(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    checkpoint: Option<Arc<[u8]>>,
    /// How often something was saved, and up to which of them it was written; likewise below.
    saves: u64,
    saves_written: u64,
    progress: Option<Progress>,
    progresses: u64,
    progresses_written: u64,
    log: Option<LogBuffer>,
    live: LiveLog,
    /// Whether the database may have something of this job.
    left_something: bool,
}

/// Which part of a log has gone out, as chunks. The first of them stay, as the log's own head does.
#[derive(Debug, Default)]
struct LiveLog {
    next_line: u64,
    next_chunk: i32,
    head_chunks: i32,
    head_bytes: usize,
    /// The sizes of the chunks after the head that are still there.
    tail: VecDeque<usize>,
    tail_bytes: usize,
}

impl Notes {
    /// What an earlier run saved.
    pub fn begin_with(&self, checkpoint: Vec<u8>) {
        let mut inner = self.inner();
        inner.checkpoint = Some(checkpoint.into());
        inner.left_something = true;
    }

    pub(super) fn checkpoint(&self) -> Option<Arc<[u8]>> {
        self.inner().checkpoint.clone()
    }

    pub(super) fn save(&self, checkpoint: Vec<u8>) {
        let mut inner = self.inner();
        inner.checkpoint = Some(checkpoint.into());
        inner.saves += 1;
    }

    pub(super) fn set_progress(&self, progress: Progress) {
        let mut inner = self.inner();
        inner.progress = Some(progress);
        inner.progresses += 1;
    }

    pub(super) fn watch(&self, log: &LogBuffer) {
        self.inner().log = Some(log.clone());
    }

    /// A save that nobody has written yet.
    pub fn unwritten_checkpoint(&self) -> Option<Noted> {
        let inner = self.inner();
        (inner.saves > inner.saves_written).then(|| inner.noted_checkpoint())
    }

    /// Whatever nobody has written yet.
    pub fn unwritten(&self) -> Option<Noted> {
        let inner = self.inner();
        let mut noted = inner.noted_checkpoint();
        if inner.progresses > inner.progresses_written {
            noted.progress = inner.progress.clone();
            noted.progresses = inner.progresses;
        }
        if let Some(log) = &inner.log
            && let Some((rows, next_line)) = log.rows_from(inner.live.next_line, LIVE_BYTES)
        {
            let dropped = inner.live.dropped_after(rows.len(), log.limit());
            noted.log = Some(LogChunk { number: inner.live.next_chunk, rows, dropped });
            noted.next_line = next_line;
        }
        let is_empty = noted.checkpoint.is_none() && noted.progress.is_none() && noted.log.is_none();
        (!is_empty).then_some(noted)
    }

    /// The database has it.
    pub fn written(&self, noted: &Noted) {
        let mut inner = self.inner();
        inner.saves_written = inner.saves_written.max(noted.saves);
        inner.progresses_written = inner.progresses_written.max(noted.progresses);
        if let Some(chunk) = &noted.log {
            let limit = inner.log.as_ref().map_or(0, LogBuffer::limit);
            inner.live.add(chunk.rows.len(), limit);
            inner.live.next_line = noted.next_line;
        }
        inner.left_something = true;
    }

    /// Whether the database may have something that goes with the job.
    pub fn left_something(&self) -> bool {
        self.inner().left_something
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing that can panic runs under the lock in a half-changed state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn noted_checkpoint(&self) -> Noted {
        if self.saves == self.saves_written {
            return Noted::default();
        }
        Noted { checkpoint: self.checkpoint.clone(), saves: self.saves, ..Noted::default() }
    }
}

impl LiveLog {
    fn add(&mut self, bytes: usize, limit: usize) {
        self.next_chunk += 1;
        if self.tail.is_empty() && self.head_bytes < limit / 2 {
            self.head_chunks += 1;
            self.head_bytes += bytes;
            return;
        }
        self.tail.push_back(bytes);
        self.tail_bytes += bytes;
        while self.tail_bytes > limit && self.tail.len() > 1 {
            self.tail_bytes -= self.tail.pop_front().unwrap_or(0);
        }
    }

    /// Which chunks go when one of so many bytes comes.
    fn dropped_after(&self, bytes: usize, limit: usize) -> (i32, i32) {
        let mut after = Self { tail: self.tail.clone(), ..*self };
        after.add(bytes, limit);
        let kept = i32::try_from(after.tail.len()).unwrap_or(i32::MAX);
        (after.head_chunks, (after.next_chunk - kept).max(after.head_chunks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::LogStream;
    use crate::secrets::Secrets;

    #[test]
    fn only_what_is_new_is_written_and_the_last_save_counts() {
        let notes = Notes::default();
        assert!(notes.unwritten().is_none() && !notes.left_something());
        notes.save(b"one".to_vec());
        let first = notes.unwritten().expect("a save");
        notes.save(b"two".to_vec());
        notes.written(&first);
        let second = notes.unwritten_checkpoint().expect("a save came meanwhile");
        assert_eq!(second.checkpoint.as_deref(), Some(&b"two"[..]));
        notes.written(&second);
        assert!(notes.unwritten().is_none() && notes.left_something());
    }

    #[test]
    fn a_log_goes_out_in_chunks_and_no_more_is_kept_than_its_limit_and_a_half() {
        let (notes, log) = (Notes::default(), LogBuffer::new(2 << 10, Secrets::none()));
        notes.watch(&log);
        let mut kept: Vec<(i32, usize)> = Vec::new();
        for number in 0..1_000 {
            log.write(LogStream::Stdout, format!("line {number}\nand a half").as_bytes());
            let Some(noted) = notes.unwritten() else { continue };
            let chunk = noted.log.clone().expect("lines");
            assert!(!chunk.rows.ends_with("and a half"), "a line goes out when it has ended");
            kept.push((chunk.number, chunk.rows.len()));
            kept.retain(|(number, _)| !(chunk.dropped.0..chunk.dropped.1).contains(number));
            notes.written(&noted);
        }
        let bytes: usize = kept.iter().map(|(_, bytes)| bytes).sum();
        assert!(bytes <= (2 << 10) * 3 / 2 + 200, "{bytes} bytes in {} chunks", kept.len());
        assert_eq!((kept[0].0, kept[kept.len() - 1].0), (0, 999), "the first and the last");
        assert!(notes.unwritten().is_none());
    }
}
