use ratified_core::{Limits, OwnershipEvent, Recovery, Uptime};
use ratified_protocol::{
    AbortRequest, BeginRequest, ClientName, CommitRequest, Epoch, Incarnation, OpenRequest, ParticipantName,
    ParticipantSet, TxnId, TxnState, WallTime,
};

use super::*;

/// Nobody.
const NONE: [u64; 0] = [];
const ROOM: Room = Room { requests: 100, bytes: 1 << 20 };

fn now() -> Now {
    Now { uptime: Uptime::from_millis(1000), wall: WallTime::from_unix_millis(1000) }
}

fn client() -> ClientName {
    "c".parse().unwrap()
}

fn txn(n: u8) -> TxnId {
    let mut bytes = *b"\x01\x90\xf2\xc4\x7a\x61\x7c\x3e\x9d\x0a\x0d\x0f\x6b\x1c\x2e\x00";
    bytes[15] = n;
    TxnId::from_bytes(bytes).unwrap()
}

fn pipeline(room: Room, limits: BatchLimits) -> Pipeline {
    let (engine, effects) = Recovery::new(Limits::default(), 1).finish(now()).unwrap();
    Pipeline::new(engine, 0, effects, room, limits).unwrap()
}

/// A pipeline with client `c` open at epoch 1, everything synced.
fn opened(room: Room) -> Pipeline {
    opened_on(room, BatchLimits::NONE)
}

fn opened_on(room: Room, limits: BatchLimits) -> Pipeline {
    let mut pipeline = pipeline(room, limits);
    ask(&mut pipeline, 0, open(1));
    sync(&mut pipeline);
    pipeline
}

fn open(by: u8) -> Request {
    let incarnation = Incarnation::new(uuid::Uuid::from_bytes([by; 16]));
    let body = OpenRequest { incarnation, owner: None, create: true, generation: None };
    Request::Open { client: client(), body }
}

fn ask(pipeline: &mut Pipeline, ticket: u64, request: Request) {
    pipeline.step(now(), Input::Request { ticket: Ticket(ticket), request }, 10).unwrap();
}

fn call(n: u8, call: TxnCall, wait_ms: u64) -> Request {
    Request::Txn { client: client(), txn_id: txn(n), call, wait_ms }
}

fn begin(n: u8, participants: &[&str]) -> Request {
    let names: Vec<ParticipantName> = participants.iter().map(|p| p.parse().unwrap()).collect();
    let participants = ParticipantSet::try_from(names).unwrap();
    let body = BeginRequest { epoch: Some(Epoch::new(1)), participants, ..Default::default() };
    call(n, TxnCall::Begin(body), 0)
}

fn commit(n: u8, wait_ms: u64) -> Request {
    call(n, TxnCall::Commit(CommitRequest { epoch: Some(Epoch::new(1)), ..Default::default() }), wait_ms)
}

fn sync(pipeline: &mut Pipeline) {
    assert!(pipeline.seal().unwrap().is_some());
    pipeline.synced();
}

fn answered(pipeline: &mut Pipeline) -> Vec<u64> {
    let reply = |release| match release {
        Release::Reply(Ticket(ticket), _) => Some(ticket),
        _ => None,
    };
    pipeline.take_released().into_iter().filter_map(reply).collect()
}

#[test]
fn a_reply_leaves_after_the_sync_of_its_batch_and_not_before() {
    let mut pipeline = opened(ROOM);
    answered(&mut pipeline);
    ask(&mut pipeline, 1, begin(1, &[]));
    assert_eq!(answered(&mut pipeline), NONE);
    assert!(pipeline.seal().unwrap().is_some());
    assert_eq!(answered(&mut pipeline), NONE);
    pipeline.synced();
    assert_eq!(answered(&mut pipeline), [1]);
}

#[test]
fn a_read_of_synced_state_leaves_while_a_sync_is_in_flight() {
    let mut pipeline = opened(ROOM);
    ask(&mut pipeline, 1, begin(1, &[]));
    sync(&mut pipeline);
    ask(&mut pipeline, 2, begin(2, &[]));
    assert!(pipeline.seal().unwrap().is_some());
    answered(&mut pipeline);
    ask(&mut pipeline, 3, call(1, TxnCall::Get, 0));
    assert_eq!(answered(&mut pipeline), [3]);
    ask(&mut pipeline, 4, call(2, TxnCall::Get, 0));
    assert_eq!(answered(&mut pipeline), NONE, "it depends on the batch in flight");
    pipeline.synced();
    assert_eq!(answered(&mut pipeline), [2, 4]);
    assert_eq!(pipeline.seal().unwrap(), None, "reads leave nothing to write");
}

