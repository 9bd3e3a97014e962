//! Files as sources: lines, and CSV with a header.
//!
//! A file is read from its start to its end as it is when it is read; it may grow between two runs by whole lines, and
//! must not change otherwise. A position carries the checksum of everything before it: a resumed job reads up to its
//! position again, at the speed of the disk, and stops if the file is another one.

#[cfg(feature = "csv")]
pub(super) mod csv;
mod lines;
mod source;

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::{
    lines::{DEFAULT_MAX_LINE_BYTES, LineReader, RawLine},
    source::{BadLine, Line, LineFault, LineSource},
};

/// A place between two records of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct FilePosition {
    /// How many bytes lie before.
    pub offset: u64,
    /// How many lines lie before, the header included.
    pub lines: u64,
    /// Checksum (CRC-32) of the bytes before.
    pub crc32: u32,
}

/// Why a file cannot be read on. Nothing of it was skipped.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum FileSourceError {
    /// The file cannot be opened or read. The caller must mend that and run again.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// What lies before the position is not what was read. The caller must restore the file.
    #[error("{}: its first {} bytes ({} lines) are not those that were read before; restore the file", path.display(), at.offset, at.lines)]
    Changed {
        /// Which file.
        path: PathBuf,
        /// The position it was read to.
        at: FilePosition,
    },
    /// The last line had no end when it was read, and now goes on. The caller must append whole lines only: what was read
    /// of this one is committed already.
    #[error("{}: the last line had no end when it was read, and goes on at byte {offset} now; append whole lines only", path.display())]
    Grown {
        /// Which file.
        path: PathBuf,
        /// How many bytes were read.
        offset: u64,
    },
    /// The header lacks a column that was asked for. The caller must give another file or ask for other columns.
    #[error("{}: the header has no column {column:?}", path.display())]
    Column {
        /// Which file.
        path: PathBuf,
        /// The column.
        column: String,
    },
    /// A record is too long, most often because a quote is never closed: where the next one begins cannot be known. The
    /// caller must mend the file or allow longer records.
    #[error("{}: the record that begins in line {line} has more than {limit} bytes: is a quote not closed?", path.display())]
    RecordTooLong {
        /// Which file.
        path: PathBuf,
        /// The number of its first line.
        line: u64,
        /// The greatest number of bytes.
        limit: usize,
    },
    /// An earlier read was given up half-way. The caller must seek again.
    #[error("{}: an earlier read was given up half-way", path.display())]
    Interrupted {
        /// Which file.
        path: PathBuf,
    },
}

fn failed(path: &Path) -> impl Fn(io::Error) -> FileSourceError + '_ {
    |source| FileSourceError::Io { path: path.to_owned(), source: Arc::new(source) }
}

/// Opens a file behind a position, and gives the checksum of what lies before. Checks that it is what was read, and that
/// it ends with one of the line ends unless nothing follows.
fn open_at(path: &Path, at: &FilePosition, line_ends: &[u8]) -> Result<(File, crc32fast::Hasher), FileSourceError> {
    let mut file = File::open(path).map_err(failed(path))?;
    let mut hasher = crc32fast::Hasher::new();
    let (mut left, mut last) = (at.offset, None);
    let mut buffer = vec![0; 64 * 1024];
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = file.read(buffer.get_mut(..want).unwrap_or_default()).map_err(failed(path))?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Err(FileSourceError::Changed { path: path.to_owned(), at: *at });
        };
        hasher.update(bytes);
        last = bytes.last().copied();
        left = left.saturating_sub(read as u64);
    }
    if hasher.clone().finalize() != at.crc32 {
        return Err(FileSourceError::Changed { path: path.to_owned(), at: *at });
    }
    let is_cut = last.is_some_and(|last| !line_ends.contains(&last));
    if is_cut && file.metadata().map_err(failed(path))?.len() > at.offset {
        return Err(FileSourceError::Grown { path: path.to_owned(), offset: at.offset });
    }
    Ok((file, hasher))
}

#[cfg(test)]
mod tests;
