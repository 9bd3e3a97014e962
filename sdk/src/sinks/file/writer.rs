//! Stages records in hidden files.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    mem,
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use ratified_protocol::ClientName;

use super::{
    config::Settings,
    disk::{Disk, FileStep},
    handle::{FileHandle, Part},
    names::PartName,
};
use crate::{
    author::{Current, FileError, Stage, TargetName, at, blocking},
    error::SinkError,
    sink::{SinkWriter, TxnContext},
};

/// Stages one transaction after the other. Any failure is kept: every later call for that transaction tells it again. A
/// `write` or `pre_commit` whose future was dropped runs to its end, and counts as failed.
pub struct FileWriter<R> {
    settings: Arc<Settings<R>>,
    disk: Arc<Disk>,
    /// Whose directories are known to exist.
    ready: Option<ClientName>,
    current: Current<Box<Staging>, Vec<Part>>,
    staged_bytes: u64,
}

/// The files of an open transaction.
struct Staging {
    txn: TxnContext,
    files: BTreeMap<TargetName, StagedFile>,
    buffered: usize,
}

struct StagedFile {
    name: PartName,
    file: Option<File>,
    buffer: Vec<u8>,
    bytes: u64,
    hasher: crc32fast::Hasher,
}

impl<R> fmt::Debug for FileWriter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWriter").field("disk", &self.disk).finish_non_exhaustive()
    }
}

#[async_trait]
impl<R: Send + 'static> SinkWriter for FileWriter<R> {
    type Record = R;
    type Handle = FileHandle;

    /// # Errors
    /// A directory could not be made; nothing is staged.
    async fn begin(&mut self, txn: &TxnContext) -> Result<FileHandle, SinkError> {
        self.disk.check_usable()?;
        if self.ready.as_ref() != Some(&txn.client) {
            let (disk, client) = (self.disk.clone(), txn.client.clone());
            let prepared = move || disk.make_dirs(&client).and_then(|()| disk.try_to_move(&client));
            blocking(move || prepared().map_err(SinkError::determinate)).await?;
            self.ready = Some(txn.client.clone());
        }
        let staging = Staging { txn: txn.clone(), files: BTreeMap::new(), buffered: 0 };
        self.current.begin(txn, Box::new(staging));
        Ok(FileHandle::default())
    }

    async fn write(&mut self, txn: &TxnContext, _: &mut FileHandle, records: Vec<R>) -> Result<(), SinkError> {
        let staging = self.current.take_open(txn)?;
        let staged = self.stage(staging, records).await;
        self.current.put(staged.map(Stage::Open))
    }

    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut FileHandle) -> Result<(), SinkError> {
        let parts = match self.current.take(txn)? {
            Stage::Open(staging) => {
                let disk = self.disk.clone();
                // Sticky and never determinate: a repeated sync would report success without having written.
                blocking(move || staging.seal(&disk).map_err(SinkError::indeterminate)).await
            }
            Stage::Prepared(parts) => Ok(parts),
        };
        if let Ok(parts) = &parts {
            handle.parts.clone_from(parts);
        }
        self.current.put(parts.map(Stage::Prepared))
    }

    fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }
}

impl<R: Send + 'static> FileWriter<R> {
    pub(super) fn new(settings: Arc<Settings<R>>, disk: Arc<Disk>) -> Self {
        Self { settings, disk, ready: None, current: Current::default(), staged_bytes: 0 }
    }

    async fn stage(&mut self, mut staging: Box<Staging>, records: Vec<R>) -> Result<Box<Staging>, SinkError> {
        for record in records {
            let added = staging.push(&self.settings, &record)?;
            drop(record);
            self.staged_bytes = self.staged_bytes.saturating_add(added as u64);
            if staging.buffered >= self.settings.buffer_bytes {
                let disk = self.disk.clone();
                staging = blocking(move || {
                    staging.flush(&disk).map_err(SinkError::indeterminate)?;
                    Ok(staging)
                })
                .await?;
            }
        }
        Ok(staging)
    }
}

