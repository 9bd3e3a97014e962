//! Where the search stands: an engine or none, what is durable, what is in flight, and what everybody was told.

mod canonical;
mod told;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
};

use ratified_core::{
    Effect, Engine, Input, Key, Now, Record, Recovery, Request, Revision, Ticket, TxnCall, Uptime, Write,
};
use ratified_protocol::{Epoch, Outcome, ParticipantName, TxnId, TxnState};

use self::told::{Held, held_of};
pub use self::told::{Level, Told};
use super::{Space, TIMEOUT_MS, owner};

#[derive(Debug, Clone, PartialEq)]
struct Flight {
    writes: Vec<Write>,
    held: Held,
    revision: Revision,
}

/// See the module. Compared by a canonical form of all that can make a difference later.
#[derive(Debug, Clone)]
pub struct State {
    engine: Option<Engine>,
    durable: BTreeMap<Key, Record>,
    held: Held,
    flight: Option<Flight>,
    synced: Revision,
    /// Steps that wait for the batch in flight.
    queued: u8,
    now_ms: u64,
    /// The most that was told about each transaction, to anybody.
    pub told: BTreeMap<TxnId, Level>,
    /// Who was given which epoch.
    pub epochs: BTreeMap<Epoch, u128>,
    /// Which participant heard which outcome.
    pub heard: BTreeSet<(ParticipantName, TxnId, Outcome)>,
    /// Crashes left.
    pub crashes: u8,
    /// Ticks left.
    pub ticks: u8,
    /// Evictions left.
    pub evictions: u8,
    /// A property that did not hold at a step.
    pub wrong: Option<(&'static str, String)>,
    canonical: [u64; 2],
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical.hash(state);
    }
}

impl State {
    /// A coordinator that was never used.
    pub fn new(space: &Space) -> Self {
        let mut state = Self {
            engine: None,
            durable: BTreeMap::new(),
            held: Held::default(),
            flight: None,
            synced: Revision::default(),
            queued: 0,
            now_ms: 0,
            told: BTreeMap::new(),
            epochs: BTreeMap::new(),
            heard: BTreeSet::new(),
            crashes: space.crashes,
            ticks: space.ticks,
            evictions: space.evictions,
            wrong: None,
            canonical: [0; 2],
        };
        state.load(space);
        // The first owner is in place: what came before has no choices.
        state.deliver(space, 0);
        state.hand_over();
        state.sync(space);
        state.settle();
        state
    }

    /// Whether the coordinator serves.
    pub fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    /// Whether so many steps wait for the batch in flight that no more may.
    pub fn is_full(&self, space: &Space) -> bool {
        self.is_in_flight() && self.queued >= space.queue
    }

    /// Whether a batch is written and not synced.
    pub fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    fn is_staged(&self) -> bool {
        let touched = self.engine.as_ref().is_some_and(|engine| engine.touched().next().is_some());
        touched || !self.held.told.is_empty() || !self.held.heard.is_empty()
    }

    fn now(&self) -> Now {
        Now { uptime: Uptime::from_millis(self.now_ms), ..Now::default() }
    }

