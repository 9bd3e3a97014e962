//! From a data directory to a log that may be written to.
//!
//! Nothing is changed before all of it was read and taken. Then the last segment is copied, without its torn tail, to a new
//! synced file that takes its place: what may only be in the page cache must not be acted on, and after a failed sync pages
//! may look clean (KAFKA-21349). The segments before it were synced before it was begun.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Ahead, Closed, EmbeddedOptions, FIRST_SEGMENT_BYTES, LOG, Log, MARK, Segment,
    ahead::NEXT,
    chain::Chain,
    directory::{self, COPY, Found, STORE},
    files::{self, file_error},
    format::{self, SegmentHeader},
    identity::{FIRST_BATCH, Identity},
    mark::{self, Marker},
    next_bytes,
    replay::{self, End, Position},
    segment,
};
use crate::store::{StoreError, StoreStatus, Visit};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reads a store back, or makes one in an empty directory.
pub(super) fn load(
    options: &EmbeddedOptions,
    status: Arc<StoreStatus>,
    visit: &mut Visit<'_>,
) -> Result<Log, StoreError> {
    let dir = &options.data_dir;
    let (identity, segments) = match directory::look(dir)? {
        Found::Store(identity, segments) => (identity, segments),
        Found::Nothing => make(options)?,
    };
    let mut read = Read { identity, position: Position::default(), closed: Vec::new(), map: Map::new() };
    let last = read.segments(&segments)?;
    check_mark(mark::read(&dir.join(MARK)), read.position.number)?;
    for (key, value) in std::mem::take(&mut read.map) {
        visit(&key, &value)?;
    }
    if last.end.is_torn {
        let (segment, at) = (last.path.display(), last.end.at);
        tracing::warn!(%segment, at, "a torn tail, never acknowledged, is cut");
    }
    let current = last.settle(&dir.join(LOG))?;
    let data_dir = dir.canonicalize().map_err(file_error("resolve", dir))?;
    data_dir.parent().map_or(Ok(()), files::sync_dir)?;
    files::sync_dir(dir)?;
    read.into_log(options, current, status)
}

/// Makes a store. `STORE` comes last: what an interrupted start leaves is none yet.
fn make(options: &EmbeddedOptions) -> Result<(Identity, Vec<(u64, PathBuf)>), StoreError> {
    let (identity, log) = (Identity::at_random(), options.data_dir.join(LOG));
    files::make_dir(&log).map_err(file_error("make", &log))?;
    let (next, first) = (log.join(NEXT), log.join(segment::file_name(FIRST_BATCH)));
    let bytes = FIRST_SEGMENT_BYTES.min(options.segment_bytes);
    let file = segment::allocate(&next, bytes, || false).map_err(file_error("allocate", &next))?;
    let header = SegmentHeader { cluster_id: identity.cluster_id, first: FIRST_BATCH, bytes, chain: Chain::default() };
    let block = format::encode_header(&identity.key, &header);
    file.write_all_at(&block, 0).and_then(|()| file.sync_data()).map_err(file_error("write", &next))?;
    fs::rename(&next, &first).map_err(file_error("rename to", &first))?;
    files::sync_dir(&log)?;
    files::write_whole(&options.data_dir.join(STORE), &identity.encode())?;
    let data_dir = options.data_dir.display();
    tracing::info!(%data_dir, store = %identity.cluster_id, "a new, empty store was made");
    Ok((identity, vec![(FIRST_BATCH, first)]))
}

fn check_mark(marked: mark::Found, stored: u64) -> Result<(), StoreError> {
    match marked {
        mark::Found::Batch(marked) if stored < marked => Err(StoreError::Missing { stored, marked }),
        mark::Found::Unreadable => {
            tracing::warn!("the mark file cannot be read; whether acknowledged data is missing is not checked");
            Ok(())
        }
        mark::Found::Nothing | mark::Found::Batch(_) => Ok(()),
    }
}

/// What was read so far.
struct Read {
    identity: Identity,
    position: Position,
    closed: Vec<Closed>,
    map: Map,
}

/// The last segment, which is written on.
struct Last {
    path: PathBuf,
    header: SegmentHeader,
    bytes: Vec<u8>,
    end: End,
}

impl Read {
    fn segments(&mut self, segments: &[(u64, PathBuf)]) -> Result<Last, StoreError> {
        let mut last: Option<Last> = None;
        for (first, path) in segments {
            let bytes = fs::read(path).map_err(file_error("read", path))?;
            let header = self.header(path, *first, &bytes)?;
            match &last {
                None => {
                    self.position.number = first.saturating_sub(1);
                    self.position.chain = header.chain;
                }
                Some(before) => self.follows(before, path, &header)?,
            }
            if let Some(Last { path, header, end, .. }) = last.take() {
                self.closed.push(Closed { first: header.first, path, used: end.at as u64 });
            }
            let map = &mut self.map;
            let end = replay::replay(&self.identity.key, &bytes, &mut self.position, |key, value| {
                match value {
                    Some(value) => map.insert(key.to_vec(), value.to_vec()),
                    None => map.remove(key),
                };
            });
            let end = end.map_err(|problem| damaged(path, problem.at, problem.text))?;
            last = Some(Last { path: path.clone(), header, bytes, end });
        }
        let last = last.ok_or_else(|| StoreError::damaged(LOG, "no segment is there"))?;
        self.is_complete(segments, last)
    }

