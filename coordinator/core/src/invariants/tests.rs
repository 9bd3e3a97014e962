//! Each invariant can fail: one thing is broken in an engine that is in order, and the invariant names the place.

use bytes::Bytes;
use ratified_protocol::{
    BeginRequest, EndReason, Epoch, Incarnation, OpenRequest, ParticipantName, RequestBody, ShortText, decode_body,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::{
    effect::{Effect, Input, Request, Revision, Ticket, TxnCall},
    limits::Limits,
    preserver::Entry,
    record::{DecisionRecord, LastCommittedRecord, ParticipantRecord},
    recovery::Recovery,
    time::{Now, Uptime},
};

const HELD: u64 = 1;
const LEASED: u64 = 2;
const COMMITTED: u64 = 4;
const COMMITTING: u64 = 5;
const ABORTED: u64 = 6;
const ABORTING: u64 = 7;
const OPEN: u64 = 8;
const ABSENT: u64 = 9;

fn name(name: &str) -> ClientName {
    name.parse().unwrap()
}

fn participant(name: &str) -> ParticipantName {
    name.parse().unwrap()
}

fn id(n: u64) -> TxnId {
    format!("00000000-0000-7000-8000-{n:012}").parse().unwrap()
}

fn body<T: RequestBody>(json: &Value) -> T {
    decode_body(&serde_json::to_vec(json).unwrap()).unwrap()
}

/// An engine, and the number of the next request.
struct Scene(Engine, u64);

impl Scene {
    fn ask(&mut self, request: Request) {
        self.1 += 1;
        let mut effects = Vec::new();
        self.0.step(Now::default(), Input::Request { ticket: Ticket(self.1), request }, &mut effects);
        let refused = effects.iter().find(|e| matches!(e, Effect::Reply { answer: crate::Answer::Problem(_), .. }));
        assert_eq!(refused, None);
    }

    fn open(&mut self, client: &str, by: u128) {
        let body = OpenRequest {
            incarnation: Incarnation::new(Uuid::from_u128(by)),
            owner: None,
            create: true,
            generation: None,
        };
        self.ask(Request::Open { client: name(client), body });
    }

    fn call(&mut self, client: &str, n: u64, call: TxnCall, wait_ms: u64) {
        self.ask(Request::Txn { client: name(client), txn_id: id(n), call, wait_ms });
    }

    fn begin(&mut self, client: &str, n: u64, epoch: u64, participants: &[&str]) {
        let begin: BeginRequest = body(&json!({"epoch": epoch, "participants": participants}));
        self.call(client, n, TxnCall::Begin(begin), 0);
    }
}

/// Client `c` with a transaction in every state, a parked commit and a parked poll; `gone` is a tombstone, `idle` idle.
fn engine() -> Engine {
    let limits = Limits {
        persist_count: 1,
        max_outcomes_per_client: 1,
        client_retention_ms: Some(1000),
        max_waiting: 2,
        ..Limits::default()
    };
    let (engine, _) = Recovery::new(limits, 1).finish(Now::default()).unwrap();
    let mut scene = Scene(engine, 0);
    scene.open("idle", 1);
    scene.open("gone", 1);
    scene.begin("gone", 1, 1, &[]);
    scene.call("gone", 1, TxnCall::Abort(body(&json!({"epoch": 1}))), 0);
    let reason = ShortText::try_from("over".to_owned()).unwrap();
    scene.ask(Request::Forget { client: name("gone"), reason });

    scene.open("c", 1);
    scene.begin("c", HELD, 1, &[]);
    scene.call("c", HELD, TxnCall::Prepare(body(&json!({"epoch": 1, "payload": "aGVsZA=="}))), 0);
    scene.open("c", 2);
    scene.begin("c", LEASED, 2, &[]);
    scene.call("c", LEASED, TxnCall::Prepare(body(&json!({"epoch": 2, "preparedTimeoutMs": 60_000}))), 0);
    scene.begin("c", COMMITTED, 2, &[]);
    scene.call("c", COMMITTED, TxnCall::Commit(body(&json!({"epoch": 2}))), 0);
    scene.begin("c", COMMITTING, 2, &["p"]);
    scene.call("c", COMMITTING, TxnCall::Commit(body(&json!({"epoch": 2, "payload": "bGFzdA=="}))), 1000);
    scene.begin("c", ABORTED, 2, &[]);
    scene.call("c", ABORTED, TxnCall::Abort(body(&json!({"epoch": 2}))), 0);
    scene.begin("c", ABORTING, 2, &["p"]);
    scene.call("c", ABORTING, TxnCall::Abort(body(&json!({"epoch": 2}))), 0);
    scene.begin("c", OPEN, 2, &[]);
    scene.ask(Request::Decisions { participant: participant("q"), after: None, wait_ms: 1000 });
    scene.0.seal(&mut Vec::new());
    scene.0
}

fn client<'a>(engine: &'a mut Engine, of: &str) -> &'a mut Client {
    engine.clients.get_mut(&name(of)).unwrap()
}

