//! What a client remembers on its own side: the ids it has drawn, before anybody else hears of them.
//!
//! It is a hint, not a source of truth. The coordinator lists every transaction whose sink has not acknowledged, so
//! losing a pending store loses nothing but the ids that never reached the coordinator.

mod codec;
mod file;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod inspect;
mod memory;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use async_trait::async_trait;
use ratified_protocol::{ClientName, TxnId};
use thiserror::Error;

pub use file::FileStore;
pub use memory::MemoryStore;

use crate::{client::MetStore, error::Cause};

/// Most transactions one client may have pending here.
pub const MAX_PENDING_ENTRIES: usize = 10_000;
/// Longest handle that is kept, in bytes.
pub const MAX_HANDLE_BYTES: usize = 64 * 1024;

/// Where clients keep their pending transactions.
#[async_trait]
pub trait PendingStore: Send + Sync + 'static {
    /// Opens the log of one client, making an empty one if there is none.
    ///
    /// # Errors
    /// See [`PendingError`].
    async fn open(&self, client: &ClientName) -> Result<Arc<dyn PendingLog>, PendingError>;
}

/// The pending transactions of one client.
#[async_trait]
pub trait PendingLog: Send + Sync + 'static {
    /// What is remembered now.
    fn contents(&self) -> PendingContents;

    /// Remembers an id. Durable when it returns.
    ///
    /// # Errors
    /// See [`PendingError`]; the caller must not use the id.
    async fn begin(&self, id: TxnId) -> Result<(), PendingError>;

    /// Remembers an id that is written at least once: only the sink hears of it. Durable when it returns.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    async fn begin_at_least_once(&self, id: TxnId) -> Result<(), PendingError>;

    /// Adds the sink's handle to a remembered id. Durable with the next `begin`.
    ///
    /// # Errors
    /// See [`PendingError`].
    async fn attach(&self, id: TxnId, handle: Vec<u8>) -> Result<(), PendingError>;

    /// Forgets an id that is finished to the end. May be undone by a crash before the next `begin`.
    ///
    /// # Errors
    /// See [`PendingError`].
    async fn remove(&self, id: TxnId) -> Result<(), PendingError>;

    /// Remembers the store as it was met last. Durable with the next `begin`.
    ///
    /// # Errors
    /// See [`PendingError`].
    async fn note_store(&self, store: MetStore) -> Result<(), PendingError>;
}

/// What a pending log remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingContents {
    /// The store as it was met last.
    pub store: Option<MetStore>,
    /// Ids that are not finished, each with the sink's handle if it was told.
    pub entries: BTreeMap<TxnId, Option<Vec<u8>>>,
    /// Ids that were written at least once. What of them is still staged nobody will ever commit.
    pub at_least_once: BTreeSet<TxnId>,
}

/// Why a pending store failed.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum PendingError {
    /// The disk failed. Whether the record is there is not known; the log takes nothing more until it is opened again.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        cause: Cause,
    },
    /// Something that was durable is damaged. The caller must restore the file, or remove it and accept that ids that
    /// never reached the coordinator are forgotten.
    #[error("{} is damaged at byte {offset}: {what}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where, in bytes from the start.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The file was written by a newer version. The caller must not go back to this one.
    #[error("{} has the unknown format version {version}", path.display())]
    UnknownVersion {
        /// Which file.
        path: PathBuf,
        /// The version it says.
        version: u8,
    },
    /// Another process has the client open on this machine. The caller must stop that one first, or give one of the two
    /// jobs another name or another directory.
    #[error("{} is held by another process: {holder}; this is {this}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Host and id of the process that holds it, as it says itself.
        holder: String,
        /// Host and id of this process.
        this: String,
    },
    /// The file is another client's: the file system does not tell their names apart. The caller must rename one of the
    /// clients, or keep them in different directories.
    #[error(
        "{} is the file of {owner}, not of {client}: this file system does not tell the two names apart; rename one of \
         them, or keep them in different directories",
        path.display()
    )]
    OtherClient {
        /// Which file.
        path: PathBuf,
        /// Whose it is.
        owner: ClientName,
        /// Who wanted to open it.
        client: ClientName,
    },
    /// Too many transactions are pending. The caller must finish some: open again.
    #[error("more than {MAX_PENDING_ENTRIES} transactions are pending")]
    Full,
    /// A handle is too large to be kept. The caller must keep the data beside and refer to it.
    #[error("a handle of {bytes} bytes, at most {MAX_HANDLE_BYTES} are taken")]
    HandleTooLarge {
        /// How many bytes it takes.
        bytes: usize,
    },
}

impl PendingContents {
    /// Refuses a change that goes beyond a bound.
    fn check_bounds(&self, change: &Change) -> Result<(), PendingError> {
        match change {
            Change::Begin(_) | Change::BeginAtLeastOnce(_)
                if self.entries.len() + self.at_least_once.len() >= MAX_PENDING_ENTRIES =>
            {
                Err(PendingError::Full)
            }
            Change::Handle(_, handle) if handle.len() > MAX_HANDLE_BYTES => {
                Err(PendingError::HandleTooLarge { bytes: handle.len() })
            }
            _ => Ok(()),
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Store(store) => self.store = Some(store),
            Change::Begin(id) => {
                self.entries.entry(id).or_default();
            }
            Change::Handle(id, handle) => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    *entry = Some(handle);
                }
            }
            Change::BeginAtLeastOnce(id) => {
                self.at_least_once.insert(id);
            }
            Change::Remove(id) => {
                self.entries.remove(&id);
                self.at_least_once.remove(&id);
            }
        }
    }

    /// The changes that make these contents out of nothing.
    fn as_changes(&self) -> impl Iterator<Item = Change> {
        let begun = self.entries.iter().flat_map(|(id, handle)| {
            let handle = handle.as_ref().map(|handle| Change::Handle(*id, handle.clone()));
            std::iter::once(Change::Begin(*id)).chain(handle)
        });
        let at_least_once = self.at_least_once.iter().copied().map(Change::BeginAtLeastOnce);
        self.store.clone().map(Change::Store).into_iter().chain(begun).chain(at_least_once)
    }
}

/// One step in the life of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Store(MetStore),
    Begin(TxnId),
    BeginAtLeastOnce(TxnId),
    Handle(TxnId, Vec<u8>),
    Remove(TxnId),
}
