//! An exactly-once sink of object stores: S3 and what speaks its protocol, and local directories; one or more files per
//! transaction and target, in [`JsonLines`], Parquet (feature `parquet`), or a [`Format`] of your own.
//!
//! ```text
//! <prefix>/orders/00003-0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f-1b2c3d4e-00000.jsonl    committed
//! <prefix>/_ratified/shop.sink.3/0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f/00000          staged: not for readers
//! ```
//!
//! A key is `<target>/<slot>-<txnId>-<crc32 of the client>-<number>.<extension>`, so that the objects of a target in the
//! order of their names are its output. A record's target is given by a routing function; a file is ended when it is
//! [long](ObjectStoreSinkBuilder::file_bytes) or [old](ObjectStoreSinkBuilder::file_age) enough.
//!
//! # Stores with multipart uploads
//!
//! A file is a multipart upload, which nobody sees before it is completed. Upload id and part tags are the handle, so that
//! any process can complete it: `commit` does. The upload is begun with the first part, and its parts are sent while
//! records are written; before its first part a *marker* names it under `_ratified/`, so that what a crash left behind
//! is found and ended by the next `open`. A crash between the two leaves an upload without parts, which costs nothing and
//! which nobody can list through this crate; a lifecycle rule of the bucket removes it, and parts of a dying process that
//! arrive after the abort of their upload, too.
//!
//! Whether a file is committed is decided by looking at its object, never by what the store answers: the object's metadata
//! names the upload that made it (`ratified-mark`), and its length is compared. An object that is neither there nor staged
//! any longer is lost, and the job stops: somebody has ended the upload or removed the object.
//!
//! # Local directories
//!
//! They have no uploads that another process could complete. Files are staged under `_ratified/` and synced; `commit`
//! renames and syncs. An object is compared by length and checksum.
//!
//! # What it costs
//!
//! Against the same sink at least once, with a checkpoint per second: nothing that could be told from noise
//! (`docs/PERFORMANCE.md` of the repository). A store on the coordinator's disk makes its syncs slow: give it a disk of
//! its own.
//!
//! # What is taken for granted
//!
//! * The store keeps metadata with objects and lists what was written. S3, SeaweedFS and moto do. Azure does not take
//!   metadata with an upload and forgets uncommitted blocks after a week: it is not supported.
//! * Committed objects stay where they are, unchanged, until their transaction is acknowledged.
//! * A lifecycle rule that ends unfinished uploads waits longer than a prepared transaction ever does: for as long as a
//!   job or its coordinator may be down.
//! * The objects of one transaction become visible one after the other, not at one instant. A crash in between is mended
//!   by the next commit of the same transaction.
//!
//! ```no_run
//! # use ratified_object_store::{JsonLines, ObjectStoreSink, store};
//! # #[derive(serde::Serialize)] struct Order { id: u64 }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let bucket = store::aws::AmazonS3Builder::from_env().with_bucket_name("lake").build()?;
//! let sink = ObjectStoreSink::<Order>::multipart(bucket, "orders".parse()?, JsonLines::new()).prefix("shop").build()?;
//! # let _ = sink; Ok(()) }
//! ```

mod backend;
#[cfg(feature = "parquet")]
mod columns;
mod committer;
mod config;
mod format;
mod handle;
mod local;
mod multipart;
mod names;
mod read;
mod staging;
#[cfg(test)]
mod tests;
mod writer;

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use self::{backend::Backend, config::Settings};
use ratified::{Place, SinkError, TwoPhaseSink};

/// The crate whose stores are taken, in the version that is taken.
pub use ::object_store as store;

#[cfg(feature = "parquet")]
pub use self::columns::{
    DEFAULT_BATCH_ROWS, DEFAULT_ROW_GROUP_BYTES, MAX_BATCH_ROWS, MAX_ROW_GROUP_BYTES, Parquet, arrow,
};
pub use self::{
    backend::ObjectStep,
    committer::{MAX_LISTED_OBJECTS, ObjectCommitter},
    config::{
        DEFAULT_FILE_AGE, DEFAULT_FILE_BYTES, DEFAULT_MAX_FILES, DEFAULT_MAX_TARGETS, DEFAULT_PART_BYTES,
        DEFAULT_PARTS_IN_FLIGHT, MAX_FILE_BYTES, MAX_FILES, MAX_PART_BYTES, MAX_PARTS_IN_FLIGHT, MAX_TARGETS,
        MIN_PART_BYTES, ObjectStoreSinkBuilder, ObjectStoreSinkError,
    },
    format::{DEFAULT_MAX_RECORD_BYTES, Encoder, Format, JsonLines},
    handle::{MAX_HANDLE_BYTES, ObjectHandle},
    read::{CommittedObject, committed_objects},
    writer::ObjectWriter,
};

/// An object store that records are written to exactly once. See the [module](self) for the layout and its assumptions.
pub struct ObjectStoreSink<R> {
    settings: Arc<Settings<R>>,
    backend: Arc<dyn Backend>,
}

impl<R> Clone for ObjectStoreSink<R> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), backend: self.backend.clone() }
    }
}

impl<R> fmt::Debug for ObjectStoreSink<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStoreSink").field("layout", &self.settings.layout).finish_non_exhaustive()
    }
}

#[async_trait]
impl<R: Send + 'static> TwoPhaseSink for ObjectStoreSink<R> {
    type Record = R;
    type Handle = ObjectHandle;
    type Writer = ObjectWriter<R>;
    type Committer = ObjectCommitter;

    fn places(&self) -> Vec<Place> {
        vec![self.backend.place()]
    }

    async fn writer(&self) -> Result<ObjectWriter<R>, SinkError> {
        Ok(ObjectWriter::new(self.settings.clone(), self.backend.clone()))
    }

    async fn committer(&self) -> Result<ObjectCommitter, SinkError> {
        Ok(ObjectCommitter::new(self.backend.clone(), self.settings.layout.clone()))
    }
}
