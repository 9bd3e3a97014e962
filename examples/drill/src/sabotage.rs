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
    ClientName, Committed, Epoch, Place, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink, TxnContext, TxnId,
};

use super::control::Control;

/// How a sink is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sabotage {
    /// It makes its data visible when it flushes, before anything is decided, and cannot take it back.
    Eager,
    /// It takes every commit that it hears of after a restart for done, without looking.
    Forgetful,
}

/// A sink as a drill runs it: it reports its commits, and may be broken.
pub struct DrilledSink<S> {
    inner: S,
    shared: Shared,
}

#[derive(Clone)]
struct Shared {
    control: Arc<Control>,
    sabotage: Option<Sabotage>,
    /// What this process has begun: a commit of anything else is one that an earlier life left behind.
    begun: Arc<Mutex<BTreeSet<TxnId>>>,
}

impl<S> DrilledSink<S> {
    /// This sink, under the drill's control.
    pub fn new(inner: S, control: Arc<Control>, sabotage: Option<Sabotage>) -> Self {
        Self { inner, shared: Shared { control, sabotage, begun: Arc::default() } }
    }
}

#[async_trait]
impl<S: TwoPhaseSink> TwoPhaseSink for DrilledSink<S> {
    type Record = S::Record;
    type Handle = S::Handle;
    type Writer = DrilledWriter<S::Writer, S::Committer>;
    type Committer = DrilledCommitter<S::Committer>;

    fn places(&self) -> Vec<Place> {
        self.inner.places()
    }

    async fn writer(&self) -> Result<Self::Writer, SinkError> {
        let (inner, committer) = (self.inner.writer().await?, self.inner.committer().await?);
        Ok(DrilledWriter { inner, committer, shared: self.shared.clone() })
    }

    async fn committer(&self) -> Result<Self::Committer, SinkError> {
        Ok(DrilledCommitter { inner: self.inner.committer().await?, shared: self.shared.clone() })
    }
}

/// The writer of a [`DrilledSink`].
pub struct DrilledWriter<W, C> {
    inner: W,
    committer: C,
    shared: Shared,
}

#[async_trait]
impl<W: SinkWriter, C: SinkCommitter<Handle = W::Handle>> SinkWriter for DrilledWriter<W, C> {
    type Record = W::Record;
    type Handle = W::Handle;

    async fn begin(&mut self, txn: &TxnContext) -> Result<W::Handle, SinkError> {
        self.shared.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(txn.txn_id);
        self.inner.begin(txn).await
    }

    async fn write(
        &mut self,
        txn: &TxnContext,
        handle: &mut W::Handle,
        records: Vec<W::Record>,
    ) -> Result<(), SinkError> {
        self.inner.write(txn, handle, records).await
    }

    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut W::Handle) -> Result<(), SinkError> {
        self.inner.pre_commit(txn, handle).await?;
        if self.shared.sabotage == Some(Sabotage::Eager) {
            let _ = self.committer.commit(txn, handle).await?;
        }
        Ok(())
    }

    fn staged_bytes(&self) -> u64 {
        self.inner.staged_bytes()
    }
}

/// The committer of a [`DrilledSink`].
#[derive(Clone)]
pub struct DrilledCommitter<C> {
    inner: C,
    shared: Shared,
}

#[async_trait]
impl<C: SinkCommitter> SinkCommitter for DrilledCommitter<C> {
    type Handle = C::Handle;

    async fn commit(&self, txn: &TxnContext, handle: &C::Handle) -> Result<Committed, SinkError> {
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

    async fn abort(&self, txn: &TxnContext, handle: Option<&C::Handle>) -> Result<(), SinkError> {
        self.inner.abort(txn, handle).await
    }

    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        self.inner.list_staged(client).await
    }

    async fn list_visible(&self, client: &ClientName) -> Result<Option<Vec<TxnId>>, SinkError> {
        self.inner.list_visible(client).await
    }

    async fn fence(&self, client: &ClientName, epoch: Epoch) -> Result<(), SinkError> {
        self.inner.fence(client, epoch).await
    }
}
