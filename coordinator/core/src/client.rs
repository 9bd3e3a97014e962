//! One client: its epoch, its watermarks, its last commit, and its live transactions.

use std::collections::BTreeMap;

use bytes::Bytes;
use ratified_protocol::{Epoch, Incarnation, LastCommitted, Payload, ShortText, TxnId, TxnState};

use crate::{
    effect::Revision,
    record::{ClientRecord, LastCommittedRecord},
    time::Uptime,
    transaction::Transaction,
};

/// How many incarnations of a client are remembered: late duplicates of an `open` among them disturb nobody.
pub(crate) const REMEMBERED_INCARNATIONS: usize = 16;

/// A client in memory.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) record: ClientRecord,
    /// Live transactions.
    pub(crate) txns: BTreeMap<TxnId, Transaction>,
    /// The payload of `record.last_committed`.
    pub(crate) last_payload: Option<Bytes>,
    /// How many live transactions are in each of OPEN, PREPARED, COMMITTING, ABORTING.
    pub(crate) counts: [u64; 4],
    /// How many are OPEN under an older epoch than the current one: they are still to be fenced.
    pub(crate) overtaken: u64,
    /// The newest step that changed anything of this client.
    pub(crate) changed: Revision,
    /// When anything of this client last changed.
    pub(crate) active: Uptime,
    /// Under which time it stands in the index of idle clients.
    pub(crate) idle_since: Option<Uptime>,
}

/// Where a live state is counted; `None` for a terminal one.
pub(crate) const fn live_index(state: TxnState) -> Option<usize> {
    match state {
        TxnState::Open => Some(0),
        TxnState::Prepared => Some(1),
        TxnState::Committing => Some(2),
        TxnState::Aborting => Some(3),
        TxnState::Committed | TxnState::Aborted => None,
    }
}

impl Client {
    /// A name that was never opened: the next epoch is the first.
    pub(crate) fn unopened(now: Uptime) -> Self {
        Self::from_record(ClientRecord {
            epoch: Epoch::new(0),
            incarnations: Vec::new(),
            owner: None,
            previous_owner: None,
            evicted_through: None,
            newest_txn_id: None,
            last_committed: None,
            forgotten: false,
            written: now,
            generation: None,
        })
    }

    pub(crate) fn from_record(record: ClientRecord) -> Self {
        let active = record.written;
        Self {
            record,
            txns: BTreeMap::new(),
            last_payload: None,
            counts: [0; 4],
            overtaken: 0,
            changed: Revision::default(),
            active,
            idle_since: None,
        }
    }

    pub(crate) fn open_count(&self) -> u64 {
        self.counts[0]
    }

    /// The epoch before the current one; `None` at first. Every `open` raises the epoch by exactly one.
    pub(crate) fn previous_epoch(&self) -> Option<Epoch> {
        self.record.epoch.as_u64().checked_sub(1).filter(|e| *e > 0).map(Epoch::new)
    }

    /// Whether this incarnation holds the client; `None` when it is not remembered.
    pub(crate) fn is_current(&self, incarnation: Incarnation) -> Option<bool> {
        let known = self.record.incarnations.contains(&incarnation);
        known.then(|| self.record.incarnations.last() == Some(&incarnation))
    }

    /// Gives the client to a new incarnation.
    pub(crate) fn hand_over(&mut self, epoch: Epoch, incarnation: Incarnation, owner: Option<ShortText>) {
        assert!(epoch > self.record.epoch, "an epoch is never reused");
        self.record.epoch = epoch;
        self.overtaken = self.open_count();
        self.record.previous_owner = std::mem::replace(&mut self.record.owner, owner);
        self.record.incarnations.push(incarnation);
        let surplus = self.record.incarnations.len().saturating_sub(REMEMBERED_INCARNATIONS);
        self.record.incarnations.drain(..surplus);
        self.record.forgotten = false;
    }

    /// Whether a transaction was left OPEN by an older epoch.
    pub(crate) fn has_overtaken(&self, txn: &Transaction) -> bool {
        txn.record.state == TxnState::Open && txn.record.epoch < self.record.epoch
    }

    /// Whether an id lies at or below the watermark: if it is absent, it is not known whether it ever began.
    pub(crate) fn has_evicted(&self, id: TxnId) -> bool {
        self.record.evicted_through.is_some_and(|through| id <= through)
    }

    pub(crate) fn is_last_committed(&self, id: TxnId) -> bool {
        self.record.last_committed.is_some_and(|last| last.txn_id == id)
    }

    pub(crate) fn last_committed(&self) -> Option<LastCommitted> {
        self.record.last_committed.map(|last| last_committed_view(&last, self.last_payload.clone()))
    }

    /// Without payload, for listings.
    pub(crate) fn last_committed_brief(&self) -> Option<LastCommitted> {
        self.record.last_committed.map(|last| last_committed_view(&last, None))
    }

    pub(crate) fn owner(&self) -> Option<String> {
        self.record.owner.clone().map(String::from)
    }

    pub(crate) fn count(&mut self, state: TxnState, change: i64) {
        if let Some(count) = live_index(state).and_then(|i| self.counts.get_mut(i)) {
            *count = count.saturating_add_signed(change);
        }
    }
}

fn last_committed_view(last: &LastCommittedRecord, payload: Option<Bytes>) -> LastCommitted {
    let mut view = LastCommitted::new(last.txn_id, last.end_time, last.end_reason);
    view.checkpoint_id = last.checkpoint_id;
    view.payload = payload.map(Payload::new);
    view
}
