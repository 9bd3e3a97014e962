//! Finishing what earlier owners left behind.

use std::collections::{BTreeMap, BTreeSet};

use ratified_protocol::{CheckpointId, ClientName, Outcome, Payload, Txn, TxnId, TxnState};

use super::{
    error::RuntimeError,
    metrics,
    open::{Opening, Raised},
    payload::{Envelope, decode_handle},
    policy::{Lost, LostPolicy},
    snapshot::SnapshotElement,
};
use crate::sink::{Committed, TwoPhaseSink, TxnContext};

/// Whether finishing came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finished {
    /// It did.
    Done,
    /// Somebody committed what was to be aborted: everything must be looked at again.
    LookAgain,
}

/// What is to become of a PREPARED transaction that no snapshot names.
pub(super) enum Unnamed {
    /// Nothing: whoever restored its handle commits it.
    LeaveAlone,
    /// It is aborted: its records are read again.
    Abort,
}

struct ToCommit {
    txn: TxnContext,
    element: Option<SnapshotElement>,
    told: Option<Txn>,
}

impl<S: TwoPhaseSink> Opening<S> {
    /// Finishes everything, in order: commits ascending, aborts, then what only the pending store or the sink remembers.
    pub(super) async fn finish(
        &mut self,
        raised: &[Raised],
        named: &[SnapshotElement],
        last_committed: &BTreeMap<ClientName, TxnId>,
        unnamed: impl Fn(Option<CheckpointId>) -> Unnamed,
    ) -> Result<Finished, RuntimeError> {
        let to_commit = collect_commits(raised, named);
        let names: BTreeSet<_> = named.iter().map(|e| (e.client.clone(), e.txn_id)).collect();
        self.note_left(raised, &to_commit);
        for (_, commit) in to_commit {
            self.commit_one(commit, last_committed).await?;
        }
        for one in raised {
            for txn in with_state(one, TxnState::Aborting) {
                self.apply_abort(one, txn).await?;
            }
            if self.end_prepared(one, &names, &unnamed).await? == Finished::LookAgain {
                return Ok(Finished::LookAgain);
            }
        }
        for one in raised {
            self.settle_pending(one, &names).await?;
            self.clean_up_staged(one).await?;
        }
        Ok(Finished::Done)
    }

    fn note_left(&mut self, raised: &[Raised], to_commit: &BTreeMap<(TxnId, ClientName), ToCommit>) {
        self.left = to_commit.keys().map(|(id, client)| (client.clone(), *id)).collect();
        for one in raised {
            let aborting = with_state(one, TxnState::Aborting);
            self.left.extend(aborting.map(|txn| (txn.client_name.clone(), txn.txn_id)));
        }
    }

    fn done(&mut self, txn: &TxnContext) {
        self.left.remove(&(txn.client.clone(), txn.txn_id));
    }

    async fn commit_one(
        &mut self,
        commit: ToCommit,
        last_committed: &BTreeMap<ClientName, TxnId>,
    ) -> Result<(), RuntimeError> {
        let txn = &commit.txn;
        let decided = match &commit.told {
            Some(told) => told.state,
            None => match self.env.decide_commit(self.limit, &txn.client, txn.txn_id).await {
                Ok(decided) => decided.state,
                Err(error) => return self.skip_lost(txn, error, last_committed).await,
            },
        };
        let encoded = match commit.element {
            Some(element) => element.handle,
            None => self.told_handle(txn, commit.told.and_then(|told| told.payload)).await?,
        };
        self.apply_commit(txn, &encoded, decided.is_terminal()).await
    }

    async fn apply_commit(&mut self, txn: &TxnContext, encoded: &[u8], is_acked: bool) -> Result<(), RuntimeError> {
        let how = self.env.sink_commit(self.limit, txn, &decode_handle(encoded)?).await?;
        if !is_acked {
            self.env.ack(self.limit, txn, Outcome::Committed).await?;
        }
        self.report.committed += 1;
        self.report.already_committed += u64::from(how == Committed::Already);
        self.done(txn);
        Ok(())
    }

    /// The handle of a decided transaction, asked for if it was left out of the answer.
    async fn told_handle(&self, txn: &TxnContext, told: Option<Payload>) -> Result<Vec<u8>, RuntimeError> {
        let payload = match told {
            Some(payload) => Some(payload),
            None => self.look_up(&txn.client, txn.txn_id).await?.and_then(|txn| txn.payload),
        };
        let lost = || RuntimeError::HandleLost { client: txn.client.clone(), txn_id: txn.txn_id };
        Ok(Envelope::from_payload(&payload.ok_or_else(lost)?)?.handle)
    }

    /// Goes on without a lost transaction, if the job has decided so.
    async fn skip_lost(
        &mut self,
        txn: &TxnContext,
        error: RuntimeError,
        last_committed: &BTreeMap<ClientName, TxnId>,
    ) -> Result<(), RuntimeError> {
        let Some(lost) = Lost::from_error(&error) else { return Err(error) };
        let is_overtaken = last_committed.get(&txn.client).is_some_and(|last| txn.txn_id < *last);
        let is_rewind = self.policies.accept_rewind && lost == Lost::Expired && is_overtaken;
        if self.policies.lost_policy(lost) != LostPolicy::Skip && !is_rewind {
            return Err(error);
        }
        tracing::warn!(client = %txn.client, txn_id = %txn.txn_id, %error, "given up by policy");
        metrics::skipped();
        if matches!(error, RuntimeError::TxnAborted { .. }) {
            self.env.sink_abort(self.limit, txn, None).await?;
        }
        self.report.skipped.push((txn.client.clone(), txn.txn_id, lost));
        self.done(txn);
        Ok(())
    }

