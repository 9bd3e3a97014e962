//! The engine: the only way anything changes.

use std::collections::{BTreeMap, BTreeSet};

use ratified_protocol::ClientName;

use crate::{
    client::Client,
    effect::{Effect, Input, Revision},
    limits::Limits,
    paged::Pages,
    participants::Participants,
    preserver::TransactionMetadataPreserver,
    record::{Key, Record, Write},
    rewrite::Place,
    stats::{Gauges, Stats},
    step::Step,
    sweep::Timers,
    time::{Now, Uptime},
    waiting::Waiting,
};

/// The state machine: all that the coordinator knows, and all rules by which it changes.
///
/// A batch is any number of [`Engine::step`]s and one [`Engine::seal`]. The shell writes what `seal` gives as one
/// atomic batch, and lets replies go only when the revision they depend on is synced.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) limits: Limits,
    pub(crate) loads: u64,
    pub(crate) clients: BTreeMap<ClientName, Client>,
    /// Clients with live transactions, so that listings need not look at the others.
    pub(crate) busy: BTreeSet<ClientName>,
    pub(crate) tombstones: usize,
    pub(crate) preserver: TransactionMetadataPreserver,
    pub(crate) participants: Participants,
    pub(crate) timers: Timers,
    pub(crate) waiting: Waiting,
    /// Calls that take several steps.
    pub(crate) pages: Pages,
    /// What the batch at hand changes, and whether the store had it before.
    pub(crate) dirty: BTreeMap<Key, bool>,
    pub(crate) revision: Revision,
    pub(crate) uptime: Uptime,
    pub(crate) next_decision: u64,
    pub(crate) live: [u64; 4],
    pub(crate) payload_bytes: u64,
    pub(crate) stats: Stats,
    /// How far rewriting is.
    pub(crate) rewritten: Option<Place>,
    /// Whether the store has no room for anything new.
    pub(crate) is_short: bool,
}

impl Engine {
    pub(crate) fn empty(limits: Limits, loads: u64, uptime: Uptime) -> Self {
        Self {
            limits,
            loads,
            clients: BTreeMap::new(),
            busy: BTreeSet::new(),
            tombstones: 0,
            preserver: TransactionMetadataPreserver::new(limits),
            participants: Participants::default(),
            timers: Timers::default(),
            waiting: Waiting::default(),
            pages: Pages::default(),
            dirty: BTreeMap::new(),
            revision: Revision::default(),
            uptime,
            next_decision: 1,
            live: [0; 4],
            payload_bytes: 0,
            stats: Stats::default(),
            rewritten: None,
            is_short: false,
        }
    }

    /// Carries out one input and appends what the shell has to do. Memory is ahead of the disk until the batch that
    /// [`Engine::seal`] ends is synced.
    pub fn step(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        self.uptime = self.uptime.max(now.uptime);
        let mut step = Step::new(self, now, out);
        match input {
            Input::Request { ticket, request } => step.request(ticket, request),
            Input::Sweep(sweep) => step.sweep(sweep),
        }
    }

    /// Ends a batch: appends what has to be written. Outcomes that ended since the last call are flushed first, one
    /// flush per client whatever their number (PIP-255); in the same batch the headers go.
    pub fn seal(&mut self, out: &mut Vec<Effect>) {
        for client in self.preserver.dirty() {
            let records = self.preserver.flush(&client);
            self.stats.preserver_flush_writes += u64::from(!records.is_empty());
            for (id, record) in records {
                self.dirty.remove(&Key::Outcome(client.clone(), id));
                out.push(Effect::Persist(Write::Put(Record::Outcome(client.clone(), id, record))));
            }
        }
        for (key, existed) in std::mem::take(&mut self.dirty) {
            match self.record_at(&key) {
                Some(record) => out.push(Effect::Persist(Write::Put(record))),
                None if existed => out.push(Effect::Persist(Write::Delete(key))),
                None => {}
            }
        }
    }

