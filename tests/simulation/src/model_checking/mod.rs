//! Every order of everything, for one and two transactions: model checking of the same core (stateright).
//!
//! Messages stay in the network for ever: each may arrive now, later, again, or never. Between any two steps a sync may
//! end, the coordinator may crash (and the unsynced batch survive or not), time may pass, and a sweep may run. As in
//! the pipeline, a batch is written as soon as none is in flight, and what is stepped meanwhile joins the next one.

pub mod properties;
pub mod state;

use ratified_core::{Input, Limits, Request, Sweep, TxnCall};
use ratified_protocol::{
    AckRequest, ClientName, CommitRequest, Epoch, EpochRequest, Incarnation, OpenRequest, Outcome, TxnId,
};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

pub use state::State;

use crate::{
    actors::{begin, call, client, commit, handle, id_of, participant, prepare},
    fault::Faults,
};

/// How long an OPEN transaction lives, in ticks of [`Action::Elapse`].
pub const TIMEOUT_MS: u64 = 10;

/// What is searched.
#[derive(Debug, Clone)]
pub struct Space {
    /// Messages that may arrive at any time, any number of times.
    pub messages: Vec<Request>,
    /// The transactions they are about.
    pub ids: Vec<TxnId>,
    /// A defect to find.
    pub fault: Faults,
    /// How many steps may wait for the batch in flight.
    pub queue: u8,
    /// How often the coordinator crashes.
    pub crashes: u8,
    /// How often time passes, with or without a sweep.
    pub ticks: u8,
    /// How often outcomes are evicted.
    pub evictions: u8,
}

/// Whose transactions they are.
pub fn owner() -> ClientName {
    client("c")
}

fn incarnation(number: u128) -> Incarnation {
    Incarnation::new(uuid::Uuid::from_u128(number))
}

fn open(number: u128) -> Request {
    let body = OpenRequest { incarnation: incarnation(number), owner: None, create: true, generation: None };
    Request::Open { client: owner(), body }
}

/// What a search came to.
#[derive(Debug)]
pub struct Found {
    /// Different states.
    pub states: usize,
    /// The first `always` property that was broken, what was wrong, and the way there.
    pub broken: Option<(String, String, Vec<Action>)>,
    /// `sometimes` properties that were never reached: the search would prove nothing.
    pub unreached: Vec<String>,
}

impl Space {
    /// Searches all of it, on as many threads.
    pub fn search(self, threads: usize) -> Found {
        let sometimes: Vec<_> =
            self.properties().into_iter().filter(|p| matches!(p.expectation, Expectation::Sometimes)).collect();
        let checker = self.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let mut found = Found { states: checker.unique_state_count(), broken: None, unreached: Vec::new() };
        let discoveries = checker.discoveries();
        for property in &sometimes {
            if !discoveries.contains_key(property.name) {
                found.unreached.push(property.name.to_owned());
            }
        }
        for (name, path) in discoveries {
            if sometimes.iter().all(|p| p.name != name) {
                let what = path.last_state().wrong.as_ref().map_or_else(String::new, |(_, what)| what.clone());
                found.broken.get_or_insert((name.to_owned(), what, path.into_actions()));
            }
        }
        found
    }

    /// One transaction with two participants, prepared: an owner, a second owner, a committer, an aborter, late acks.
    pub fn prepared() -> Self {
        let id = id_of(1);
        let epoch = Epoch::FIRST;
        let txn = |txn_call| call(&owner(), id, txn_call);
        let ack = |name: &str, outcome| txn(TxnCall::Ack(participant(name), AckRequest { outcome }));
        let members = vec![participant("p"), participant("q")];
        let messages = vec![
            open(1),
            open(2),
            txn(begin(epoch, TIMEOUT_MS, true, members)),
            txn(prepare(epoch, 5, handle(id), None)),
            txn(commit(None)),
            txn(TxnCall::Abort(EpochRequest { epoch: Some(Epoch::new(2)) })),
            ack("p", Outcome::Committed),
            ack("q", Outcome::Committed),
            ack("p", Outcome::Aborted),
            ack("q", Outcome::Aborted),
        ];
        Self { messages, ids: vec![id], fault: Faults::None, queue: 2, crashes: 3, ticks: 3, evictions: 1 }
    }

    /// Two transactions of one client, committed straight from OPEN: their outcomes share batches and watermarks.
    pub fn two() -> Self {
        let ids = [id_of(1), id_of(2)];
        let epoch = Epoch::FIRST;
        let mut messages = vec![open(1)];
        for id in ids {
            messages.push(call(&owner(), id, begin(epoch, TIMEOUT_MS, false, Vec::new())));
            let request = CommitRequest { epoch: Some(epoch), payload: Some(handle(id)), ..CommitRequest::default() };
            messages.push(call(&owner(), id, TxnCall::Commit(request)));
            messages.push(call(&owner(), id, TxnCall::Abort(EpochRequest { epoch: Some(epoch) })));
        }
        Self { messages, ids: ids.to_vec(), fault: Faults::None, queue: 2, crashes: 3, ticks: 1, evictions: 1 }
    }

    /// A smaller one with this defect.
    #[must_use]
    pub fn with(self, fault: Faults) -> Self {
        Self { fault, queue: 1, crashes: 1, ticks: 1, evictions: 1, ..self }
    }

    /// N = 0 and no retention: a sweep evicts whatever has ended.
    pub fn limits(&self) -> Limits {
        Limits { persist_count: 0, gc_retention_ms: 0, ..Limits::default() }
    }
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A message arrives.
    Deliver(usize),
    /// The participants pull.
    Pull,
    /// The batch is synced.
    Sync,
    /// The coordinator dies; whether the written batch survives.
    Crash(bool),
    /// The coordinator is loaded.
    Load,
    /// Time passes beyond every deadline.
    Elapse,
    /// The same, and the sweep runs.
    Sweep,
    /// Outcomes are evicted.
    Evict,
}

impl Model for Space {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.fault.seed();
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        if !state.is_up() {
            actions.push(Action::Load);
            return;
        }
        if state.is_in_flight() {
            actions.push(Action::Sync);
        }
        if state.crashes > 0 {
            actions.push(Action::Crash(false));
            if state.is_in_flight() {
                actions.push(Action::Crash(true));
            }
        }
        if state.is_full(self) {
            return;
        }
        actions.extend((0..self.messages.len()).map(Action::Deliver));
        actions.push(Action::Pull);
        if state.ticks > 0 {
            actions.extend([Action::Elapse, Action::Sweep]);
        }
        if state.evictions > 0 {
            actions.push(Action::Evict);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        self.fault.seed();
        let mut state = last.clone();
        match action {
            Action::Deliver(index) => state.deliver(self, index),
            Action::Pull => state.pull(self),
            Action::Sync => state.sync(self),
            Action::Crash(survives) => state.crash(survives),
            Action::Load => state.load(self),
            Action::Elapse => state.elapse(),
            Action::Sweep => {
                state.elapse();
                state.step(self, None, Input::Sweep(Sweep::Timeouts));
            }
            Action::Evict => {
                state.evictions -= 1;
                state.step(self, None, Input::Sweep(Sweep::Gc));
            }
        }
        state.hand_over();
        state.settle();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
