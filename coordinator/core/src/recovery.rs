//! From records back to an engine.
//!
//! The order is fixed: clients, then the preserver, then transactions; an old outcome must never displace a live
//! decision. Every COMMITTING and ABORTING header goes on where it stood, and every deadline gets one full new period,
//! since downtime counts for nothing.

mod contradictions;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use bytes::Bytes;
use ratified_protocol::{ClientName, Outcome, ParticipantName, TxnId};
use thiserror::Error;

use self::contradictions::{Header, check_client, check_header, check_outcome};
use crate::{
    client::Client,
    effect::{Effect, Revision},
    engine::Engine,
    limits::Limits,
    paged::Paged,
    preserver::Entry,
    record::{ClientRecord, OutcomeRecord, ParticipantRecord, Record, TransactionRecord},
    step::Step,
    time::Now,
    transaction::Transaction,
};

type TxnKey = (ClientName, TxnId);

/// Why records cannot be what a coordinator wrote; it must refuse to start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct RecoveryError {
    /// The record's place, for people.
    pub place: String,
    /// What is wrong with it.
    pub problem: String,
}

fn damaged(place: &str, client: &ClientName, id: TxnId, problem: impl Into<String>) -> RecoveryError {
    RecoveryError { place: format!("{place} {client}/{id}"), problem: problem.into() }
}

/// Collects records and rebuilds an engine from them.
#[derive(Debug)]
pub struct Recovery {
    limits: Limits,
    loads: u64,
    clients: BTreeMap<ClientName, ClientRecord>,
    transactions: BTreeMap<TxnKey, TransactionRecord>,
    acks: BTreeMap<TxnKey, BTreeSet<ParticipantName>>,
    payloads: BTreeMap<TxnKey, Bytes>,
    outcomes: BTreeMap<TxnKey, OutcomeRecord>,
    participants: BTreeMap<ParticipantName, ParticipantRecord>,
}

impl Recovery {
    /// Starts with nothing. `loads` is the number of this start: cursors of other starts count as absent.
    pub const fn new(limits: Limits, loads: u64) -> Self {
        Self {
            limits,
            loads,
            clients: BTreeMap::new(),
            transactions: BTreeMap::new(),
            acks: BTreeMap::new(),
            payloads: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            participants: BTreeMap::new(),
        }
    }

    /// Takes one record, in any order.
    ///
    /// # Errors
    /// A key was given twice; the caller must refuse to start and show the place.
    pub fn add(&mut self, record: Record) -> Result<(), RecoveryError> {
        let place = format!("{:?}", record.key());
        let is_new = match record {
            Record::Client(name, record) => self.clients.insert(name, record).is_none(),
            Record::Transaction(name, id, record) => self.transactions.insert((name, id), record).is_none(),
            Record::Ack(name, id, participant) => self.acks.entry((name, id)).or_default().insert(participant),
            Record::Payload(name, id, bytes) => self.payloads.insert((name, id), bytes).is_none(),
            Record::Outcome(name, id, record) => self.outcomes.insert((name, id), record).is_none(),
            Record::Participant(name, record) => self.participants.insert(name, record).is_none(),
        };
        if is_new { Ok(()) } else { Err(RecoveryError { place, problem: "it is there twice".to_owned() }) }
    }

    /// The engine, and what has to be written before anything is served: endings that wait for nobody.
    ///
    /// # Errors
    /// The records contradict each other; the caller must refuse to start and show the place.
    pub fn finish(mut self, now: Now) -> Result<(Engine, Vec<Effect>), RecoveryError> {
        let mut engine = Engine::empty(self.limits, self.loads, now.uptime);
        for (name, record) in std::mem::take(&mut self.participants) {
            engine.participants.set_record(name, record);
        }
        self.restore_clients(&mut engine)?;
        self.restore_preserver(&mut engine)?;
        let ending = self.restore_transactions(&mut engine, now)?;
        self.refuse_orphans()?;
        let mut effects = Vec::new();
        let mut step = Step::new(&mut engine, now, &mut effects);
        for (name, id) in ending {
            step.finish_if_acked(&name, id);
        }
        step.engine.resume_calls();
        let names: Vec<_> = step.engine.clients.keys().cloned().collect();
        for name in names {
            step.trim_outcomes(&name);
            step.engine.reindex_idle(&name);
        }
        engine.seal(&mut effects);
        Ok((engine, effects))
    }

    fn restore_clients(&mut self, engine: &mut Engine) -> Result<(), RecoveryError> {
        for (name, record) in std::mem::take(&mut self.clients) {
            check_client(&record)
                .map_err(|problem| RecoveryError { place: format!("client {name}"), problem: problem.to_owned() })?;
            engine.tombstones += usize::from(record.forgotten);
            let mut client = Client::from_record(record);
            client.record.newest_txn_id = client.record.newest_txn_id.max(client.record.evicted_through);
            if let Some(last) = client.record.last_committed {
                client.record.newest_txn_id = client.record.newest_txn_id.max(Some(last.txn_id));
                client.last_payload = self.payloads.get(&(name.clone(), last.txn_id)).cloned();
                // A live header brings its own payload; the two share one record.
                if !self.transactions.contains_key(&(name.clone(), last.txn_id)) {
                    engine.payload_bytes += client.last_payload.as_ref().map_or(0, |p| p.len() as u64);
                    self.payloads.remove(&(name.clone(), last.txn_id));
                }
            }
            engine.clients.insert(name, client);
        }
        Ok(())
    }

