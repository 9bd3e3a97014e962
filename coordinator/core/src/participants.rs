//! Participants: who is retired, who takes part in what, and who still has to acknowledge which decision.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
};

use ratified_protocol::{ClientName, ParticipantName, TxnId};

use crate::record::ParticipantRecord;

type TxnKey = (ClientName, TxnId);

/// The index by participant. The truth is in the headers; this follows them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Participants {
    records: BTreeMap<ParticipantName, ParticipantRecord>,
    members: BTreeMap<ParticipantName, BTreeSet<TxnKey>>,
    pending: BTreeMap<ParticipantName, BTreeMap<u64, TxnKey>>,
    pending_acks: u64,
}

impl Participants {
    pub(crate) fn record(&self, name: &ParticipantName) -> Option<&ParticipantRecord> {
        self.records.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &ParticipantName> {
        self.records.keys()
    }

    pub(crate) fn name_behind(&self, name: Option<&ParticipantName>) -> Option<&ParticipantName> {
        self.records
            .range::<ParticipantName, _>((name.map_or(Unbounded, Excluded), Unbounded))
            .next()
            .map(|(name, _)| name)
    }

    pub(crate) fn set_record(&mut self, name: ParticipantName, record: ParticipantRecord) {
        self.records.insert(name, record);
    }

    pub(crate) fn is_retired(&self, name: &ParticipantName) -> bool {
        self.records.get(name).is_some_and(|r| r.retired)
    }

    pub(crate) fn join(&mut self, name: &ParticipantName, client: &ClientName, id: TxnId) {
        self.members.entry(name.clone()).or_default().insert((client.clone(), id));
    }

    pub(crate) fn leave(&mut self, name: &ParticipantName, client: &ClientName, id: TxnId) {
        if let Some(set) = self.members.get_mut(name) {
            set.remove(&(client.clone(), id));
            if set.is_empty() {
                self.members.remove(name);
            }
        }
    }

    /// How many unfinished transactions a participant takes part in.
    pub(crate) fn membership_count(&self, name: &ParticipantName) -> usize {
        self.members.get(name).map_or(0, BTreeSet::len)
    }

    /// The first of them.
    pub(crate) fn first_membership(&self, name: &ParticipantName) -> Option<TxnKey> {
        self.members.get(name)?.first().cloned()
    }

    /// A decision waits for this participant.
    pub(crate) fn expect_ack(&mut self, name: &ParticipantName, decision: u64, client: &ClientName, id: TxnId) {
        let before = self.pending.entry(name.clone()).or_default().insert(decision, (client.clone(), id));
        debug_assert!(before.is_none(), "decision numbers are unique");
        self.pending_acks += 1;
    }

    /// A decision does not wait for this participant any more.
    pub(crate) fn settle(&mut self, name: &ParticipantName, decision: u64) {
        if let Some(decisions) = self.pending.get_mut(name) {
            if decisions.remove(&decision).is_some() {
                self.pending_acks -= 1;
            }
            if decisions.is_empty() {
                self.pending.remove(name);
            }
        }
    }

    /// Decisions that wait for a participant, oldest first, those numbered above `after`.
    pub(crate) fn decisions(&self, name: &ParticipantName, after: u64) -> impl Iterator<Item = (u64, &TxnKey)> {
        let above = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        self.pending.get(name).into_iter().flat_map(move |d| d.range(above)).map(|(number, key)| (*number, key))
    }

    pub(crate) const fn pending_acks(&self) -> u64 {
        self.pending_acks
    }

    pub(crate) fn all_pending(&self) -> impl Iterator<Item = (&ParticipantName, u64, &TxnKey)> {
        self.pending.iter().flat_map(|(name, d)| d.iter().map(move |(number, key)| (name, *number, key)))
    }

    pub(crate) fn all_members(&self) -> impl Iterator<Item = (&ParticipantName, &TxnKey)> {
        self.members.iter().flat_map(|(name, keys)| keys.iter().map(move |key| (name, key)))
    }
}
