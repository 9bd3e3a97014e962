//! What is durable: an ordered map from keys to values that takes atomic batches.
//!
//! A store knows bytes only; what they mean is [`codec`]'s. It is used by one thread at a time: first for the load,
//! then by the thread that syncs. A process may have several, each with a coordinator of its own; what one of them loses
//! or fails at concerns no other.

pub mod codec;
pub mod log;
mod memory;
mod status;

pub use log::{EmbeddedOptions, EmbeddedStore};
pub use memory::MemoryStore;
pub use status::StoreStatus;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use ratified_protocol::LoadNonce;
use thiserror::Error;
use uuid::Uuid;

/// One change of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub key: Vec<u8>,
    /// The new value; `None` removes the key, harmless when it is absent.
    pub value: Option<Vec<u8>>,
}

impl Change {
    /// How many bytes the key and the value have.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// Changes that become durable together or not at all; each key at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The number of this batch; each is one greater than the one before.
    pub number: u64,
    /// What changes.
    pub changes: Vec<Change>,
    /// Everything that is there has been written again in the batches from this one on, this one included: a store that
    /// is a log may give up what came before.
    pub rewritten_since: Option<u64>,
}

impl Batch {
    /// Drops every change that a later one of the same key makes void: an engine that stamps a whole batch alike could
    /// not tell which of two came last.
    pub fn keep_last_of_each_key(&mut self) {
        let last: BTreeMap<_, _> = self.changes.drain(..).map(|change| (change.key, change.value)).collect();
        self.changes = last.into_iter().map(|(key, value)| Change { key, value }).collect();
    }

    /// How many bytes the keys and values have in all.
    pub fn bytes(&self) -> usize {
        self.changes.iter().map(Change::bytes).sum()
    }
}

/// How much a batch may hold. No step is split, so that a batch may exceed this by its last one; but nothing joins a
/// batch that has reached either, and a request that exceeds either by itself is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Changes.
    pub changes: usize,
    /// Bytes of keys and values, about: what a step will write is estimated when it joins.
    pub bytes: usize,
}

impl BatchLimits {
    /// Whatever the configuration allows.
    pub const NONE: Self = Self { changes: usize::MAX, bytes: usize::MAX };
}

/// Who writes to a store: the load that owns it. No two claims of a store are equal, those of copies included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The number of the load.
    pub loads: u64,
    /// What was drawn for it.
    pub nonce: LoadNonce,
}

/// Takes one key and its value during a load; an error ends the load.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), StoreError> + 'a;

/// A durable map. Simulations and other engines implement this trait; the calls come in the order [`Store::claim`] and
/// [`Store::load`] once, then [`Store::write`] and [`Store::sync`] in turn, and [`Store::confirm`] between them.
pub trait Store: Send {
    /// How much a batch may hold.
    fn limits(&self) -> BatchLimits {
        BatchLimits::NONE
    }

    /// What it tells while another thread uses it.
    fn status(&self) -> Arc<StoreStatus> {
        Arc::default()
    }

    /// The name it has, once it is loaded; `None`: it has what its records say, or what is drawn for it if it is new.
    fn cluster_id(&self) -> Option<Uuid> {
        None
    }

    /// Takes the store for a load that has drawn this nonce, before anything is read: what is read before others are kept
    /// out may miss what they acknowledge after it. Gives the number of the load, where the store counts loads by itself;
    /// `None`: it is one more than the number that is stored. A store that one process holds by a lock has nothing to do.
    ///
    /// # Errors
    /// The caller must not load.
    fn claim(&mut self, nonce: LoadNonce) -> Result<Option<u64>, StoreError> {
        let _ = nonce;
        Ok(None)
    }

    /// Visits everything, in order of keys. Once it has returned without error, all that was visited is durable, and
    /// no crash may take any of it back (KAFKA-21349: nothing may be acted on that can still vanish).
    ///
    /// # Errors
    /// The caller must refuse to start. What is on disk is kept as it was found, or a copy of it.
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError>;

    /// Writes a batch on behalf of a claim, and of no other. It survives a crash as a whole or not at all, and for sure
    /// only after the next [`Store::sync`].
    ///
    /// # Errors
    /// The caller must stop and never write again, whatever the [`ErrorKind`]: memory is ahead of the store. The kind
    /// says what is known of the batch, and whether the store may be taken again.
    fn write(&mut self, claim: Claim, batch: Batch) -> Result<(), StoreError>;

