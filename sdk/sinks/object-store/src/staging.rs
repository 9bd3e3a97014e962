//! The files of an open transaction.

use std::{collections::BTreeMap, mem, sync::Arc};

use bytes::Bytes;
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::{
    backend::{Backend, LazyUpload, Place},
    config::Settings,
    format::Encoder,
    handle::{ObjectFile, ObjectHandle},
    names::{FileNumber, ObjectKey},
};
use ratified::{SinkError, TxnContext, author::TargetName};

/// Most parts of one file: what S3 allows.
const MAX_PARTS: usize = 10_000;

/// Dropped, it gives up what is on its way.
pub(super) struct Staging<R> {
    settings: Arc<Settings<R>>,
    backend: Arc<dyn Backend>,
    txn: TxnContext,
    open: BTreeMap<TargetName, OpenFile<R>>,
    closed: Vec<ClosedFile>,
    uploads: JoinSet<Result<(), SinkError>>,
    begun: u32,
}

struct OpenFile<R> {
    encoder: Box<dyn Encoder<R>>,
    since: Instant,
    output: Output,
}

/// The bytes of a file on their way into parts.
struct Output {
    upload: Arc<LazyUpload>,
    /// Encoded and not yet sent.
    buffer: Vec<u8>,
    parts: usize,
    bytes: u64,
    hasher: crc32fast::Hasher,
}

struct ClosedFile {
    upload: Arc<LazyUpload>,
    bytes: u64,
    crc32: u32,
}