#[test]
fn stepping_goes_on_during_a_sync_and_its_batch_waits_for_it() {
    let mut pipeline = opened(ROOM);
    ask(&mut pipeline, 1, begin(1, &[]));
    let first = pipeline.seal().unwrap().unwrap();
    ask(&mut pipeline, 2, begin(2, &[]));
    assert_eq!(pipeline.seal().unwrap(), None, "one sync is in flight");
    answered(&mut pipeline);
    pipeline.synced();
    assert_eq!(answered(&mut pipeline), [1]);
    let second = pipeline.seal().unwrap().unwrap();
    assert_eq!((first.number, second.number), (2, 3));
    pipeline.synced();
    assert_eq!(answered(&mut pipeline), [2]);
}

#[test]
fn every_batch_carries_its_number_and_the_uptime() {
    let mut pipeline = opened(ROOM);
    ask(&mut pipeline, 1, begin(1, &[]));
    let batch = pipeline.seal().unwrap().unwrap();
    for meta in [Meta::Batch(2), Meta::Uptime(Uptime::from_millis(1000))] {
        assert!(batch.changes.contains(&codec::encode_meta(&meta).unwrap()), "{meta:?}");
    }
}

#[test]
fn a_key_comes_once_in_a_batch_and_the_last_change_wins() {
    let mut pipeline = opened(ROOM);
    ask(&mut pipeline, 1, begin(1, &[]));
    let uptime = Meta::Uptime(Uptime::from_millis(5000));
    let batch = pipeline.seal_with(std::slice::from_ref(&uptime)).unwrap().unwrap();
    let keys: BTreeSet<_> = batch.changes.iter().map(|change| change.key.clone()).collect();
    assert_eq!(keys.len(), batch.changes.len());
    assert!(batch.changes.contains(&codec::encode_meta(&uptime).unwrap()));
}

#[test]
fn a_decision_without_participants_is_one_batch_with_its_outcome() {
    let mut pipeline = opened(ROOM);
    ask(&mut pipeline, 1, begin(1, &[]));
    sync(&mut pipeline);
    ask(&mut pipeline, 2, commit(1, 0));
    sync(&mut pipeline);
    assert_eq!(pipeline.seal().unwrap(), None);
    let released = pipeline.take_released();
    let is_commit =
        |r: &&Release| matches!(r, Release::Reply(Ticket(2), Answer::Txn(_, txn)) if txn.state == TxnState::Committed);
    assert_eq!(released.iter().filter(is_commit).count(), 1);
}

#[test]
fn a_batch_takes_as_many_steps_as_it_has_room_for() {
    let room = Room { requests: 2, bytes: 1 << 20 };
    let mut pipeline = opened(room);
    assert_eq!(pipeline.room_left(), room);
    ask(&mut pipeline, 1, begin(1, &[]));
    assert_eq!(pipeline.room_left().requests, 1);
    ask(&mut pipeline, 2, begin(2, &[]));
    assert_eq!(pipeline.room_left(), Room { requests: 0, bytes: 0 });
    assert!(pipeline.seal().unwrap().is_some());
    assert_eq!(pipeline.room_left(), room, "the next batch is gathered during the sync");
}

#[test]
fn a_batch_takes_as_many_bytes_as_it_has_room_for() {
    let mut pipeline = opened(Room { requests: 100, bytes: 15 });
    ask(&mut pipeline, 1, begin(1, &[]));
    assert_eq!(pipeline.room_left(), Room { requests: 99, bytes: 5 });
    ask(&mut pipeline, 2, begin(2, &[]));
    assert_eq!(pipeline.room_left(), Room { requests: 0, bytes: 0 });
}

#[test]
fn gathering_stops_when_the_store_takes_no_more_changes() {
    let mut pipeline = opened_on(ROOM, BatchLimits { changes: 2, ..BatchLimits::NONE });
    assert_eq!(pipeline.room_left(), ROOM);
    ask(&mut pipeline, 1, begin(1, &[]));
    assert_eq!(pipeline.engine().touched_keys(), 1);
    assert_ne!(pipeline.room_left().requests, 0);
    ask(&mut pipeline, 2, begin(2, &[]));
    assert_eq!(pipeline.engine().touched_keys(), 2);
    assert_eq!(pipeline.room_left(), Room { requests: 0, bytes: 0 });
    sync(&mut pipeline);
    assert_eq!(pipeline.room_left(), ROOM);
}

#[test]
fn gathering_stops_when_the_store_takes_no_more_bytes() {
    // A request of 10 bytes and its record.
    let bytes = 10 + RECORD_BYTES;
    let mut pipeline = opened_on(ROOM, BatchLimits { bytes: bytes + 1, ..BatchLimits::NONE });
    ask(&mut pipeline, 1, begin(1, &[]));
    assert_eq!(pipeline.room_left(), Room { requests: 99, bytes: 1 });
    let mut pipeline = opened_on(ROOM, BatchLimits { bytes, ..BatchLimits::NONE });
    ask(&mut pipeline, 1, begin(1, &[]));
    assert_eq!(pipeline.room_left(), Room { requests: 0, bytes: 0 });
}