    fn header(&self, path: &Path, first: u64, bytes: &[u8]) -> Result<SegmentHeader, StoreError> {
        let header = format::decode_header(&self.identity.key, self.identity.cluster_id, bytes);
        let header = header.map_err(|problem| damaged(path, 0, problem.to_string()))?;
        if header.first != first {
            return Err(damaged(path, 0, format!("the segment of this name begins with batch {}", header.first)));
        }
        if header.bytes != bytes.len() as u64 {
            let problem = format!("the file has {} bytes, it was made with {}", bytes.len(), header.bytes);
            return Err(damaged(path, bytes.len(), problem));
        }
        Ok(header)
    }

    /// Whether a segment continues the one before it. That one has no end if a start or a crash came between.
    fn follows(&self, before: &Last, path: &Path, header: &SegmentHeader) -> Result<(), StoreError> {
        let expected = self.position.number.saturating_add(1);
        if header.first == expected && header.chain == self.position.chain {
            return Ok(());
        }
        let at = before.end.at;
        if !before.end.is_closed {
            let problem = format!("batch {expected} cannot be read, but {} follows", path.display());
            return Err(damaged(&before.path, at, problem));
        }
        if header.first == expected {
            return Err(damaged(path, 0, "the segment does not continue the one before it"));
        }
        Err(missing(path, expected))
    }

    fn is_complete(&self, segments: &[(u64, PathBuf)], last: Last) -> Result<Last, StoreError> {
        if last.end.is_closed {
            return Err(missing(&last.path, self.position.number.saturating_add(1)));
        }
        let oldest = self.position.oldest.max(FIRST_BATCH);
        match segments.first() {
            Some((first, path)) if *first > oldest => Err(missing(path, oldest)),
            _ => Ok(last),
        }
    }

    fn into_log(
        self,
        options: &EmbeddedOptions,
        current: Segment,
        status: Arc<StoreStatus>,
    ) -> Result<Log, StoreError> {
        let (dir, max_segment_bytes) = (options.data_dir.join(LOG), options.segment_bytes);
        let ahead = Ahead::start(&dir, status, next_bytes(current.bytes, max_segment_bytes));
        let ahead = ahead.map_err(file_error("start the thread that makes segments in", &dir))?;
        let names = File::open(&dir).map_err(file_error("open", &dir))?;
        let mark = options.data_dir.join(MARK);
        let marker = Marker::open(&mark, options.mark_interval).map_err(file_error("open", &mark))?;
        Ok(Log {
            dir,
            names,
            identity: self.identity,
            max_segment_bytes,
            current,
            closed: self.closed,
            ahead,
            marker,
            last: self.position.number,
            chain: self.position.chain,
            oldest: self.position.oldest.max(FIRST_BATCH),
            last_synced: None,
            buffer: Vec::new(),
        })
    }
}

impl Last {
    /// Puts a synced copy of what is valid in the place of the segment.
    fn settle(&self, log: &Path) -> Result<Segment, StoreError> {
        let copy = log.join(COPY);
        let next = log.join(NEXT);
        // Made by an earlier process, of which nobody knows how far; its room is needed.
        if next.exists() {
            fs::remove_file(&next).map_err(file_error("remove", &next))?;
        }
        let file = segment::allocate(&copy, self.header.bytes, || false).map_err(file_error("allocate", &copy))?;
        let valid = self.bytes.get(..self.end.at).unwrap_or_default();
        file.write_all_at(valid, 0).and_then(|()| file.sync_all()).map_err(file_error("write", &copy))?;
        fs::rename(&copy, &self.path).map_err(file_error("rename to", &self.path))?;
        files::sync_dir(log)?;
        let at = self.end.at as u64;
        Ok(Segment { path: self.path.clone(), first: self.header.first, bytes: self.header.bytes, at, file })
    }
}

fn missing(near: &Path, first: u64) -> StoreError {
    let path = near.with_file_name(segment::file_name(first));
    StoreError::damaged(path.display().to_string(), "the segment is missing; put it back from a copy of this store")
}

fn damaged(path: &Path, at: usize, problem: impl Into<String>) -> StoreError {
    StoreError::damaged(format!("{} at byte {at}", path.display()), problem)
}