impl<R: 'static> Staging<R> {
    pub(super) fn new(settings: Arc<Settings<R>>, backend: Arc<dyn Backend>, txn: TxnContext) -> Self {
        Self { settings, backend, txn, open: BTreeMap::new(), closed: Vec::new(), uploads: JoinSet::new(), begun: 0 }
    }

    /// Takes a record; says how many bytes were encoded by it.
    pub(super) async fn push(&mut self, record: R) -> Result<usize, SinkError> {
        let settings = self.settings.clone();
        let target = (settings.route)(&record);
        if let Some(full) = self.open.get(&target)
            && full.is_full(&settings)
        {
            self.close(&target).await?;
        }
        if !self.open.contains_key(&target) {
            let file = self.open_file(&target)?;
            self.open.insert(target.clone(), file);
        }
        let Some(file) = self.open.get_mut(&target) else { return Ok(0) };
        let output = &mut file.output;
        let before = output.buffer.len();
        file.encoder.write(record, &mut output.buffer).map_err(SinkError::Rejected)?;
        let added = output.buffer.len().saturating_sub(before);
        while let Some((upload, part, data)) = self.full_part_of(&target) {
            self.send(upload, part, data).await?;
        }
        Ok(added)
    }

    fn full_part_of(&mut self, target: &TargetName) -> Option<(Arc<LazyUpload>, usize, Bytes)> {
        let output = &mut self.open.get_mut(target)?.output;
        let (part, data) = output.full_part(self.settings.part_bytes)?;
        Some((output.upload.clone(), part, data))
    }

    /// Ends every file, and waits until all is staged.
    pub(super) async fn seal(&mut self) -> Result<ObjectHandle, SinkError> {
        let targets: Vec<_> = self.open.keys().cloned().collect();
        for target in targets {
            self.close(&target).await?;
        }
        while let Some(sent) = self.uploads.join_next().await {
            arrived(sent)?;
        }
        let mut files = Vec::with_capacity(self.closed.len());
        for ClosedFile { upload, bytes, crc32 } in &self.closed {
            let staged = upload.seal(*crc32).await?;
            files.push(ObjectFile { key: upload.key().clone(), bytes: *bytes, staged });
        }
        files.sort_unstable_by_key(|file| file.key.number());
        ObjectHandle::fitting(files)
    }

    /// Waits until nothing is on its way any longer, however it ends: what arrived behind an abort would stay staged. Takes
    /// as long as the store's timeouts allow.
    pub(super) async fn drain(&mut self) {
        while self.uploads.join_next().await.is_some() {}
    }

    fn open_file(&mut self, target: &TargetName) -> Result<OpenFile<R>, SinkError> {
        let Settings { max_targets, max_files, format, layout, extension, .. } = &*self.settings;
        if self.open.len() >= *max_targets {
            let why = format!("{target} would be more than {max_targets} targets in one transaction");
            return Err(SinkError::rejected(why));
        }
        if self.begun >= *max_files {
            let why = format!(
                "more than {max_files} files in one transaction: raise file_bytes, file_age or max_files, or take \
                 checkpoints more often"
            );
            return Err(SinkError::rejected(why));
        }
        let number = FileNumber::new(self.begun);
        self.begun = self.begun.saturating_add(1);
        let key = ObjectKey::new(layout, &self.txn, target.clone(), number, extension.clone());
        let place = Place { key, client: self.txn.client.clone(), content_type: format.content_type().into() };
        let output = Output {
            upload: Arc::new(LazyUpload::new(self.backend.clone(), place)),
            buffer: Vec::new(),
            parts: 0,
            bytes: 0,
            hasher: crc32fast::Hasher::new(),
        };
        Ok(OpenFile { encoder: format.encoder().map_err(SinkError::Rejected)?, since: Instant::now(), output })
    }

    async fn close(&mut self, target: &TargetName) -> Result<(), SinkError> {
        let Some(OpenFile { encoder, mut output, .. }) = self.open.remove(target) else { return Ok(()) };
        encoder.finish(&mut output.buffer).map_err(SinkError::Rejected)?;
        while let Some((part, data)) = output.full_part(self.settings.part_bytes) {
            self.send(output.upload.clone(), part, data).await?;
        }
        if let Some((part, data)) = output.last_part() {
            self.send(output.upload.clone(), part, data).await?;
        }
        self.closed.push(ClosedFile { upload: output.upload, bytes: output.bytes, crc32: output.hasher.finalize() });
        Ok(())
    }

    /// Sends a part on its way, once there is room.
    async fn send(&mut self, upload: Arc<LazyUpload>, part: usize, data: Bytes) -> Result<(), SinkError> {
        if part >= MAX_PARTS {
            let key = upload.key();
            return Err(SinkError::rejected(format!("{key} has more than {MAX_PARTS} parts: raise part_bytes")));
        }
        while self.uploads.len() >= self.backend.max_parallel_parts() {
            let Some(sent) = self.uploads.join_next().await else { break };
            arrived(sent)?;
        }
        self.uploads.spawn(async move { upload.put(part, data).await });
        Ok(())
    }
}

impl<R> OpenFile<R> {
    fn is_full(&self, settings: &Settings<R>) -> bool {
        let unsent = self.output.buffer.len().saturating_add(self.encoder.held_bytes());
        self.output.bytes.saturating_add(unsent as u64) >= settings.file_bytes
            || self.since.elapsed() >= settings.file_age
    }
}

impl Output {
    /// All parts but the last have one length: some stores insist on it.
    fn full_part(&mut self, part_bytes: usize) -> Option<(usize, Bytes)> {
        if self.buffer.len() < part_bytes {
            return None;
        }
        let rest = self.buffer.split_off(part_bytes);
        Some(self.take_part(rest))
    }

    /// What is left. A file has at least one part.
    fn last_part(&mut self) -> Option<(usize, Bytes)> {
        (!self.buffer.is_empty() || self.parts == 0).then(|| self.take_part(Vec::new()))
    }

    fn take_part(&mut self, rest: Vec<u8>) -> (usize, Bytes) {
        let data = mem::replace(&mut self.buffer, rest);
        self.hasher.update(&data);
        self.bytes = self.bytes.saturating_add(data.len() as u64);
        let part = self.parts;
        self.parts = part.saturating_add(1);
        (part, data.into())
    }
}

fn arrived(sent: Result<Result<(), SinkError>, JoinError>) -> Result<(), SinkError> {
    sent.map_err(SinkError::indeterminate)?
}
