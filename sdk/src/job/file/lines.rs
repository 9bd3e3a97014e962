//! A file, line by line, with bounded memory.

use std::path::Path;

use super::{
    FilePosition, FileSourceError,
    input::{Input, Taken},
};

/// Longest line unless another bound is given, in bytes: 128 KiB. Written as JSON it has at most six times as many, which
/// is within the default bounds of the sinks.
pub const DEFAULT_MAX_LINE_BYTES: usize = 128 * 1024;

/// A line as it stands in the file, without its end (`\n`, `\r\n` or `\r`) and without a byte order mark before the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawLine {
    /// The number of the line; the first is 1.
    pub number: u64,
    /// The line; only its start if it is too long.
    pub bytes: Vec<u8>,
    /// How many bytes the whole line has.
    pub length: u64,
    /// Whether it is not longer than the bound.
    pub is_whole: bool,
}

/// Reads lines; blocks. [`LineSource`](super::LineSource) is the same as the source of a job.
#[derive(Debug)]
pub struct LineReader {
    input: Input,
    max_line_bytes: usize,
}

impl LineReader {
    /// Opens a file behind a position; the default one is its start. Of a line of more than `max_line_bytes` only the
    /// start is kept.
    ///
    /// # Errors
    /// See [`FileSourceError`].
    pub fn open(path: &Path, position: &FilePosition, max_line_bytes: usize) -> Result<Self, FileSourceError> {
        Ok(Self { input: Input::open(path, position)?, max_line_bytes })
    }

    /// The position behind the last line that was read.
    pub fn position(&self) -> FilePosition {
        self.input.position()
    }

    /// The next line; `None` at the end of the file.
    ///
    /// # Errors
    /// See [`FileSourceError`].
    pub fn next_line(&mut self) -> Result<Option<RawLine>, FileSourceError> {
        let Some(Taken { text, length }) = self.input.take_line(self.max_line_bytes)? else { return Ok(None) };
        let is_whole = text.len() as u64 == length;
        Ok(Some(RawLine { number: self.input.lines(), bytes: text, length, is_whole }))
    }
}