    /// Tells whether the store is short of room: then nothing new is begun and no client is made; what ends something
    /// goes on.
    pub const fn set_short_of_room(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    /// The newest step that changed something durable.
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The greatest uptime a step was judged at; to be written with every batch.
    pub const fn uptime(&self) -> Uptime {
        self.uptime
    }

    /// When [`crate::Sweep::Timeouts`] next has something to do.
    pub fn next_deadline(&self) -> Option<Uptime> {
        let deadline = self.timers.next_deadline();
        deadline.into_iter().chain(self.waiting.next_deadline()).min()
    }

    /// Counters since the start.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What is there now.
    pub fn gauges(&self, now: Uptime) -> Gauges {
        let age = |since: Option<Uptime>| since.map_or(0, |s| now.millis_since(s));
        Gauges {
            clients: (self.clients.len() - self.tombstones) as u64,
            tombstones: self.tombstones as u64,
            live: self.live,
            preserved: self.preserver.totals(),
            pending_acks: self.participants.pending_acks(),
            waiting: self.waiting.len() as u64,
            payload_bytes: self.payload_bytes,
            oldest_open_ms: age(self.timers.oldest_open()),
            oldest_prepared_ms: age(self.timers.oldest_prepared()),
            oldest_ending_ms: age(self.timers.oldest_ending()),
        }
    }

    /// Everything durable, as records: what a store would hold if the batch at hand were written. For tests and
    /// tools; the order is that of the keys.
    pub fn records(&self) -> Vec<Record> {
        let mut keys = BTreeSet::new();
        for (name, client) in &self.clients {
            keys.insert(Key::Client(name.clone()));
            if let Some(last) = client.record.last_committed {
                keys.insert(Key::Payload(name.clone(), last.txn_id));
            }
            for (id, txn) in &client.txns {
                keys.insert(Key::Transaction(name.clone(), *id));
                keys.insert(Key::Payload(name.clone(), *id));
                keys.extend(txn.acks.iter().map(|p| Key::Ack(name.clone(), *id, p.clone())));
            }
            keys.extend(self.preserver.entries(name).map(|(id, _)| Key::Outcome(name.clone(), id)));
        }
        keys.extend(self.participants.names().cloned().map(Key::Participant));
        keys.iter().filter_map(|key| self.record_at(key)).collect()
    }

    /// The keys the batch at hand has touched so far. For tests and simulations, which check every change at the step
    /// that makes it.
    pub fn touched(&self) -> impl Iterator<Item = &Key> {
        self.dirty.keys()
    }

    /// How many keys the batch at hand has touched so far: about as many changes as it will have.
    pub fn touched_keys(&self) -> usize {
        self.dirty.len()
    }

    /// What lies at one key, as [`Engine::records`] has it.
    pub fn record_at(&self, key: &Key) -> Option<Record> {
        match key {
            Key::Client(name) => Some(Record::Client(name.clone(), self.clients.get(name)?.record.clone())),
            Key::Transaction(name, id) => {
                let txn = self.clients.get(name)?.txns.get(id)?;
                Some(Record::Transaction(name.clone(), *id, txn.record.clone()))
            }
            Key::Ack(name, id, participant) => {
                let acks = &self.clients.get(name)?.txns.get(id)?.acks;
                acks.contains(participant).then(|| Record::Ack(name.clone(), *id, participant.clone()))
            }
            Key::Payload(name, id) => {
                let client = self.clients.get(name)?;
                let last = client.last_payload.as_ref().filter(|_| client.is_last_committed(*id));
                let payload = client.txns.get(id).and_then(|txn| txn.payload.as_ref()).or(last)?;
                Some(Record::Payload(name.clone(), *id, payload.clone()))
            }
            Key::Outcome(name, id) => {
                let record = self.preserver.lookup(name, *id)?.terminal?;
                Some(Record::Outcome(name.clone(), *id, record))
            }
            Key::Participant(name) => Some(Record::Participant(name.clone(), self.participants.record(name)?.clone())),
        }
    }
}
