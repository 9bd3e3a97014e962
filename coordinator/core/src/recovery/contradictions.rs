//! What records of one store can never say together. Found at load and refused by name: served, it would break a
//! promise later, or stop the engine in the middle of a step.

use std::collections::BTreeSet;

use ratified_protocol::{Outcome, ParticipantName, TxnId, TxnState};

use crate::{
    client::Client,
    record::{ClientRecord, OutcomeRecord, TransactionRecord},
};

type Verdict = Result<(), &'static str>;

fn refuse_if(contradicts: bool, problem: &'static str) -> Verdict {
    if contradicts { Err(problem) } else { Ok(()) }
}

/// A header and what lies beside it.
pub(super) struct Header<'a> {
    pub(super) id: TxnId,
    pub(super) record: &'a TransactionRecord,
    pub(super) acks: &'a BTreeSet<ParticipantName>,
    pub(super) has_payload: bool,
}

pub(super) fn check_client(record: &ClientRecord) -> Verdict {
    let has_last = record.last_committed.is_some();
    refuse_if(record.forgotten && has_last, "it was forgotten, and has a last commit")?;
    let begins_again = record.forgotten && record.evicted_through < record.newest_txn_id;
    refuse_if(begins_again, "it was forgotten, and its evictedThrough is below its newest id")
}

pub(super) fn check_outcome(client: &Client, id: TxnId, record: &OutcomeRecord, last_number: u64) -> Verdict {
    let last = client.record.last_committed.map(|last| last.txn_id);
    let is_commit = record.outcome == Outcome::Committed;
    refuse_if(record.termination <= last_number, "its place in the order of termination is taken")?;
    refuse_if(record.termination == u64::MAX, "its place in the order of termination is the last there is")?;
    refuse_if(client.record.forgotten, "its client was forgotten")?;
    refuse_if(is_commit && last < Some(id), "it is committed, and newer than its client's last commit")?;
    refuse_if(!is_commit && last == Some(id), "it is aborted, and its client's last commit")
}

pub(super) fn check_header(client: &Client, header: &Header<'_>) -> Verdict {
    let Header { id, record, .. } = *header;
    let decided = record.state.outcome();
    let last = client.record.last_committed.map(|last| last.txn_id);
    refuse_if(record.state.is_terminal(), "a terminal transaction has no header")?;
    refuse_if(decided.is_some() != record.decision.is_some(), "its state and its decision contradict each other")?;
    refuse_if(record.epoch > client.record.epoch, "its epoch is greater than its client's")?;
    let is_open = record.state == TxnState::Open;
    let is_commit = decided == Some(Outcome::Committed);
    refuse_if(is_commit && last < Some(id), "it is committed, and newer than its client's last commit")?;
    refuse_if(!is_commit && last == Some(id), "it is not committed, and its client's last commit")?;
    refuse_if(client.record.forgotten, "its client was forgotten")?;
    refuse_if(record.decision.is_some_and(|d| d.number == u64::MAX), "its decision's number is the last there is")?;
    refuse_if(is_open && header.has_payload, "it is OPEN, and has a payload")?;
    refuse_if(decided.is_none() && !header.acks.is_empty(), "it is acknowledged before it is decided")?;
    check_participants(header)
}

fn check_participants(header: &Header<'_>) -> Verdict {
    let entries = &header.record.participants;
    let in_order = entries.iter().zip(entries.iter().skip(1)).all(|(a, b)| a.name < b.name);
    refuse_if(!in_order, "its participants are not in order")?;
    let stranger = header.acks.iter().any(|name| entries.iter().all(|p| p.name != *name));
    refuse_if(stranger, "it is acknowledged by somebody who takes no part")
}
