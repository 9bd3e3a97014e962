//! Files of the store: for its owner only, and durable under their names.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::store::StoreError;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Makes a directory, and those above it, if it is not there.
///
/// # Errors
/// What is in the way, a file or a link that leads nowhere, is "File exists" to the system, which helps nobody.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(dir).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(
            error.kind(),
            "something that is no directory has this name: name another one in data_dir, or move that away",
        ),
        _ => error,
    })
}

/// Opens a file to be read and written; made when it is missing, emptied if asked to.
pub(super) fn open_or_make(path: &Path, emptied: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(emptied).mode(FILE_MODE).open(path)
}

/// Takes the directory for this process, as long as the file is open.
pub(super) fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("LOCK");
    let file = open_or_make(&path, false).map_err(file_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: dir.to_owned() }),
        Err(TryLockError::Error(e)) => Err(file_error("lock", &path)(e)),
    }
}

/// Writes a file that is there as a whole or not at all.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let unfinished = path.with_extension("unfinished");
    let mut file = open_or_make(&unfinished, true).map_err(file_error("make", &unfinished))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(file_error("write", &unfinished))?;
    fs::rename(&unfinished, path).map_err(file_error("rename to", path))?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(file_error("sync", dir))
}

/// Names a file operation that failed.
pub(super) fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| StoreError::File { action, path, source }
}

/// The names in a directory, in order.
pub(super) fn names(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = fs::read_dir(dir).map_err(file_error("list", dir))?;
    let mut found = Vec::new();
    for entry in entries {
        found.push(PathBuf::from(entry.map_err(file_error("list", dir))?.file_name()));
    }
    found.sort();
    Ok(found)
}
