//! Random commands: several clients, ids close to the newest one, stale and future epochs, late duplicates, sweeps,
//! and crashes.

use proptest::prelude::*;
use ratified_core::{Request, Sweep, TxnFilter};
use ratified_protocol::{Outcome, TxnState};
use serde_json::{Value, json};

use crate::support::{self, id_text};

pub(super) const CLIENTS: [&str; 3] = ["a", "b", "c"];
pub(super) const PARTICIPANTS: [&str; 2] = ["p", "q"];

/// Which epoch a call carries, seen from the client's current one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Claim {
    Current,
    Older,
    Newer,
    Missing,
}

/// A call about one transaction.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Op {
    Begin { timeout_ms: u64, participants: Vec<&'static str>, require_prepare: bool },
    Prepare { timeout_ms: Option<u64>, payload: bool },
    Commit { payload: bool },
    Abort,
    KeepAlive,
    Register(&'static str),
    Ack { who: &'static str, truly: bool },
    Resolve(&'static str),
    Get,
    Lookup,
}

/// One step of a case.
#[derive(Debug, Clone)]
pub(super) enum Command {
    /// `above` is counted from the client's newest id.
    Txn {
        client: &'static str,
        above: i64,
        claim: Claim,
        op: Op,
        wait_ms: u64,
    },
    Batch {
        client: &'static str,
        claim: Claim,
        items: Vec<(i64, Op)>,
        ordered: bool,
    },
    Open {
        client: &'static str,
        incarnation: u128,
        create: bool,
    },
    Forget(&'static str),
    Preserver(&'static str),
    Decisions {
        who: &'static str,
        wait_ms: u64,
    },
    Retire(&'static str),
    Reinstate(&'static str),
    Txns(Option<TxnState>),
    Clients,
    Sweep(Sweep),
    Pass(u64),
    Seal,
    SyncOne,
    Sync,
    /// Dies; of the unsynced batches at most this many survive.
    Crash(usize),
    /// Dies with this many surviving, and once more while loading, before they were made durable.
    CrashTwice(usize, usize),
}

/// Two that are busy, and one that is mostly in the way.
fn client() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(CLIENTS[0]), 3 => Just(CLIENTS[1]), 1 => Just(CLIENTS[2])]
}

fn who() -> impl Strategy<Value = &'static str> {
    prop::sample::select(PARTICIPANTS.to_vec())
}

fn claim() -> impl Strategy<Value = Claim> {
    prop_oneof![
        12 => Just(Claim::Current),
        1 => Just(Claim::Older),
        1 => Just(Claim::Newer),
        2 => Just(Claim::Missing),
    ]
}

fn wait_ms() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 1 => 1_u64..60]
}

fn begin() -> impl Strategy<Value = Op> {
    let participants = prop::sample::select(vec![vec![], vec![], vec!["p"], vec!["p", "q"]]);
    (prop::sample::select(vec![20_u64, 200]), participants, prop::bool::weighted(0.1))
        .prop_map(|(timeout_ms, participants, require_prepare)| Op::Begin { timeout_ms, participants, require_prepare })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        7 => (prop::option::weighted(0.3, Just(50)), prop::bool::weighted(0.7))
            .prop_map(|(timeout_ms, payload)| Op::Prepare { timeout_ms, payload }),
        8 => prop::bool::weighted(0.2).prop_map(|payload| Op::Commit { payload }),
        4 => Just(Op::Abort),
        2 => Just(Op::KeepAlive),
        2 => who().prop_map(Op::Register),
        10 => (who(), prop::bool::weighted(0.9)).prop_map(|(who, truly)| Op::Ack { who, truly }),
        2 => prop::sample::select(vec!["COMMIT", "ABORT"]).prop_map(Op::Resolve),
        3 => Just(Op::Get),
        1 => Just(Op::Lookup),
    ]
}

/// An operation and how far above the newest id it aims: mostly at a new one to begin it, and at a recent one
/// otherwise.
fn aimed() -> impl Strategy<Value = (i64, Op)> {
    let to_begin = prop_oneof![6 => Just(1_i64), 1 => Just(0), 2 => -6_i64..0, 1 => 2_i64..4];
    let otherwise = prop_oneof![8 => Just(0_i64), 4 => Just(-1), 6 => -6_i64..-1, 1 => Just(1)];
    prop_oneof![2 => (to_begin, begin()), 5 => (otherwise, op())]
}

/// What a batch may hold.
fn batch_item() -> impl Strategy<Value = (i64, Op)> {
    aimed().prop_map(|(above, op)| match op {
        Op::KeepAlive | Op::Register(_) | Op::Resolve(_) | Op::Lookup => (above, Op::Get),
        op => (above, op),
    })
}

fn request() -> impl Strategy<Value = Command> {
    prop_oneof![
        40 => (client(), aimed(), claim(), wait_ms()).prop_map(|(client, (above, op), claim, wait_ms)| {
            Command::Txn { client, above, claim, op, wait_ms }
        }),
        4 => (client(), claim(), prop::collection::vec(batch_item(), 0..6), any::<bool>()).prop_map(
            |(client, claim, items, ordered)| Command::Batch { client, claim, items, ordered }
        ),
        3 => (client(), 1_u128..7, prop::bool::weighted(0.8))
            .prop_map(|(client, incarnation, create)| Command::Open { client, incarnation, create }),
        1 => client().prop_map(Command::Forget),
        1 => client().prop_map(Command::Preserver),
        2 => (who(), wait_ms()).prop_map(|(who, wait_ms)| Command::Decisions { who, wait_ms }),
        1 => who().prop_map(Command::Retire),
        3 => who().prop_map(Command::Reinstate),
        1 => prop::option::of(prop::sample::select(TxnState::ALL.to_vec())).prop_map(Command::Txns),
        1 => Just(Command::Clients),
    ]
}

fn surroundings() -> impl Strategy<Value = Command> {
    prop_oneof![
        10 => prop::sample::select(Sweep::ALL.to_vec()).prop_map(Command::Sweep),
        6 => (1_u64..30).prop_map(Command::Pass),
        10 => Just(Command::Seal),
        6 => Just(Command::SyncOne),
        4 => Just(Command::Sync),
        1 => (0_usize..4).prop_map(Command::Crash),
        1 => (0_usize..4, 0_usize..4).prop_map(|(first, second)| Command::CrashTwice(first, second)),
    ]
}

/// A case: every client is opened, then anything goes.
pub(super) fn case() -> impl Strategy<Value = Vec<Command>> {
    prop::collection::vec(prop_oneof![7 => request(), 3 => surroundings()], 40..140).prop_map(|commands| {
        let open = |client| Command::Open { client, incarnation: 1, create: true };
        CLIENTS.into_iter().take(2).map(open).chain([Command::Seal, Command::Sync]).chain(commands).collect()
    })
}

impl Op {
    /// The body of the call; `decided` is what an honest acknowledgement says.
    pub(super) fn body(&self, epoch: Option<u64>, decided: Outcome) -> Value {
        let mut body = match self {
            Self::Begin { timeout_ms, participants, require_prepare } => {
                json!({"timeoutMs": timeout_ms, "participants": participants, "requirePrepare": require_prepare})
            }
            Self::Prepare { timeout_ms, payload } => {
                json!({"preparedTimeoutMs": timeout_ms, "payload": payload.then_some("eA=="), "checkpointId": 7})
            }
            Self::Commit { payload } => json!({"payload": payload.then_some("eA==")}),
            Self::Ack { who, truly } => {
                let told = if *truly { decided } else { other(decided) };
                return json!({"participant": who, "outcome": told});
            }
            Self::Get | Self::Lookup | Self::Resolve(_) => return json!({}),
            Self::Abort | Self::KeepAlive | Self::Register(_) => json!({}),
        };
        body["epoch"] = json!(epoch);
        body
    }

    pub(super) fn request(&self, client: &str, n: u64, epoch: Option<u64>, decided: Outcome) -> Request {
        let body = self.body(epoch, decided);
        match self {
            Self::Begin { .. } => support::begin(client, n, &body),
            Self::Prepare { .. } => support::prepare(client, n, &body),
            Self::Commit { .. } => support::commit(client, n, &body),
            Self::Abort => support::abort(client, n, &body),
            Self::KeepAlive => support::keep_alive(client, n, &body),
            Self::Register(who) => support::register(client, n, who, &body),
            Self::Ack { who, truly } => support::ack(client, n, who, if *truly { decided } else { other(decided) }),
            Self::Resolve(outcome) => support::resolve(client, n, outcome),
            Self::Get => support::get(client, n),
            Self::Lookup => support::lookup(client, n),
        }
    }

    pub(super) fn item(&self, n: u64, epoch: Option<u64>, decided: Outcome) -> Value {
        let mut item = self.body(epoch, decided);
        let name = match self {
            Self::Begin { .. } => "begin",
            Self::Prepare { .. } => "prepare",
            Self::Commit { .. } => "commit",
            Self::Abort => "abort",
            Self::Ack { .. } => "ack",
            _ => "get",
        };
        item["op"] = json!(name);
        item["txnId"] = json!(id_text(n));
        item
    }

    /// Only these may wait.
    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Commit { .. } | Self::Abort | Self::Get)
    }
}

fn other(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Committed => Outcome::Aborted,
        Outcome::Aborted => Outcome::Committed,
    }
}

pub(super) fn listing(state: Option<TxnState>) -> Request {
    support::txns(TxnFilter { state, ..TxnFilter::default() }, support::page(100, None))
}
