//! For authors of sinks: what the sinks that come with the SDK share, and the next one needs, too.
//!
//! * [`Current`] holds the transaction that a writer works on: taken out for each call and put back, so that a failure, and a
//!   call that was dropped half-way, is told by every later one.
//! * [`Version`] is the first field of a handle: what another version wrote is refused before it is read.
//! * [`FailedSync`] refuses everything once a sync has failed: asking the kernel again would prove nothing.
//! * [`lost`] and [`not_as_staged`] are what a commit tells that finds neither its data nor the proof of it.
//! * [`TargetName`], [`Extension`] and [`client_checksum`] name files and objects.
//! * [`json_line`] writes a record as JSON, or refuses what JSON would change.
//! * [`Newest`] gathers what [`list_visible`](crate::SinkCommitter::list_visible) tells.
//! * [`FileError`], [`compare_file`] and [`blocking`] are for sinks that write to a disk.
//!
//! The `testkit` feature checks what comes out.
//!
//! ```
//! # use ratified::{SinkError, TxnContext, author::{Current, Stage, Version}};
//! # use serde::{Deserialize, Serialize};
//! #[derive(Debug, Clone, Default, Serialize, Deserialize)]
//! struct Handle { version: Version<1>, rows: usize }
//!
//! #[derive(Default)]
//! struct Writer { current: Current<Vec<u64>, usize> }
//!
//! impl Writer {
//!     fn write(&mut self, txn: &TxnContext, records: Vec<u64>) -> Result<(), SinkError> {
//!         let mut staged = self.current.take_open(txn)?;
//!         staged.extend(records);
//!         self.current.put(Ok(Stage::Open(staged)))
//!     }
//!
//!     fn pre_commit(&mut self, txn: &TxnContext, handle: &mut Handle) -> Result<(), SinkError> {
//!         let prepared = match self.current.take(txn)? {
//!             Stage::Open(staged) => Ok(staged.len()), // a flush that may fail
//!             Stage::Prepared(rows) => Ok(rows),
//!         };
//!         if let Ok(rows) = &prepared {
//!             handle.rows = *rows;
//!         }
//!         self.current.put(prepared.map(Stage::Prepared))
//!     }
//! }
//! ```

mod current;
mod disk;
mod json;
mod names;
mod newest;
mod version;

use std::fmt::Display;

pub use self::{
    current::{Current, Stage},
    disk::{FailedSync, FileError, Found, at, blocking, compare_file, other_name, sync_dir, try_to_move},
    json::json_line,
    names::{Extension, MAX_EXTENSION_CHARS, MAX_TARGET_CHARS, NameError, TargetName, client_checksum},
    newest::Newest,
    version::Version,
};

pub(crate) use self::disk::remedy;
use crate::error::SinkError;

/// The refusal of a commit that finds this neither staged nor visible: it is lost, and no repetition brings it back.
pub fn lost(what: &impl Display) -> SinkError {
    SinkError::rejected(format!("{what} is lost: it is neither staged nor visible"))
}

/// The refusal of a commit that finds something else in the place of what was staged: an object, a file.
pub fn not_as_staged(what: &impl Display, kind: &str, why: &str) -> SinkError {
    SinkError::rejected(format!("{what} is not the {kind} that was staged: {why}"))
}
