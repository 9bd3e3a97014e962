//! What a store must offer: stage a file unseen, show it, remove it, and say what is there.

use std::{error::Error, fmt, io, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::{Error as StoreError, ObjectStore, path::Path};
use ratified::{ClientName, SinkError, TxnContext, TxnId, author::Found};
use tokio::sync::OnceCell;

use super::{
    handle::{ObjectFile, ObjectHandle, Staged},
    names::ObjectKey,
};

/// What is staged here, in texts.
pub(super) const OBJECT: &str = "object";

/// A step that changes the store and is about to be taken. For tests and drills, see
/// [`ObjectStoreSinkBuilder::on_step`](super::ObjectStoreSinkBuilder::on_step).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectStep<'a> {
    /// An upload, or a staged file, is begun.
    Create {
        /// The key that the object will have.
        key: &'a str,
    },
    /// The marker that names an upload is written.
    PutMarker {
        /// The key that the object will have.
        key: &'a str,
    },
    /// A part is staged.
    PutPart {
        /// The key that the object will have.
        key: &'a str,
        /// Which part, counted from 0.
        part: usize,
    },
    /// A staged file is completed and synced. Local directories only.
    Seal {
        /// The key that the object will have.
        key: &'a str,
    },
    /// A commit makes an object visible. With an index of 1 or more this lies between two objects of one commit.
    Reveal {
        /// Its key.
        key: &'a str,
        /// How many objects of this commit were visible before.
        index: usize,
    },
    /// A commit removes what is left in the staging area: markers, an empty directory.
    Settle {
        /// Whose commit.
        txn_id: TxnId,
    },
    /// An abort removes what is staged.
    Discard {
        /// Whose abort.
        txn_id: TxnId,
    },
    /// An abort removes the marker of an upload that it has ended.
    RemoveMarker {
        /// The key of the marker.
        key: &'a str,
    },
}

/// Is told each step; an error is taken for the step's own.
pub(super) type Watch = Arc<dyn Fn(&ObjectStep<'_>) -> io::Result<()> + Send + Sync>;

/// The steps of a sink and who watches them.
#[derive(Clone, Default)]
pub(super) struct Steps(Option<Watch>);

impl Steps {
    pub(super) fn new(watch: Option<Watch>) -> Self {
        Self(watch)
    }

    pub(super) fn pass(&self, step: &ObjectStep<'_>) -> Result<(), SinkError> {
        self.0.as_ref().map_or(Ok(()), |watch| watch(step)).map_err(SinkError::indeterminate)
    }
}

/// A file that is to be staged.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) key: ObjectKey,
    pub(super) client: ClientName,
    pub(super) content_type: Arc<str>,
}

/// One kind of store.
#[async_trait]
pub(super) trait Backend: Send + Sync + 'static {
    /// Where everything of the sink is.
    fn place(&self) -> ratified::Place;

    /// How many parts of a transaction may be on their way at once, at most. With one they arrive in order.
    fn max_parallel_parts(&self) -> usize;

    /// Begins to stage a file, so that it can be found by its transaction before it holds anything.
    async fn create(&self, place: &Place) -> Result<Box<dyn Upload>, SinkError>;

    /// How what is at the key of a file compares to it. A look that fails says nothing.
    async fn look(&self, file: &ObjectFile) -> Result<Found, SinkError>;

    /// Makes a file visible that was not a moment ago; false if somebody else did.
    async fn reveal(&self, txn: &TxnContext, file: &ObjectFile, index: usize) -> Result<bool, SinkError>;

    /// All files of a commit are visible: makes that last, and removes what is left in the staging area.
    async fn settle(&self, txn: &TxnContext, handle: &ObjectHandle) -> Result<(), SinkError>;

    /// Removes all that is staged under this id, known by the handle or not.
    async fn discard(&self, txn: &TxnContext, handle: Option<&ObjectHandle>) -> Result<(), SinkError>;

    /// Every key under the prefix, committed or not; or `None` if there are more than so many.
    async fn keys(&self, at_most: usize) -> Result<Option<Vec<Path>>, SinkError>;

    /// The transactions of a client that have something staged.
    async fn staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError>;
}

/// A file being staged.
#[async_trait]
pub(super) trait Upload: Send + Sync {
    /// Stages a part. All but the last have one length.
    async fn put(&self, part: usize, data: Bytes) -> Result<(), SinkError>;

    /// All parts were put: makes them last.
    async fn seal(&self, crc32: u32) -> Result<Staged, SinkError>;
}

/// An upload that is begun by its first part, whichever task brings it.
pub(super) struct LazyUpload {
    backend: Arc<dyn Backend>,
    place: Place,
    upload: OnceCell<Box<dyn Upload>>,
}

impl LazyUpload {
    pub(super) fn new(backend: Arc<dyn Backend>, place: Place) -> Self {
        Self { backend, place, upload: OnceCell::new() }
    }

    pub(super) fn key(&self) -> &ObjectKey {
        &self.place.key
    }

    pub(super) async fn put(&self, part: usize, data: Bytes) -> Result<(), SinkError> {
        self.begun().await?.put(part, data).await
    }

    pub(super) async fn seal(&self, crc32: u32) -> Result<Staged, SinkError> {
        self.begun().await?.seal(crc32).await
    }

    async fn begun(&self) -> Result<&dyn Upload, SinkError> {
        self.upload.get_or_try_init(|| self.backend.create(&self.place)).await.map(|upload| &**upload)
    }
}

/// The keys under a folder, unless there are more than so many.
pub(super) async fn keys_under(
    store: &impl ObjectStore,
    folder: &Path,
    at_most: usize,
) -> Result<Option<Vec<Path>>, SinkError> {
    let mut listed = store.list(Some(folder));
    let mut keys = Vec::new();
    while let Some(object) = listed.next().await {
        if keys.len() == at_most {
            return Ok(None);
        }
        keys.push(object.map_err(failed("list", folder))?.location);
    }
    Ok(Some(keys))
}

/// What a store could not do, and where.
#[derive(Debug)]
struct At {
    action: &'static str,
    path: String,
    source: StoreError,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.action, self.path)
    }
}

impl Error for At {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// A failure of a store is taken for passing and for possibly done, unless the store cannot do it at all.
pub(super) fn failed(action: &'static str, path: &impl ToString) -> impl FnOnce(StoreError) -> SinkError {
    let path = path.to_string();
    move |source| {
        let never = matches!(
            source,
            StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } | StoreError::InvalidPath { .. }
        );
        let error = At { action, path, source };
        if never { SinkError::rejected(error) } else { SinkError::indeterminate(error) }
    }
}

pub(super) fn staged_elsewhere(key: &ObjectKey) -> SinkError {
    SinkError::rejected(format!("{key} was staged in another kind of store: open the sink over the one it began with"))
}
