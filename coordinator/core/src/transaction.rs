//! One header: a transaction from `begin` until it is terminal.

use std::collections::BTreeSet;

use bytes::Bytes;
use ratified_protocol::{
    BeginRequest, ClientName, Epoch, ParticipantName, ParticipantState, Payload, PrepareRequest, Txn, TxnId, TxnState,
};

use crate::{
    effect::Revision,
    record::{ParticipantEntry, TransactionRecord},
    time::{Now, Uptime},
};

/// A live transaction.
#[derive(Debug, Clone)]
pub(crate) struct Transaction {
    pub(crate) record: TransactionRecord,
    pub(crate) acks: BTreeSet<ParticipantName>,
    pub(crate) payload: Option<Bytes>,
    /// When it is aborted unless something happens before; memory only (a restart gives one full new period).
    pub(crate) deadline: Option<Uptime>,
    /// Since when its decision waits for acknowledgements; memory only (a restart begins anew).
    pub(crate) ending_since: Option<Uptime>,
    /// The newest step that changed it.
    pub(crate) changed: Revision,
}

impl Transaction {
    pub(crate) fn begin(request: &BeginRequest, epoch: Epoch, now: Now) -> Self {
        let participants = request.participants.as_set().iter();
        Self {
            record: TransactionRecord {
                state: TxnState::Open,
                epoch,
                timeout_ms: request.timeout_ms,
                prepared_timeout_ms: None,
                require_prepare: request.require_prepare,
                checkpoint_id: None,
                labels: request.labels.clone(),
                participants: participants
                    .map(|name| ParticipantEntry { name: name.clone(), at_begin: true, retired: false })
                    .collect(),
                begin_time: now.wall,
                prepare_time: None,
                begun: now.uptime,
                prepared: None,
                decision: None,
            },
            acks: BTreeSet::new(),
            payload: None,
            deadline: Some(now.uptime.plus_millis(request.timeout_ms.as_millis())),
            ending_since: None,
            changed: Revision::default(),
        }
    }

    /// Whether a repeat of `begin` asks for the same transaction; epoch and later registrations do not count.
    pub(crate) fn was_begun_with(&self, request: &BeginRequest) -> bool {
        let at_begin = self.record.participants.iter().filter(|p| p.at_begin).map(|p| &p.name);
        self.record.timeout_ms == request.timeout_ms
            && self.record.require_prepare == request.require_prepare
            && self.record.labels == request.labels
            && at_begin.eq(request.participants.as_set().iter())
    }

    pub(crate) fn was_prepared_with(&self, request: &PrepareRequest) -> bool {
        self.record.checkpoint_id == request.checkpoint_id
            && self.record.prepared_timeout_ms == request.prepared_timeout_ms
            && self.payload.as_deref() == request.payload.as_ref().map(Payload::as_bytes)
    }

    /// Whether its deadline has passed: at the deadline itself it has.
    pub(crate) fn is_due(&self, now: Uptime) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// One full period from now, for a state that has one.
    pub(crate) fn period_from(&self, now: Uptime) -> Option<Uptime> {
        let period = match self.record.state {
            TxnState::Open => Some(self.record.timeout_ms),
            TxnState::Prepared => self.record.prepared_timeout_ms,
            _ => None,
        };
        period.map(|p| now.plus_millis(p.as_millis()))
    }

    pub(crate) fn participant(&self, name: &ParticipantName) -> Option<&ParticipantEntry> {
        self.record.participants.iter().find(|p| p.name == *name)
    }

    /// Who takes part and was not retired.
    pub(crate) fn members(&self) -> impl Iterator<Item = &ParticipantName> {
        self.record.participants.iter().filter(|p| !p.retired).map(|p| &p.name)
    }

    /// Whose acknowledgement is missing.
    pub(crate) fn missing_acks(&self) -> impl Iterator<Item = &ParticipantName> {
        self.members().filter(|name| !self.acks.contains(*name))
    }

    /// The transaction as told to a caller.
    pub(crate) fn view(&self, client: &ClientName, id: TxnId, now: Uptime) -> Txn {
        let record = &self.record;
        let participants = self.members().map(|n| ParticipantState::new(n.clone(), self.acks.contains(n))).collect();
        let mut view = Txn::new(client.clone(), id, record.state);
        view.epoch = Some(record.epoch);
        view.checkpoint_id = record.checkpoint_id;
        view.begin_time = Some(record.begin_time);
        view.prepare_time = record.prepare_time;
        view.deadline_in_ms = self.deadline.map(|d| d.millis_since(now));
        view.end_reason = record.decision.map(|d| d.reason.into());
        view.participants = Some(participants);
        view.labels = Some(record.labels.clone());
        view.payload = self.payload.clone().map(Payload::new);
        view
    }
}
