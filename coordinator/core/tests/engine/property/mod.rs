//! Random commands against the engine: every invariant after every step, an oracle outside, and a crash at every batch
//! boundary with every suffix of the unsynced batches lost.

mod commands;
mod oracle;
mod snapshot;
mod steps;

use std::collections::BTreeMap;

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use ratified_core::{Effect, Input, Limits, Request, Sweep};
use ratified_protocol::{Outcome, TxnState};

use self::{
    commands::{Claim, Command, Op, PARTICIPANTS},
    oracle::{Asked, Oracle},
    snapshot::{Snapshot, TxnKey},
    steps::{Cause, Seen},
};
use crate::support::{self, Driver, Told, client, id, recover, replies, told::number};

/// Everything small and short, so that limits, eviction, expiry and tombstones happen all the time.
const LIMITS: Limits = Limits {
    persist_count: 1,
    persist_time_ms: 80,
    min_committed_per_client: 1,
    gc_retention_ms: 10,
    max_outcomes_per_client: 2,
    client_retention_ms: Some(200),
    max_clients: 2,
    max_open_per_client: 3,
    max_unfinished_per_client: 5,
    max_waiting: 2,
    page: 3,
};

/// How often what was reached.
type Reached = BTreeMap<String, usize>;

struct Run {
    d: Driver,
    oracle: Oracle,
    current: Snapshot,
    deadlines: BTreeMap<TxnKey, u64>,
    reached: Reached,
}

impl Run {
    fn new() -> Self {
        Self {
            d: Driver::new(LIMITS),
            oracle: Oracle::default(),
            current: Snapshot::default(),
            deadlines: BTreeMap::new(),
            reached: Reached::new(),
        }
    }

    fn reach(&mut self, what: impl Into<String>) {
        *self.reached.entry(what.into()).or_default() += 1;
    }

    fn apply(&mut self, command: &Command) {
        match command {
            Command::Txn { client, above, claim, op, wait_ms } => self.txn(client, *above, *claim, op, *wait_ms),
            Command::Batch { client, claim, items, ordered } => self.batch(client, *claim, items, *ordered),
            Command::Open { client: name, incarnation, create } => {
                let request = support::open_with(name, *incarnation, *create);
                let asked = Asked { incarnation: Some(*incarnation), ..asked_of(Some(name)) };
                self.request(request, Cause::Open(client(name)), asked);
            }
            Command::Forget(name) => {
                self.request(support::forget(name), Cause::Forget(client(name)), asked_of(Some(name)));
            }
            Command::Preserver(name) => self.request(support::preserver(name), Cause::Other, asked_of(Some(name))),
            Command::Decisions { who, wait_ms } => {
                self.other(support::waiting(support::decisions(who, None), *wait_ms));
            }
            Command::Retire(who) => self.other(support::retire(who)),
            Command::Reinstate(who) => self.other(support::reinstate(who)),
            Command::Txns(state) => self.other(commands::listing(*state)),
            Command::Clients => self.other(support::clients(None, support::page(10, None))),
            Command::Sweep(sweep) => drop(self.step(Input::Sweep(*sweep), &Cause::Other)),
            Command::Pass(ms) => self.d.pass(*ms),
            Command::Seal => self.seal(),
            Command::SyncOne => drop(self.sync_one()),
            Command::Sync => while self.sync_one() {},
            Command::Crash(kept) => self.crash(*kept),
            Command::CrashTwice(first, second) => {
                // What the first load read is not durable yet when the process dies again.
                self.d.clone().crash(*first);
                self.crash((*first).min(*second));
                self.reach("second crash");
            }
        }
    }

    fn other(&mut self, request: Request) {
        self.request(request, Cause::Other, asked_of(None));
    }

