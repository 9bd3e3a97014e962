//! The bytes of a file, looked at ahead of what is taken.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use memchr::memchr2;

use super::{FilePosition, FileSourceError, failed, format};

/// How much is read at a time.
const CHUNK_BYTES: usize = 64 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A file behind a position. What lies ahead is read as it is needed; only what is taken moves the position.
#[derive(Debug)]
pub(super) struct Input {
    path: PathBuf,
    file: File,
    hasher: crc32fast::Hasher,
    /// What was read; from `start` on it is not taken yet.
    buffer: Vec<u8>,
    start: usize,
    /// Stays, so that a file that grows while it is read does not part its last line.
    is_at_end: bool,
    last: Option<u8>,
    offset: u64,
    lines: u64,
}

/// Where a line ends that begins in what lies ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    /// Its text ends at `end`, the next line begins at `next`.
    Line { end: usize, next: usize },
    /// The file ends at `end`, and the line has no end of its own.
    Last { end: usize },
    /// Nothing as far as it was looked for.
    Beyond,
}

/// A line that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken {
    /// Its text, or the start of it.
    pub(super) text: Vec<u8>,
    /// How many bytes its text has.
    pub(super) length: u64,
}

impl Input {
    /// Opens a file behind a position, and checks that what lies before is what was read. A byte order mark is one at the
    /// start of the file only; anywhere else it is text.
    pub(super) fn open(path: &Path, at: &FilePosition) -> Result<Self, FileSourceError> {
        let mut input = Self {
            path: path.to_owned(),
            file: File::open(path).map_err(failed(path))?,
            hasher: crc32fast::Hasher::new(),
            buffer: Vec::new(),
            start: 0,
            is_at_end: false,
            last: None,
            offset: 0,
            lines: 0,
        };
        input.more()?;
        format::check(path, input.ahead())?;
        if at.offset > 0 {
            input.go_to(at)?;
        } else if input.ahead().starts_with(BYTE_ORDER_MARK) {
            input.take(BYTE_ORDER_MARK.len(), 0);
        }
        Ok(input)
    }

    fn go_to(&mut self, at: &FilePosition) -> Result<(), FileSourceError> {
        let changed = || FileSourceError::Changed { path: self.path.clone(), at: *at };
        let (changed, cut) = (changed(), FileSourceError::Grown { path: self.path.clone(), offset: at.offset });
        while self.offset < at.offset {
            if self.ahead().is_empty() && !self.more()? {
                return Err(changed);
            }
            let left = usize::try_from(at.offset.saturating_sub(self.offset)).unwrap_or(usize::MAX);
            self.take(left.min(self.ahead().len()), 0);
        }
        self.lines = at.lines;
        if self.position().crc32 != at.crc32 {
            return Err(changed);
        }
        let next = if self.ahead().is_empty() && !self.more()? { None } else { self.ahead().first().copied() };
        match (self.last, next) {
            // The line end that was its first byte only, then.
            (Some(b'\r'), Some(b'\n')) => self.take(1, 0),
            // Behind a byte order mark there is no line yet.
            (Some(last), Some(_)) if at.lines > 0 && !b"\r\n".contains(&last) => return Err(cut),
            _ => {}
        }
        Ok(())
    }

    #[cfg(feature = "csv")]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Behind what was taken.
    pub(super) fn position(&self) -> FilePosition {
        FilePosition { offset: self.offset, lines: self.lines, crc32: self.hasher.clone().finalize() }
    }

    /// How many lines were taken.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// What was read and not taken.
    pub(super) fn ahead(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Reads on; false at the end of the file.
    fn more(&mut self) -> Result<bool, FileSourceError> {
        if self.is_at_end {
            return Ok(false);
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let read = self.file.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut self.buffer);
        let read = read.map_err(failed(&self.path))?;
        self.is_at_end = read < CHUNK_BYTES;
        Ok(read > 0)
    }

    /// Takes bytes that lie ahead, and the lines that they are.
    pub(super) fn take(&mut self, bytes: usize, lines: u64) {
        let taken = self.buffer.get(self.start..).and_then(|ahead| ahead.get(..bytes)).unwrap_or_default();
        self.hasher.update(taken);
        self.last = taken.last().copied().or(self.last);
        self.offset = self.offset.saturating_add(taken.len() as u64);
        self.start = self.start.saturating_add(taken.len());
        self.lines = self.lines.saturating_add(lines);
    }

    /// Looks for the end of the line that begins `from` bytes ahead. A line may end with `\n`, `\r\n` or `\r`. Gives up
    /// once more than `limit` bytes have none.
    pub(super) fn scan_line(&mut self, from: usize, limit: usize) -> Result<Scan, FileSourceError> {
        let mut searched = from;
        loop {
            let found = memchr2(b'\n', b'\r', self.ahead().get(searched..).unwrap_or_default());
            if let Some(end) = found.map(|at| searched.saturating_add(at)) {
                return Ok(Scan::Line { end, next: self.behind_line_end(end)? });
            }
            searched = self.ahead().len();
            if searched.saturating_sub(from) > limit {
                return Ok(Scan::Beyond);
            }
            if !self.more()? {
                return Ok(Scan::Last { end: searched });
            }
        }
    }

    fn behind_line_end(&mut self, end: usize) -> Result<usize, FileSourceError> {
        let second = end.saturating_add(1);
        if self.ahead().get(end) == Some(&b'\n') {
            return Ok(second);
        }
        if self.ahead().len() == second {
            self.more()?;
        }
        Ok(second + usize::from(self.ahead().get(second) == Some(&b'\n')))
    }

    /// Takes a line; keeps at most `kept` bytes of its text. None at the end.
    pub(super) fn take_line(&mut self, kept: usize) -> Result<Option<Taken>, FileSourceError> {
        let (end, next) = match self.scan_line(0, kept)? {
            Scan::Last { end: 0 } => return Ok(None),
            Scan::Last { end } => (end, end),
            Scan::Line { end, next } => (end, next),
            Scan::Beyond => {
                let text = self.ahead().get(..kept).unwrap_or_default().to_vec();
                return Ok(Some(Taken { text, length: self.skip_line()? }));
            }
        };
        let text = self.ahead().get(..end.min(kept)).unwrap_or_default().to_vec();
        self.take(next, 1);
        Ok(Some(Taken { text, length: end as u64 }))
    }

    /// Takes a line without keeping it; says how many bytes its text has.
    fn skip_line(&mut self) -> Result<u64, FileSourceError> {
        let mut length = 0_u64;
        loop {
            let scan = self.scan_line(0, CHUNK_BYTES)?;
            let (end, next, lines) = match scan {
                Scan::Line { end, next } => (end, next, 1),
                Scan::Last { end } => (end, end, 1),
                Scan::Beyond => (self.ahead().len(), self.ahead().len(), 0),
            };
            self.take(next, lines);
            length = length.saturating_add(end as u64);
            if lines > 0 {
                return Ok(length);
            }
        }
    }
}