fn txn(engine: &mut Engine, n: u64) -> &mut Transaction {
    client(engine, "c").txns.get_mut(&id(n)).unwrap()
}

fn entry(outcome: Outcome, flushed: bool) -> Entry {
    let end_reason = EndReason::Client;
    Entry { outcome, end_reason, checkpoint_id: None, terminal: None, flushed, changed: Revision::default() }
}

fn last(n: u64) -> LastCommittedRecord {
    let end_time = Now::default().wall;
    LastCommittedRecord { txn_id: id(n), checkpoint_id: None, end_time, end_reason: EndReason::Client }
}

/// What an invariant says of an engine in which one thing is broken.
#[track_caller]
fn assert_broken(check: Check, place: &str, break_it: impl FnOnce(&mut Engine)) {
    let mut engine = engine();
    assert_eq!(check(&engine), Ok(()), "before it is broken");
    break_it(&mut engine);
    assert_eq!(check(&engine), Err(place.to_owned()));
}

#[test]
fn an_engine_in_order_passes_and_the_first_broken_invariant_is_named() {
    let mut engine = engine();
    assert_eq!(check_all(&engine), Ok(()));
    assert_eq!(engine.live, [1, 2, 1, 1]);
    engine.tombstones = 2;
    engine.live = [0; 4];
    assert_eq!(check_all(&engine), Err("a tombstone has nothing left: 1 tombstones".to_owned()));
}

#[test]
fn a_header_that_is_terminal_or_has_a_decision_of_no_outcome_is_found() {
    assert_broken(headers_are_live, "c/00000000-0000-7000-8000-000000000005 COMMITTED", |engine| {
        txn(engine, COMMITTING).record.state = TxnState::Committed;
    });
    assert_broken(headers_are_live, "c/00000000-0000-7000-8000-000000000005 COMMITTING", |engine| {
        txn(engine, COMMITTING).record.decision = None;
    });
}

#[test]
fn an_ending_header_that_waits_for_nobody_is_found() {
    assert_broken(ending_headers_wait, "c/00000000-0000-7000-8000-000000000005 COMMITTING", |engine| {
        txn(engine, COMMITTING).acks.insert(participant("p"));
    });
}

#[test]
fn an_open_transaction_of_an_older_epoch_and_any_of_a_newer_one_is_found() {
    assert_broken(open_is_current, "c/00000000-0000-7000-8000-000000000008", |engine| {
        client(engine, "c").record.epoch = Epoch::new(3);
    });
    assert_broken(open_is_current, "c/00000000-0000-7000-8000-000000000001", |engine| {
        txn(engine, HELD).record.epoch = Epoch::new(3);
    });
}