    /// Makes every written batch durable.
    ///
    /// # Errors
    /// Always indeterminate; the caller must stop and never sync again: pages may look clean after a failed sync.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// Proves that the store was still owned by this claim at some instant after the call began: what was read at or
    /// before the call may then be told as the present. A store that nobody else can take has nothing to do.
    ///
    /// # Errors
    /// Nothing that waits for the proof may be told; the caller must stop.
    fn confirm(&mut self, claim: Claim) -> Result<(), StoreError> {
        let _ = claim;
        Ok(())
    }
}

/// What an error of a store means for who met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another load owns the store; nothing of ours was written by what failed. The caller must give the store up and
    /// leave it to its owner.
    LostOwnership,
    /// The store has not done what was asked, for certain. The caller must mend the cause before it tries again.
    Refused,
    /// Whether it was done is unknown. The caller must not act on either; a new load finds out.
    Indeterminate,
}

/// Why a store failed, or refuses.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process serves this directory; determinate. The caller must stop that one, or use another directory.
    #[error("{} is in use by another coordinator; stop that one first, or give this one a data directory of its own", path.display())]
    Locked {
        /// The data directory.
        path: PathBuf,
    },
    /// What is stored cannot be what a coordinator wrote; determinate. The caller must restore a backup.
    #[error("damaged or unknown data at {place}: {problem}")]
    Damaged {
        /// Where: a file and offset, or a key.
        place: String,
        /// What is wrong there.
        problem: String,
    },
    /// The directory holds something, and no store; determinate, and nothing in it was touched. The caller must name
    /// another one.
    #[error(
        "{} is not empty, and no store: there is {}; name another directory in data_dir, or an empty one",
        path.display(),
        found.display()
    )]
    Foreign {
        /// The directory that was named.
        path: PathBuf,
        /// Something in it.
        found: PathBuf,
    },
    /// Batches that had been acknowledged are gone; determinate, and nothing was changed. The caller must restore a backup.
    #[error(
        "acknowledged data is missing: the store ends at batch {stored}, but batch {marked} had been synced; \
         nothing was changed"
    )]
    Missing {
        /// The last batch that is there.
        stored: u64,
        /// The last batch that is known to have been synced.
        marked: u64,
    },
    /// Another load has taken the store; determinate. The caller must give it up.
    #[error("the store was taken by another coordinator: load {found} follows ours, {ours}")]
    LostOwnership {
        /// Our load.
        ours: u64,
        /// The load found.
        found: u64,
    },
    /// The store does not take this batch, and has not; determinate.
    #[error("{action} was refused: {problem}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// Why it is not taken.
        problem: String,
    },
    /// A file operation before anything was served; determinate: nothing had been acknowledged by it.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A write or sync failed: indeterminate, it may or may not have reached the disk.
    #[error("{action} failed, whether it reached the disk is unknown: {problem}")]
    Indeterminate {
        /// What was tried.
        action: &'static str,
        /// Why not.
        problem: String,
    },
}

impl StoreError {
    /// Damage at a place.
    pub fn damaged(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Damaged { place: place.into(), problem: problem.into() }
    }

    /// A write or sync that failed.
    pub fn indeterminate(action: &'static str, problem: impl ToString) -> Self {
        Self::Indeterminate { action, problem: problem.to_string() }
    }

    /// A write that was not taken.
    pub fn refused(action: &'static str, problem: impl ToString) -> Self {
        Self::Refused { action, problem: problem.to_string() }
    }

    /// Whether the disk or the file system refused something, as opposed to what was found there.
    pub fn is_of_the_disk(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Indeterminate { .. })
    }

    /// What it means for who met it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::LostOwnership { .. } => ErrorKind::LostOwnership,
            Self::Indeterminate { .. } => ErrorKind::Indeterminate,
            Self::Locked { .. }
            | Self::Foreign { .. }
            | Self::Damaged { .. }
            | Self::Missing { .. }
            | Self::Refused { .. }
            | Self::File { .. } => ErrorKind::Refused,
        }
    }
}
