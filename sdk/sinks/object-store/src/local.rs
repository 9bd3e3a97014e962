//! A local directory as an object store. It has no uploads that another process could complete, so files are staged
//! under other names and renamed.

use std::{
    fs, io,
    path::{Path as FsPath, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use object_store::{
    Error as StoreError, MultipartUpload, ObjectStore, PutMultipartOptions, local::LocalFileSystem, path::Path,
};
use ratified::{
    ClientName, SinkError, TxnContext, TxnId,
    author::{
        FailedSync, FileError, Found, at, blocking, compare_file, lost, not_as_staged, other_name, sync_dir,
        try_to_move,
    },
};
use tokio::sync::Mutex;

use super::{
    backend::{Backend, OBJECT, ObjectStep, Place, Steps, Upload, failed, keys_under, staged_elsewhere},
    handle::{ObjectFile, ObjectHandle, Staged},
    names::{Layout, ObjectKey},
};

/// An empty file that is moved as a commit would move one.
const PROBE: &str = "_ratified-probe";

/// A directory that outlives the process, shared by writers and committers.
pub(super) struct Local {
    disk: Arc<Disk>,
    layout: Layout,
    steps: Steps,
}

struct Disk {
    store: LocalFileSystem,
    root: PathBuf,
    failed_sync: FailedSync,
}

impl Disk {
    fn check_usable(&self) -> Result<(), SinkError> {
        self.failed_sync.check()
    }

    fn path(&self, path: &Path) -> Result<PathBuf, SinkError> {
        self.store.path_to_filesystem(path).map_err(failed("find", path))
    }

    /// Syncs a directory and those above it, up to the root: an earlier process may have made any of them and died
    /// before it synced. What is not there is passed over.
    fn sync_up(&self, from: &FsPath) -> Result<(), FileError> {
        for dir in from.ancestors().take_while(|dir| dir.starts_with(&self.root)) {
            match sync_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes an applied outcome last. A sync that fails is final for this sink.
    fn sync_outcome(&self, from: &FsPath) -> Result<(), SinkError> {
        self.sync_up(from).or_else(|error| self.failed_sync.judge(error))
    }

    /// Whether what is staged can be moved towards a key: as far as its folders are there.
    fn try_to_move(&self, layout: &Layout, client: &ClientName, key: &Path) -> Result<(), SinkError> {
        let (staging, target) = (self.path(&layout.client_folder(client))?, self.path(key)?);
        fs::create_dir_all(&staging).map_err(at("make", &staging))?;
        let Some(folder) = target.ancestors().skip(1).find(|folder| folder.is_dir()) else { return Ok(()) };
        Ok(try_to_move(&staging.join(PROBE), &folder.join(format!("{PROBE}-{client}")))?)
    }

    fn remove_folder(&self, folder: &FsPath) -> Result<(), SinkError> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at("remove", folder)(error).into()),
            _ => {}
        }
        // Also when nothing was found: whoever removed it may have died before it synced.
        folder.parent().map_or(Ok(()), |parent| self.sync_outcome(parent))
    }
}

impl Local {
    /// # Errors
    /// The root is no directory that can be used.
    pub(super) fn new(root: &FsPath, layout: Layout, steps: Steps) -> Result<Self, StoreError> {
        let store = LocalFileSystem::new_with_prefix(root)?.with_fsync(true);
        let root = store.path_to_filesystem(&Path::from("x"))?.parent().unwrap_or(root).to_owned();
        Ok(Self { disk: Arc::new(Disk { store, root, failed_sync: FailedSync::default() }), layout, steps })
    }
}

#[async_trait]
impl Backend for Local {
    fn place(&self) -> ratified::Place {
        ratified::Place::directory(&self.disk.root.join(self.layout.root().as_ref()))
    }

    fn max_parallel_parts(&self) -> usize {
        1
    }

    async fn create(&self, place: &Place) -> Result<Box<dyn Upload>, SinkError> {
        let key = &place.key;
        self.disk.check_usable()?;
        self.steps.pass(&ObjectStep::Create { key: &key.to_string() })?;
        let staged = key.staged(&place.client);
        let (disk, layout, client, target) = (self.disk.clone(), self.layout.clone(), place.client.clone(), key.path());
        blocking(move || disk.try_to_move(&layout, &client, &target)).await?;
        let begun = self.disk.store.put_multipart_opts(&staged, PutMultipartOptions::default()).await;
        let upload = begun.map_err(failed("begin", &staged))?;
        let state = Mutex::new((0, upload));
        Ok(Box::new(LocalUpload {
            disk: self.disk.clone(),
            steps: self.steps.clone(),
            key: key.clone(),
            staged,
            state,
        }))
    }

    async fn look(&self, file: &ObjectFile) -> Result<Found, SinkError> {
        let Staged::File { crc32 } = file.staged else { return Err(staged_elsewhere(&file.key)) };
        let (path, bytes) = (self.disk.path(&file.key.path())?, file.bytes);
        blocking(move || Ok(compare_file(&path, bytes, crc32)?)).await
    }

    async fn reveal(&self, txn: &TxnContext, file: &ObjectFile, index: usize) -> Result<bool, SinkError> {
        let ObjectFile { key, bytes, staged: Staged::File { crc32 } } = file else {
            return Err(staged_elsewhere(&file.key));
        };
        let (bytes, crc32) = (*bytes, *crc32);
        self.disk.check_usable()?;
        // A rename replaces what is there: a stranger's file is looked for up to the last moment.
        match self.look(file).await? {
            Found::Missing => {}
            Found::Same => return Ok(false),
            Found::Different(why) => return Err(not_as_staged(key, OBJECT, &why)),
        }
        let from = key.staged(&txn.client);
        let path = self.disk.path(&from)?;
        match blocking(move || Ok(compare_file(&path, bytes, crc32)?)).await? {
            Found::Same => {}
            Found::Different(why) => return Err(not_as_staged(key, OBJECT, &why)),
            Found::Missing => return self.shown_by_another(file).await,
        }
        self.steps.pass(&ObjectStep::Reveal { key: &key.to_string(), index })?;
        let (staged, target) = (self.disk.path(&from)?, self.disk.path(&key.path())?);
        let is_first = index == 0;
        match blocking(move || put_in_place(&staged, &target, is_first)).await? {
            Moved::Now => Ok(true),
            Moved::NothingThere => self.shown_by_another(file).await,
        }
    }

    async fn settle(&self, txn: &TxnContext, handle: &ObjectHandle) -> Result<(), SinkError> {
        self.steps.pass(&ObjectStep::Settle { txn_id: txn.txn_id })?;
        let mut folders = Vec::new();
        for file in &handle.files {
            let path = self.disk.path(&file.key.path())?;
            let folder = self.disk.path(&file.key.layout().txn_folder(&txn.client, txn.txn_id))?;
            folders.push((path, folder));
        }
        let disk = self.disk.clone();
        blocking(move || {
            disk.check_usable()?;
            // Also when all was in place: whoever put it there may have died before it synced.
            folders.sort_unstable_by(|a, b| a.0.parent().cmp(&b.0.parent()));
            folders.dedup_by(|a, b| a.0.parent() == b.0.parent());
            for (path, _) in &folders {
                path.parent().map_or(Ok(()), |target| disk.sync_outcome(target))?;
            }
            folders.first().map_or(Ok(()), |(_, folder)| disk.remove_folder(folder))
        })
        .await
    }

    async fn discard(&self, txn: &TxnContext, _: Option<&ObjectHandle>) -> Result<(), SinkError> {
        self.steps.pass(&ObjectStep::Discard { txn_id: txn.txn_id })?;
        // The handle names at most what is found: a crash may have left files it does not know.
        let folder = self.disk.path(&self.layout.txn_folder(&txn.client, txn.txn_id))?;
        let disk = self.disk.clone();
        blocking(move || {
            disk.check_usable()?;
            disk.remove_folder(&folder)
        })
        .await
    }

    async fn keys(&self, at_most: usize) -> Result<Option<Vec<Path>>, SinkError> {
        keys_under(&self.disk.store, &self.layout.root(), at_most).await
    }

    async fn staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        let folder = self.disk.path(&self.layout.client_folder(client))?;
        let client = client.clone();
        blocking(move || {
            if let Some(owner) = other_name(&folder)? {
                let folder = folder.display();
                return Err(SinkError::rejected(format!(
                    "{folder} is the directory of the client {owner}, not of {client}: this file system does not tell the \
                     two names apart; rename one of them, or give them different prefixes"
                )));
            }
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries.map_err(at("list", &folder))?,
            };
            let mut ids = Vec::new();
            for entry in entries {
                let name = entry.map_err(at("list", &folder))?.file_name();
                // What has another name is none of ours.
                ids.extend(name.to_str().and_then(|name| name.parse::<TxnId>().ok()));
            }
            ids.sort_unstable();
            Ok(ids)
        })
        .await
    }
}

