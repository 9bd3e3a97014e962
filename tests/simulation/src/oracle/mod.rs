//! What is known to be true, from outside the engine: what it held, what is durable, and what anybody was told.
//!
//! Part D of the catalogue, one function per property. Three places check: [`changes`] at the step that changes
//! something, [`durable`] when a batch is written and when a coordinator has been recovered, [`told`] when an answer
//! leaves. Whatever was told once binds every later answer, across all crashes.

pub mod causes;
pub mod changes;
pub mod clients;
pub mod durable;
pub mod finale;
pub mod told;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ratified_core::{Engine, Input, Key, Limits, Now, OutcomeRecord, Record, Request, TransactionRecord, Uptime};
use ratified_protocol::{ClientName, EndReason, Epoch, Incarnation, Outcome, ParticipantName, TxnId, TxnState};

use crate::probes::{Probe, Probes};

/// A transaction.
pub type TxnKey = (ClientName, TxnId);

/// What a check comes to: what is wrong, if anything.
pub type Verdict = Result<(), String>;

pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

/// A request that was stepped and waits for its answer.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What was asked.
    pub request: Request,
    /// When it came.
    pub now: Now,
    /// Whether its step changed anything durable.
    pub changed: bool,
}

/// What the steps of a batch did.
#[derive(Debug, Clone, Default)]
pub struct Marks {
    /// Steps.
    pub steps: u64,
    /// Decisions made.
    pub decisions: u64,
    /// Headers removed.
    pub terminals: u64,
    /// Outcomes dropped.
    pub drops: u64,
    flushed: BTreeMap<ClientName, u64>,
}

impl Marks {
    /// What one more step did.
    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.decisions += other.decisions;
        self.terminals += other.terminals;
        self.drops += other.drops;
        for (client, count) in other.flushed {
            *self.flushed.entry(client).or_default() += count;
        }
    }

    /// How many outcomes of one client the batch brings, at most.
    pub fn most_flushed(&self) -> u64 {
        self.flushed.values().max().copied().unwrap_or_default()
    }
}

/// What was told about a transaction, to anybody, ever.
#[derive(Debug, Clone, Default)]
pub struct Fact {
    /// It was said to exist.
    pub exists: bool,
    /// It was said to be prepared, or further.
    pub prepared: bool,
    /// The payload of an acknowledged prepare or commit.
    pub payload: Option<Bytes>,
    /// The outcome told.
    pub outcome: Option<Outcome>,
    /// The reason told with it.
    pub reason: Option<EndReason>,
    /// It was said to be terminal.
    pub terminal: bool,
    /// It was said to be no longer known.
    pub expired: bool,
}

/// What was told about a client, to anybody, ever.
#[derive(Debug, Clone, Default)]
pub struct ClientFact {
    /// Who was given which epoch.
    pub epochs: BTreeMap<Epoch, Incarnation>,
    /// The greatest watermark told.
    pub evicted_through: Option<TxnId>,
}

/// See the module.
#[derive(Debug)]
pub struct Oracle {
    limits: Limits,
    memory: BTreeMap<Key, Record>,
    durable: BTreeMap<Key, Record>,
    written: Option<Vec<(Key, Option<Record>)>>,
    /// What the disk holds once the batch in flight is durable.
    ahead: BTreeMap<Key, Record>,
    keys: BTreeMap<Vec<u8>, Key>,
    facts: BTreeMap<TxnKey, Fact>,
    clients: BTreeMap<ClientName, ClientFact>,
    deadlines: BTreeMap<TxnKey, Uptime>,
    acks: BTreeSet<(TxnKey, ParticipantName)>,
    /// Transactions that a step has decided by an operator, a prepared timeout or a zombie: see [`Oracle::meddle`].
    meddled: BTreeSet<TxnKey>,
    loaded_at: Uptime,
    /// When anything of a client last changed.
    active: BTreeMap<ClientName, Uptime>,
    forgotten: BTreeSet<ClientName>,
}

