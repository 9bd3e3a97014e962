//! Stores with multipart uploads: S3 and what speaks its protocol. An upload is invisible until it is completed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{
    Attribute, Attributes, Error as StoreError, GetOptions, MultipartId, ObjectStore, ObjectStoreExt,
    PutMultipartOptions,
    multipart::{MultipartStore, PartId},
    path::Path,
};
use ratified::{
    ClientName, SinkError, TxnContext, TxnId,
    author::{Found, Version, lost, not_as_staged},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    backend::{Backend, OBJECT, ObjectStep, Place, Steps, Upload, failed, keys_under, staged_elsewhere},
    handle::{ObjectFile, ObjectHandle, Staged},
    names::{FileNumber, Layout, ObjectKey},
};

const CLIENT: &str = "ratified-client";
const TXN_ID: &str = "ratified-txn-id";
/// Names the upload that made an object: what proves a commit.
const MARK: &str = "ratified-mark";
/// How often a store must say that an upload is gone while there is no object: the sentence stops the job.
const SENTENCES: usize = 3;
const BETWEEN_SENTENCES: Duration = Duration::from_millis(200);
/// Longest upload id and longest part tag that are taken.
const MAX_TAG_BYTES: usize = 1024;
/// Longest marker that is read.
const MAX_MARKER_BYTES: u64 = 16 * 1024;

/// A store with multipart uploads.
pub(super) struct Multipart<S> {
    store: Arc<S>,
    layout: Layout,
    steps: Steps,
    max_parallel_parts: usize,
}

/// What tells an abort without a handle which upload to end.
#[derive(Serialize, Deserialize)]
struct Marker {
    version: Version<1>,
    key: ObjectKey,
    upload: MultipartId,
}

impl<S: ObjectStore + MultipartStore> Multipart<S> {
    pub(super) fn new(store: S, layout: Layout, steps: Steps, max_parallel_parts: usize) -> Self {
        Self { store: Arc::new(store), layout, steps, max_parallel_parts }
    }