    /// Something is not as it must be.
    pub fn wrong(&mut self, property: &'static str, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some((property, what()));
        }
    }

    /// What is durable about a header.
    pub fn durable_state(&self, id: TxnId) -> Option<TxnState> {
        match self.durable.get(&Key::Transaction(owner(), id)) {
            Some(Record::Transaction(_, _, header)) => Some(header.state),
            _ => None,
        }
    }

    /// The outcome that is durable, wherever it is kept.
    pub fn durable_outcome(&self, id: TxnId) -> Option<Outcome> {
        if let Some(state) = self.durable_state(id) {
            return state.outcome();
        }
        if let Some(Record::Outcome(_, _, record)) = self.durable.get(&Key::Outcome(owner(), id)) {
            return Some(record.outcome);
        }
        let last = self.durable_client().and_then(|c| c.last_committed);
        last.filter(|last| last.txn_id == id).map(|_| Outcome::Committed)
    }

    fn durable_client(&self) -> Option<&ratified_core::ClientRecord> {
        match self.durable.get(&Key::Client(owner())) {
            Some(Record::Client(_, record)) => Some(record),
            _ => None,
        }
    }

    /// Whether the durable watermark covers an id.
    pub fn is_evicted(&self, id: TxnId) -> bool {
        self.durable_client().is_some_and(|c| c.evicted_through.is_some_and(|through| id <= through))
    }

    /// A message arrives.
    pub fn deliver(&mut self, space: &Space, index: usize) {
        let request = space.messages[index].clone();
        let input = Input::Request { ticket: Ticket(0), request: request.clone() };
        self.step(space, Some(&request), input);
    }

    /// A participant asks what to apply.
    pub fn pull(&mut self, space: &Space) {
        let participant = crate::actors::participant("p");
        let request = Request::Decisions { participant, after: None, wait_ms: 0 };
        let input = Input::Request { ticket: Ticket(0), request: request.clone() };
        self.step(space, Some(&request), input);
    }

    fn header(&self, id: TxnId) -> Option<TxnState> {
        match self.engine.as_ref()?.record_at(&Key::Transaction(owner(), id)) {
            Some(Record::Transaction(_, _, header)) => Some(header.state),
            _ => None,
        }
    }

    /// Steps the engine and sorts what it says: told at once, or held until its batch is synced.
    pub fn step(&mut self, space: &Space, request: Option<&Request>, input: Input) {
        let before: Vec<_> = space.ids.iter().map(|id| self.header(*id)).collect();
        let missing: Vec<_> = space.ids.iter().map(|id| self.missing_acks(*id)).collect();
        let is_sweep = matches!(input, Input::Sweep(_));
        let now = self.now();
        let Some(engine) = &mut self.engine else { return };
        let mut effects = Vec::new();
        let revision = engine.revision();
        let stepped = catch_unwind(AssertUnwindSafe(|| engine.step(now, input, &mut effects)));
        self.queued += u8::from(engine.revision() != revision);
        if stepped.is_err() {
            self.engine = None;
            return self.wrong("the engine's own invariants hold", || "it panicked".to_owned());
        }
        if let Err(what) = ratified_core::check_all(engine) {
            self.wrong("the engine's own invariants hold", || what);
        }
        for effect in effects {
            let Effect::Reply { after, answer, .. } = effect else { continue };
            let said = held_of(request, answer);
            match &mut self.flight {
                _ if after <= self.synced => self.tell(said),
                Some(flight) if after <= flight.revision => flight.held.extend(said),
                _ => self.held.extend(said),
            }
        }
        for ((id, before), missing) in space.ids.iter().zip(before).zip(missing) {
            let after = self.header(*id);
            self.check_move(*id, before, after, request, is_sweep);
            if before.is_some() && after.is_none() {
                self.check_acked(*id, missing, request);
            }
        }
    }

    fn check_move(
        &mut self,
        id: TxnId,
        before: Option<TxnState>,
        after: Option<TxnState>,
        request: Option<&Request>,
        is_sweep: bool,
    ) {
        if before == after {
            return;
        }
        let call = match request {
            Some(Request::Txn { txn_id, call, .. }) if *txn_id == id => Some(call),
            _ => None,
        };
        let place = || format!("{id} {before:?} became {after:?} by {call:?}");
        if before.is_none() {
            let known = self.told.get(&id).is_some_and(|level| *level != Level::Began);
            if known || !matches!(call, Some(TxnCall::Begin(_))) {
                self.wrong("only begin creates, and never again", place);
            }
        }
        let fences = matches!(request, Some(Request::Open { .. }));
        if before == Some(TxnState::Prepared) && (fences || is_sweep) {
            self.wrong("open and sweeps never end a PREPARED transaction", place);
        }
        let given = match call {
            Some(TxnCall::Begin(r)) => r.epoch,
            Some(TxnCall::Prepare(r)) => r.epoch,
            Some(TxnCall::Abort(r)) => r.epoch,
            _ => None,
        };
        let newest = self.epochs.keys().max().copied();
        // Its deadline may have ended it in the same step.
        let by_call = after != Some(TxnState::Aborting) && after.is_some();
        if given.is_some() && given < newest && by_call {
            self.wrong("nothing of a smaller epoch takes effect", place);
        }
    }

    /// Who takes part and has not acknowledged.
    fn missing_acks(&self, id: TxnId) -> Vec<ParticipantName> {
        let Some(engine) = &self.engine else { return Vec::new() };
        match engine.record_at(&Key::Transaction(owner(), id)) {
            Some(Record::Transaction(_, _, header)) => {
                let names = header.participants.into_iter().map(|p| p.name);
                names.filter(|name| engine.record_at(&Key::Ack(owner(), id, name.clone())).is_none()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn check_acked(&mut self, id: TxnId, missing: Vec<ParticipantName>, request: Option<&Request>) {
        let acks = |name: &ParticipantName| matches!(request, Some(Request::Txn { txn_id, call: TxnCall::Ack(by, _), .. }) if *txn_id == id && by == name);
        if let Some(missing) = missing.iter().find(|name| !acks(name)) {
            self.wrong("terminal only when every participant acknowledged", || format!("{id} without {missing:?}"));
        }
    }

    fn tell(&mut self, held: Held) {
        for told in &held.told {
            super::properties::at_telling(self, *told);
        }
        held.told.into_iter().for_each(|told| self.remember(told));
        for heard in held.heard {
            let (_, id, outcome) = &heard;
            super::properties::at_telling(self, Told::Outcome(*id, *outcome));
            self.remember(Told::Outcome(*id, *outcome));
            self.heard.insert(heard);
        }
    }

    fn remember(&mut self, told: Told) {
        let (id, level) = match told {
            Told::Began(id) | Told::Prepared(id) => (id, Level::Began),
            Told::Outcome(id, outcome) => (id, Level::Outcome(outcome)),
            Told::Terminal(id, outcome) => (id, Level::Terminal(outcome)),
            Told::Expired(id) => (id, Level::Expired),
            Told::Opened(incarnation, epoch) => {
                self.epochs.insert(epoch, incarnation);
                return;
            }
            Told::NotFound(_) | Told::Fenced => return,
        };
        let before = self.told.entry(id).or_insert(level);
        let torn = matches!((before.outcome(), level.outcome()), (Some(a), Some(b)) if a != b);
        *before = if torn { Level::Torn } else { level.max(*before) };
    }

    /// Writes what was stepped, if nothing is in flight.
    pub fn hand_over(&mut self) {
        if self.flight.is_some() || !self.is_staged() {
            return;
        }
        let Some(engine) = &mut self.engine else { return };
        let mut effects = Vec::new();
        engine.seal(&mut effects);
        self.queued = 0;
        let writes =
            effects.into_iter().filter_map(|e| if let Effect::Persist(write) = e { Some(write) } else { None });
        let revision = engine.revision();
        self.flight = Some(Flight { writes: writes.collect(), held: std::mem::take(&mut self.held), revision });
    }

    /// The batch is durable: what it held back is told.
    pub fn sync(&mut self, space: &Space) {
        let Some(flight) = self.flight.take() else { return };
        self.write(space, &flight.writes);
        self.synced = flight.revision;
        self.tell(flight.held);
    }

    fn write(&mut self, space: &Space, writes: &[Write]) {
        let before: Vec<_> = space.ids.iter().map(|id| (*id, self.durable_outcome(*id))).collect();
        for write in writes {
            match write {
                Write::Put(record) => self.durable.insert(record.key(), record.clone()),
                Write::Delete(key) => self.durable.remove(key),
            };
        }
        for (id, before) in before {
            let after = self.durable_outcome(id);
            if before.is_some() && after != before && !(after.is_none() && self.is_evicted(id)) {
                self.wrong("a durable decision is never contradicted", || format!("{id} {before:?} {after:?}"));
            }
        }
    }

    /// The coordinator dies.
    pub fn crash(&mut self, survives: bool) {
        self.crashes -= 1;
        self.engine = None;
        self.queued = 0;
        self.held = Held::default();
        if let Some(flight) = self.flight.take().filter(|_| survives) {
            // Rewritten at the load, before anything is served.
            for write in flight.writes {
                match write {
                    Write::Put(record) => self.durable.insert(record.key(), record),
                    Write::Delete(key) => self.durable.remove(&key),
                };
            }
        }
    }

    /// The coordinator is loaded, twice for the comparison.
    pub fn load(&mut self, space: &Space) {
        let rebuild = |records: &BTreeMap<Key, Record>| {
            let mut recovery = Recovery::new(space.limits(), 1);
            records.values().cloned().try_for_each(|record| recovery.add(record))?;
            recovery.finish(self.now())
        };
        match (rebuild(&self.durable), rebuild(&self.durable)) {
            (Ok((engine, effects)), Ok((again, _))) => {
                let differs = engine.records() != again.records() || !effects.is_empty();
                self.synced = engine.revision();
                self.engine = Some(engine);
                if differs {
                    self.wrong("recovering twice is recovering once", || format!("{effects:?}"));
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                self.wrong("what was written can be loaded", || error.to_string());
            }
        }
    }

    /// Time passes beyond every deadline.
    pub fn elapse(&mut self) {
        self.ticks -= 1;
        self.now_ms += TIMEOUT_MS + 1;
    }
}
