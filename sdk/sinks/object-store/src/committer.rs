//! Makes staged objects visible, or removes them.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use ratified::{
    ClientName, Committed, SinkCommitter, SinkError, TxnContext, TxnId,
    author::{Found, Newest, not_as_staged},
};

use super::{
    backend::{Backend, OBJECT},
    handle::{ObjectFile, ObjectHandle},
    names::{Layout, ObjectKey},
};

/// How many objects are looked at at once.
const LOOKS_IN_FLIGHT: usize = 8;

/// How many objects are listed at most to find out what is visible: a hundred requests.
pub const MAX_LISTED_OBJECTS: usize = 100_000;

/// Applies outcomes to objects.
#[derive(Clone)]
pub struct ObjectCommitter {
    backend: Arc<dyn Backend>,
    layout: Layout,
}

impl fmt::Debug for ObjectCommitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectCommitter").finish_non_exhaustive()
    }
}

#[async_trait]
impl SinkCommitter for ObjectCommitter {
    type Handle = ObjectHandle;

    /// [`Committed::Already`] only if every object was found in place, as it was staged; those that a crash left between
    /// are completed.
    ///
    /// # Errors
    /// [`SinkError::Rejected`] names an object that is neither staged nor visible, that is not as it was staged, or that is
    /// in the place of another; the caller must find out who removed or replaced it. An object that cannot be looked at is
    /// retried: the caller must mend what the cause names, credentials for example.
    async fn commit(&self, txn: &TxnContext, handle: &ObjectHandle) -> Result<Committed, SinkError> {
        // Everything is looked at before anything is shown: a stranger's object in the place of one stops all.
        let found = self.look(txn, handle).await?;
        let mut committed = Committed::Already;
        for (index, (file, is_visible)) in handle.files.iter().zip(found).enumerate() {
            if !is_visible && self.backend.reveal(txn, file, index).await? {
                committed = Committed::Now;
            }
        }
        if !handle.files.is_empty() {
            self.backend.settle(txn, handle).await?;
        }
        Ok(committed)
    }

    async fn abort(&self, txn: &TxnContext, handle: Option<&ObjectHandle>) -> Result<(), SinkError> {
        self.backend.discard(txn, handle).await
    }

    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        self.backend.staged(client).await
    }

    /// Found by listing all that is under the prefix; `None` if that is more than [`MAX_LISTED_OBJECTS`]. A client is known by
    /// the checksum in the keys of its objects: one that shares it is taken for this one.
    async fn list_visible(&self, client: &ClientName) -> Result<Option<Vec<TxnId>>, SinkError> {
        let Some(keys) = self.backend.keys(MAX_LISTED_OBJECTS).await? else { return Ok(None) };
        let mut newest = Newest::default();
        let keys = keys.iter().filter_map(|key| ObjectKey::parse(key.as_ref()));
        newest.extend(keys.filter(|key| key.is_of(&self.layout, client)).map(|key| key.txn_id()));
        Ok(Some(newest.into_ids()))
    }
}

impl ObjectCommitter {
    pub(super) fn new(backend: Arc<dyn Backend>, layout: Layout) -> Self {
        Self { backend, layout }
    }

    /// Which of the objects are visible already.
    async fn look(&self, txn: &TxnContext, handle: &ObjectHandle) -> Result<Vec<bool>, SinkError> {
        let looks = handle.files.iter().map(|file| self.look_at(txn, file));
        stream::iter(looks.collect::<Vec<_>>()).buffered(LOOKS_IN_FLIGHT).try_collect().await
    }

    async fn look_at(&self, txn: &TxnContext, file: &ObjectFile) -> Result<bool, SinkError> {
        if !file.key.belongs_to(txn) {
            return Err(SinkError::rejected(format!("{} is not an object of {}", file.key, txn.txn_id)));
        }
        match self.backend.look(file).await? {
            Found::Missing => Ok(false),
            Found::Same => Ok(true),
            Found::Different(why) => Err(not_as_staged(&file.key, OBJECT, &why)),
        }
    }
}
