//! A member without its types: any sink, fed by its route.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use ratified_protocol::{ClientName, Epoch, TxnId};

use super::{handle::MemberHandle, names::MemberName};
use crate::{
    error::SinkError,
    sink::{Committed, Place, SinkCommitter, SinkWriter, TwoPhaseSink, TxnContext},
};

type Route<R, S> = Arc<dyn Fn(&R, &mut Vec<<S as TwoPhaseSink>::Record>) + Send + Sync>;

/// A sink among others.
#[async_trait]
pub(super) trait Member<R>: Send + Sync {
    fn name(&self) -> &MemberName;
    fn places(&self) -> Vec<Place>;
    async fn writer(&self) -> Result<Box<dyn MemberWriter<R>>, SinkError>;
    async fn committer(&self) -> Result<Arc<dyn MemberCommitter>, SinkError>;
}

/// The writer of one member.
#[async_trait]
pub(super) trait MemberWriter<R>: Send {
    fn name(&self) -> &MemberName;
    /// Starts staging, or tells again how it was started: a repetition asks only those who have failed.
    async fn begin(&mut self, txn: &TxnContext) -> Result<MemberHandle, SinkError>;
    /// Takes this member's part of the records.
    fn route(&mut self, records: &[R]);
    /// Stages what was routed.
    async fn write(&mut self, txn: &TxnContext, handle: &mut MemberHandle) -> Result<(), SinkError>;
    /// Flushes, unless it has.
    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut MemberHandle) -> Result<(), SinkError>;
    fn staged_bytes(&self) -> u64;
}

/// The committer of one member.
#[async_trait]
pub(super) trait MemberCommitter: Send + Sync {
    fn name(&self) -> &MemberName;
    async fn commit(&self, txn: &TxnContext, handle: &MemberHandle) -> Result<Committed, SinkError>;
    async fn abort(&self, txn: &TxnContext, handle: Option<&MemberHandle>) -> Result<(), SinkError>;
    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError>;
    async fn list_visible(&self, client: &ClientName) -> Result<Option<Vec<TxnId>>, SinkError>;
    async fn fence(&self, client: &ClientName, epoch: Epoch) -> Result<(), SinkError>;
}

pub(super) struct TypedMember<R, S: TwoPhaseSink> {
    name: MemberName,
    sink: S,
    route: Route<R, S>,
}

impl<R, S: TwoPhaseSink> TypedMember<R, S> {
    pub(super) fn new(
        name: MemberName,
        sink: S,
        route: impl Fn(&R, &mut Vec<S::Record>) + Send + Sync + 'static,
    ) -> Self {
        Self { name, sink, route: Arc::new(route) }
    }
}

#[async_trait]
impl<R: Send + 'static, S: TwoPhaseSink> Member<R> for TypedMember<R, S> {
    fn name(&self) -> &MemberName {
        &self.name
    }

    fn places(&self) -> Vec<Place> {
        self.sink.places()
    }

    async fn writer(&self) -> Result<Box<dyn MemberWriter<R>>, SinkError> {
        let writer = self.sink.writer().await?;
        let (name, route) = (self.name.clone(), self.route.clone());
        Ok(Box::new(TypedWriter::<R, S> { name, writer, route, routed: Vec::new(), begun: None, flushed: None }))
    }

    async fn committer(&self) -> Result<Arc<dyn MemberCommitter>, SinkError> {
        let committer = self.sink.committer().await?;
        Ok(Arc::new(TypedCommitter::<S> { name: self.name.clone(), committer }))
    }
}

struct TypedWriter<R, S: TwoPhaseSink> {
    name: MemberName,
    writer: S::Writer,
    route: Route<R, S>,
    routed: Vec<S::Record>,
    begun: Option<(TxnId, S::Handle)>,
    flushed: Option<TxnId>,
}

#[async_trait]
impl<R: Send + 'static, S: TwoPhaseSink> MemberWriter<R> for TypedWriter<R, S> {
    fn name(&self) -> &MemberName {
        &self.name
    }

    async fn begin(&mut self, txn: &TxnContext) -> Result<MemberHandle, SinkError> {
        if let Some((_, handle)) = self.begun.as_ref().filter(|(begun, _)| *begun == txn.txn_id) {
            return Ok(MemberHandle::new(handle.clone()));
        }
        self.routed.clear();
        let handle = self.writer.begin(txn).await?;
        self.begun = Some((txn.txn_id, handle.clone()));
        Ok(MemberHandle::new(handle))
    }

    fn route(&mut self, records: &[R]) {
        for record in records {
            (self.route)(record, &mut self.routed);
        }
    }

    async fn write(&mut self, txn: &TxnContext, handle: &mut MemberHandle) -> Result<(), SinkError> {
        let records = std::mem::take(&mut self.routed);
        if records.is_empty() {
            return Ok(());
        }
        self.flushed = None;
        self.writer.write(txn, handle.typed_mut::<S::Handle>()?, records).await
    }

    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut MemberHandle) -> Result<(), SinkError> {
        if self.flushed == Some(txn.txn_id) {
            return Ok(());
        }
        self.writer.pre_commit(txn, handle.typed_mut::<S::Handle>()?).await?;
        self.flushed = Some(txn.txn_id);
        Ok(())
    }

    fn staged_bytes(&self) -> u64 {
        self.writer.staged_bytes()
    }
}

struct TypedCommitter<S: TwoPhaseSink> {
    name: MemberName,
    committer: S::Committer,
}

#[async_trait]
impl<S: TwoPhaseSink> MemberCommitter for TypedCommitter<S> {
    fn name(&self) -> &MemberName {
        &self.name
    }

    async fn commit(&self, txn: &TxnContext, handle: &MemberHandle) -> Result<Committed, SinkError> {
        self.committer.commit(txn, &*handle.typed::<S::Handle>()?).await
    }

    async fn abort(&self, txn: &TxnContext, handle: Option<&MemberHandle>) -> Result<(), SinkError> {
        let handle: Option<Cow<'_, S::Handle>> = handle.map(MemberHandle::typed).transpose()?;
        self.committer.abort(txn, handle.as_deref()).await
    }

    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        self.committer.list_staged(client).await
    }

    async fn list_visible(&self, client: &ClientName) -> Result<Option<Vec<TxnId>>, SinkError> {
        self.committer.list_visible(client).await
    }

    async fn fence(&self, client: &ClientName, epoch: Epoch) -> Result<(), SinkError> {
        self.committer.fence(client, epoch).await
    }
}
