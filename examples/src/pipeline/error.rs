use std::{io, path::PathBuf};

use ratified::{job::JobError, protocol::IdError, sinks::file::FileSinkError};
use thiserror::Error;

use crate::coordinator::CoordinatorError;

/// Why the job did not reach its end. Nothing is lost by it: the caller must mend the cause and run the job again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// There is no coordinator.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// The name of the client is none.
    #[error("the client's name: {0}")]
    Name(IdError),
    /// The sink cannot be set up.
    #[error(transparent)]
    Sink(#[from] FileSinkError),
    /// The job stopped.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The output cannot be looked at.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
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