impl Oracle {
    /// Knows nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            memory: BTreeMap::new(),
            durable: BTreeMap::new(),
            written: None,
            ahead: BTreeMap::new(),
            keys: BTreeMap::new(),
            facts: BTreeMap::new(),
            clients: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            acks: BTreeSet::new(),
            meddled: BTreeSet::new(),
            loaded_at: Uptime::default(),
            active: BTreeMap::new(),
            forgotten: BTreeSet::new(),
        }
    }

    /// Checks what a step changed, and takes it in.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn stepped(&mut self, now: Now, input: &Input, engine: &Engine, probes: &mut Probes) -> Result<Marks, String> {
        self.note_acks(now, input);
        let mut marks = Marks { steps: 1, ..Marks::default() };
        let changed = self.changed(engine);
        for (key, after) in &changed {
            let (before, after) = (self.memory.get(key), after.as_ref());
            changes::check(&changes::Change { now, input, key, before, after, engine, oracle: self })?;
            self.mark(key, after, &mut marks);
            self.probe(key, after, probes);
            crate::paths::of_change(probes, &change_summary(key, before, after, input));
        }
        for (key, after) in changed {
            self.take_in(now, key, after);
        }
        self.renew(now, input, probes);
        changes::after_step(self, now, input, engine)?;
        Ok(marks)
    }

    /// What the engine holds that the memory here does not, and the other way round.
    fn changed(&self, engine: &Engine) -> Vec<(Key, Option<Record>)> {
        let mut changed = Vec::new();
        let mut look = |key: Key| {
            let after = engine.record_at(&key);
            if after.as_ref() != self.memory.get(&key) {
                changed.push((key, after));
            }
        };
        for key in engine.touched() {
            if let Key::Transaction(client, id) = key {
                look(Key::Outcome(client.clone(), *id));
            }
        }
        for key in engine.touched() {
            look(key.clone());
        }
        changed.dedup_by(|a, b| a.0 == b.0);
        changed
    }

    fn mark(&self, key: &Key, after: Option<&Record>, marks: &mut Marks) {
        match key {
            Key::Transaction(client, id) => {
                let was = self.header(client, *id).and_then(|h| h.decision).is_some();
                let is = matches!(after, Some(Record::Transaction(_, _, h)) if h.decision.is_some());
                marks.decisions += u64::from(!was && (is || after.is_none()));
                marks.terminals += u64::from(after.is_none());
            }
            Key::Outcome(client, _) if after.is_some() => *marks.flushed.entry(client.clone()).or_default() += 1,
            Key::Outcome(..) => marks.drops += 1,
            _ => {}
        }
    }

    fn probe(&self, key: &Key, after: Option<&Record>, probes: &mut Probes) {
        match (key, after) {
            (Key::Outcome(..), None) => {
                let in_flight = self.written.iter().flatten().any(|(k, _)| k == key);
                let unflushed = !in_flight && !self.durable.contains_key(key);
                probes.add(Probe::DroppedUnflushed, u64::from(unflushed));
            }
            (Key::Transaction(client, id), Some(Record::Transaction(_, _, header))) => {
                let last = self.client(client).and_then(|c| c.last_committed).map(|l| l.txn_id);
                let late = header.state == TxnState::Committing && last > Some(*id);
                let was = self.header(client, *id).and_then(|h| h.decision).is_some();
                probes.add(Probe::CommitOutOfOrder, u64::from(late && !was));
            }
            _ => {}
        }
    }

    /// Whether a deadline of a transaction this request is about has passed between its arrival and its step.
    pub fn outran_deadline(&self, arrived: Uptime, stepped: Uptime, input: &Input) -> bool {
        causes::calls(input).into_iter().any(|(client, id, _)| {
            let deadline = self.deadlines.get(&(client.clone(), id));
            deadline.is_some_and(|d| arrived < *d && *d <= stepped)
        })
    }

    fn take_in(&mut self, now: Now, key: Key, after: Option<Record>) {
        if let Key::Transaction(client, id) = &key {
            let key = (client.clone(), *id);
            match &after {
                Some(Record::Transaction(_, _, header)) => {
                    let before = self.header(client, *id).map(|h| h.state);
                    if before != Some(header.state) {
                        self.set_deadline(&key, header, now.uptime);
                    }
                }
                _ => {
                    self.deadlines.remove(&key);
                }
            }
        }
        if let Some(client) = client_of(&key) {
            self.active.insert(client.clone(), now.uptime);
        }
        if let (Key::Client(client), Some(Record::Client(_, record))) = (&key, &after)
            && record.forgotten
        {
            self.forgotten.insert(client.clone());
        }
        match after {
            Some(record) => self.memory.insert(key, record),
            None => self.memory.remove(&key),
        };
    }

    fn set_deadline(&mut self, key: &TxnKey, header: &TransactionRecord, from: Uptime) {
        let period = match header.state {
            TxnState::Open => Some(header.timeout_ms),
            TxnState::Prepared => header.prepared_timeout_ms,
            _ => None,
        };
        match period {
            Some(period) => self.deadlines.insert(key.clone(), from.plus_millis(period.as_millis())),
            None => self.deadlines.remove(key),
        };
    }

    fn note_acks(&mut self, now: Now, input: &Input) {
        for (client, id, call) in causes::calls(input) {
            if let causes::Call::Ack(participant, outcome) = call {
                let decided = self.header(client, id).and_then(|h| h.state.outcome());
                // An earlier item of the same batch may have decided, or the deadline that this call meets.
                let batch = matches!(input, Input::Request { request: Request::Batch { .. }, .. });
                let due = self.deadlines.get(&(client.clone(), id)).is_some_and(|d| *d <= now.uptime);
                let perhaps = decided.is_none() && (batch || (due && outcome == Outcome::Aborted));
                if decided == Some(outcome) || perhaps {
                    self.acks.insert(((client.clone(), id), participant.clone()));
                }
            }
        }
    }

    fn renew(&mut self, now: Now, input: &Input, probes: &mut Probes) {
        for (client, id, call) in causes::calls(input) {
            let causes::Call::KeepAlive(epoch) = call else { continue };
            let current = self.client(client).map(|c| c.epoch);
            let Some(header) = self.header(client, id).filter(|h| h.state == TxnState::Open && epoch == current) else {
                continue;
            };
            let renewed = now.uptime.plus_millis(header.timeout_ms.as_millis());
            let deadline = self.deadlines.entry((client.clone(), id)).or_default();
            probes.add(Probe::KeptAlive, u64::from(renewed > *deadline));
            *deadline = renewed.max(*deadline);
        }
    }

    pub(crate) fn header(&self, client: &ClientName, id: TxnId) -> Option<&TransactionRecord> {
        match self.memory.get(&Key::Transaction(client.clone(), id)) {
            Some(Record::Transaction(_, _, header)) => Some(header),
            _ => None,
        }
    }

    pub(crate) fn client(&self, client: &ClientName) -> Option<&ratified_core::ClientRecord> {
        match self.memory.get(&Key::Client(client.clone())) {
            Some(Record::Client(_, record)) => Some(record),
            _ => None,
        }
    }

    /// Outcomes that memory keeps for a client.
    pub(crate) fn outcomes<'a>(&'a self, client: &'a ClientName) -> impl Iterator<Item = (TxnId, &'a OutcomeRecord)> {
        let from = Key::Outcome(client.clone(), least_id());
        self.memory.range(from..).map_while(move |(_, record)| match record {
            Record::Outcome(name, id, outcome) if name == client => Some((*id, outcome)),
            _ => None,
        })
    }

    /// The greatest id of a client that memory, or the engine by now, has committed.
    pub(crate) fn newest_commit(&self, client: &ClientName, engine: &Engine) -> Option<TxnId> {
        let ended = self.outcomes(client).filter(|(_, o)| o.outcome == Outcome::Committed).map(|(id, _)| id);
        let ending = self.live().filter(|(name, ..)| *name == client).filter_map(|(_, id, _)| {
            let record = engine.record_at(&Key::Transaction(client.clone(), id))?;
            matches!(record, Record::Transaction(_, _, h) if h.state == TxnState::Committing).then_some(id)
        });
        ended.chain(ending).max()
    }

    /// Headers that are live in memory.
    pub fn live(&self) -> impl Iterator<Item = (&ClientName, TxnId, &TransactionRecord)> {
        self.memory.values().filter_map(|record| match record {
            Record::Transaction(client, id, header) => Some((client, *id, header)),
            _ => None,
        })
    }

    /// A transaction of a sink that the sink has not applied to the end.
    pub fn unapplied(&self, sink: &str) -> Option<TxnKey> {
        let unapplied = self.live().filter(|(client, ..)| is_of(client, sink)).find(|(client, id, header)| {
            let own = Key::Ack((*client).clone(), *id, ParticipantName::from(*client));
            header.state != TxnState::Open && !self.memory.contains_key(&own)
        });
        unapplied.map(|(client, id, _)| (client.clone(), id))
    }

    /// What was told about a transaction.
    pub fn fact(&self, key: &TxnKey) -> Option<&Fact> {
        self.facts.get(key)
    }

    /// Somebody who may decide against the job has had his hand in this transaction.
    pub fn meddle(&mut self, key: TxnKey) {
        self.meddled.insert(key);
    }

    /// Whether somebody has, see [`Oracle::meddle`].
    pub fn was_meddled(&self, key: &TxnKey) -> bool {
        self.meddled.contains(key)
    }

    /// Whether somebody has, in any transaction of a sink.
    pub fn any_meddled(&self, sink: &str) -> bool {
        self.meddled.iter().any(|(client, _)| is_of(client, sink))
    }

    /// Whether any client of a sink became a tombstone at some time.
    pub fn any_forgotten(&self, sink: &str) -> bool {
        self.forgotten.iter().any(|client| is_of(client, sink))
    }

    /// Whether the client became a tombstone at some time.
    pub fn was_forgotten(&self, client: &ClientName) -> bool {
        self.forgotten.contains(client)
    }

    /// Whether the last trace of an id was removed.
    pub fn was_evicted(&self, (client, id): &TxnKey) -> bool {
        self.client(client).is_some_and(|c| c.evicted_through.is_some_and(|through| *id <= through))
    }
}

