//! What the job has made visible.

use std::{
    io,
    path::{Path, PathBuf},
};

use ratified::{author::NameError, sinks::file::read_target};
use thiserror::Error;

use crate::{
    Catalogue, CatalogueError, Tally,
    job::{EVENTS, OutputRow, REJECTS, transform},
};

/// Why the output cannot be judged, or is not what was committed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The output cannot be looked at.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Never for the names of this job.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The visible files are not what was committed: somebody removed or added some.
    #[error(
        "{}: {committed} {what} rows were committed, {visible} are there; to start over, remove both --output and --data-dir",
        path.display()
    )]
    Tampered {
        /// The output directory.
        path: PathBuf,
        /// Which rows.
        what: &'static str,
        /// How many were committed.
        committed: u64,
        /// How many are visible.
        visible: u64,
    },
}

/// All that is visible, in the order of the catalogue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Rows of the result.
    pub events: Vec<u8>,
    /// Refused lines.
    pub rejects: Vec<u8>,
}

impl Written {
    /// All that is visible in this directory. Holds it in memory.
    ///
    /// # Errors
    /// [`OutputError::Io`].
    pub fn read(output: &Path) -> Result<Self, OutputError> {
        let read = |target: &str| {
            read_target(output, &target.parse()?).map_err(|source| OutputError::Io { path: output.to_owned(), source })
        };
        Ok(Self { events: read(EVENTS)?, rejects: read(REJECTS)? })
    }

    /// What the job must write, worked out without coordinator and sink.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    pub fn without_sink(input: &Path) -> Result<(Self, Tally), CatalogueError> {
        let mut catalogue = Catalogue::open(input)?;
        let (mut written, mut rows) = (Self::default(), Vec::new());
        while let Some(row) = catalogue.next_row()? {
            // The transformation refuses nothing.
            let _ = transform(row, &mut rows);
            for row in rows.drain(..) {
                match row {
                    OutputRow::Event(text) => written.events.extend(text.into_bytes()),
                    OutputRow::Reject(text) => written.rejects.extend(text.into_bytes()),
                }
            }
        }
        Ok((written, catalogue.position().tally))
    }

    /// Checks that it is what was committed.
    ///
    /// # Errors
    /// [`OutputError::Tampered`].
    pub fn check(&self, output: &Path, tally: &Tally) -> Result<(), OutputError> {
        let pairs = [(EVENTS, &self.events, tally.kept), (REJECTS, &self.rejects, tally.rejected)];
        for (what, rows, committed) in pairs {
            let visible = rows.iter().filter(|byte| **byte == b'\n').count() as u64;
            if visible != committed {
                return Err(OutputError::Tampered { path: output.to_owned(), what, committed, visible });
            }
        }
        Ok(())
    }
}
