//! The store of a single machine: a log of batches, of which a load replays what is needed.
//!
//! In the data directory: `STORE` (what makes it one, and its secret), `LOCK` (held while in use), `MARK` (the last synced batch), and
//! `log/`, the segments, each named after its first batch. A batch is one positional write and one sync of a file that was
//! zeroed before, so that neither metadata nor descriptors are at stake while it is in flight.

pub mod chain;
pub mod format;

mod ahead;
mod directory;
mod files;
mod identity;
mod load;
mod mark;
mod replay;
mod segment;

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use self::{
    ahead::Ahead,
    chain::{Chain, Key},
    directory::{LOG, MARK},
    files::file_error,
    format::{HEADER_BLOCK, Place, SECTOR, SegmentHeader},
    identity::Identity,
    mark::Marker,
    segment::Segment,
};
use super::{Batch, BatchLimits, Claim, Store, StoreError, StoreStatus, Visit};

/// Lengths are written in 32 bits; the bytes are those of the largest body that can be configured.
const BATCH_LIMITS: BatchLimits = BatchLimits { changes: u32::MAX as usize, bytes: 1 << 30 };
/// The first segment of a store; each next one is twice as long, up to what is configured, so that a small store is small.
const FIRST_SEGMENT_BYTES: u64 = 1 << 20;

/// Where and how the embedded store keeps its data.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EmbeddedOptions {
    /// The data directory; made when it is missing.
    pub data_dir: PathBuf,
    /// At most how often the mark is written.
    pub mark_interval: Duration,
    /// The longest segment, in bytes.
    pub segment_bytes: u64,
}

impl EmbeddedOptions {
    /// The defaults, in this directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let mark_interval = Duration::from_millis(100);
        Self { data_dir: data_dir.into(), mark_interval, segment_bytes: 64 * 1024 * 1024 }
    }
}

/// A store in a directory of the local file system.
pub struct EmbeddedStore {
    options: EmbeddedOptions,
    status: Arc<StoreStatus>,
    log: Option<Log>,
    // Declared last: the directory is free only when everything else is closed.
    _lock: File,
}

/// A log that was loaded.
struct Log {
    dir: PathBuf,
    /// The directory, open: a segment is begun without a descriptor more.
    names: File,
    identity: Identity,
    max_segment_bytes: u64,
    current: Segment,
    /// The segments before the current one, oldest first.
    closed: Vec<Closed>,
    ahead: Ahead,
    marker: Marker,
    /// The last batch that was written, and the chain behind it.
    last: u64,
    chain: Chain,
    oldest: u64,
    last_synced: Option<u64>,
    /// Of one batch, used again.
    buffer: Vec<u8>,
}

/// A segment that is not written to any more.
#[derive(Debug, Clone)]
struct Closed {
    first: u64,
    path: PathBuf,
    /// How many of its bytes are in use.
    used: u64,
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").field("options", &self.options).finish_non_exhaustive()
    }
}

impl EmbeddedStore {
    /// Takes the directory for this process. Nothing is read yet.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another store has it, [`StoreError::Foreign`] when it is somebody else's; the directory
    /// cannot be made or written.
    pub fn open(options: EmbeddedOptions) -> Result<Self, StoreError> {
        let dir = &options.data_dir;
        directory::refuse_foreign(dir)?;
        files::make_dir(dir).map_err(file_error("make the data directory", dir))?;
        let lock = files::lock(dir)?;
        Ok(Self { options, status: Arc::default(), log: None, _lock: lock })
    }

    fn loaded(&mut self, action: &'static str) -> Result<&mut Log, StoreError> {
        self.log.as_mut().ok_or_else(|| StoreError::refused(action, "the store was not loaded"))
    }
}

impl Log {
    fn key(&self) -> &Key {
        &self.identity.key
    }

    /// The first batch of the segment that holds this one.
    fn segment_of(&self, batch: u64) -> u64 {
        let closed = self.closed.iter().map(|segment| segment.first);
        closed.chain([self.current.first]).take_while(|first| *first <= batch).last().unwrap_or(self.oldest)
    }

    fn append(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if self.last.checked_add(1) != Some(batch.number) {
            let problem = format!("batch {} does not follow batch {}", batch.number, self.last);
            return Err(StoreError::refused("write", problem));
        }
        let bytes = format::encoded_bytes(batch);
        if self.current.room() < (bytes + SECTOR) as u64 {
            self.begin_segment(batch.number, bytes)?;
        }
        self.oldest = batch.rewritten_since.map_or(self.oldest, |since| self.segment_of(since));
        let place = Place { number: batch.number, oldest: self.oldest, before: self.chain };
        let mut buffer = std::mem::take(&mut self.buffer);
        self.chain = format::encode_batch(self.key(), &place, &batch.changes, &mut buffer);
        self.current.append(&buffer).map_err(|e| StoreError::indeterminate("write", e))?;
        self.buffer = buffer;
        self.last = batch.number;
        Ok(())
    }

