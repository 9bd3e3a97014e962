//! A catalogue as a replayable source: from a position on, always the same rows.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

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
    /// Counts of what lies before; `tally.lines` is the place itself.
    pub tally: Tally,
    /// Checksum of all bytes before, the header included: a catalogue that has changed there is another one.
    pub digest: u64,
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
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The first line is not [`HEADER`]: this is no catalogue, or one of another layout.
    #[error("{}: the first line is not {HEADER:?}", path.display())]
    Header {
        /// Which file.
        path: PathBuf,
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

/// A line without its end, or the start of one that is too long.
type Line = Result<Vec<u8>, Vec<u8>>;

/// A catalogue that is being read.
#[derive(Debug)]
pub struct Catalogue {
    path: PathBuf,
    input: BufReader<File>,
    order: Order,
    position: Position,
}

impl Catalogue {
    /// Opens a catalogue at its first row.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    pub fn open(path: &Path) -> Result<Self, CatalogueError> {
        let failed = |source| CatalogueError::Io { path: path.to_owned(), source };
        let input = BufReader::new(File::open(path).map_err(failed)?);
        let position = Position { tally: Tally::default(), digest: FNV_OFFSET };
        let mut catalogue = Self { path: path.to_owned(), input, order: Order::default(), position };
        match catalogue.next_line()? {
            Some(Ok(header)) if header == HEADER.as_bytes() => Ok(catalogue),
            _ => Err(CatalogueError::Header { path: path.to_owned() }),
        }
    }

    /// Opens a catalogue behind what was read before. The lines before are read and judged again: whether an id is new
    /// depends on all of them.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    pub fn resume(path: &Path, position: &Position) -> Result<Self, CatalogueError> {
        let mut catalogue = Self::open(path)?;
        while catalogue.position.tally.lines < position.tally.lines && catalogue.next_row()?.is_some() {}
        if catalogue.position == *position {
            Ok(catalogue)
        } else {
            Err(CatalogueError::Changed { path: path.to_owned(), lines: position.tally.lines })
        }
    }

    /// Where it stands.
    pub fn position(&self) -> Position {
        self.position
    }

    /// What the next line becomes; `None` at the end.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    pub fn next_row(&mut self) -> Result<Option<Row>, CatalogueError> {
        let Some(line) = self.next_line()? else { return Ok(None) };
        let tally = &mut self.position.tally;
        if tally.lines == MAX_LINES {
            return Err(CatalogueError::TooManyLines { path: self.path.clone() });
        }
        tally.lines += 1;
        // The header is line 1 of the file.
        let number = tally.lines + 1;
        let row = match judge(&mut self.order, number, line) {
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

    fn next_line(&mut self) -> Result<Option<Line>, CatalogueError> {
        self.read_line().map_err(|source| CatalogueError::Io { path: self.path.clone(), source })
    }

    fn read_line(&mut self) -> io::Result<Option<Line>> {
        let mut line = Vec::new();
        let limit = MAX_LINE_BYTES as u64 + 2;
        self.input.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        self.position.digest = fnv(self.position.digest, &line);
        let is_whole = line.ends_with(b"\n") || self.input.fill_buf()?.is_empty();
        if !is_whole {
            self.skip_line()?;
        }
        while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            line.pop();
        }
        Ok(Some(if is_whole && line.len() <= MAX_LINE_BYTES { Ok(line) } else { Err(line) }))
    }

    /// Reads to the end of a line without keeping it.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let part = self.input.fill_buf()?;
            let end = part.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(part.len(), |at| at + 1);
            let digest = fnv(self.position.digest, part.get(..taken).unwrap_or(part));
            self.input.consume(taken);
            self.position.digest = digest;
            if end.is_some() || taken == 0 {
                return Ok(());
            }
        }
    }
}

fn judge(order: &mut Order, number: u64, line: Line) -> Result<Option<EnrichedEvent>, Reject> {
    let refused = |fault, line: &[u8]| Reject { line: number, fault, text: String::from_utf8_lossy(line).into_owned() };
    let line =
        line.map_err(|start| refused(Fault::TooLong { limit: MAX_LINE_BYTES }, start.get(..80).unwrap_or(&start)))?;
    let event = Event::parse(&line).map_err(|fault| refused(fault, &line))?;
    order.admit(number, &event).map_err(|fault| refused(fault, &line))?;
    Ok(EnrichedEvent::from_event(event))
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a: small, and the same on every machine and in every version.
fn fnv(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
