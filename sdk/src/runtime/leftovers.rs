//! What only the pending store or the sink itself remembers. Both are hints: the coordinator is asked about each id.

use std::collections::BTreeSet;

use ratified_protocol::{ClientName, Code, Outcome, Told, Txn, TxnId, TxnState};

use super::{
    error::RuntimeError,
    interval::Owned,
    metrics,
    open::{Opening, Raised},
    payload::decode_handle,
    snapshot::SnapshotElement,
};
use crate::{
    error::SinkError,
    sink::{SinkCommitter, TwoPhaseSink},
};

impl<S: TwoPhaseSink> Opening<S> {
    /// The pending store is only a hint: the coordinator is asked, and its answer followed.
    pub(super) async fn settle_pending(&mut self, one: &Raised, named: &[SnapshotElement]) -> Result<(), RuntimeError> {
        let is_named = |id: TxnId| named.iter().any(|e| e.txn_id == id && e.client == one.owned.client);
        let seen: BTreeSet<_> = one.unfinished.iter().map(|txn| txn.txn_id).collect();
        let left_alone: BTreeSet<_> = self.report.left_alone.iter().cloned().collect();
        for (id, handle) in one.owned.log.contents().entries {
            if left_alone.contains(&(one.owned.client.clone(), id)) {
                continue;
            }
            if !seen.contains(&id) && !is_named(id) {
                self.follow_pending(&one.owned, id, handle).await?;
            }
            one.owned.log.remove(id).await?;
        }
        Ok(())
    }

    async fn follow_pending(&mut self, owned: &Owned, id: TxnId, handle: Option<Vec<u8>>) -> Result<(), RuntimeError> {
        let Some(txn) = self.look_up(&owned.client, id).await? else {
            tracing::warn!(client = %owned.client, txn_id = %id, "a pending id is not known to the coordinator");
            metrics::dropped();
            self.report.dropped.push((owned.client.clone(), id));
            return Ok(());
        };
        if txn.state.outcome() == Some(Outcome::Aborted) {
            // The handle is a hint as well: without it the sink finds by id what is staged.
            let handle = handle.and_then(|encoded| decode_handle(&encoded).ok());
            self.abort_in_sink(owned, id, &txn.state, handle.as_ref()).await?;
        }
        Ok(())
    }

    async fn abort_in_sink(
        &mut self,
        owned: &Owned,
        id: TxnId,
        state: &Told<TxnState>,
        handle: Option<&S::Handle>,
    ) -> Result<(), RuntimeError> {
        let context = owned.context(id);
        self.env.sink_abort(self.limit, &context, handle).await?;
        if !state.is_terminal() {
            self.env.ack(self.limit, &context, Outcome::Aborted).await?;
        }
        self.report.aborted += 1;
        Ok(())
    }

    /// What the sink holds staged: removed if it was aborted or written at least once, otherwise left alone, and told if
    /// nothing accounts for it.
    pub(super) async fn clean_up_staged(&mut self, one: &Raised) -> Result<(), RuntimeError> {
        let owned = &one.owned;
        let at_least_once = owned.log.contents().at_least_once;
        let mut suspects = BTreeSet::new();
        for id in self.staged_by(owned).await? {
            if at_least_once.contains(&id) {
                if !self.remove_at_least_once(owned, id).await? {
                    suspects.insert(id);
                }
                continue;
            }
            match self.look_up(&owned.client, id).await?.map(|txn| txn.state) {
                Some(state) if state.outcome() == Some(Outcome::Aborted) => {
                    self.abort_in_sink(owned, id, &state, None).await?;
                }
                Some(Told::Known(TxnState::Prepared | TxnState::Committing)) => {}
                _ => {
                    suspects.insert(id);
                }
            }
        }
        for id in at_least_once.difference(&suspects) {
            owned.log.remove(*id).await?;
        }
        if suspects.is_empty() {
            return Ok(());
        }
        // Another worker may have made some visible since they were listed.
        suspects.retain({
            let staged: BTreeSet<_> = self.staged_by(owned).await?.into_iter().collect();
            move |id| staged.contains(id)
        });
        for id in suspects {
            tracing::warn!(
                client = %owned.client, txn_id = %id, place = %self.place(),
                "staged data that nothing accounts for: neither the coordinator nor the pending store knows it. It is left \
                 alone, since both may have been put back; if nobody will commit it, remove it by hand"
            );
            self.report.unaccounted.push((owned.client.clone(), id));
        }
        Ok(())
    }

    /// Its barrier was not drawn to the end: the records are read again. False if the sink refuses to remove it: it may be
    /// visible in part.
    async fn remove_at_least_once(&mut self, owned: &Owned, id: TxnId) -> Result<bool, RuntimeError> {
        match self.env.sink_abort(self.limit, &owned.context(id), None).await {
            Ok(()) => self.report.aborted += 1,
            Err(RuntimeError::Sink { error: SinkError::Rejected(why), .. }) => {
                tracing::warn!(client = %owned.client, txn_id = %id, %why, "what was written at least once stays staged");
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    pub(super) async fn staged_by(&self, owned: &Owned) -> Result<Vec<TxnId>, RuntimeError> {
        let committer = &self.env.committer;
        self.env.sink_call("sink.list_staged", self.limit, || committer.list_staged(&owned.client)).await
    }

    /// Where a transaction stands; `None` if the coordinator does not know it (any longer).
    pub(super) async fn look_up(&self, client: &ClientName, id: TxnId) -> Result<Option<Txn>, RuntimeError> {
        match self.env.limited(self.limit).get(client, id, None).await {
            Ok(txn) => Ok(Some(txn)),
            Err(error) if matches!(error.code(), Some(Code::TxnNotFound | Code::OutcomeExpired)) => Ok(None),
            Err(error) => Err(RuntimeError::about_client(client, error)),
        }
    }
}
