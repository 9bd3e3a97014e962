//! Bodies of answers. Members a reader does not know are ignored, so that answers can grow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{CheckpointId, ClientName, Epoch, ParticipantName, StoreId, TxnId},
    problem::Problem,
    state::{EndReason, Outcome, TxnState},
    value::{Labels, Payload, WallTime},
};

/// A transaction as the coordinator knows it. Members that are no longer known, or do not apply, are absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Txn {
    /// Whose it is.
    pub client_name: ClientName,
    /// Which one.
    pub txn_id: TxnId,
    /// Where it stands.
    pub state: TxnState,
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
    pub end_reason: Option<EndReason>,
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

/// A participant of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParticipantState {
    /// Its name.
    pub name: ParticipantName,
    /// Whether it has acknowledged the outcome.
    pub acked: bool,
}

/// A client's committed transaction with the greatest id; COMMITTING counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
    pub end_reason: EndReason,
}

/// The answer to `open`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
    /// The stores that this client was accepted from after a restore of a backup; empty without one.
    #[serde(default)]
    pub accepted_from: Vec<StoreId>,
}

/// One outcome a participant has to apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Whose transaction.
    pub client_name: ClientName,
    /// Which one.
    pub txn_id: TxnId,
    /// What to apply.
    pub outcome: Outcome,
    /// As given at `prepare`, or at `commit` from OPEN.
    pub payload: Option<Payload>,
}

/// Decided and not acknowledged, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionsAnswer {
    /// What to apply, oldest decision first.
    pub decisions: Vec<Decision>,
    /// Give it as `after` to wait for something newer.
    pub cursor: String,
}

/// The answer to one item of a batch: a transaction or a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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

/// The answer to `batch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// One per operation that was looked at, in order.
    pub results: Vec<BatchResult>,
    /// The index of the item that ended an ordered batch.
    pub stopped_at: Option<u64>,
}

/// An outcome in the preserver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreservedOutcome {
    /// Which transaction.
    pub txn_id: TxnId,
    /// COMMITTING counts as COMMITTED, ABORTING as ABORTED (PIP-255).
    pub outcome: Outcome,
    /// Who or what decided it.
    pub end_reason: EndReason,
    /// The checkpoint it was prepared or committed with.
    pub checkpoint_id: Option<CheckpointId>,
    /// When it became terminal; absent while acknowledgements are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<WallTime>,
    /// How much longer, in milliseconds, it is kept whatever comes; `null` when time does not end it.
    pub kept_for_ms: Option<u64>,
}

/// All that the preserver keeps about a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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

/// A client in a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
    pub counts: BTreeMap<TxnState, u64>,
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    /// In order of (clientName, txnId).
    pub items: Vec<T>,
    /// Give it as `pageToken` for the next page; its absence is the only end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// What is recorded about a participant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParticipantAnswer {
    /// Its name.
    pub name: ParticipantName,
    /// Whether it was declared gone.
    pub retired: bool,
    /// Why.
    pub reason: Option<String>,
}

/// What answers, and what it can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