    fn restore_preserver(&mut self, engine: &mut Engine) -> Result<(), RecoveryError> {
        let mut outcomes: Vec<_> = std::mem::take(&mut self.outcomes).into_iter().collect();
        outcomes.sort_by_key(|(_, record)| record.termination);
        let mut last = 0;
        for ((name, id), record) in outcomes {
            let Some(client) = engine.clients.get_mut(&name) else {
                return Err(damaged("outcome", &name, id, "its client is missing"));
            };
            if self.transactions.contains_key(&(name.clone(), id)) {
                return Err(damaged("outcome", &name, id, "its transaction is still live"));
            }
            check_outcome(client, id, &record, last).map_err(|problem| damaged("outcome", &name, id, problem))?;
            last = record.termination;
            client.record.newest_txn_id = client.record.newest_txn_id.max(Some(id));
            engine.preserver.restore(&name, id, record);
        }
        Ok(())
    }

    /// Returns the transactions that were ending.
    fn restore_transactions(&mut self, engine: &mut Engine, now: Now) -> Result<Vec<TxnKey>, RecoveryError> {
        let mut ending = Vec::new();
        let mut decisions = BTreeSet::new();
        for ((name, id), record) in std::mem::take(&mut self.transactions) {
            let key = (name.clone(), id);
            let Some(client) = engine.clients.get_mut(&name) else {
                return Err(damaged("transaction", &name, id, "its client is missing"));
            };
            let payload = self.payloads.remove(&key);
            let acks = self.acks.remove(&key).unwrap_or_default();
            let header = Header { id, record: &record, acks: &acks, has_payload: payload.is_some() };
            check_header(client, &header).map_err(|problem| damaged("transaction", &name, id, problem))?;
            if record.decision.is_some_and(|decision| !decisions.insert(decision.number)) {
                return Err(damaged("transaction", &name, id, "its decision's number is taken"));
            }
            let ending_since = record.decision.map(|_| now.uptime);
            let mut txn =
                Transaction { record, acks, payload, deadline: None, ending_since, changed: Revision::default() };
            txn.deadline = txn.period_from(now.uptime);
            if let Some(decision) = txn.record.decision {
                engine.next_decision = engine.next_decision.max(decision.number + 1);
                ending.push(key);
            }
            client.record.newest_txn_id = client.record.newest_txn_id.max(Some(id));
            let appended = pending_outcome(&txn);
            engine.insert_header(&name, id, txn);
            if let Some(entry) = appended {
                engine.preserver.append(&name, id, entry);
            }
        }
        Ok(ending)
    }

    fn refuse_orphans(&self) -> Result<(), RecoveryError> {
        if let Some((name, id)) = self.payloads.keys().next() {
            return Err(damaged("payload", name, *id, "nothing refers to it"));
        }
        if let Some((name, id)) = self.acks.keys().next() {
            return Err(damaged("ack", name, *id, "its transaction is missing"));
        }
        Ok(())
    }
}

impl Engine {
    /// What calls were about when the coordinator ended: nobody waits for them any longer, and they are done all the same.
    fn resume_calls(&mut self) {
        for (name, client) in &self.clients {
            let epoch = client.record.epoch;
            if client.overtaken > 0 {
                let (client, from) = (name.clone(), Bound::Unbounded);
                self.pages.push(Paged::Fence { ticket: None, client, epoch, request: None, from });
            }
        }
        for participant in self.participants.names() {
            let is_half_gone =
                self.participants.is_retired(participant) && self.participants.first_membership(participant).is_some();
            if is_half_gone {
                self.pages.push(Paged::Retire { ticket: None, participant: participant.clone() });
            }
        }
    }
}

impl Step<'_> {
    /// The bound may be lower than when these outcomes were kept.
    fn trim_outcomes(&mut self, name: &ClientName) {
        for outcome in Outcome::ALL {
            let dropped = self.engine.preserver.trim(name, outcome);
            self.engine.stats.evicted_by_limit += dropped.len() as u64;
            for one in dropped {
                self.outcome_dropped(&one);
            }
        }
    }
}

/// The preserver's entry of a header that was ending: step 3 of the chain, taken again.
fn pending_outcome(txn: &Transaction) -> Option<Entry> {
    let (outcome, decision) = (txn.record.state.outcome()?, txn.record.decision?);
    Some(Entry {
        outcome,
        end_reason: decision.reason,
        checkpoint_id: txn.record.checkpoint_id,
        terminal: None,
        flushed: false,
        changed: Revision::default(),
    })
}
