//! Makes staged objects visible, or removes them.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use ratified::{
    ClientName, Committed, SinkCommitter, SinkError, TxnContext, TxnId,
    author::{Found, not_as_staged},
};

use super::{
    backend::{Backend, OBJECT},
    handle::{ObjectFile, ObjectHandle},
};

/// How many objects are looked at at once.
const LOOKS_IN_FLIGHT: usize = 8;

/// Applies outcomes to objects.
#[derive(Clone)]
pub struct ObjectCommitter {
    backend: Arc<dyn Backend>,
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
}

impl ObjectCommitter {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend }
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
