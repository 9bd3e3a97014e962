//! Finishing what earlier owners left behind, as [`plan`](super::decide::plan) says.

use std::collections::BTreeMap;

use ratified_protocol::{ClientName, Outcome, Payload, Txn, TxnId};

use super::{
    decide::{Command, Key, is_given_up},
    error::RuntimeError,
    metrics,
    open::{Opening, Raised},
    payload::{Envelope, decode_handle},
    policy::Lost,
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

/// What is known of the transactions to be finished.
pub(super) struct Known<'a> {
    pub(super) raised: &'a [Raised],
    pub(super) named: &'a [SnapshotElement],
    pub(super) last_committed: BTreeMap<ClientName, TxnId>,
}

impl Known<'_> {
    fn told(&self, (id, client): &Key) -> Option<(&Raised, &Txn)> {
        let one = self.raised.iter().find(|one| one.owned.client == *client)?;
        Some((one, one.unfinished.iter().find(|txn| txn.txn_id == *id)?))
    }

    fn element(&self, (id, client): &Key) -> Option<&SnapshotElement> {
        self.named.iter().find(|element| element.txn_id == *id && element.client == *client)
    }

    fn context(&self, key: &Key) -> Result<TxnContext, RuntimeError> {
        let (id, client) = key;
        if let Some(element) = self.element(key) {
            // A worker may be given what another one's client began; its epoch is then the one it was begun with.
            let epoch = self.raised.iter().find(|one| one.owned.client == *client).map(|one| one.owned.epoch);
            let txn = TxnContext::new(client.clone(), *id, epoch.unwrap_or(element.epoch));
            return Ok(txn.with_slot(element.slot).with_checkpoint(Some(element.checkpoint)));
        }
        let told = self.told(key).map(|(one, txn)| one.owned.context(*id).with_checkpoint(txn.checkpoint_id));
        told.ok_or_else(|| RuntimeError::TxnNotFound { client: client.clone(), txn_id: *id })
    }
}

impl<S: TwoPhaseSink> Opening<S> {
    /// Carries out the plan, then settles what only the pending store or the sink remembers.
    pub(super) async fn finish(&mut self, known: &Known<'_>, commands: Vec<Command>) -> Result<Finished, RuntimeError> {
        let is_decided = |command: &&Command| !matches!(command, Command::Abort(_) | Command::LeaveAlone(_));
        self.left = commands.iter().filter(is_decided).map(|command| left(key_of(command))).collect();
        for command in &commands {
            if self.carry_out(known, command).await? == Finished::LookAgain {
                return Ok(Finished::LookAgain);
            }
        }
        for one in known.raised {
            self.settle_pending(one, known.named).await?;
            self.clean_up_staged(one).await?;
        }
        Ok(Finished::Done)
    }

    async fn carry_out(&mut self, known: &Known<'_>, command: &Command) -> Result<Finished, RuntimeError> {
        let key = key_of(command);
        let txn = known.context(key)?;
        match command {
            Command::Commit(_) | Command::Apply(_) => self.commit_one(known, command, &txn).await?,
            Command::Remove(_) => self.apply_abort(known, key, &txn).await?,
            Command::Abort(_) => {
                self.left.insert(left(key));
                if self.env.decide_abort(self.limit, &txn).await?.is_none() {
                    return Ok(Finished::LookAgain);
                }
                self.apply_abort(known, key, &txn).await?;
            }
            Command::LeaveAlone(_) => {
                self.report.left_alone.push(left(key));
                self.left_alone.push(txn);
            }
        }
        Ok(Finished::Done)
    }

    fn done(&mut self, txn: &TxnContext) {
        self.left.remove(&(txn.client.clone(), txn.txn_id));
    }

    async fn commit_one(&mut self, known: &Known<'_>, command: &Command, txn: &TxnContext) -> Result<(), RuntimeError> {
        let key = key_of(command);
        let told = known.told(key).map(|(_, txn)| txn);
        let decided = match (command, told) {
            (Command::Apply(_), Some(told)) => told.state.clone(),
            _ => match self.env.decide_commit(self.limit, &txn.client, txn.txn_id).await {
                Ok(decided) => decided.state,
                Err(error) => return self.skip_lost(txn, error, known).await,
            },
        };
        let encoded = match known.element(key) {
            Some(element) => element.handle.clone(),
            None => self.told_handle(txn, told.and_then(|told| told.payload.clone())).await?,
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
        Envelope::from_payload(&payload.ok_or_else(lost)?)?.handle.ok_or_else(lost)
    }

    /// Goes on without a lost transaction, if the job has decided so.
    async fn skip_lost(
        &mut self,
        txn: &TxnContext,
        error: RuntimeError,
        known: &Known<'_>,
    ) -> Result<(), RuntimeError> {
        let Some(lost) = Lost::from_error(&error) else { return Err(error) };
        let last = known.last_committed.get(&txn.client).copied();
        let policy = self.lost.get(&lost).copied().unwrap_or_default();
        if !is_given_up(&self.rules, policy, lost, txn.txn_id, last) {
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
    async fn apply_abort(&mut self, known: &Known<'_>, key: &Key, txn: &TxnContext) -> Result<(), RuntimeError> {
        let told = known.told(key);
        let payload = told.and_then(|(_, txn)| txn.payload.as_ref());
        let handle = payload.map(Envelope::from_payload).transpose()?.and_then(|envelope| envelope.handle);
        let handle = handle.map(|handle| decode_handle(&handle)).transpose()?;
        self.env.sink_abort(self.limit, txn, handle.as_ref()).await?;
        self.env.ack(self.limit, txn, Outcome::Aborted).await?;
        if let Some((one, _)) = told {
            one.owned.log.remove(txn.txn_id).await?;
        }
        self.report.aborted += 1;
        self.done(txn);
        Ok(())
    }
}

fn key_of(command: &Command) -> &Key {
    match command {
        Command::Commit(key)
        | Command::Apply(key)
        | Command::Remove(key)
        | Command::Abort(key)
        | Command::LeaveAlone(key) => key,
    }
}

fn left((id, client): &Key) -> (ClientName, TxnId) {
    (client.clone(), *id)
}

#[cfg(test)]
mod tests {
    use ratified_protocol::{CheckpointId, Epoch, StoreId};

    use super::*;
    use crate::{
        pending::{MemoryStore, PendingStore},
        runtime::interval::Owned,
        sink::Slot,
    };

    fn element(client: &str, last: u8) -> SnapshotElement {
        SnapshotElement {
            store: StoreId::new(uuid::Uuid::from_bytes([9; 16]), 1).into(),
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
        let raised = [Raised { owned, unfinished: Vec::new(), last_committed: None, newest: None, floors: Vec::new() }];
        let named = [element("job.1", 1), element("job.0", 2)];
        let known = Known { raised: &raised, named: &named, last_committed: BTreeMap::new() };
        let epoch_of = |e: &SnapshotElement| known.context(&(e.txn_id, e.client.clone())).unwrap().epoch.as_u64();
        assert_eq!(named.each_ref().map(epoch_of), [7, 9]);
    }
}
