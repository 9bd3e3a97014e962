//! A catalogue as a replayable source: from a position on, always the same rows.

use std::path::{Path, PathBuf};

use ratified::job::{FilePosition, FileSourceError, LineReader, RawLine};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    enrich::EnrichedEvent,
    event::{Event, HEADER},
    order::Order,
    reject::{Fault, Reject},
};

/// Longest line that is taken as a row, in bytes; what is longer is refused, and only its start is kept.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// Most characters of a wrong header that are told.
const MAX_TOLD_CHARS: usize = 200;
/// Most lines of one catalogue: the ids of all of them are remembered.
const MAX_LINES: u64 = 5_000_000;

/// What became of the lines so far. Nothing is dropped: `lines` is the sum of the other three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Lines read, without the header.
    pub lines: u64,
    /// Enriched rows.
    pub kept: u64,
    /// Sound rows that are too weak for the result.
    pub filtered: u64,
    /// Refused lines.
    pub rejected: u64,
}

/// Where a catalogue was read to, and what had come of it. Committed together with the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    /// Counts of what lies before.
    pub tally: Tally,
    /// The place itself, with the checksum of all bytes before: a catalogue that has changed there is another one.
    pub file: FilePosition,
}

/// What one line became.
#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    /// A row of the result.
    Kept(Box<EnrichedEvent>),
    /// Sound, and left out on purpose.
    Filtered,
    /// Refused, with the reason.
    Rejected(Reject),
}

/// Why a catalogue cannot be read. The caller must mend the input; nothing was skipped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileSourceError),
    /// The first line is not [`HEADER`]: this is no catalogue, or one of another layout.
    #[error("{}: the first line is {found:?}, and not {HEADER:?}", path.display())]
    Header {
        /// Which file.
        path: PathBuf,
        /// How it begins, with what cannot be seen escaped.
        found: String,
    },
    /// The file is not the one whose first lines were committed.
    #[error("{}: the first {lines} lines are not those that were committed; restore the file, or start over with a fresh --output and --data-dir", path.display())]
    Changed {
        /// Which file.
        path: PathBuf,
        /// How many lines were committed.
        lines: u64,
    },
    /// The file is too long to remember all its ids.
    #[error("{}: more than {MAX_LINES} lines", path.display())]
    TooManyLines {
        /// Which file.
        path: PathBuf,
    },
}

/// A catalogue that is being read.
#[derive(Debug)]
pub struct Catalogue {
    path: PathBuf,
    lines: LineReader,
    order: Order,
    tally: Tally,
}

impl Catalogue {
    /// Opens a catalogue at its first row.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    pub fn open(path: &Path) -> Result<Self, CatalogueError> {
        let mut lines = LineReader::open(path, &FilePosition::default(), MAX_LINE_BYTES)?;
        let found = lines.next_line()?.map_or_else(Vec::new, |header| header.bytes);
        if found != HEADER.as_bytes() {
            let found = String::from_utf8_lossy(&found).chars().take(MAX_TOLD_CHARS).collect();
            return Err(CatalogueError::Header { path: path.to_owned(), found });
        }
        Ok(Self { path: path.to_owned(), lines, order: Order::default(), tally: Tally::default() })
    }

    /// Opens a catalogue behind what was read before. The lines before are read and judged again: whether an id is new
    /// depends on all of them.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    pub fn resume(path: &Path, position: &Position) -> Result<Self, CatalogueError> {
        let mut catalogue = Self::open(path)?;
        while catalogue.tally.lines < position.tally.lines && catalogue.next_row()?.is_some() {}
        if catalogue.position() == *position {
            Ok(catalogue)
        } else {
            Err(CatalogueError::Changed { path: path.to_owned(), lines: position.tally.lines })
        }
    }

    /// Where it stands.
    pub fn position(&self) -> Position {
        Position { tally: self.tally, file: self.lines.position() }
    }

    /// What the next line becomes; `None` at the end.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    pub fn next_row(&mut self) -> Result<Option<Row>, CatalogueError> {
        let Some(line) = self.lines.next_line()? else { return Ok(None) };
        let tally = &mut self.tally;
        if tally.lines == MAX_LINES {
            return Err(CatalogueError::TooManyLines { path: self.path.clone() });
        }
        tally.lines += 1;
        let row = match judge(&mut self.order, line) {
            Ok(Some(event)) => {
                tally.kept += 1;
                Row::Kept(Box::new(event))
            }
            Ok(None) => {
                tally.filtered += 1;
                Row::Filtered
            }
            Err(reject) => {
                tally.rejected += 1;
                Row::Rejected(reject)
            }
        };
        Ok(Some(row))
    }
}

fn judge(order: &mut Order, line: RawLine) -> Result<Option<EnrichedEvent>, Reject> {
    let RawLine { number, bytes, is_whole, .. } = line;
    let refused = |fault, line: &[u8]| Reject { line: number, fault, text: String::from_utf8_lossy(line).into_owned() };
    if !is_whole {
        return Err(refused(Fault::TooLong { limit: MAX_LINE_BYTES }, bytes.get(..80).unwrap_or(&bytes)));
    }
    let event = Event::parse(&bytes).map_err(|fault| refused(fault, &bytes))?;
    order.admit(number, &event).map_err(|fault| refused(fault, &bytes))?;
    Ok(EnrichedEvent::from_event(event))
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
