//! Sinks that are broken on purpose: a drill that cannot fail proves nothing.
//!
//! Both break the contract of `TwoPhaseSink` in a way that was found in real sinks.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use clap::ValueEnum;
use ratified::{
    ClientName, Committed, Epoch, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink, TxnContext, TxnId,
    sinks::file::{FileCommitter, FileHandle, FileSink, FileWriter},
};

use super::control::Control;
use crate::pipeline::OutputRow;

/// How a sink is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sabotage {
    /// It makes its data visible when it flushes, before anything is decided, and cannot take it back.
    Eager,
    /// It takes every commit that it hears of after a restart for done, without looking.
    Forgetful,
}

/// The file sink as the drill runs it: it reports its commits, and may be broken.
pub(super) struct DrilledSink {
    inner: FileSink<OutputRow>,
    shared: Shared,
}

#[derive(Clone)]
struct Shared {
    control: Arc<Control>,
    sabotage: Option<Sabotage>,
    /// What this process has begun: a commit of anything else is one that an earlier life left behind.
    begun: Arc<Mutex<BTreeSet<TxnId>>>,
}

impl DrilledSink {
    pub(super) fn new(inner: FileSink<OutputRow>, control: Arc<Control>, sabotage: Option<Sabotage>) -> Self {
        Self { inner, shared: Shared { control, sabotage, begun: Arc::default() } }
    }
}

#[async_trait]
impl TwoPhaseSink for DrilledSink {
    type Record = OutputRow;
    type Handle = FileHandle;
    type Writer = DrilledWriter;
    type Committer = DrilledCommitter;

    async fn writer(&self) -> Result<DrilledWriter, SinkError> {
        let (inner, committer) = (self.inner.writer().await?, self.inner.committer().await?);
        Ok(DrilledWriter { inner, committer, shared: self.shared.clone() })
    }

    async fn committer(&self) -> Result<DrilledCommitter, SinkError> {
        Ok(DrilledCommitter { inner: self.inner.committer().await?, shared: self.shared.clone() })
    }
}

pub(super) struct DrilledWriter {
    inner: FileWriter<OutputRow>,
    committer: FileCommitter,
    shared: Shared,
}

#[async_trait]
impl SinkWriter for DrilledWriter {
    type Record = OutputRow;
    type Handle = FileHandle;

    async fn begin(&mut self, txn: &TxnContext) -> Result<FileHandle, SinkError> {
        self.shared.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(txn.txn_id);
        self.inner.begin(txn).await
    }

    async fn write(
        &mut self,
        txn: &TxnContext,
        handle: &mut FileHandle,
        records: Vec<OutputRow>,
    ) -> Result<(), SinkError> {
        self.inner.write(txn, handle, records).await
    }

    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut FileHandle) -> Result<(), SinkError> {
        self.inner.pre_commit(txn, handle).await?;
        if self.shared.sabotage == Some(Sabotage::Eager) {
            let _ = self.committer.commit(txn, handle).await?;
        }
        Ok(())
    }
}

#[derive(Clone)]
pub(super) struct DrilledCommitter {
    inner: FileCommitter,
    shared: Shared,
}

#[async_trait]
impl SinkCommitter for DrilledCommitter {
    type Handle = FileHandle;

    async fn commit(&self, txn: &TxnContext, handle: &FileHandle) -> Result<Committed, SinkError> {
        let is_own = self.shared.begun.lock().unwrap_or_else(PoisonError::into_inner).contains(&txn.txn_id);
        if self.shared.sabotage == Some(Sabotage::Forgetful) && !is_own {
            return Ok(Committed::Already);
        }
        let how = self.inner.commit(txn, handle).await?;
        if !is_own {
            self.shared.control.replayed(how);
        }
        Ok(how)
    }

    async fn abort(&self, txn: &TxnContext, handle: Option<&FileHandle>) -> Result<(), SinkError> {
        self.inner.abort(txn, handle).await
    }

    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        self.inner.list_staged(client).await
    }

    async fn fence(&self, client: &ClientName, epoch: Epoch) -> Result<(), SinkError> {
        self.inner.fence(client, epoch).await
    }
}
