//! A file, line by line, with bounded memory.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use super::{FilePosition, FileSourceError, failed, open_at};

/// Longest line unless another bound is given, in bytes.
pub const DEFAULT_MAX_LINE_BYTES: usize = 1024 * 1024;

/// A line as it stands in the file, without its end (`\n` or `\r\n`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawLine {
    /// The number of the line; the first is 1.
    pub number: u64,
    /// The line; only its start if it is too long.
    pub bytes: Vec<u8>,
    /// Whether it is not longer than the bound.
    pub is_whole: bool,
}

/// Reads lines; blocks. [`LineSource`](super::LineSource) is the same as the source of a job.
#[derive(Debug)]
pub struct LineReader {
    path: PathBuf,
    input: BufReader<File>,
    hasher: crc32fast::Hasher,
    offset: u64,
    lines: u64,
    max_line_bytes: usize,
}

impl LineReader {
    /// Opens a file behind a position; the default one is its start. Of a line of more than `max_line_bytes` only the
    /// start is kept.
    ///
    /// # Errors
    /// See [`FileSourceError`].
    pub fn open(path: &Path, position: &FilePosition, max_line_bytes: usize) -> Result<Self, FileSourceError> {
        let (file, hasher) = open_at(path, position, b"\n")?;
        let input = BufReader::new(file);
        let (offset, lines) = (position.offset, position.lines);
        Ok(Self { path: path.to_owned(), input, hasher, offset, lines, max_line_bytes })
    }

    /// The position behind the last line that was read.
    pub fn position(&self) -> FilePosition {
        FilePosition { offset: self.offset, lines: self.lines, crc32: self.hasher.clone().finalize() }
    }

    /// The next line; `None` at the end of the file.
    ///
    /// # Errors
    /// See [`FileSourceError`].
    pub fn next_line(&mut self) -> Result<Option<RawLine>, FileSourceError> {
        self.read_line().map_err(failed(&self.path))
    }

    fn read_line(&mut self) -> io::Result<Option<RawLine>> {
        let mut bytes = Vec::new();
        let limit = (self.max_line_bytes as u64).saturating_add(2);
        self.input.by_ref().take(limit).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        self.pass(&bytes);
        self.lines += 1;
        let has_end = bytes.ends_with(b"\n");
        let is_cut = !has_end && self.skip_line()?;
        if has_end {
            bytes.pop();
            if bytes.ends_with(b"\r") {
                bytes.pop();
            }
        }
        let is_whole = !is_cut && bytes.len() <= self.max_line_bytes;
        bytes.truncate(self.max_line_bytes);
        Ok(Some(RawLine { number: self.lines, bytes, is_whole }))
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.offset = self.offset.saturating_add(bytes.len() as u64);
    }

    /// Reads to the end of a line without keeping it; says whether there was anything left of it.
    fn skip_line(&mut self) -> io::Result<bool> {
        let mut has_more = false;
        loop {
            let part = self.input.fill_buf()?;
            let end = part.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(part.len(), |at| at + 1);
            let part = part.get(..taken).unwrap_or(part);
            self.hasher.update(part);
            self.offset = self.offset.saturating_add(taken as u64);
            self.input.consume(taken);
            has_more |= taken > 0;
            if end.is_some() || taken == 0 {
                return Ok(has_more);
            }
        }
    }
}
