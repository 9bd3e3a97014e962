//! Stages records as objects that nobody sees.

use std::{fmt, mem, sync::Arc};

use async_trait::async_trait;
use ratified_protocol::TxnId;

use super::{backend::Backend, config::Settings, handle::ObjectHandle, staging::Staging};
use crate::{
    error::SinkError,
    sink::{SinkWriter, TxnContext},
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
    current: Option<(TxnId, Stage<R>)>,
    staged_bytes: u64,
}

enum Stage<R> {
    Open(Box<Staging<R>>),
    Prepared(ObjectHandle),
    Failed(SinkError),
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
        self.current = Some((txn.txn_id, Stage::Open(Box::new(staging))));
        Ok(ObjectHandle::default())
    }

    async fn write(&mut self, txn: &TxnContext, _: &mut ObjectHandle, records: Vec<R>) -> Result<(), SinkError> {
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

    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut ObjectHandle) -> Result<(), SinkError> {
        let prepared = match self.take(txn)? {
            Stage::Open(mut staging) => {
                let sealed = staging.seal().await;
                if sealed.is_err() {
                    staging.drain().await;
                }
                sealed
            }
            Stage::Prepared(prepared) => Ok(prepared),
            Stage::Failed(error) => Err(error),
        };
        if let Ok(prepared) = &prepared {
            handle.clone_from(prepared);
        }
        self.put(txn, prepared.map(Stage::Prepared))
    }

    fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }
}

impl<R: Send + 'static> ObjectWriter<R> {
    pub(super) fn new(settings: Arc<Settings<R>>, backend: Arc<dyn Backend>) -> Self {
        Self { settings, backend, current: None, staged_bytes: 0 }
    }

    /// Takes the transaction out, so that a call that is dropped on its way leaves a failed one behind.
    fn take(&mut self, txn: &TxnContext) -> Result<Stage<R>, SinkError> {
        let Some((txn_id, stage)) = self.current.as_mut().filter(|(txn_id, _)| *txn_id == txn.txn_id) else {
            return Err(SinkError::rejected(format!("{} was not begun by this writer", txn.txn_id)));
        };
        if let Stage::Failed(error) = stage {
            return Err(error.clone());
        }
        let dropped = SinkError::indeterminate(format!("an earlier call for {txn_id} was given up half-way"));
        Ok(mem::replace(stage, Stage::Failed(dropped)))
    }

    fn put(&mut self, txn: &TxnContext, stage: Result<Stage<R>, SinkError>) -> Result<(), SinkError> {
        let error = stage.as_ref().err().cloned();
        self.current = Some((txn.txn_id, stage.unwrap_or_else(Stage::Failed)));
        error.map_or(Ok(()), Err)
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
