//! Makes staged files visible, or removes them.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use ratified_protocol::{ClientName, TxnId};

use super::{
    disk::{Disk, FileStep},
    handle::{FileHandle, Part},
    names::PartName,
};
use crate::{
    author::{Found, at, blocking, compare_file, lost, not_as_staged},
    error::SinkError,
    sink::{Committed, SinkCommitter, TxnContext},
};

/// Applies outcomes to files. After a failed sync of a directory it refuses everything, because a repeated sync proves
/// nothing: the storage must be checked and the sink opened again.
#[derive(Debug, Clone)]
pub struct FileCommitter {
    disk: Arc<Disk>,
}

#[async_trait]
impl SinkCommitter for FileCommitter {
    type Handle = FileHandle;

    /// [`Committed::Already`] only if every file was found in place, of the right length and checksum; files that a crash
    /// left between are moved.
    ///
    /// # Errors
    /// [`SinkError::Rejected`] names a file that is neither staged nor visible, that is not as it was staged, or that is
    /// in the place of another; nothing is made visible then. A file that cannot be looked at is retried.
    async fn commit(&self, txn: &TxnContext, handle: &FileHandle) -> Result<Committed, SinkError> {
        let commit = Commit { disk: self.disk.clone(), txn: txn.clone(), handle: handle.clone() };
        blocking(move || commit.run()).await
    }

    async fn abort(&self, txn: &TxnContext, _: Option<&FileHandle>) -> Result<(), SinkError> {
        // The handle names at most what is found: a crash may have left files it does not know.
        let (disk, client, txn_id) = (self.disk.clone(), txn.client.clone(), txn.txn_id);
        blocking(move || abort(&disk, &client, txn_id)).await
    }

    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        let (disk, client) = (self.disk.clone(), client.clone());
        let parts = blocking(move || disk.staged_parts(&client).map_err(SinkError::determinate)).await?;
        let ids: BTreeSet<TxnId> = parts.into_iter().map(|part| part.txn_id).collect();
        Ok(ids.into_iter().collect())
    }

    /// A client is known by the checksum in the names of its files: one that shares it is taken for this one.
    async fn list_visible(&self, client: &ClientName) -> Result<Option<Vec<TxnId>>, SinkError> {
        let (disk, client) = (self.disk.clone(), client.clone());
        blocking(move || disk.visible_ids(&client).map(Some).map_err(SinkError::determinate)).await
    }
}

impl FileCommitter {
    pub(super) fn new(disk: Arc<Disk>) -> Self {
        Self { disk }
    }
}

struct Commit {
    disk: Arc<Disk>,
    txn: TxnContext,
    handle: FileHandle,
}

impl Commit {
    fn run(&self) -> Result<Committed, SinkError> {
        self.disk.check_usable()?;
        // Everything is looked at before anything is moved: a transaction with a hole stays invisible as a whole.
        let mut visible = Vec::with_capacity(self.handle.parts.len());
        for part in &self.handle.parts {
            visible.push(self.is_visible(part)?);
        }
        let mut committed = Committed::Already;
        for (index, (part, visible)) in self.handle.parts.iter().zip(visible).enumerate() {
            if !visible && self.reveal(part, index)? {
                committed = Committed::Now;
            }
        }
        if !self.handle.parts.is_empty() {
            self.make_durable()?;
        }
        Ok(committed)
    }

    /// Whether the file is in place, and if not, whether it can be put there.
    fn is_visible(&self, part: &Part) -> Result<bool, SinkError> {
        let (target, staged) = self.paths(&part.file);
        if !part.file.belongs_to(&self.txn) {
            return Err(SinkError::rejected(format!("{} is not a file of {}", part.file, self.txn.txn_id)));
        }
        if self.found(&target, part)? {
            // Left by a file system that renames in two steps.
            remove(&staged)?;
            return Ok(true);
        }
        if self.found(&staged, part)? {
            return Ok(false);
        }
        // Another committer may have moved it between the two looks.
        if self.found(&target, part)? { Ok(true) } else { Err(lost(&part.file)) }
    }

    fn found(&self, path: &Path, part: &Part) -> Result<bool, SinkError> {
        match compare_file(path, part.bytes, part.crc32)? {
            Found::Missing => Ok(false),
            Found::Same => Ok(true),
            Found::Different(why) => Err(not_as_staged(&path.display(), "file", &why)),
        }
    }

    /// Renames one file; false if another committer did.
    fn reveal(&self, part: &Part, index: usize) -> Result<bool, SinkError> {
        let (target, staged) = self.paths(&part.file);
        let failed = |error| {
            let error = at("rename", &staged)(error);
            // With files moved before it the commit has happened in part.
            if index == 0 { error.of_one_change() } else { error.into() }
        };
        self.disk.step(FileStep::Rename { file: &part.file.to_string(), index }).map_err(failed)?;
        // A rename replaces what is there. Only this transaction's committers make this name, and all from one staged
        // file, which only one of them can move; a stranger's file is looked for up to the last moment.
        if self.found(&target, part)? {
            return Ok(false);
        }
        match fs::rename(&staged, &target) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.found(&target, part)? {
                    Ok(false)
                } else {
                    Err(lost(&part.file))
                }
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Also when all was in place: whoever put it there may have died before it synced.
    fn make_durable(&self) -> Result<(), SinkError> {
        self.disk.sync_outcome(self.disk.root())?;
        sync_if_there(&self.disk, &self.disk.staging_dir(&self.txn.client))
    }

    fn paths(&self, part: &PartName) -> (PathBuf, PathBuf) {
        let staged = self.disk.staging_dir(&self.txn.client).join(part.to_string());
        (self.disk.visible_path(part), staged)
    }
}

fn abort(disk: &Disk, client: &ClientName, txn_id: TxnId) -> Result<(), SinkError> {
    disk.check_usable()?;
    let dir = disk.staging_dir(client);
    for part in disk.staged_parts(client)?.into_iter().filter(|part| part.txn_id == txn_id) {
        let (name, path) = (part.to_string(), dir.join(part.to_string()));
        disk.step(FileStep::Remove { file: &name }).map_err(at("remove", &path))?;
        remove(&path)?;
    }
    // Also when nothing was found: whoever removed it may have died before it synced.
    sync_if_there(disk, &dir)
}

fn remove(path: &Path) -> Result<(), SinkError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at("remove", path)(error).into()),
        _ => Ok(()),
    }
}

fn sync_if_there(disk: &Disk, dir: &Path) -> Result<(), SinkError> {
    match dir.try_exists() {
        Ok(false) => Ok(()),
        Ok(true) => disk.sync_outcome(dir),
        Err(error) => Err(at("look for", dir)(error).into()),
    }
}