impl Local {
    /// The staged file is gone: another committer has renamed it, or it is lost.
    async fn shown_by_another(&self, file: &ObjectFile) -> Result<bool, SinkError> {
        match self.look(file).await? {
            Found::Same => Ok(false),
            Found::Missing => Err(lost(&file.key)),
            Found::Different(why) => Err(not_as_staged(&file.key, OBJECT, &why)),
        }
    }
}

enum Moved {
    Now,
    NothingThere,
}

/// Renames a staged file to its target, whose folders may be missing. Syncs nothing, and so needs no descriptor: a rename that
/// is done can only fail to last where [`Local::settle`](Backend::settle) syncs it.
fn put_in_place(staged: &FsPath, target: &FsPath, is_first: bool) -> Result<Moved, SinkError> {
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let renamed = match fs::rename(staged, target) {
        Err(error) if missing(&error) => {
            target.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::rename(staged, target))
        }
        renamed => renamed,
    };
    match renamed {
        Ok(()) => Ok(Moved::Now),
        Err(error) if missing(&error) => Ok(Moved::NothingThere),
        Err(error) => {
            let error = at("rename", staged)(error);
            // With files moved before it the commit has happened in part.
            Err(if is_first { error.of_one_change() } else { error.into() })
        }
    }
}

/// A file being staged, and the number of its next part.
struct LocalUpload {
    disk: Arc<Disk>,
    steps: Steps,
    key: ObjectKey,
    staged: Path,
    state: Mutex<(usize, Box<dyn MultipartUpload>)>,
}

#[async_trait]
impl Upload for LocalUpload {
    async fn put(&self, part: usize, data: Bytes) -> Result<(), SinkError> {
        self.steps.pass(&ObjectStep::PutPart { key: &self.key.to_string(), part })?;
        let mut state = self.state.lock().await;
        if state.0 != part {
            return Err(SinkError::indeterminate(format!("part {part} of {} is out of order", self.key)));
        }
        state.0 = part.saturating_add(1);
        state.1.put_part(data.into()).await.map_err(failed("write", &self.staged))
    }

    async fn seal(&self, crc32: u32) -> Result<Staged, SinkError> {
        self.steps.pass(&ObjectStep::Seal { key: &self.key.to_string() })?;
        self.state.lock().await.1.complete().await.map_err(failed("sync", &self.staged))?;
        let (disk, path) = (self.disk.clone(), self.disk.path(&self.staged)?);
        blocking(move || Ok(path.parent().map_or(Ok(()), |folder| disk.sync_up(folder))?)).await?;
        Ok(Staged::File { crc32 })
    }
}
