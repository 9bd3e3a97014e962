//! What a data directory may hold, and what it must. Nothing is changed here.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    ahead::NEXT,
    files::{self, file_error},
    format::HEADER_BLOCK,
    identity::{FIRST_BATCH, Identity},
    segment,
};
use crate::store::StoreError;

/// What makes the directory a store.
pub(super) const STORE: &str = "STORE";
/// The number of the last synced batch.
pub(super) const MARK: &str = "MARK";
/// Where the segments are.
pub(super) const LOG: &str = "log";
/// A segment that a load is copying.
pub(super) const COPY: &str = "copy";
const LOCK: &str = "LOCK";
const STORE_UNFINISHED: &str = "STORE.unfinished";

/// What is in a data directory.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing, or what a start left that ended before anything could be acknowledged.
    Nothing,
    /// A store, with the first batch and the path of each segment, in order.
    Store(Identity, Vec<(u64, PathBuf)>),
}

/// Refuses a directory that is somebody else's, before anything in it is touched.
///
/// # Errors
/// [`StoreError::Foreign`], or it cannot be listed.
pub(super) fn refuse_foreign(dir: &Path) -> Result<(), StoreError> {
    let names = match files::names(dir) {
        Err(StoreError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        // What is not a directory is told by who makes it.
        Err(StoreError::File { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => return Ok(()),
        names => names?,
    };
    let is_ours = names.iter().any(|name| name == Path::new(STORE) || name == Path::new(LOCK));
    match names.into_iter().next() {
        Some(found) if !is_ours => Err(StoreError::Foreign { path: dir.to_owned(), found }),
        _ => Ok(()),
    }
}

/// Looks at a data directory.
///
/// # Errors
/// Something is there that no coordinator has left, or something is not there that must be: it is named.
pub(super) fn look(dir: &Path) -> Result<Found, StoreError> {
    let store = dir.join(STORE);
    let bytes = match fs::read(&store) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return no_identity(dir).map(|()| Found::Nothing),
        bytes => bytes.map_err(file_error("read", &store))?,
    };
    let identity = Identity::decode(&bytes).map_err(|problem| damaged(&store, problem))?;
    let log = dir.join(LOG);
    if !log.try_exists().map_err(file_error("look for", &log))? {
        return Err(damaged(&log, "the directory of segments is missing; put it back from a copy of this store"));
    }
    let mut segments = Vec::new();
    for name in files::names(&log)? {
        let path = log.join(&name);
        match segment::parse_name(&name) {
            Some(first) if path.is_file() => segments.push((first, path)),
            None if is_unfinished(&name) && path.is_file() => {}
            _ => return Err(damaged(&path, "nothing that the store has made has this name; move it away")),
        }
    }
    if segments.is_empty() {
        return Err(damaged(&log, "no segment is there; put them back from a copy of this store"));
    }
    Ok(Found::Store(identity, segments))
}

/// Without an identity there may be nothing but what an interrupted first start leaves.
fn no_identity(dir: &Path) -> Result<(), StoreError> {
    let missing = || {
        let problem = "it is missing, and there is a log; put it back from a copy of this store";
        damaged(&dir.join(STORE), problem)
    };
    for name in files::names(dir)? {
        match name.to_str() {
            Some(LOCK | STORE_UNFINISHED) => {}
            Some(LOG) if dir.join(LOG).is_dir() => {
                let log = dir.join(LOG);
                for name in files::names(&log)? {
                    let is_first = name == Path::new(&segment::file_name(FIRST_BATCH)) && is_unused(&log.join(&name))?;
                    if !is_first && !is_unfinished(&name) {
                        return Err(missing());
                    }
                }
            }
            Some(MARK) => return Err(missing()),
            _ => return Err(StoreError::Foreign { path: dir.to_owned(), found: name }),
        }
    }
    Ok(())
}

fn is_unfinished(name: &Path) -> bool {
    name == Path::new(NEXT) || name == Path::new(COPY)
}

/// Whether no batch was ever written to a segment.
fn is_unused(path: &Path) -> Result<bool, StoreError> {
    let bytes = fs::read(path).map_err(file_error("read", path))?;
    Ok(bytes.iter().skip(HEADER_BLOCK).all(|byte| *byte == 0))
}

fn damaged(path: &Path, problem: impl Into<String>) -> StoreError {
    StoreError::damaged(path.display().to_string(), problem)
}