    /// Ends the current segment and takes the one that was made ahead, or makes one that this batch fits into.
    fn begin_segment(&mut self, first: u64, batch_bytes: usize) -> Result<(), StoreError> {
        let least = segment::least_bytes(batch_bytes);
        let next = self.dir.join(ahead::NEXT);
        let mut ready = self.ahead.take().map_err(file_error("allocate", &next))?;
        if ready.bytes < least {
            ready.file = segment::allocate(&next, least, || false).map_err(file_error("allocate", &next))?;
            ready.bytes = least;
        }
        let path = self.dir.join(segment::file_name(first));
        let header =
            SegmentHeader { cluster_id: self.identity.cluster_id, first, bytes: ready.bytes, chain: self.chain };
        let block = format::encode_header(self.key(), &header);
        let mut begun = Segment { path, first, bytes: ready.bytes, at: 0, file: ready.file };
        let failed = |e: io::Error| StoreError::indeterminate("beginning a segment", e);
        begun.append(&block).and_then(|()| begun.file.sync_data()).map_err(failed)?;
        fs::rename(&next, &begun.path).map_err(failed)?;
        self.names.sync_all().map_err(failed)?;
        // Only now: an end without a successor means that one is missing.
        let place = Place { number: first, oldest: self.oldest, before: self.chain };
        let mut end = Vec::new();
        format::encode_end(self.key(), &place, &mut end);
        self.current.append(&end).and_then(|()| self.current.file.sync_data()).map_err(failed)?;
        let ended = std::mem::replace(&mut self.current, begun);
        self.closed.push(Closed { first: ended.first, path: ended.path, used: ended.at });
        self.ahead.want(next_bytes(self.current.bytes, self.max_segment_bytes));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.current.file.sync_data().map_err(|e| StoreError::indeterminate("sync", e))?;
        self.last_synced = Some(self.last);
        // The mark only ever lags, so that failing to write it loses nothing.
        if let Err(e) = self.marker.note(self.last) {
            tracing::warn!(error = %e, "the mark file cannot be written");
        }
        self.remove_old();
        Ok(())
    }

    /// Gives up what the last synced batch says is not needed.
    fn remove_old(&mut self) {
        let count = self.closed.iter().take_while(|segment| segment.first < self.oldest).count();
        if count > 0 {
            self.ahead.remove(self.closed.drain(..count).map(|segment| segment.path).collect());
        }
    }

    /// Tells how long the log is; what is closed goes with the next round.
    fn report(&self, status: &StoreStatus) {
        let closed = self.closed.iter().map(|segment| segment.used).sum::<u64>();
        status.set_log_bytes(closed.saturating_add(self.current.at), closed);
    }
}

/// How long the segment behind one of this length is.
fn next_bytes(bytes: u64, max_bytes: u64) -> u64 {
    bytes.saturating_mul(2).clamp(FIRST_SEGMENT_BYTES.min(max_bytes), max_bytes.max(HEADER_BLOCK as u64))
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(batch) = self.last_synced
            && let Err(e) = self.marker.note_now(batch)
        {
            tracing::warn!(error = %e, "the mark file cannot be written");
        }
    }
}

impl Store for EmbeddedStore {
    fn limits(&self) -> BatchLimits {
        BATCH_LIMITS
    }

    fn status(&self) -> Arc<StoreStatus> {
        self.status.clone()
    }

    fn cluster_id(&self) -> Option<uuid::Uuid> {
        self.log.as_ref().map(|log| log.identity.cluster_id)
    }

    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let log = load::load(&self.options, self.status.clone(), visit)?;
        log.report(&self.status);
        self.status.set_slack_bytes(self.options.segment_bytes);
        self.log = Some(log);
        Ok(())
    }

    // Nobody else can hold the directory's lock, so that the claim needs no comparing.
    fn write(&mut self, _claim: Claim, batch: Batch) -> Result<(), StoreError> {
        self.loaded("write")?.append(&batch)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let status = self.status.clone();
        let log = self.loaded("sync")?;
        log.sync()?;
        log.report(&status);
        Ok(())
    }
}

#[cfg(test)]
mod damages;
#[cfg(test)]
mod tests;