#[test]
fn a_missing_and_a_needless_deadline_are_found() {
    assert_broken(deadlines_belong, "c/00000000-0000-7000-8000-000000000008 OPEN", |engine| {
        txn(engine, OPEN).deadline = None;
    });
    assert_broken(deadlines_belong, "c/00000000-0000-7000-8000-000000000001 PREPARED", |engine| {
        txn(engine, HELD).deadline = Some(Uptime::from_millis(1));
    });
}

#[test]
fn a_missing_and_a_needless_timer_are_found() {
    assert_broken(timers_follow_headers, "c/00000000-0000-7000-8000-000000000008", |engine| {
        let header = txn(engine, OPEN).clone();
        engine.timers.remove(&name("c"), id(OPEN), &header);
    });
    // One of two entries, the other is there.
    for (n, place) in
        [(OPEN, "c/00000000-0000-7000-8000-000000000008"), (LEASED, "c/00000000-0000-7000-8000-000000000002")]
    {
        assert_broken(timers_follow_headers, place, |engine| {
            let mut since = txn(engine, n).clone();
            since.deadline = None;
            engine.timers.remove(&name("c"), id(n), &since);
        });
        assert_broken(timers_follow_headers, place, |engine| {
            let mut since = txn(engine, n).clone();
            engine.timers.remove(&name("c"), id(n), &since);
            since.deadline = None;
            engine.timers.add(&name("c"), id(n), &since);
        });
    }
    assert_broken(timers_follow_headers, "[2, 2, 2, 2] entries for [2, 1, 2, 2]", |engine| {
        let mut stranger = txn(engine, OPEN).clone();
        stranger.deadline = None;
        engine.timers.add(&name("idle"), id(OPEN), &stranger);
    });
    assert_broken(timers_follow_headers, "c/00000000-0000-7000-8000-000000000005", |engine| {
        let header = txn(engine, COMMITTING).clone();
        engine.timers.remove(&name("c"), id(COMMITTING), &header);
    });
    assert_broken(timers_follow_headers, "c/00000000-0000-7000-8000-000000000007", |engine| {
        txn(engine, ABORTING).ending_since = None;
    });
    assert_broken(timers_follow_headers, "busy clients", |engine| {
        engine.busy.insert(name("idle"));
    });
}

#[test]
fn a_participant_that_is_indexed_wrongly_is_found() {
    assert_broken(participants_follow_headers, "members", |engine| {
        engine.participants.leave(&participant("p"), &name("c"), id(COMMITTING));
    });
    assert_broken(participants_follow_headers, "pending decisions", |engine| {
        let number = txn(engine, COMMITTING).record.decision.unwrap().number;
        engine.participants.settle(&participant("p"), number);
    });
    let place = "c/00000000-0000-7000-8000-000000000005 has a retired participant";
    assert_broken(participants_follow_headers, place, |engine| {
        engine.participants.set_record(participant("p"), ParticipantRecord { retired: true, reason: None });
    });
}

#[test]
fn an_outcome_without_its_header_and_one_that_is_early_are_found() {
    assert_broken(preserver_follows_headers, "c/00000000-0000-7000-8000-000000000008 outcome", |engine| {
        engine.preserver.append(&name("c"), id(OPEN), entry(Outcome::Committed, false));
    });
    assert_broken(preserver_follows_headers, "c/00000000-0000-7000-8000-000000000008 early", |engine| {
        let header = txn(engine, OPEN);
        header.record.state = TxnState::Aborting;
        header.record.decision = Some(DecisionRecord { reason: EndReason::Client, number: 3 });
        engine.preserver.append(&name("c"), id(OPEN), entry(Outcome::Aborted, true));
    });
    assert_broken(preserver_follows_headers, "c/00000000-0000-7000-8000-000000000009 live false", |engine| {
        engine.preserver.append(&name("c"), id(ABSENT), entry(Outcome::Committed, false));
    });
}

