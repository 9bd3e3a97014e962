//! Stages records as objects that nobody sees.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::{backend::Backend, config::Settings, handle::ObjectHandle, staging::Staging};
use ratified::{
    SinkError, SinkWriter, TxnContext,
    author::{Current, Stage},
};

/// Stages one transaction after the other. Any failure is kept: every later call for that transaction tells it again. A
/// `write` or `pre_commit` whose future was dropped counts as failed. A failure is told once nothing of its transaction is
/// on its way any longer, so that an abort finds all there is.
///
/// Nothing is sent before the first part of a file is full, or `pre_commit` comes: `begin` does not know which targets
/// the records will have, and a transaction that is given up early leaves nothing behind.
pub struct ObjectWriter<R> {
    settings: Arc<Settings<R>>,
    backend: Arc<dyn Backend>,
    current: Current<Box<Staging<R>>, ObjectHandle>,
    staged_bytes: u64,
}

impl<R> fmt::Debug for ObjectWriter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectWriter").finish_non_exhaustive()
    }
}

#[async_trait]
impl<R: Send + 'static> SinkWriter for ObjectWriter<R> {
    type Record = R;
    type Handle = ObjectHandle;

    /// # Errors
    /// Never fails.
    async fn begin(&mut self, txn: &TxnContext) -> Result<ObjectHandle, SinkError> {
        let staging = Staging::new(self.settings.clone(), self.backend.clone(), txn.clone());
        self.current.begin(txn, Box::new(staging));
        Ok(ObjectHandle::default())
    }

    async fn write(&mut self, txn: &TxnContext, _: &mut ObjectHandle, records: Vec<R>) -> Result<(), SinkError> {
        let staging = self.current.take_open(txn)?;
        let staged = self.stage(staging, records).await;
        self.current.put(staged.map(Stage::Open))
    }

    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut ObjectHandle) -> Result<(), SinkError> {
        let prepared = match self.current.take(txn)? {
            Stage::Open(mut staging) => {
                let sealed = staging.seal().await;
                if sealed.is_err() {
                    staging.drain().await;
                }
                sealed
            }
            Stage::Prepared(prepared) => Ok(prepared),
        };
        if let Ok(prepared) = &prepared {
            handle.clone_from(prepared);
        }
        self.current.put(prepared.map(Stage::Prepared))
    }

    fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }
}

impl<R: Send + 'static> ObjectWriter<R> {
    pub(super) fn new(settings: Arc<Settings<R>>, backend: Arc<dyn Backend>) -> Self {
        Self { settings, backend, current: Current::default(), staged_bytes: 0 }
    }

    async fn stage(&mut self, mut staging: Box<Staging<R>>, records: Vec<R>) -> Result<Box<Staging<R>>, SinkError> {
        for record in records {
            match staging.push(record).await {
                Ok(added) => self.staged_bytes = self.staged_bytes.saturating_add(added as u64),
                Err(error) => {
                    staging.drain().await;
                    return Err(error);
                }
            }
        }
        Ok(staging)
    }
}