fn client_of(key: &Key) -> Option<&ClientName> {
    match key {
        Key::Client(client)
        | Key::Transaction(client, _)
        | Key::Ack(client, ..)
        | Key::Payload(client, _)
        | Key::Outcome(client, _) => Some(client),
        Key::Participant(_) => None,
    }
}

/// Whether a client is one of a sink's: `<sink>.<slot>`.
pub fn is_of(client: &ClientName, sink: &str) -> bool {
    client.as_str().strip_prefix(sink).is_some_and(|rest| rest.starts_with('.'))
}

fn least_id() -> TxnId {
    let mut bytes = [0; 16];
    bytes[6] = 0x70;
    bytes[8] = 0x80;
    TxnId::from_bytes(bytes).unwrap()
}

/// A change, for the counting of rare paths.
#[derive(Debug)]
pub struct Summary<'a> {
    /// What lies behind it.
    pub input: &'a Input,
    /// The header before.
    pub from: Option<TxnState>,
    /// The header after; `None` = gone.
    pub to: Option<TxnState>,
    /// The decision after.
    pub reason: Option<EndReason>,
    /// What kind of record changed.
    pub key: &'a Key,
    /// The record before.
    pub before: Option<&'a Record>,
    /// The record after.
    pub after: Option<&'a Record>,
}

fn change_summary<'a>(
    key: &'a Key,
    before: Option<&'a Record>,
    after: Option<&'a Record>,
    input: &'a Input,
) -> Summary<'a> {
    fn header(record: Option<&Record>) -> Option<&TransactionRecord> {
        match record {
            Some(Record::Transaction(_, _, header)) => Some(header),
            _ => None,
        }
    }
    let (from, to) = (header(before), header(after));
    let reason = to.and_then(|h| h.decision).map(|d| d.reason);
    Summary { input, from: from.map(|h| h.state), to: to.map(|h| h.state), reason, key, before, after }
}
