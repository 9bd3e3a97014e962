//! What the engine holds, as records say it: the oracle reads nothing else.

use std::collections::{BTreeMap, BTreeSet};

use ratified_core::{ClientRecord, OutcomeRecord, Record, TransactionRecord};
use ratified_protocol::{ClientName, Outcome, TxnId, TxnState};

pub(super) type TxnKey = (ClientName, TxnId);

/// Records by kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Snapshot {
    pub(super) clients: BTreeMap<ClientName, ClientRecord>,
    pub(super) headers: BTreeMap<TxnKey, TransactionRecord>,
    pub(super) outcomes: BTreeMap<TxnKey, OutcomeRecord>,
}

impl Snapshot {
    pub(super) fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut snapshot = Self::default();
        for record in records {
            match record.clone() {
                Record::Client(name, record) => drop(snapshot.clients.insert(name, record)),
                Record::Transaction(name, id, record) => drop(snapshot.headers.insert((name, id), record)),
                Record::Outcome(name, id, record) => drop(snapshot.outcomes.insert((name, id), record)),
                _ => {}
            }
        }
        snapshot
    }

    /// What was decided about a transaction, by any trace of it.
    pub(super) fn decided(&self, key: &TxnKey) -> Option<Outcome> {
        let header = self.headers.get(key).and_then(|header| header.state.outcome());
        let outcome = self.outcomes.get(key).map(|outcome| outcome.outcome);
        let is_last = self.last_committed(&key.0) == Some(key.1);
        header.or(outcome).or(is_last.then_some(Outcome::Committed))
    }

    pub(super) fn last_committed(&self, client: &ClientName) -> Option<TxnId> {
        self.clients.get(client)?.last_committed.map(|last| last.txn_id)
    }

    pub(super) fn watermark(&self, client: &ClientName) -> Option<TxnId> {
        self.clients.get(client)?.evicted_through
    }

    pub(super) fn epoch(&self, client: &ClientName) -> u64 {
        self.clients.get(client).map_or(0, |record| record.epoch.as_u64())
    }

    /// Every id of which there is a trace.
    pub(super) fn traces(&self) -> BTreeSet<TxnKey> {
        let last = self.clients.keys().filter_map(|name| Some((name.clone(), self.last_committed(name)?)));
        self.headers.keys().chain(self.outcomes.keys()).cloned().chain(last).collect()
    }

    pub(super) fn state(&self, key: &TxnKey) -> Option<TxnState> {
        self.headers.get(key).map(|header| header.state)
    }
}
