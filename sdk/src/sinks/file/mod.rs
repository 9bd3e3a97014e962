//! An exactly-once sink of files: JSON lines or raw bytes, one file per transaction and target.
//!
//! ```text
//! <root>/orders-00003-0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f-1b2c3d4e.jsonl           committed
//! <root>/.staged/shop.sink.3/orders-00003-0190f2c4-...-1b2c3d4e.jsonl               staged
//! ```
//!
//! A transaction stages into files of a hidden directory of its client, which `pre_commit` syncs; `commit` renames each to
//! the same name in the root and syncs that. A name is `<target>-<slot>-<txnId>-<crc32 of the client>.<extension>`, so
//! that the parts of a target in the order of their names are its output. A record's target is given by a routing
//! function, so one transaction may write several files, an output and its rejects for example.
//!
//! What it takes for granted, and what readers must know:
//! * The root is one file system that keeps what was synced and renames atomically, also across directories: any local
//!   POSIX file system. That a file can be moved from the staging directory to the root is tried before a client's first
//!   transaction. Where names are not told apart by case, clients that differ only by that do not meet; of two such targets
//!   in one transaction the second is refused.
//! * Committed files stay where they are, unchanged, until their transaction is acknowledged: they are the proof that a
//!   repeated commit looks for. A file that is neither staged nor visible stops the job.
//! * The files of one transaction become visible one after the other, not at one instant. A crash in between is mended
//!   by the next commit of the same transaction.
//!
//! ```
//! # use ratified::sinks::file::{FileSink, FileSinkError, TargetName};
//! # #[derive(serde::Serialize)] struct Order { id: u64, valid: bool }
//! # fn main() -> Result<(), FileSinkError> {
//! let (orders, rejects): (TargetName, TargetName) = ("orders".parse()?, "rejects".parse()?);
//! let sink = FileSink::json_lines("out", orders.clone())
//!     .route(move |order: &Order| if order.valid { orders.clone() } else { rejects.clone() })
//!     .build()?;
//! # let _ = sink; Ok(()) }
//! ```

mod committer;
mod config;
mod disk;
mod handle;
mod names;
mod read;
#[cfg(test)]
mod tests;
mod writer;

use std::{fmt, path::Path, sync::Arc};

use async_trait::async_trait;

use self::{config::Settings, disk::Disk};
use crate::{
    error::SinkError,
    sink::{Place, TwoPhaseSink},
};

pub use crate::author::TargetName;

pub use self::{
    committer::FileCommitter,
    config::{
        DEFAULT_BUFFER_BYTES, DEFAULT_MAX_RECORD_BYTES, DEFAULT_MAX_TARGETS, FileSinkBuilder, MAX_BUFFER_BYTES,
        MAX_RECORD_BYTES, MAX_TARGETS,
    },
    disk::FileStep,
    handle::FileHandle,
    names::FileSinkError,
    read::{FilePart, parts, read_target},
    writer::FileWriter,
};

/// A directory that records are written to exactly once. See the [module](self) for the layout and its assumptions.
pub struct FileSink<R> {
    settings: Arc<Settings<R>>,
    disk: Arc<Disk>,
}

impl<R> FileSink<R> {
    /// The directory of the visible files.
    pub fn root(&self) -> &Path {
        self.disk.root()
    }
}

impl<R> Clone for FileSink<R> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), disk: self.disk.clone() }
    }
}

impl<R> fmt::Debug for FileSink<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSink").field("root", &self.disk.root()).finish_non_exhaustive()
    }
}

#[async_trait]
impl<R: Send + 'static> TwoPhaseSink for FileSink<R> {
    type Record = R;
    type Handle = FileHandle;
    type Writer = FileWriter<R>;
    type Committer = FileCommitter;

    fn places(&self) -> Vec<Place> {
        vec![Place::directory(self.disk.root())]
    }

    async fn writer(&self) -> Result<FileWriter<R>, SinkError> {
        Ok(FileWriter::new(self.settings.clone(), self.disk.clone()))
    }

    async fn committer(&self) -> Result<FileCommitter, SinkError> {
        Ok(FileCommitter::new(self.disk.clone()))
    }
}
