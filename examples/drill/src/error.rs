use std::{error::Error, io, path::PathBuf, process::ExitStatus};

use thiserror::Error;

use super::process::PATIENCE;

/// Why a drill could not be carried out. It says nothing about lost or doubled rows: those are in the report.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DrillError {
    /// A file of the drill cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A child cannot be started, spoken to or ended.
    #[error("the {name}'s process: {source}")]
    Process {
        /// Which child.
        name: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A child ended by itself.
    #[error("the {name} ended with {status}; the end of its log:\n{log}")]
    Died {
        /// Which child.
        name: &'static str,
        /// How.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// A child did not do in time what takes it a fraction of it.
    #[error("the {name} was given {} s {what}; the end of its log:\n{log}", PATIENCE.as_secs())]
    Silent {
        /// Which child.
        name: &'static str,
        /// For what.
        what: &'static str,
        /// The last lines of its log.
        log: String,
    },
    /// A child said something that is no word of the drill's.
    #[error("the {name} said {line:?}")]
    Garbled {
        /// Which child.
        name: &'static str,
        /// What it said.
        line: String,
    },
    /// The passes end before all kills could be made.
    #[error(
        "{left} kills are left after {passes} passes: take a smaller {flag}, so that there are more commits to kill"
    )]
    TooShort {
        /// How many kills are left.
        left: usize,
        /// How many passes were made.
        passes: usize,
        /// What says how much a commit holds.
        flag: &'static str,
    },
    /// The directory for the drill holds something else. The caller must name another `--data-dir`.
    #[error("{} is not the directory of an earlier drill: it is not removed", path.display())]
    NotADrill {
        /// Which directory.
        path: PathBuf,
    },
    /// No port is free for the coordinator.
    #[error("no free port was found on 127.0.0.1")]
    NoPort,
    /// What is drilled says that it cannot be.
    #[error(transparent)]
    Subject(Box<dyn Error + Send + Sync>),
}

/// An error of what is drilled.
pub fn of_subject(error: impl Into<Box<dyn Error + Send + Sync>>) -> DrillError {
    DrillError::Subject(error.into())
}
