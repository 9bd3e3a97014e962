//! Stages records in hidden files.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{File, OpenOptions},
    io::Write as _,
    mem,
    sync::Arc,
};

use async_trait::async_trait;
use ratified_protocol::{ClientName, TxnId};

use super::{
    config::Settings,
    disk::{Disk, FileStep, IoAt, at, blocking},
    handle::{FileHandle, Part},
    names::{PartName, TargetName},
};
use crate::{
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
    current: Option<(TxnId, Stage)>,
    staged_bytes: u64,
}

enum Stage {
    Open(Box<Staging>),
    Prepared(Vec<Part>),
    Failed(SinkError),
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
            blocking(move || disk.make_dirs(&client).map_err(SinkError::determinate)).await?;
            self.ready = Some(txn.client.clone());
        }
        let staging = Staging { txn: txn.clone(), files: BTreeMap::new(), buffered: 0 };
        self.current = Some((txn.txn_id, Stage::Open(Box::new(staging))));
        Ok(FileHandle { parts: Vec::new() })
    }

    async fn write(&mut self, txn: &TxnContext, _: &mut FileHandle, records: Vec<R>) -> Result<(), SinkError> {
        let staging = match self.take(txn)? {
            Stage::Open(staging) => staging,
            stage => {
                let error = SinkError::rejected("a record after pre_commit");
                return self.put(txn, Ok(stage)).and(Err(error));
            }
        };
        let stage = self.stage(staging, records).await.map(Stage::Open);
        self.put(txn, stage)
    }

    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut FileHandle) -> Result<(), SinkError> {
        let parts = match self.take(txn)? {
            Stage::Open(staging) => {
                let disk = self.disk.clone();
                // Sticky and never determinate: a repeated sync would report success without having written.
                blocking(move || staging.seal(&disk).map_err(SinkError::indeterminate)).await
            }
            Stage::Prepared(parts) => Ok(parts),
            Stage::Failed(error) => Err(error),
        };
        if let Ok(parts) = &parts {
            handle.parts.clone_from(parts);
        }
        self.put(txn, parts.map(Stage::Prepared))
    }

    fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }
}

impl<R: Send + 'static> FileWriter<R> {
    pub(super) fn new(settings: Arc<Settings<R>>, disk: Arc<Disk>) -> Self {
        Self { settings, disk, ready: None, current: None, staged_bytes: 0 }
    }

    /// Takes the transaction out, so that a call that is dropped on its way leaves a failed one behind.
    fn take(&mut self, txn: &TxnContext) -> Result<Stage, SinkError> {
        let Some((txn_id, stage)) = self.current.as_mut().filter(|(txn_id, _)| *txn_id == txn.txn_id) else {
            return Err(SinkError::rejected(format!("{} was not begun by this writer", txn.txn_id)));
        };
        if let Stage::Failed(error) = stage {
            return Err(error.clone());
        }
        let dropped = SinkError::indeterminate(format!("an earlier call for {txn_id} was given up half-way"));
        Ok(mem::replace(stage, Stage::Failed(dropped)))
    }

    fn put(&mut self, txn: &TxnContext, stage: Result<Stage, SinkError>) -> Result<(), SinkError> {
        let error = stage.as_ref().err().cloned();
        self.current = Some((txn.txn_id, stage.unwrap_or_else(Stage::Failed)));
        error.map_or(Ok(()), Err)
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

    fn flush(&mut self, disk: &Disk) -> Result<(), IoAt> {
        for file in self.files.values_mut() {
            file.flush(disk, &self.txn.client)?;
        }
        self.buffered = 0;
        Ok(())
    }

    /// Makes the files last, and their names.
    fn seal(mut self, disk: &Disk) -> Result<Vec<Part>, IoAt> {
        self.flush(disk)?;
        let dir = disk.staging_dir(&self.txn.client);
        let mut parts = Vec::with_capacity(self.files.len());
        for file in mem::take(&mut self.files).into_values() {
            parts.push(file.seal(disk, &self.txn.client)?);
        }
        if !parts.is_empty() {
            disk.sync_dir(&dir)?;
        }
        Ok(parts)
    }
}

impl StagedFile {
    fn flush(&mut self, disk: &Disk, client: &ClientName) -> Result<(), IoAt> {
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

    fn seal(self, disk: &Disk, client: &ClientName) -> Result<Part, IoAt> {
        let name = self.name.to_string();
        let path = disk.staging_dir(client).join(&name);
        let synced = disk.step(FileStep::SyncFile { file: &name });
        synced.and_then(|()| self.file.map_or(Ok(()), |file| file.sync_all())).map_err(at("sync", &path))?;
        Ok(Part { file: self.name, bytes: self.bytes, crc32: self.hasher.finalize() })
    }
}
