//! For sinks that write to a disk.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use thiserror::Error;

use crate::error::{Cause, SinkError};

const READ_BYTES: usize = 64 * 1024;
const SYNC: &str = "sync";

/// A file operation that failed, and where. As a [`SinkError`] it may have happened, and may be tried again.
#[derive(Debug, Error)]
#[error("cannot {action} {}{}", path.display(), remedy(source))]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Says what could not be done, and where: `file.sync_all().map_err(at("sync", path))`.
pub fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |source| FileError { action, path: path.to_owned(), source }
}

impl FileError {
    /// What the system said.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// The error of a single change: some failures are known not to have made it.
    pub fn of_one_change(self) -> SinkError {
        use io::ErrorKind as Kind;
        match self.kind() {
            Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::CrossesDevices => SinkError::determinate(self),
            _ if lacks_descriptors(&self.source) => SinkError::determinate(self),
            _ => SinkError::indeterminate(self),
        }
    }
}

#[cfg(unix)]
const PROCESS_HAS_TOO_MANY_FILES: i32 = 24;
#[cfg(unix)]
const SYSTEM_HAS_TOO_MANY_FILES: i32 = 23;

#[cfg(unix)]
fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(PROCESS_HAS_TOO_MANY_FILES | SYSTEM_HAS_TOO_MANY_FILES))
}

#[cfg(not(unix))]
fn lacks_descriptors(_: &io::Error) -> bool {
    false
}

/// What to do, in brackets, where the system's own words do not tell.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::CrossesDevices {
        return " (what is staged and what is visible must be on one file system)";
    }
    if !lacks_descriptors(error) {
        return "";
    }
    #[cfg(unix)]
    if error.raw_os_error() == Some(SYSTEM_HAS_TOO_MANY_FILES) {
        return " (this machine has as many files open as it may: raise fs.file-max)";
    }
    " (this process has as many files open as it may: raise its limit, by ulimit -n or LimitNOFILE=)"
}

/// Makes what was renamed or removed in a directory last. Blocks.
///
/// # Errors
/// [`FailedSync::judge`] tells what follows from it.
pub fn sync_dir(path: &Path) -> Result<(), FileError> {
    File::open(path).map_err(at("open", path))?.sync_all().map_err(at(SYNC, path))
}

/// Whether files can be moved from one directory to another: makes an empty one at `from`, moves it to `to`, and removes it. For
/// finding out before anything is staged what would else be met behind the decision: no right to write there, another file
/// system. Others may do the same under the same names. Blocks.
///
/// # Errors
/// They cannot; the caller must mend what the error names.
pub fn try_to_move(from: &Path, to: &Path) -> Result<(), FileError> {
    let unless_missing = |done: io::Result<()>| match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    };
    fs::write(from, "").map_err(at("make", from))?;
    if let Err(error) = unless_missing(fs::rename(from, to)) {
        let _ = fs::remove_file(from);
        return Err(at("move files from the staging directory to", to)(error));
    }
    unless_missing(fs::remove_file(to)).map_err(at("remove", to))
}