#[test]
fn what_no_batch_of_the_store_can_hold_is_refused_and_not_stepped() {
    let limits = BatchLimits { changes: 3, bytes: 20_000 };
    let mut pipeline = opened_on(ROOM, limits);
    answered(&mut pipeline);
    let batch = |count: usize| {
        let item =
            || ratified_protocol::BatchItem::parse(serde_json::json!({"op": "get", "txnId": txn(1).to_string()}));
        Request::Batch { client: client(), items: (0..count).map(|_| item()).collect(), ordered: false }
    };
    let mut ask = |ticket, request, bytes| {
        pipeline.step(now(), Input::Request { ticket: Ticket(ticket), request }, bytes).unwrap();
        match pipeline.take_released().pop() {
            Some(Release::Reply(_, Answer::Problem(problem))) => Some((problem.code, problem.detail)),
            _ => None,
        }
    };
    assert_eq!(ask(1, batch(3), 20_000), None);
    let detail = "operations: the store takes at most 3 at once, not 4; send several batches";
    assert_eq!(ask(2, batch(4), 10), Some((Code::TooLarge.into(), detail.to_owned())));
    let detail = "body: the store takes at most 20000 bytes at once, not 20001; send less in one call";
    assert_eq!(ask(3, begin(1, &[]), 20_001), Some((Code::TooLarge.into(), detail.to_owned())));
    assert_eq!(pipeline.seal().unwrap(), None, "nothing was stepped");
    assert_eq!(pipeline.fail(), [], "and nobody waits");
}

#[test]
fn reads_of_synced_state_take_no_room() {
    let mut pipeline = opened(Room { requests: 1, bytes: 1 << 20 });
    for ticket in 1..10 {
        ask(&mut pipeline, ticket, call(1, TxnCall::Get, 0));
    }
    assert_eq!(pipeline.room_left().requests, 1);
}

#[test]
fn when_the_store_fails_a_durable_decision_is_told_apart_from_an_unknown_one() {
    let mut pipeline = opened(ROOM);
    ask(&mut pipeline, 1, begin(1, &["p"]));
    ask(&mut pipeline, 2, begin(2, &["p"]));
    sync(&mut pipeline);
    ask(&mut pipeline, 3, commit(1, 30_000));
    sync(&mut pipeline);
    answered(&mut pipeline);
    ask(&mut pipeline, 4, call(2, TxnCall::Get, 30_000));
    ask(&mut pipeline, 5, call(2, TxnCall::Abort(AbortRequest { epoch: Some(Epoch::new(1)) }), 30_000));
    assert!(pipeline.seal().unwrap().is_some());
    ask(&mut pipeline, 6, begin(3, &[]));
    assert_eq!(
        pipeline.fail(),
        [
            (Ticket(3), Code::TransactionPreserverClosed),
            (Ticket(4), Code::StorageUnavailable),
            (Ticket(5), Code::StorageUnavailable),
            (Ticket(6), Code::StorageUnavailable),
        ]
    );
    assert_eq!(answered(&mut pipeline), NONE, "nothing that was held back is ever told");
}

#[test]
fn a_shutdown_finds_those_who_are_parked() {
    let mut pipeline = opened(ROOM);
    ask(&mut pipeline, 1, begin(1, &["p"]));
    ask(&mut pipeline, 2, commit(1, 30_000));
    sync(&mut pipeline);
    assert_eq!(answered(&mut pipeline), [0, 1]);
    assert_eq!(pipeline.take_waiting(), [Ticket(2)]);
}

#[test]
fn what_is_logged_about_owners_waits_for_the_open_it_depends_on_and_for_nothing_else() {
    let mut pipeline = opened(ROOM);
    pipeline.take_released();
    ask(&mut pipeline, 1, open(2));
    ask(&mut pipeline, 2, begin(1, &[]));
    assert_eq!(pipeline.take_released(), [], "neither the new owner nor the refusal of the old one is durable");
    sync(&mut pipeline);
    let logged = |pipeline: &mut Pipeline| {
        let event = |release| match release {
            Release::Ownership(ownership) => Some(ownership.event),
            _ => None,
        };
        pipeline.take_released().into_iter().filter_map(event).collect::<Vec<_>>()
    };
    let fenced = OwnershipEvent::CallFenced { given: Epoch::new(1) };
    assert_eq!(logged(&mut pipeline), [OwnershipEvent::Opened { generation: None }, fenced.clone()]);
    ask(&mut pipeline, 3, begin(1, &[]));
    assert_eq!(logged(&mut pipeline), [fenced], "a refusal costs no sync");
    assert_eq!(pipeline.seal().unwrap().map(|batch| batch.number), None);
}
