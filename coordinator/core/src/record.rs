//! What is durable. The shell turns these into bytes (a version byte first) and back; it never looks inside.

use bytes::Bytes;
use ratified_protocol::{
    CheckpointId, ClientName, EndReason, Epoch, Generation, Incarnation, Labels, Outcome, ParticipantName, ShortText,
    TimeoutMs, TxnId, TxnState, WallTime,
};
use serde::{Deserialize, Serialize};

use crate::time::Uptime;

/// One durable fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A client.
    Client(ClientName, ClientRecord),
    /// A transaction's header.
    Transaction(ClientName, TxnId, TransactionRecord),
    /// A participant's acknowledgement.
    Ack(ClientName, TxnId, ParticipantName),
    /// A transaction's payload; written once, never rewritten.
    Payload(ClientName, TxnId, Bytes),
    /// A preserved outcome.
    Outcome(ClientName, TxnId, OutcomeRecord),
    /// What is recorded about a participant.
    Participant(ParticipantName, ParticipantRecord),
}

/// Where a record lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Of a client.
    Client(ClientName),
    /// Of a header.
    Transaction(ClientName, TxnId),
    /// Of an acknowledgement.
    Ack(ClientName, TxnId, ParticipantName),
    /// Of a payload.
    Payload(ClientName, TxnId),
    /// Of a preserved outcome.
    Outcome(ClientName, TxnId),
    /// Of a participant.
    Participant(ParticipantName),
}

impl Record {
    /// Where this record lies.
    pub fn key(&self) -> Key {
        match self {
            Self::Client(client, _) => Key::Client(client.clone()),
            Self::Transaction(client, id, _) => Key::Transaction(client.clone(), *id),
            Self::Ack(client, id, participant) => Key::Ack(client.clone(), *id, participant.clone()),
            Self::Payload(client, id, _) => Key::Payload(client.clone(), *id),
            Self::Outcome(client, id, _) => Key::Outcome(client.clone(), *id),
            Self::Participant(name, _) => Key::Participant(name.clone()),
        }
    }
}

/// One change of what is durable; applied atomically with the rest of its batch, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Insert or replace.
    Put(Record),
    /// Remove; harmless when absent.
    Delete(Key),
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// The current epoch.
    pub epoch: Epoch,
    /// The last 16 incarnations, the current one last.
    pub incarnations: Vec<Incarnation>,
    /// Who holds the epoch.
    pub owner: Option<ShortText>,
    /// Who held the epoch before.
    pub previous_owner: Option<ShortText>,
    /// The greatest id of which the last trace was removed.
    pub evicted_through: Option<TxnId>,
    /// The greatest id begun when this was written; ids with a trace may be greater.
    pub newest_txn_id: Option<TxnId>,
    /// The committed transaction with the greatest id.
    pub last_committed: Option<LastCommittedRecord>,
    /// Whether only this tombstone is left.
    pub forgotten: bool,
    /// When this was written.
    pub written: Uptime,
    /// The greatest generation it was opened with. Not part of the derived form: only a later version of the record
    /// holds it.
    #[serde(skip)]
    pub generation: Option<Generation>,
}

/// The committed transaction of a client with the greatest id; its payload is a record of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCommittedRecord {
    /// Which one.
    pub txn_id: TxnId,
    /// The checkpoint it was committed with.
    pub checkpoint_id: Option<CheckpointId>,
    /// When it became terminal; the time of the decision before.
    pub end_time: WallTime,
    /// Who decided it.
    pub end_reason: EndReason,
}

/// A transaction's header: there from begin until it is terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionRecord {
    /// OPEN, PREPARED, COMMITTING or ABORTING; a terminal transaction has no header.
    pub state: TxnState,
    /// The epoch that began it.
    pub epoch: Epoch,
    /// How long it may stay OPEN without a keep-alive.
    pub timeout_ms: TimeoutMs,
    /// How long it may stay PREPARED; `None` = held.
    pub prepared_timeout_ms: Option<TimeoutMs>,
    /// Whether commit from OPEN is refused.
    pub require_prepare: bool,
    /// The checkpoint that lists it.
    pub checkpoint_id: Option<CheckpointId>,
    /// As given at begin.
    pub labels: Labels,
    /// Who takes part, in order of names.
    pub participants: Vec<ParticipantEntry>,
    /// When it began, for people.
    pub begin_time: WallTime,
    /// When it was prepared, for people.
    pub prepare_time: Option<WallTime>,
    /// When it began.
    pub begun: Uptime,
    /// When it was prepared.
    pub prepared: Option<Uptime>,
    /// The decision, once there is one.
    pub decision: Option<DecisionRecord>,
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// Who or what decided.
    pub reason: EndReason,
    /// The place among all decisions of this store; participants are told in this order.
    pub number: u64,
}

/// A participant of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParticipantEntry {
    /// Its name.
    pub name: ParticipantName,
    /// Whether begin named it (rather than a later registration): a repeat of begin must name the same ones.
    pub at_begin: bool,
    /// Whether it was dropped by a retirement: no acknowledgement is awaited, and a late one is welcome.
    pub retired: bool,
}

/// A preserved outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeRecord {
    /// What was decided.
    pub outcome: Outcome,
    /// Who or what decided it.
    pub end_reason: EndReason,
    /// The checkpoint it was prepared or committed with.
    pub checkpoint_id: Option<CheckpointId>,
    /// When it became terminal, for people.
    pub end_time: WallTime,
    /// When it became terminal.
    pub ended: Uptime,
    /// The place among all terminations of this store; eviction follows it.
    pub termination: u64,
}

/// What is recorded about a participant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParticipantRecord {
    /// Whether it was declared gone.
    pub retired: bool,
    /// Why.
    pub reason: Option<ShortText>,
}