/// The name that a directory was made under, if it is another one than this path ends with: where names are not told apart by
/// case, one directory has several. Blocks.
///
/// # Errors
/// The directory above cannot be read.
pub fn other_name(dir: &Path) -> Result<Option<String>, FileError> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name().and_then(OsStr::to_str)) else { return Ok(None) };
    let ours = match fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        ours => identity(&ours.map_err(at("look at", dir))?),
    };
    for entry in fs::read_dir(parent).map_err(at("list", parent))? {
        let entry = entry.map_err(at("list", parent))?;
        let Ok(other) = entry.file_name().into_string() else { continue };
        let is_alike = other != name && other.eq_ignore_ascii_case(name);
        if is_alike && fs::metadata(entry.path()).is_ok_and(|there| identity(&there) == ours) {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

#[cfg(unix)]
fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;

    (metadata.dev(), metadata.ino())
}

/// Names that are alike are taken for one where the system gives files no number.
#[cfg(not(unix))]
fn identity(_: &fs::Metadata) -> (u64, u64) {
    (0, 0)
}

impl From<FileError> for SinkError {
    fn from(error: FileError) -> Self {
        Self::indeterminate(error)
    }
}

/// Remembers that a sync of an applied outcome has failed: the kernel reports such a failure once and then calls the file or
/// directory clean, so asking again would prove nothing. The sink must be opened again.
#[derive(Debug, Default)]
pub struct FailedSync(OnceLock<String>);

impl FailedSync {
    /// Refuses once a sync has failed; to be asked before every outcome.
    ///
    /// # Errors
    /// [`SinkError::Rejected`]: somebody must check the storage.
    pub fn check(&self) -> Result<(), SinkError> {
        match self.0.get() {
            None => Ok(()),
            Some(why) => Err(SinkError::rejected(format!("check the storage, then open the sink again: {why}"))),
        }
    }

    /// Notes that making an outcome last has failed. What failed before the kernel was asked to sync, for want of a
    /// descriptor for example, proves nothing of the file: it may be tried again.
    ///
    /// # Errors
    /// Always: as [`note`](Self::note) after a sync, else an indeterminate one.
    pub fn judge(&self, error: FileError) -> Result<(), SinkError> {
        if error.action == SYNC { self.note(error) } else { Err(error.into()) }
    }

    /// Notes that a sync has failed.
    ///
    /// # Errors
    /// Always: as [`check`](Self::check) from now on.
    pub fn note(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Result<(), SinkError> {
        let _ = self.0.set(Cause::new(error).to_string());
        self.check()
    }
}

/// How what is in place compares to what the handle says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// There is nothing.
    Missing,
    /// It is what was staged.
    Same,
    /// It is another one, and why.
    Different(String),
}

/// Whether the file at `path` has this length and checksum; a failure says nothing. Blocks.
///
/// # Errors
/// The file cannot be looked at; the caller may try again.
pub fn compare_file(path: &Path, bytes: u64, crc32: u32) -> Result<Found, FileError> {
    match compare_io(path, bytes, crc32) {
        // Only this means that there is none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Missing),
        found => found.map_err(at("read", path)),
    }
}

fn compare_io(path: &Path, bytes: u64, crc32: u32) -> io::Result<Found> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() {
        return Ok(Found::Different("it is no regular file".to_owned()));
    }
    if metadata.len() != bytes {
        return Ok(Found::Different(format!("it has {} bytes, not {bytes}", metadata.len())));
    }
    let found = checksum(path)?;
    if found == crc32 {
        return Ok(Found::Same);
    }
    Ok(Found::Different(format!("its checksum is {found:08x}, not {crc32:08x}")))
}

fn checksum(path: &Path) -> io::Result<u32> {
    let mut file = File::open(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize()),
            Ok(read) => hasher.update(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Does blocking work off the async threads. A caller that gives up does not stop it.
///
/// # Errors
/// Those of the work; an indeterminate one if it panicked.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SinkError> + Send + 'static,
) -> Result<T, SinkError> {
    tokio::task::spawn_blocking(work).await.map_err(SinkError::indeterminate)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_opened_is_tried_again_and_one_that_cannot_be_synced_never() {
        let dir = tempfile::tempdir().unwrap();
        let (failed, missing) = (FailedSync::default(), dir.path().join("missing"));
        let error = failed.judge(sync_dir(&missing).unwrap_err()).unwrap_err();
        assert!(matches!(error, SinkError::Retry { .. }), "{error}");
        failed.check().unwrap();

        let error = failed.judge(at(SYNC, &missing)(io::Error::other("EIO"))).unwrap_err();
        assert!(matches!(error, SinkError::Rejected(_)), "{error}");
        assert!(failed.check().unwrap_err().to_string().contains("check the storage, then open the sink again"));
    }
}
