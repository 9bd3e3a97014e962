//! Carries a decision to every member.

use std::{collections::BTreeSet, fmt, sync::Arc};

use async_trait::async_trait;
use ratified_protocol::{ClientName, Epoch, TxnId};

use super::{failures::Failures, handle::CompositeHandle, member::MemberCommitter};
use crate::{
    author::Newest,
    error::SinkError,
    sink::{Committed, SinkCommitter, TxnContext},
};

/// Applies outcomes to every member, in the order in which they were added. What fails in one does not keep the others
/// from it.
#[derive(Clone)]
pub struct CompositeCommitter {
    members: Arc<[Arc<dyn MemberCommitter>]>,
}

impl CompositeCommitter {
    pub(super) fn new(members: Vec<Arc<dyn MemberCommitter>>) -> Self {
        Self { members: members.into() }
    }

    /// Notes the members that the handle names and that are not here.
    fn note_missing(&self, handle: &CompositeHandle, failures: &mut Failures) {
        for (name, _) in &handle.members {
            if self.members.iter().all(|member| member.name() != name) {
                let missing = "it takes part in the transaction and is not a member here: add it again";
                failures.note::<()>(name, Err(SinkError::rejected(missing)));
            }
        }
    }
}

impl fmt::Debug for CompositeCommitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.members.iter().map(|member| member.name()).collect();
        f.debug_struct("CompositeCommitter").field("members", &names).finish_non_exhaustive()
    }
}

#[async_trait]
impl SinkCommitter for CompositeCommitter {
    type Handle = CompositeHandle;

    /// [`Committed::Already`] only if every member that takes part answered so.
    ///
    /// # Errors
    /// [`SinkError::Retry`] while any member may still succeed; [`SinkError::Rejected`] names the members that refused,
    /// once all others have committed.
    async fn commit(&self, txn: &TxnContext, handle: &CompositeHandle) -> Result<Committed, SinkError> {
        let mut failures = Failures::default();
        self.note_missing(handle, &mut failures);
        let mut committed = Committed::Already;
        for member in &*self.members {
            // A member that was added later takes no part.
            let Some(part) = handle.get(member.name()) else { continue };
            if failures.note(member.name(), member.commit(txn, part).await) == Some(Committed::Now) {
                committed = Committed::Now;
            }
        }
        failures.after_decision().map(|()| committed)
    }

    async fn abort(&self, txn: &TxnContext, handle: Option<&CompositeHandle>) -> Result<(), SinkError> {
        let mut failures = Failures::default();
        if let Some(handle) = handle {
            self.note_missing(handle, &mut failures);
        }
        for member in &*self.members {
            let part = handle.and_then(|handle| handle.get(member.name()));
            failures.note(member.name(), member.abort(txn, part).await);
        }
        failures.after_decision()
    }

    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        let (mut failures, mut staged) = (Failures::default(), BTreeSet::new());
        for member in &*self.members {
            staged.extend(failures.note(member.name(), member.list_staged(client).await).unwrap_or_default());
        }
        failures.before_decision().map(|()| staged.into_iter().collect())
    }

    /// What is visible in any member. `None` if nothing is, and a member cannot tell.
    async fn list_visible(&self, client: &ClientName) -> Result<Option<Vec<TxnId>>, SinkError> {
        let (mut failures, mut newest, mut all_tell) = (Failures::default(), Newest::default(), true);
        for member in &*self.members {
            match failures.note(member.name(), member.list_visible(client).await) {
                Some(Some(visible)) => newest.extend(visible),
                Some(None) => all_tell = false,
                None => {}
            }
        }
        failures.before_decision()?;
        let visible = newest.into_ids();
        Ok((all_tell || !visible.is_empty()).then_some(visible))
    }

    async fn fence(&self, client: &ClientName, epoch: Epoch) -> Result<(), SinkError> {
        let mut failures = Failures::default();
        for member in &*self.members {
            failures.note(member.name(), member.fence(client, epoch).await);
        }
        failures.before_decision()
    }
}
