//! The file operations of the sink. Everything here blocks.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use ratified_protocol::{ClientName, TxnId};

use super::names::PartName;
use crate::{
    author::{self, FailedSync, FileError, Newest, at},
    error::SinkError,
};

const STAGING: &str = ".staged";
/// An empty file that is moved as a commit would move one, to find out before anything is staged whether it can.
const PROBE: &str = ".probe";

/// A step that changes the disk and is about to be taken. For tests and drills, see
/// [`FileSinkBuilder::on_step`](super::FileSinkBuilder::on_step).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileStep<'a> {
    /// Buffered bytes are written to a staged file.
    Write {
        /// The name of the file.
        file: &'a str,
    },
    /// A staged file is synced.
    SyncFile {
        /// The name of the file.
        file: &'a str,
    },
    /// A directory is synced.
    SyncDirectory {
        /// The directory.
        path: &'a Path,
    },
    /// A commit makes a file visible. With an index of 1 or more this lies between two renames of one commit.
    Rename {
        /// The name of the file.
        file: &'a str,
        /// How many files of this commit were visible or renamed before.
        index: usize,
    },
    /// An abort removes a staged file.
    Remove {
        /// The name of the file.
        file: &'a str,
    },
}

pub(super) type Watch = Arc<dyn Fn(&FileStep<'_>) -> io::Result<()> + Send + Sync>;

/// The directory of a sink, shared by its writers and committers.
pub(super) struct Disk {
    root: PathBuf,
    watch: Option<Watch>,
    failed_sync: FailedSync,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Disk {
    pub(super) fn new(root: PathBuf, watch: Option<Watch>) -> Self {
        Self { root, watch, failed_sync: FailedSync::default() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A client's own directory: its name is a legal file name as it is, and no other client's files are in it.
    pub(super) fn staging_dir(&self, client: &ClientName) -> PathBuf {
        self.root.join(STAGING).join(client.as_str())
    }

    pub(super) fn visible_path(&self, part: &PartName) -> PathBuf {
        self.root.join(part.to_string())
    }

    pub(super) fn step(&self, step: FileStep<'_>) -> io::Result<()> {
        self.watch.as_ref().map_or(Ok(()), |watch| watch(&step))
    }

    pub(super) fn sync_dir(&self, path: &Path) -> Result<(), FileError> {
        self.step(FileStep::SyncDirectory { path }).map_err(at("sync", path))?;
        author::sync_dir(path)
    }

    /// Refuses once a sync of an applied outcome has failed.
    pub(super) fn check_usable(&self) -> Result<(), SinkError> {
        self.failed_sync.check()
    }

    /// Makes renames or removals durable. A sync that fails is final for this sink.
    pub(super) fn sync_outcome(&self, path: &Path) -> Result<(), SinkError> {
        self.sync_dir(path).or_else(|error| self.failed_sync.judge(error))
    }

    /// Makes the root and the client's directory, and makes them last.
    pub(super) fn make_dirs(&self, client: &ClientName) -> Result<(), FileError> {
        let staging = self.staging_dir(client);
        let missing = |dir: &&Path| fs::symlink_metadata(dir).is_err();
        let outermost = self.root.ancestors().take_while(missing).last();
        let made_parent = outermost.is_some();
        let last = outermost.unwrap_or(&self.root).parent();
        fs::create_dir_all(&staging).map_err(at("make", &staging))?;
        // An earlier process may have made any of them and died before it synced: sync them all, inner to outer.
        for dir in staging.ancestors().skip(1) {
            let synced = self.sync_dir(if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
            if Some(dir) != last {
                synced?;
                continue;
            }
            // The parent of a root that was there may be closed to us; then it was somebody else who made the root.
            return match synced {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !made_parent => Ok(()),
                synced => synced,
            };
        }
        Ok(())
    }

    /// Whether a staged file can be moved to where it is seen: rights, one file system.
    pub(super) fn try_to_move(&self, client: &ClientName) -> Result<(), FileError> {
        author::try_to_move(&self.staging_dir(client).join(PROBE), &self.root.join(format!("{PROBE}-{client}")))
    }

    /// The parts staged under a client, in order. What has another name is none of ours: where names are not told apart by
    /// case, another client's may be in the same directory.
    pub(super) fn staged_parts(&self, client: &ClientName) -> Result<Vec<PartName>, FileError> {
        let dir = self.staging_dir(client);
        let mut parts = read_parts(&dir).map_err(at("list", &dir))?;
        parts.retain(|part| part.is_of(client));
        Ok(parts)
    }

    /// The newest transactions of a client that have visible files.
    pub(super) fn visible_ids(&self, client: &ClientName) -> Result<Vec<TxnId>, FileError> {
        let mut newest = Newest::default();
        let of_client = |part: PartName| newest.extend(part.is_of(client).then_some(part.txn_id));
        each_part(&self.root, of_client).map_err(at("list", &self.root))?;
        Ok(newest.into_ids())
    }
}

/// The names in a directory that are parts, in order. One that is not there holds none.
pub(super) fn read_parts(dir: &Path) -> io::Result<Vec<PartName>> {
    let mut parts = Vec::new();
    each_part(dir, |part| parts.push(part))?;
    parts.sort_unstable();
    Ok(parts)
}

fn each_part(dir: &Path, mut take: impl FnMut(PartName)) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name().into_string().ok();
        name.and_then(|name| PartName::try_from(name).ok()).into_iter().for_each(&mut take);
    }
    Ok(())
}
