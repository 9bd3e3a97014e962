//! Stages one transaction in every member.

use std::fmt;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::{
    failures::{Failures, named},
    handle::{CompositeHandle, MemberHandle},
    member::MemberWriter,
};
use crate::{
    error::SinkError,
    sink::{SinkWriter, TxnContext},
};

/// Stages in every member. Members are written to and flushed at the same time; one that has succeeded is not asked
/// again when another one's failure is repeated.
pub struct CompositeWriter<R> {
    members: Vec<Box<dyn MemberWriter<R>>>,
}

/// A member, and the handle that it may change.
type Asked<'a, R> = (&'a mut Box<dyn MemberWriter<R>>, &'a mut MemberHandle);

impl<R> CompositeWriter<R> {
    pub(super) fn new(members: Vec<Box<dyn MemberWriter<R>>>) -> Self {
        Self { members }
    }

    /// Each member with its handle.
    fn with_handles<'a>(&'a mut self, handle: &'a mut CompositeHandle) -> Result<Vec<Asked<'a, R>>, SinkError> {
        let names = self.members.iter().map(|member| member.name());
        if !names.eq(handle.members.iter().map(|(name, _)| name)) {
            return Err(SinkError::rejected("the handle is not one that this writer began"));
        }
        let handles = handle.members.iter_mut().map(|(_, handle)| handle);
        Ok(self.members.iter_mut().zip(handles).collect())
    }
}

impl<R> fmt::Debug for CompositeWriter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.members.iter().map(|member| member.name()).collect();
        f.debug_struct("CompositeWriter").field("members", &names).finish_non_exhaustive()
    }
}

#[async_trait]
impl<R: Send + 'static> SinkWriter for CompositeWriter<R> {
    type Record = R;
    type Handle = CompositeHandle;

    async fn begin(&mut self, txn: &TxnContext) -> Result<CompositeHandle, SinkError> {
        let mut handle = CompositeHandle { members: Vec::with_capacity(self.members.len()) };
        for member in &mut self.members {
            let begun = member.begin(txn).await;
            handle.members.push((member.name().clone(), named(member.name(), begun)?));
        }
        handle.check_size()?;
        Ok(handle)
    }

    async fn write(
        &mut self,
        txn: &TxnContext,
        handle: &mut CompositeHandle,
        records: Vec<R>,
    ) -> Result<(), SinkError> {
        for member in &mut self.members {
            member.route(&records);
        }
        drop(records);
        let written = self.with_handles(handle)?.into_iter().map(|(member, handle)| async move {
            let written = member.write(txn, handle).await;
            (member.name().clone(), written)
        });
        let mut failures = Failures::default();
        for (name, written) in join_all(written).await {
            failures.note(&name, written);
        }
        failures.before_decision()
    }

    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut CompositeHandle) -> Result<(), SinkError> {
        let flushed = self.with_handles(handle)?.into_iter().map(|(member, handle)| async move {
            let flushed = member.pre_commit(txn, handle).await;
            (member.name().clone(), flushed)
        });
        let mut failures = Failures::default();
        for (name, flushed) in join_all(flushed).await {
            failures.note(&name, flushed);
        }
        failures.before_decision()?;
        handle.check_size()
    }

    fn staged_bytes(&self) -> u64 {
        self.members.iter().map(|member| member.staged_bytes()).sum()
    }
}
