//! Lines as the source of a job.

use std::path::{Path, PathBuf};

use async_trait::async_trait;

use thiserror::Error;

use super::{DEFAULT_MAX_LINE_BYTES, FilePosition, FileSourceError, LineReader, MAX_BAD_BYTES, RawLine};
use crate::{
    error::Cause,
    job::{Read, Source},
};

/// A line of text, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The number of the line; the first is 1.
    pub number: u64,
    /// What it says.
    pub text: String,
}

/// A line that cannot be taken. It is for the job to decide what becomes of it; best it is written to a sink, too.
///
/// Written by its `Display` or field by field it fits the default bounds of the sinks, however long the line is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {number}, of {length} bytes: {fault}")]
pub struct BadLine {
    /// The number of the line; the first is 1.
    pub number: u64,
    /// What is wrong.
    pub fault: LineFault,
    /// The line, or the start of a long one: at most [`MAX_BAD_BYTES`].
    pub bytes: Vec<u8>,
    /// How many bytes the whole line has.
    pub length: u64,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LineFault {
    /// It has more bytes than are taken.
    #[error("it is longer than {limit} bytes (max_line_bytes)")]
    TooLong {
        /// The greatest number of bytes.
        limit: usize,
    },
    /// It is not UTF-8.
    #[error("it is not UTF-8 behind its first {valid_up_to} bytes")]
    NotUtf8 {
        /// How many bytes of it are.
        valid_up_to: usize,
    },
}

/// The lines of a file, in order: each as text, or as a [`BadLine`]. Never drops one. A line ends with `\n`, `\r\n` or
/// `\r`; a byte order mark at the start of the file is not part of the first one.
#[derive(Debug)]
pub struct LineSource {
    path: PathBuf,
    max_line_bytes: usize,
    reader: Option<LineReader>,
    position: FilePosition,
}

impl LineSource {
    /// The lines of this file. Touches nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let position = FilePosition::default();
        Self { path: path.into(), max_line_bytes: DEFAULT_MAX_LINE_BYTES, reader: None, position }
    }

    /// How many bytes a line may have, at least 1; by default [`DEFAULT_MAX_LINE_BYTES`].
    #[must_use]
    pub fn max_line_bytes(mut self, bytes: usize) -> Self {
        self.max_line_bytes = bytes.max(1);
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[async_trait]
impl Source for LineSource {
    type Record = Result<Line, BadLine>;
    type Position = FilePosition;

    async fn seek(&mut self, position: Option<&FilePosition>) -> Result<(), Cause> {
        let (path, limit) = (self.path.clone(), self.max_line_bytes);
        self.position = position.copied().unwrap_or_default();
        let from = self.position;
        self.reader = Some(blocking(move || LineReader::open(&path, &from, limit)).await?);
        Ok(())
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<Self::Record>, Cause> {
        let interrupted = FileSourceError::Interrupted { path: self.path.clone() };
        let mut reader = self.reader.take().ok_or_else(|| Cause::new(interrupted))?;
        let limit = self.max_line_bytes;
        let (reader, lines) = blocking(move || {
            let mut lines = Vec::with_capacity(max_records.min(1024));
            while lines.len() < max_records
                && let Some(line) = reader.next_line()?
            {
                lines.push(as_text(line, limit));
            }
            Ok((reader, lines))
        })
        .await?;
        self.position = reader.position();
        self.reader = Some(reader);
        Ok(if lines.is_empty() { Read::End } else { Read::Records(lines) })
    }

    fn position(&self) -> FilePosition {
        self.position
    }
}

fn as_text(line: RawLine, limit: usize) -> Result<Line, BadLine> {
    let RawLine { number, bytes, length, is_whole } = line;
    let bad = |fault, mut bytes: Vec<u8>| {
        bytes.truncate(MAX_BAD_BYTES);
        BadLine { number, fault, bytes, length }
    };
    if !is_whole {
        return Err(bad(LineFault::TooLong { limit }, bytes));
    }
    String::from_utf8(bytes).map(|text| Line { number, text }).map_err(|error| {
        let valid_up_to = error.utf8_error().valid_up_to();
        bad(LineFault::NotUtf8 { valid_up_to }, error.into_bytes())
    })
}

/// Does blocking work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileSourceError> + Send + 'static,
) -> Result<T, Cause> {
    tokio::task::spawn_blocking(work).await.map_err(Cause::new)?.map_err(Cause::new)
}
