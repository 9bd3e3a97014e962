//! Files as sources: lines, and CSV with a header.
//!
//! A file is UTF-8 text, with a byte order mark or without; its lines end with `\n`, `\r\n` or `\r`. It is read from its
//! start to its end as it is when it is read; it may grow between two runs by whole lines, and must not change otherwise.
//! A position carries the checksum of everything before it: a resumed job reads up to its position again, at the speed of
//! the disk, and stops if the file is another one. What is read never depends on where reading began.

#[cfg(feature = "csv")]
pub(super) mod csv;
mod format;
mod input;
mod lines;
#[cfg(feature = "csv")]
mod record;
mod source;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

#[cfg(feature = "csv")]
use self::csv::RowFault;
pub use self::{
    lines::{DEFAULT_MAX_LINE_BYTES, LineReader, RawLine},
    source::{BadLine, Line, LineFault, LineSource},
};

/// Most bytes that are kept of a line or row that cannot be taken: 64 KiB. Whatever becomes of them, JSON or an array of
/// numbers, is within the default bounds of the sinks.
pub const MAX_BAD_BYTES: usize = 64 * 1024;

/// A place between two records of a file. What lies before, by its checksum, is what tells the file from another one.
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
    /// It begins like something that is not UTF-8 text. The caller must convert it.
    #[error("{}: this is {found}, not UTF-8 text; {advice}", path.display())]
    NotText {
        /// Which file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// What lies before the position is not what was read. The caller must restore the file, or read the other one under
    /// another client name.
    #[error("{}: its first {} bytes ({} lines) are not those that were read before; restore the file, or read this one in a job with a client name of its own", path.display(), at.offset, at.lines)]
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
    #[error("{}: the header has no column {column:?}; it has {found}", path.display())]
    Column {
        /// Which file.
        path: PathBuf,
        /// The column.
        column: String,
        /// The columns that there are, with what cannot be seen in them escaped; only the first ones of many.
        found: String,
    },
    /// The header is no record. The caller must mend the file.
    #[error("{}: the header, in line {line}, cannot be read: {why}", path.display())]
    Header {
        /// Which file.
        path: PathBuf,
        /// The number of its line.
        line: u64,
        /// What is wrong.
        why: String,
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

#[cfg(test)]
mod tests;
