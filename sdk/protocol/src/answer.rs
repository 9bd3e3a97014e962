//! Bodies of answers. They can grow: members and words that a reader does not know are no error, and each is made by its
//! constructor, with what may be absent left out; its members are then set.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{CheckpointId, ClientName, Epoch, ParticipantName, TxnId},
    problem::Problem,
    state::{EndReason, Outcome, TxnState},
    store::StoreId,
    told::Told,
    value::{Labels, Payload, WallTime},
};

/// A transaction as the coordinator knows it. Members that are no longer known, or do not apply, are absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Txn {
    /// Whose it is.
    pub client_name: ClientName,
    /// Which one.
    pub txn_id: TxnId,
    /// Where it stands.
    pub state: Told<TxnState>,
    /// Whether the request changed nothing because it had been carried out before.
    #[serde(default)]
    pub replayed: bool,
    /// Whether this was told by the preserver rather than by a live header.
    #[serde(default)]
    pub preserved: bool,
    /// The epoch that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// The checkpoint that lists it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_time: Option<WallTime>,
    /// When it was prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_time: Option<WallTime>,
    /// When it became terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<WallTime>,
    /// How long until its deadline, in milliseconds; `null` without one.
    #[serde(default)]
    pub deadline_in_ms: Option<u64>,
    /// Who or what decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<Told<EndReason>>,
    /// Who must acknowledge, and who has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participants: Option<Vec<ParticipantState>>,
    /// As given at `begin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    /// As given at `prepare`, or at `commit` from OPEN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// Whether a payload was left out to bound the answer; fetch it by GET.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub payload_omitted: bool,
}

impl Txn {
    /// A transaction of which no more than its state is known.
    pub fn new(client_name: ClientName, txn_id: TxnId, state: TxnState) -> Self {
        Self {
            client_name,
            txn_id,
            state: state.into(),
            replayed: false,
            preserved: false,
            epoch: None,
            checkpoint_id: None,
            begin_time: None,
            prepare_time: None,
            end_time: None,
            deadline_in_ms: None,
            end_reason: None,
            participants: None,
            labels: None,
            payload: None,
            payload_omitted: false,
        }
    }
}

/// A participant of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ParticipantState {
    /// Its name.
    pub name: ParticipantName,
    /// Whether it has acknowledged the outcome.
    pub acked: bool,
}

impl ParticipantState {
    /// A participant, and whether it has acknowledged.
    pub const fn new(name: ParticipantName, acked: bool) -> Self {
        Self { name, acked }
    }
}

/// A client's committed transaction with the greatest id; COMMITTING counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LastCommitted {
    /// Which one.
    pub txn_id: TxnId,
    /// The checkpoint it was committed with.
    pub checkpoint_id: Option<CheckpointId>,
    /// Its payload; absent in listings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// When it became terminal; the time of the decision while acknowledgements are missing.
    pub end_time: WallTime,
    /// Who decided it.
    pub end_reason: Told<EndReason>,
}

impl LastCommitted {
    /// A last commit without checkpoint and payload.
    pub fn new(txn_id: TxnId, end_time: WallTime, end_reason: EndReason) -> Self {
        Self { txn_id, checkpoint_id: None, payload: None, end_time, end_reason: end_reason.into() }
    }
}

/// The answer to `open`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct OpenAnswer {
    /// The epoch the caller now owns.
    pub epoch: Epoch,
    /// The epoch before; `null` at first.
    pub previous_epoch: Option<Epoch>,
    /// Who held it; `null` at first.
    pub previous_owner: Option<String>,
    /// Unfinished transactions, ascending by id, at most 1000; the rest by list.
    pub unfinished: Vec<Txn>,
    /// The client's last commit.
    pub last_committed: Option<LastCommitted>,
    /// The greatest id ever begun; new ids must be drawn above it.
    pub newest_txn_id: Option<TxnId>,
    /// The greatest id of which the last trace was removed; new ids must be drawn above it.
    pub evicted_through: Option<TxnId>,
    /// The stores that this one was restored from, once an operator has accepted that for the client. Whoever knows one
    /// of them goes on with this one.
    #[serde(default)]
    pub accepted_from: Vec<StoreId>,
}

impl OpenAnswer {
    /// The answer about a client that has neither past nor transactions.
    pub const fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            previous_epoch: None,
            previous_owner: None,
            unfinished: Vec::new(),
            last_committed: None,
            newest_txn_id: None,
            evicted_through: None,
            accepted_from: Vec::new(),
        }
    }
}

/// One outcome a participant has to apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Decision {
    /// Whose transaction.
    pub client_name: ClientName,
    /// Which one.
    pub txn_id: TxnId,
    /// What to apply.
    pub outcome: Told<Outcome>,
    /// As given at `prepare`, or at `commit` from OPEN.
    pub payload: Option<Payload>,
}

impl Decision {
    /// A decision to apply.
    pub fn new(client_name: ClientName, txn_id: TxnId, outcome: Outcome, payload: Option<Payload>) -> Self {
        Self { client_name, txn_id, outcome: outcome.into(), payload }
    }
}

/// Decided and not acknowledged, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DecisionsAnswer {
    /// What to apply, oldest decision first.
    pub decisions: Vec<Decision>,
    /// Give it as `after` to wait for something newer.
    pub cursor: String,
}