    /// The id this far above the newest one.
    fn key(&self, name: &str, above: i64) -> TxnKey {
        let name = client(name);
        let newest = self.current.clients.get(&name).and_then(|record| record.newest_txn_id);
        let newest = newest.map_or(0, |id| i64::try_from(number(&id.to_string())).unwrap());
        (name, id(u64::try_from((newest + above).max(1)).unwrap()))
    }

    fn epoch(&self, key: &TxnKey, claim: Claim) -> Option<u64> {
        let current = self.current.epoch(&key.0);
        match claim {
            Claim::Current => Some(current),
            Claim::Older => Some(current.saturating_sub(1)),
            Claim::Newer => Some(current + 1),
            Claim::Missing => None,
        }
    }

    fn txn(&mut self, name: &str, above: i64, claim: Claim, op: &Op, wait_ms: u64) {
        let key = self.key(name, above);
        let epoch = self.epoch(&key, claim);
        let decided = self.current.decided(&key).unwrap_or(Outcome::Committed);
        let mut request = op.request(name, number(&key.1.to_string()), epoch, decided);
        if op.waits() {
            request = support::waiting(request, wait_ms);
        }
        let asked = Asked { key: Some(key.clone()), is_begin: matches!(op, Op::Begin { .. }), ..asked_of(Some(name)) };
        self.request(request, Cause::Txn { key, op: op.clone(), epoch }, asked);
    }

    fn batch(&mut self, name: &str, claim: Claim, items: &[(i64, Op)], ordered: bool) {
        let epoch = self.epoch(&self.key(name, 0), claim);
        let keyed: Vec<_> = items.iter().map(|(above, op)| (self.key(name, *above), op.clone())).collect();
        let item = |(key, op): &(TxnKey, Op)| {
            let decided = self.current.decided(key).unwrap_or(Outcome::Committed);
            op.item(number(&key.1.to_string()), epoch, decided)
        };
        let request = support::batch(name, keyed.iter().map(item).collect(), ordered);
        let items = keyed.into_iter().map(|(key, op)| (key.1, op)).collect();
        self.request(request, Cause::Batch { client: client(name), items, epoch }, asked_of(Some(name)));
    }

    fn request(&mut self, request: Request, cause: Cause, asked: Asked) {
        let ticket = self.d.ticket();
        self.oracle.ask(ticket, asked);
        let revision = self.d.engine.revision();
        let effects = self.step(Input::Request { ticket, request: request.clone() }, &cause);
        let own = replies(&effects).into_iter().find(|(to, _, _)| *to == ticket).map(|(_, _, answer)| Told::of(answer));
        if let Some(told) = own {
            self.note(&told);
            let moved = effects.iter().any(|effect| matches!(effect, Effect::Transition(_)));
            if told.member("replayed") == true && !moved {
                assert_eq!(self.d.engine.revision(), revision, "a replay writes nothing: {told:?}");
            }
        }
        if !matches!(cause, Cause::Batch { .. }) {
            self.asking_again_changes_nothing(request);
        }
    }

    fn note(&mut self, told: &Told) {
        match told.body.get("code") {
            Some(code) => self.reach(code.as_str().unwrap().to_owned()),
            None if told.body.get("state").is_some() => self.reach(told.brief()),
            None => {}
        }
    }

    fn asking_again_changes_nothing(&self, request: Request) {
        let mut again = self.d.clone();
        again.finish_calls();
        let (revision, records) = (again.engine.revision(), again.engine.records());
        again.submit(request);
        again.finish_calls();
        assert_eq!(again.engine.revision(), revision, "asking again");
        assert_eq!(again.engine.records(), records, "asking again");
    }

    fn step(&mut self, input: Input, cause: &Cause) -> Vec<Effect> {
        let effects = self.d.step(input);
        let after = Snapshot::of(&self.d.engine.records());
        let before = std::mem::replace(&mut self.current, after);
        Seen {
            cause,
            before: &before,
            after: &self.current,
            effects: &effects,
            now_ms: self.d.now_ms,
            uptime_ms: self.d.engine.uptime().as_millis(),
            limits: LIMITS,
            deadlines: &self.deadlines,
        }
        .check();
        self.follow_deadlines(&before, cause, &effects);
        self.note_ends(&before);
        self.listen();
        effects
    }