    /// Removes what an aborted transaction has staged, and says so.
    async fn apply_abort(&mut self, one: &Raised, txn: &Txn) -> Result<(), RuntimeError> {
        let context = context_of(one, txn);
        let handle = txn.payload.as_ref().map(Envelope::from_payload).transpose()?;
        let handle = handle.map(|envelope| decode_handle(&envelope.handle)).transpose()?;
        self.env.sink_abort(self.limit, &context, handle.as_ref()).await?;
        self.env.ack(self.limit, &context, Outcome::Aborted).await?;
        one.owned.log.remove(txn.txn_id).await?;
        self.report.aborted += 1;
        self.done(&context);
        Ok(())
    }

    /// Newest first: if an abort turns out to be too late, nothing older was ended yet.
    async fn end_prepared(
        &mut self,
        one: &Raised,
        named: &BTreeSet<(ClientName, TxnId)>,
        unnamed: impl Fn(Option<CheckpointId>) -> Unnamed,
    ) -> Result<Finished, RuntimeError> {
        let prepared: BTreeMap<_, _> = with_state(one, TxnState::Prepared).map(|txn| (txn.txn_id, txn)).collect();
        for (id, txn) in prepared.into_iter().rev() {
            if named.contains(&(one.owned.client.clone(), id)) {
                continue;
            }
            if matches!(unnamed(txn.checkpoint_id), Unnamed::LeaveAlone) {
                self.report.left_alone.push((one.owned.client.clone(), id));
                continue;
            }
            self.left.insert((one.owned.client.clone(), id));
            if self.env.decide_abort(self.limit, &context_of(one, txn)).await?.is_none() {
                return Ok(Finished::LookAgain);
            }
            self.apply_abort(one, txn).await?;
        }
        Ok(Finished::Done)
    }
}

fn with_state(one: &Raised, state: TxnState) -> impl Iterator<Item = &Txn> {
    one.unfinished.iter().filter(move |txn| txn.state == state)
}

fn context_of(one: &Raised, txn: &Txn) -> TxnContext {
    one.owned.context(txn.txn_id).with_checkpoint(txn.checkpoint_id)
}

/// What must be committed, ascending: what the snapshots name, and what was decided.
fn collect_commits(raised: &[Raised], named: &[SnapshotElement]) -> BTreeMap<(TxnId, ClientName), ToCommit> {
    let mut to_commit = BTreeMap::new();
    for one in raised {
        for txn in with_state(one, TxnState::Committing) {
            let commit = ToCommit { txn: context_of(one, txn), element: None, told: Some(txn.clone()) };
            to_commit.insert((txn.txn_id, txn.client_name.clone()), commit);
        }
    }
    for element in named {
        // A worker may be given what another one's client began; its epoch is then the one it was begun with.
        let epoch = raised.iter().find(|one| one.owned.client == element.client).map(|one| one.owned.epoch);
        let txn = TxnContext::new(element.client.clone(), element.txn_id, epoch.unwrap_or(element.epoch))
            .with_slot(element.slot)
            .with_checkpoint(Some(element.checkpoint));
        let commit = ToCommit { txn, element: Some(element.clone()), told: None };
        to_commit.insert((element.txn_id, element.client.clone()), commit);
    }
    to_commit
}

#[cfg(test)]
mod tests {
    use ratified_protocol::{Epoch, StoreId};

    use super::*;
    use crate::{
        pending::{MemoryStore, PendingStore},
        runtime::interval::Owned,
        sink::Slot,
    };

    fn element(client: &str, last: u8) -> SnapshotElement {
        SnapshotElement {
            store: StoreId { cluster_id: uuid::Uuid::from_bytes([9; 16]), loads: 1 },
            client: client.parse().unwrap(),
            slot: Slot::new(0),
            txn_id: TxnId::from_bytes([0, 0, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, last]).unwrap(),
            epoch: Epoch::new(7),
            checkpoint: CheckpointId::new(1),
            handle: Vec::new(),
        }
    }

    /// Fencing in the sink goes by the epoch: with an older one an owner would be fenced by its own `open`.
    #[tokio::test]
    async fn what_a_snapshot_names_is_committed_with_the_raised_epoch_of_its_client() {
        let client: ClientName = "job.0".parse().unwrap();
        let log = MemoryStore::new().open(&client).await.unwrap();
        let owned = Owned { client, slot: Slot::new(0), epoch: Epoch::new(9), log };
        let raised = [Raised { owned, unfinished: Vec::new(), last_committed: None, floors: Vec::new() }];
        let commits = collect_commits(&raised, &[element("job.1", 1), element("job.0", 2)]);
        let epochs: Vec<_> = commits.values().map(|c| (c.txn.client.to_string(), c.txn.epoch.as_u64())).collect();
        assert_eq!(epochs, [("job.1".to_owned(), 7), ("job.0".to_owned(), 9)]);
    }
}