impl Staging {
    /// Buffers a record; says how many bytes it has.
    fn push<R>(&mut self, settings: &Settings<R>, record: &R) -> Result<usize, SinkError> {
        let target = (settings.route)(record);
        if !self.files.contains_key(&target) && self.files.len() >= settings.max_targets {
            let limit = settings.max_targets;
            return Err(SinkError::rejected(format!("{target} would be more than {limit} targets in one transaction")));
        }
        let file = self.files.entry(target.clone()).or_insert_with(|| StagedFile {
            name: PartName::new(&self.txn, target, settings.extension.clone()),
            file: None,
            buffer: Vec::new(),
            bytes: 0,
            hasher: crc32fast::Hasher::new(),
        });
        let before = file.buffer.len();
        (settings.encode)(record, &mut file.buffer).map_err(SinkError::Rejected)?;
        let added = file.buffer.len().saturating_sub(before);
        if added > settings.max_record_bytes {
            let limit = settings.max_record_bytes;
            return Err(SinkError::rejected(format!("a record of {added} bytes is longer than {limit}")));
        }
        self.buffered = self.buffered.saturating_add(added);
        Ok(added)
    }

    fn flush(&mut self, disk: &Disk) -> Result<(), FileError> {
        for file in self.files.values_mut() {
            file.flush(disk, &self.txn.client)?;
        }
        self.buffered = 0;
        Ok(())
    }

    /// Makes the files last, and their names.
    fn seal(mut self, disk: &Disk) -> Result<Vec<Part>, FileError> {
        self.flush(disk)?;
        let dir = disk.staging_dir(&self.txn.client);
        let files: Vec<_> = mem::take(&mut self.files).into_values().collect();
        for file in &files {
            file.sync(disk, &dir)?;
        }
        if !files.is_empty() {
            disk.sync_dir(&dir)?;
        }
        files.into_iter().map(|file| file.seal(&dir)).collect()
    }
}

impl StagedFile {
    fn flush(&mut self, disk: &Disk, client: &ClientName) -> Result<(), FileError> {
        let name = self.name.to_string();
        let path = disk.staging_dir(client).join(&name);
        // Freed, not kept: the buffers of all targets together stay within their bound.
        let buffer = mem::take(&mut self.buffer);
        if self.file.is_some() && buffer.is_empty() {
            return Ok(());
        }
        disk.step(FileStep::Write { file: &name }).map_err(at("write", &path))?;
        let mut file = match self.file.take() {
            Some(file) => file,
            // Ids are never reused: a file that is there was not staged by this writer.
            None => OpenOptions::new().write(true).create_new(true).open(&path).map_err(at("make", &path))?,
        };
        file.write_all(&buffer).map_err(at("write", &path))?;
        self.hasher.update(&buffer);
        self.bytes = self.bytes.saturating_add(buffer.len() as u64);
        self.file = Some(file);
        Ok(())
    }

    fn sync(&self, disk: &Disk, dir: &Path) -> Result<(), FileError> {
        let name = self.name.to_string();
        let synced = disk.step(FileStep::SyncFile { file: &name });
        let synced = synced.and_then(|()| self.file.as_ref().map_or(Ok(()), File::sync_all));
        synced.map_err(at("sync", &dir.join(name)))
    }

    /// The part, if it is still where a commit will look for it: a directory may have been removed or moved meanwhile.
    fn seal(self, dir: &Path) -> Result<Part, FileError> {
        let path = dir.join(self.name.to_string());
        self.file.map_or(Ok(()), |file| is_at(&file, &path)).map_err(at("find what was staged at", &path))?;
        Ok(Part { file: self.name, bytes: self.bytes, crc32: self.hasher.finalize() })
    }
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;

    let (ours, there) = (file.metadata()?, fs::symlink_metadata(path)?);
    if (ours.dev(), ours.ino()) == (there.dev(), there.ino()) {
        return Ok(());
    }
    Err(io::Error::other("another file is there"))
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> io::Result<()> {
    fs::symlink_metadata(path).map(drop)
}