    async fn abort_upload(&self, key: &ObjectKey, id: &MultipartId) -> Result<(), SinkError> {
        match self.store.abort_multipart(&key.path(), id).await {
            // Ended before, by an abort or by a commit.
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("abort the upload of", key)(error)),
        }
    }

    /// `None` if somebody else has removed it.
    async fn read_marker(&self, path: &Path) -> Result<Option<Marker>, SinkError> {
        let found = match self.store.get(path).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            found => found.map_err(failed("read", path))?,
        };
        let unknown = |why: &str| SinkError::rejected(format!("{path} is not a marker of this sink: {why}"));
        if found.meta.size > MAX_MARKER_BYTES {
            return Err(unknown("it is too long"));
        }
        let content = found.bytes().await.map_err(failed("read", path))?;
        serde_json::from_slice(&content).map(Some).map_err(|error| unknown(&error.to_string()))
    }

    /// Whether the marker of a file is there: it is written before the first part, and removed when the upload has ended.
    async fn is_marked(&self, txn: &TxnContext, key: &ObjectKey) -> Result<bool, SinkError> {
        let marker = key.staged(&txn.client);
        match self.store.head(&marker).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(failed("look at", &marker)(error)),
        }
    }

    async fn remove(&self, markers: Vec<Path>) -> Result<(), SinkError> {
        let mut removed = self.store.delete_stream(stream::iter(markers.into_iter().map(Ok)).boxed());
        while let Some(result) = removed.next().await {
            match result {
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(failed("remove a marker in", &self.layout.staging())(error)),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl<S: ObjectStore + MultipartStore> Backend for Multipart<S> {
    fn place(&self) -> ratified::Place {
        ratified::Place::named(format!("{} under {:?}", self.store, self.layout.root().as_ref()))
    }

    fn max_parallel_parts(&self) -> usize {
        self.max_parallel_parts
    }

    async fn create(&self, place: &Place) -> Result<Box<dyn Upload>, SinkError> {
        let Place { key, client, content_type } = place;
        let (path, name) = (key.path(), key.to_string());
        let mark = Uuid::new_v4();
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, content_type.to_string().into());
        attributes.insert(Attribute::Metadata(CLIENT.into()), client.to_string().into());
        attributes.insert(Attribute::Metadata(TXN_ID.into()), key.txn_id().to_string().into());
        attributes.insert(Attribute::Metadata(MARK.into()), mark.to_string().into());
        self.steps.pass(&ObjectStep::Create { key: &name })?;
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let id = self.store.create_multipart_opts(&path, options).await.map_err(failed("begin an upload of", key))?;
        // Before the first part, so that what is orphaned by a crash in between holds nothing.
        let marker = Marker { version: Version, key: key.clone(), upload: bounded(&id)?.to_owned() };
        let content = serde_json::to_vec(&marker).map_err(SinkError::rejected)?;
        self.steps.pass(&ObjectStep::PutMarker { key: &name })?;
        if let Err(error) = self.store.put(&key.staged(client), content.into()).await {
            // As much as can be done: without its marker only a lifecycle rule finds it.
            let _ = self.abort_upload(key, &id).await;
            return Err(failed("write the marker of", key)(error));
        }
        let upload = MultipartUpload {
            store: self.store.clone(),
            steps: self.steps.clone(),
            key: key.clone(),
            id,
            mark,
            tags: Mutex::default(),
        };
        Ok(Box::new(upload))
    }

    async fn look(&self, file: &ObjectFile) -> Result<Found, SinkError> {
        let Staged::Upload { mark, .. } = &file.staged else { return Err(staged_elsewhere(&file.key)) };
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = match self.store.get_opts(&file.key.path(), options).await {
            Err(StoreError::NotFound { .. }) => return Ok(Found::Missing),
            found => found.map_err(failed("look at", &file.key))?,
        };
        let attribute =
            |name: &'static str| found.attributes.get(&Attribute::Metadata(name.into())).map(|v| v.to_string());
        let why = match attribute(MARK) {
            None => "it has no mark of this sink in its metadata".to_owned(),
            Some(other) if other != mark.to_string() => {
                let [client, txn] = [CLIENT, TXN_ID].map(|name| attribute(name).unwrap_or_default());
                format!("it was made by another upload, of transaction {txn} of {client}")
            }
            Some(_) if found.meta.size != file.bytes => {
                format!("it has {} bytes, not {}", found.meta.size, file.bytes)
            }
            Some(_) => return Ok(Found::Same),
        };
        Ok(Found::Different(why))
    }

    /// Whether it is done is decided by looking, never by the answer: stores answer a repeated completion with success,
    /// `NoSuchUpload`, `InternalError` or `AccessDenied`, and success may mean an object that was removed since.
    async fn reveal(&self, txn: &TxnContext, file: &ObjectFile, index: usize) -> Result<bool, SinkError> {
        let ObjectFile { key, staged, .. } = file;
        let Staged::Upload { id, parts, .. } = staged else { return Err(staged_elsewhere(key)) };
        for sentence in 1..=SENTENCES {
            self.steps.pass(&ObjectStep::Reveal { key: &key.to_string(), index })?;
            let parts = parts.iter().map(|tag| PartId { content_id: tag.clone() }).collect();
            let answer = self.store.complete_multipart(&key.path(), id, parts).await;
            match self.look(file).await? {
                Found::Same => return Ok(answer.is_ok()),
                Found::Different(why) => return Err(not_as_staged(key, OBJECT, &why)),
                Found::Missing => {}
            }
            match answer {
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                Err(error) if self.is_marked(txn, key).await? => {
                    return Err(failed("complete the upload of", key)(error));
                }
                // An abort or a commit has ended it, whatever the store calls that.
                Err(_) => {}
            }
            // Another committer may have ended the upload and not have shown the object yet.
            if sentence < SENTENCES {
                tokio::time::sleep(BETWEEN_SENTENCES).await;
            }
        }
        Err(lost(key))
    }

    async fn settle(&self, txn: &TxnContext, handle: &ObjectHandle) -> Result<(), SinkError> {
        self.steps.pass(&ObjectStep::Settle { txn_id: txn.txn_id })?;
        self.remove(handle.files.iter().map(|file| file.key.staged(&txn.client)).collect()).await
    }

    async fn discard(&self, txn: &TxnContext, handle: Option<&ObjectHandle>) -> Result<(), SinkError> {
        let folder = self.layout.txn_folder(&txn.client, txn.txn_id);
        let listed = self.store.list(Some(&folder)).map_ok(|object| object.location).try_collect::<Vec<_>>().await;
        for path in listed.map_err(failed("list", &folder))? {
            let Some(marker) = self.read_marker(&path).await? else { continue };
            if !marker.key.belongs_to(txn) {
                return Err(SinkError::rejected(format!(
                    "{path} names {}, which is not of {}",
                    marker.key, txn.txn_id
                )));
            }
            self.steps.pass(&ObjectStep::Discard { txn_id: txn.txn_id })?;
            self.abort_upload(&marker.key, &marker.upload).await?;
            self.steps.pass(&ObjectStep::RemoveMarker { key: path.as_ref() })?;
            self.remove(vec![path]).await?;
        }
        for file in handle.iter().flat_map(|handle| &handle.files) {
            if let Staged::Upload { id, .. } = &file.staged {
                // Without a marker it has ended, unless a stranger removed the marker: then this is all that can be done.
                let _ = self.abort_upload(&file.key, id).await;
            }
        }
        Ok(())
    }

    async fn keys(&self, at_most: usize) -> Result<Option<Vec<Path>>, SinkError> {
        keys_under(&*self.store, &self.layout.root(), at_most).await
    }

    async fn staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        let folder = self.layout.client_folder(client);
        let mut ids = std::collections::BTreeSet::new();
        let mut listed = self.store.list(Some(&folder));
        while let Some(object) = listed.next().await {
            let location = object.map_err(failed("list", &folder))?.location;
            let Some(rest) = location.prefix_match(&folder) else { continue };
            let names: Vec<String> = rest.map(|part| part.as_ref().to_owned()).collect();
            // What has another name is none of ours.
            if let [txn_id, number] = names.as_slice()
                && FileNumber::parse(number).is_some()
            {
                ids.extend(txn_id.parse::<TxnId>());
            }
        }
        Ok(ids.into_iter().collect())
    }
}

/// An upload on its way.
struct MultipartUpload<S> {
    store: Arc<S>,
    steps: Steps,
    key: ObjectKey,
    id: MultipartId,
    mark: Uuid,
    tags: Mutex<BTreeMap<usize, String>>,
}

#[async_trait]
impl<S: ObjectStore + MultipartStore> Upload for MultipartUpload<S> {
    async fn put(&self, part: usize, data: Bytes) -> Result<(), SinkError> {
        self.steps.pass(&ObjectStep::PutPart { key: &self.key.to_string(), part })?;
        let put = self.store.put_part(&self.key.path(), &self.id, part, data.into()).await;
        let tag = put.map_err(failed("stage a part of", &self.key))?.content_id;
        bounded(&tag)?;
        self.tags.lock().unwrap_or_else(PoisonError::into_inner).insert(part, tag);
        Ok(())
    }

    async fn seal(&self, _: u32) -> Result<Staged, SinkError> {
        let tags = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Staged::Upload { id: self.id.clone(), mark: self.mark, parts: tags.values().cloned().collect() })
    }
}

fn bounded(tag: &str) -> Result<&str, SinkError> {
    if tag.len() <= MAX_TAG_BYTES {
        Ok(tag)
    } else {
        Err(SinkError::rejected("the store's upload id or part tag is too long"))
    }
}