    fn note_ends(&mut self, before: &Snapshot) {
        let gone = before.outcomes.keys().filter(|key| !self.current.outcomes.contains_key(key)).count();
        let shrunk = self.current.clients.values().filter(|record| record.forgotten).count()
            > before.clients.values().filter(|record| record.forgotten).count();
        for (what, times) in [("an outcome dropped", gone), ("a client shrunk", usize::from(shrunk))] {
            for _ in 0..times {
                self.reach(what);
            }
        }
    }

    fn follow_deadlines(&mut self, before: &Snapshot, cause: &Cause, effects: &[Effect]) {
        let now_ms = self.d.now_ms;
        let renewed = match cause {
            Cause::Txn { key, op: Op::KeepAlive, .. } => {
                let told = replies(effects).into_iter().next_back().map(|(_, _, answer)| Told::of(answer));
                told.is_some_and(|told| told.brief() == "200 OPEN").then(|| key.clone())
            }
            _ => None,
        };
        self.deadlines.retain(|key, _| self.current.headers.contains_key(key));
        for (key, header) in &self.current.headers {
            let period = match header.state {
                TxnState::Open => Some(header.timeout_ms),
                TxnState::Prepared => header.prepared_timeout_ms,
                _ => None,
            };
            let due = period.map(|period| now_ms + period.as_millis());
            let changed = before.state(key) != Some(header.state);
            let known = self.deadlines.get(key).copied();
            match due {
                Some(due) if changed => drop(self.deadlines.insert(key.clone(), due)),
                Some(due) if renewed.as_ref() == Some(key) => {
                    self.deadlines.insert(key.clone(), known.map_or(due, |known| known.max(due)));
                }
                Some(_) => {}
                None => drop(self.deadlines.remove(key)),
            }
        }
    }

    /// Answers that have left must hold on what no crash takes away.
    fn listen(&mut self) {
        for (ticket, answer) in self.d.take_released() {
            self.oracle.hear(ticket, &Told::of(&answer));
        }
        self.oracle.holds_on(&Snapshot::of(self.d.synced.values()));
    }

    fn seal(&mut self) {
        self.d.seal();
        self.survives_any_crash();
    }

    fn sync_one(&mut self) -> bool {
        if !self.d.sync_one() {
            return false;
        }
        self.oracle.see_durable(&Snapshot::of(self.d.synced.values()));
        self.listen();
        self.survives_any_crash();
        true
    }

    /// A crash here, with any suffix of the unsynced batches lost.
    fn survives_any_crash(&self) {
        for kept in 0..=self.d.unsynced_batches() {
            let mut crashed = self.d.clone();
            crashed.crash(kept);
            self.oracle.clone().see_durable(&Snapshot::of(crashed.synced.values()));
        }
    }

    fn crash(&mut self, kept: usize) {
        self.d.crash(kept);
        let records = self.d.engine.records();
        let (again, writes) = recover(LIMITS, self.d.loads, self.d.now_ms, records.clone()).unwrap();
        assert_eq!((again.records(), writes), (records, Vec::new()), "recovering twice is recovering once");
        self.current = Snapshot::of(&self.d.engine.records());
        self.deadlines.clear();
        self.follow_deadlines(&Snapshot::default(), &Cause::Other, &[]);
        self.oracle.see_durable(&Snapshot::of(self.d.synced.values()));
        self.reach("crash");
    }

    /// Sweeps until none finds anything: a step looks at a few entries only.
    fn sweep_all(&mut self) {
        for _ in 0..20 {
            for sweep in Sweep::ALL {
                self.apply(&Command::Sweep(sweep));
            }
        }
    }