#[test]
fn more_outcomes_than_the_limit_are_found() {
    assert_broken(preserver_is_bounded, "c keeps 1 COMMITTED", |engine| {
        (engine.limits.persist_count, engine.limits.max_outcomes_per_client) = (0, 0);
    });
}

#[test]
fn a_last_commit_that_is_not_the_newest_or_has_another_payload_is_found() {
    let older = format!("c last {:?}, newest {:?}", Some(id(COMMITTED)), Some(id(COMMITTING)));
    assert_broken(last_committed_is_newest, &older, |engine| {
        client(engine, "c").record.last_committed = Some(last(COMMITTED));
    });
    assert_broken(last_committed_is_newest, "c payload", |engine| client(engine, "c").last_payload = None);
    assert_broken(last_committed_is_newest, "idle payload", |engine| {
        client(engine, "idle").last_payload = Some(Bytes::from_static(b"whose?"));
    });
}

#[test]
fn a_newest_id_that_is_not_and_a_stamp_of_the_future_are_found() {
    assert_broken(watermarks_cover, &format!("c newest {:?}", Some(id(ABORTING))), |engine| {
        client(engine, "c").record.newest_txn_id = Some(id(ABORTING));
    });
    assert_broken(watermarks_cover, "c stamp", |engine| {
        client(engine, "c").record.written = Uptime::from_millis(1);
    });
    assert_broken(watermarks_cover, "c stamp", |engine| client(engine, "c").active = Uptime::from_millis(1));
}

#[test]
fn a_tombstone_with_anything_left_is_found() {
    assert_broken(tombstones_are_bare, "gone", |engine| {
        let header = txn(engine, OPEN).clone();
        client(engine, "gone").txns.insert(id(OPEN), header);
    });
    assert_broken(tombstones_are_bare, "gone", |engine| client(engine, "gone").record.last_committed = Some(last(1)));
    assert_broken(tombstones_are_bare, "gone", |engine| {
        client(engine, "gone").record.owner = Some(ShortText::try_from("somebody".to_owned()).unwrap());
    });
    assert_broken(tombstones_are_bare, "gone", |engine| {
        engine.preserver.append(&name("gone"), id(1), entry(Outcome::Aborted, false));
    });
    assert_broken(tombstones_are_bare, "gone", |engine| client(engine, "gone").record.evicted_through = None);
    assert_broken(tombstones_are_bare, "1 tombstones", |engine| engine.tombstones = 2);
}

#[test]
fn a_wrong_count_is_found() {
    assert_broken(counts_are_right, "c [1, 2, 1, 1]", |engine| client(engine, "c").counts = [1, 2, 1, 2]);
    assert_broken(counts_are_right, "[1, 2, 1, 1]", |engine| engine.live = [1, 2, 1, 2]);
    assert_broken(counts_are_right, "8 payload bytes", |engine| engine.payload_bytes = 12);
    assert_broken(counts_are_right, "stray index entries", |engine| engine.stats.stray_index_entries = 1);
}

#[test]
fn a_parked_request_with_nothing_to_wait_for_is_found() {
    assert_broken(parked_requests_wait, "too many", |engine| engine.limits.max_waiting = 1);
    assert_broken(parked_requests_wait, "c/00000000-0000-7000-8000-000000000005", |engine| {
        client(engine, "c").txns.remove(&id(COMMITTING));
    });
    assert_broken(parked_requests_wait, "q", |engine| {
        engine.participants.expect_ack(&participant("q"), 3, &name("c"), id(COMMITTING));
    });
}

#[test]
fn an_idle_client_that_is_not_indexed_or_under_another_time_is_found() {
    assert_broken(idle_clients_are_indexed, "1 idle clients", |engine| {
        engine.timers.set_idle(Some(Uptime::default()), None, &name("idle"));
    });
    assert_broken(idle_clients_are_indexed, "idle", |engine| client(engine, "idle").active = Uptime::from_millis(1));
}