impl DecisionsAnswer {
    /// These decisions, oldest first.
    pub const fn new(decisions: Vec<Decision>, cursor: String) -> Self {
        Self { decisions, cursor }
    }
}

/// The answer to one item of a batch: a transaction or a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BatchResult {
    /// What the single call's HTTP status would have been.
    pub status: u16,
    /// With a 2xx.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txn: Option<Txn>,
    /// With anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl BatchResult {
    /// The operation succeeded with this status.
    pub const fn done(status: u16, txn: Txn) -> Self {
        Self { status, txn: Some(txn), problem: None }
    }

    /// The operation was refused.
    pub const fn refused(problem: Problem) -> Self {
        Self { status: problem.status, txn: None, problem: Some(problem) }
    }
}

/// The answer to `batch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BatchAnswer {
    /// One per operation that was looked at, in order.
    pub results: Vec<BatchResult>,
    /// The index of the item that ended an ordered batch.
    pub stopped_at: Option<u64>,
}

impl BatchAnswer {
    /// These results, in the order of the operations.
    pub const fn new(results: Vec<BatchResult>, stopped_at: Option<u64>) -> Self {
        Self { results, stopped_at }
    }
}

/// The answer to `batch` over many clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ManyAnswer {
    /// One per operation, in order.
    pub results: Vec<BatchResult>,
}

impl ManyAnswer {
    /// These results, in the order of the operations.
    pub const fn new(results: Vec<BatchResult>) -> Self {
        Self { results }
    }
}

/// An outcome in the preserver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PreservedOutcome {
    /// Which transaction.
    pub txn_id: TxnId,
    /// COMMITTING counts as COMMITTED, ABORTING as ABORTED (PIP-255).
    pub outcome: Told<Outcome>,
    /// Who or what decided it.
    pub end_reason: Told<EndReason>,
    /// The checkpoint it was prepared or committed with.
    pub checkpoint_id: Option<CheckpointId>,
    /// When it became terminal; absent while acknowledgements are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<WallTime>,
    /// How much longer, in milliseconds, it is kept whatever comes; `null` when time does not end it.
    pub kept_for_ms: Option<u64>,
}

impl PreservedOutcome {
    /// An outcome of which no more is known.
    pub fn new(txn_id: TxnId, outcome: Outcome, end_reason: EndReason) -> Self {
        Self {
            txn_id,
            outcome: outcome.into(),
            end_reason: end_reason.into(),
            checkpoint_id: None,
            end_time: None,
            kept_for_ms: None,
        }
    }
}

/// All that the preserver keeps about a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PreserverAnswer {
    /// Whose.
    pub client_name: ClientName,
    /// How many of the newest outcomes are kept, per outcome.
    pub persist_count: u64,
    /// Newest first.
    pub outcomes: Vec<PreservedOutcome>,
    /// The greatest id of which the last trace was removed.
    pub evicted_through: Option<TxnId>,
    /// The client's last commit, also when the preserver has dropped it.
    pub last_committed: Option<LastCommitted>,
}

impl PreserverAnswer {
    /// These outcomes, newest first.
    pub const fn new(client_name: ClientName, persist_count: u64, outcomes: Vec<PreservedOutcome>) -> Self {
        Self { client_name, persist_count, outcomes, evicted_through: None, last_committed: None }
    }
}

/// A client in a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClientItem {
    /// Its name.
    pub client_name: ClientName,
    /// Its current epoch.
    pub epoch: Epoch,
    /// Who holds it.
    pub owner: Option<String>,
    /// Whether only a tombstone is left.
    pub forgotten: bool,
    /// Its last commit, without payload.
    pub last_committed: Option<LastCommitted>,
    /// How many transactions it has in each state; COMMITTED and ABORTED are those the preserver keeps.
    pub counts: BTreeMap<Told<TxnState>, u64>,
}

impl ClientItem {
    /// A client that has neither owner nor transactions.
    pub const fn new(client_name: ClientName, epoch: Epoch) -> Self {
        Self { client_name, epoch, owner: None, forgotten: false, last_committed: None, counts: BTreeMap::new() }
    }

    /// How many transactions it has in this state.
    pub fn count(&self, state: TxnState) -> u64 {
        self.counts.get(&Told::Known(state)).copied().unwrap_or_default()
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct List<T> {
    /// In order of (clientName, txnId).
    pub items: Vec<T>,
    /// Give it as `pageToken` for the next page; its absence is the only end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

impl<T> List<T> {
    /// A page of these items.
    pub const fn new(items: Vec<T>, next_page_token: Option<String>) -> Self {
        Self { items, next_page_token }
    }
}

/// What is recorded about a participant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ParticipantAnswer {
    /// Its name.
    pub name: ParticipantName,
    /// Whether it was declared gone.
    pub retired: bool,
    /// Why.
    pub reason: Option<String>,
}

impl ParticipantAnswer {
    /// What is recorded about this participant.
    pub const fn new(name: ParticipantName, retired: bool, reason: Option<String>) -> Self {
        Self { name, retired, reason }
    }
}

/// What answers, and what it can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct VersionAnswer {
    /// `ratifyd`.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The version of the protocol.
    pub protocol: String,
    /// What this coordinator can do beyond the least.
    pub features: Vec<String>,
}

impl VersionAnswer {
    /// What answers.
    pub const fn new(name: String, version: String, protocol: String, features: Vec<String>) -> Self {
        Self { name, version, protocol, features }
    }
}