    /// Without any client, and with participants that do their part, everything but what is held ends.
    fn ends(&mut self) {
        self.apply(&Command::Crash(usize::MAX));
        self.d.pass(1_000_000);
        self.apply(&Command::Sweep(Sweep::Timeouts));
        for who in PARTICIPANTS {
            self.apply(&Command::Retire(who));
        }
        self.sweep_all();
        let held = |header: &&ratified_core::TransactionRecord| {
            header.state == TxnState::Prepared && header.prepared_timeout_ms.is_none()
        };
        assert!(self.current.headers.values().all(|header| held(&header)), "{:?}", self.current.headers);
        self.d.pass(1_000_000);
        self.sweep_all();
        let left = self.current.outcomes.iter().map(|((name, _), record)| (name, record.outcome)).collect::<Vec<_>>();
        assert!(left.iter().all(|(_, outcome)| *outcome == Outcome::Committed), "aborts expire: {left:?}");
        assert!(left.windows(2).all(|two| two[0] != two[1]), "one commit of each client is left: {left:?}");
        self.apply(&Command::Seal);
        self.apply(&Command::Sync);
    }
}

fn asked_of(name: Option<&str>) -> Asked {
    Asked { client: name.map(client), key: None, incarnation: None, is_begin: false }
}

fn run(commands: &[Command]) -> Reached {
    let mut run = Run::new();
    commands.iter().for_each(|command| run.apply(command));
    run.ends();
    run.reached
}

/// A few seconds' worth, unless `PROPTEST_CASES` says otherwise.
fn config() -> Config {
    const LIBRARYS_OWN: u32 = 256;
    let config = Config { failure_persistence: None, ..Config::default() };
    if config.cases == LIBRARYS_OWN { Config { cases: 64, ..config } } else { config }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_sequence_of_commands_and_crashes_breaks_a_promise(commands in commands::case()) {
        run(&commands);
    }
}

#[test]
fn every_rare_path_is_reached_and_the_same_seed_gives_the_same_run() {
    let first = |cases: usize| {
        let mut runner = TestRunner::deterministic();
        let mut all = Reached::new();
        for _ in 0..cases {
            let commands = commands::case().new_tree(&mut runner).unwrap().current();
            for (what, times) in run(&commands) {
                *all.entry(what).or_default() += times;
            }
        }
        all
    };
    let reached = first(60);
    for what in [
        "INVALID_ARGUMENT",
        "TXN_NOT_FOUND",
        "CLIENT_NOT_FOUND",
        "OUTCOME_ABORTED",
        "OUTCOME_COMMITTED",
        "TXN_NOT_PREPARED",
        "INVALID_TXN_STATE",
        "CLIENT_BUSY",
        "PARTICIPANT_RETIRED",
        "FENCED",
        "EPOCH_UNKNOWN",
        "OUTCOME_EXPIRED",
        "TXN_ID_TOO_OLD",
        "TXN_ID_REUSED",
        "TOO_MANY_OPEN",
        "TOO_MANY_CLIENTS",
        "201 OPEN",
        "200 OPEN replayed",
        "200 PREPARED",
        "200 PREPARED replayed",
        "202 COMMITTING CLIENT",
        "202 COMMITTING CLIENT replayed",
        "202 ABORTING CLIENT",
        "200 COMMITTED CLIENT preserved",
        "200 COMMITTED CLIENT replayed preserved",
        "200 COMMITTED CLIENT replayed",
        "200 ABORTED TIMEOUT replayed preserved",
        "200 ABORTED FENCED replayed preserved",
        "200 ABORTED OPERATOR preserved",
        "200 COMMITTED OPERATOR preserved",
        "an outcome dropped",
        "a client shrunk",
        "crash",
        "second crash",
    ] {
        assert!(reached.contains_key(what), "{what} was never reached: {reached:#?}");
    }
    assert_eq!(first(5), first(5));
}
