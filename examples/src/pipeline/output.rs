//! What the job writes: two targets in one directory, both in the same transaction.

use std::{
    io,
    path::{Path, PathBuf},
};

use ratified::sinks::file::{FileSink, FileSinkError, FileStep, TargetName, parts, read_target};

use super::PipelineError;
use crate::quakes::{Row, Tally};

/// The rows of the result.
const EVENTS: &str = "events";
/// The refused lines.
const REJECTS: &str = "rejects";

/// One row for the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputRow {
    /// A row of the result.
    Event(String),
    /// A refused line.
    Reject(String),
}

impl AsRef<[u8]> for OutputRow {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Event(row) | Self::Reject(row) => row.as_bytes(),
        }
    }
}

/// The row that is written for a line; none for a line that is left out, which the source counts.
pub(super) fn output_row(row: Row) -> Option<OutputRow> {
    match row {
        Row::Kept(event) => Some(OutputRow::Event(event.to_csv())),
        Row::Rejected(reject) => Some(OutputRow::Reject(reject.to_csv())),
        Row::Filtered => None,
    }
}

/// The directory with the visible files.
#[derive(Debug, Clone)]
pub struct Output {
    root: PathBuf,
    events: TargetName,
    rejects: TargetName,
}

/// All that is visible, in the order of the catalogue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Rows of the result.
    pub events: Vec<u8>,
    /// Refused lines.
    pub rejects: Vec<u8>,
}

impl Output {
    /// The output in this directory.
    ///
    /// # Errors
    /// Never for the names of this example.
    pub fn new(root: impl Into<PathBuf>) -> Result<Self, FileSinkError> {
        Ok(Self { root: root.into(), events: EVENTS.parse()?, rejects: REJECTS.parse()? })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn sink(
        &self,
        watch: impl Fn(&FileStep<'_>) + Send + Sync + 'static,
    ) -> Result<FileSink<OutputRow>, FileSinkError> {
        let (events, rejects) = (self.events.clone(), self.rejects.clone());
        let route = move |row: &OutputRow| match row {
            OutputRow::Event(_) => events.clone(),
            OutputRow::Reject(_) => rejects.clone(),
        };
        let observe = move |step: &FileStep<'_>| {
            watch(step);
            Ok(())
        };
        FileSink::raw(&self.root, self.events.clone()).route(route).extension("csv").on_step(observe).build()
    }

    /// Whether nothing was ever made visible.
    ///
    /// # Errors
    /// [`PipelineError::Io`].
    pub fn is_empty(&self) -> Result<bool, PipelineError> {
        for target in [&self.events, &self.rejects] {
            if !parts(&self.root, target).map_err(self.failed())?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// All that is visible. Holds it in memory.
    ///
    /// # Errors
    /// [`PipelineError::Io`].
    pub fn read(&self) -> Result<Written, PipelineError> {
        let read = |target| read_target(&self.root, target).map_err(self.failed());
        Ok(Written { events: read(&self.events)?, rejects: read(&self.rejects)? })
    }

    /// Checks that what is visible is what was committed.
    ///
    /// # Errors
    /// [`PipelineError::Tampered`].
    pub fn check(&self, written: &Written, tally: &Tally) -> Result<(), PipelineError> {
        let pairs = [(EVENTS, &written.events, tally.kept), (REJECTS, &written.rejects, tally.rejected)];
        for (what, rows, committed) in pairs {
            let visible = rows.iter().filter(|byte| **byte == b'\n').count() as u64;
            if visible != committed {
                let path = self.root.clone();
                return Err(PipelineError::Tampered { path, what, committed, visible });
            }
        }
        Ok(())
    }

    fn failed(&self) -> impl Fn(io::Error) -> PipelineError + '_ {
        |source| PipelineError::Io { path: self.root.clone(), source }
    }
}
