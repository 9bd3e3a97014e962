//! One test per transition: the exact list of effects, those of the seal included.

use ratified_core::{
    Audit, ClientRecord, DecisionRecord, Effect, Input, Key, LastCommittedRecord, Now, OutcomeRecord, Ownership,
    OwnershipEvent, ParticipantEntry, ParticipantRecord, Record, Request, Revision, Sweep, Ticket, TransactionRecord,
    Transition, Uptime, Write,
};
use ratified_protocol::{
    CheckpointId, EndReason, Epoch, Generation, Outcome, Resolution, ResolveRequest, TimeoutMs, TxnState, WallTime,
};
use serde_json::json;

use crate::support::{
    Driver, Told, abort, ack, begin, client, commit, epoch, forget, get, id, incarnation, keep_alive, open, open_of,
    participant, prepare, register, reinstate, replies, resolve, retire, text,
};

/// The effects without replies, and the replies in short: ticket, revision, `status state`.
fn split(effects: Vec<Effect>) -> (Vec<Effect>, Vec<(u64, u64, String)>) {
    let told =
        |(ticket, after, answer): (Ticket, Revision, _)| (ticket.0, after.0, Told::of(answer).status.to_string());
    let answers = replies(&effects).into_iter().map(told).collect();
    (effects.into_iter().filter(|e| !matches!(e, Effect::Reply { .. })).collect(), answers)
}

/// Runs a request as the `n`th one and `n`th step that changes something; its reply waits for just that step.
fn assert_effects(d: &mut Driver, request: Request, status: u16, expected: &[Effect]) {
    let before = d.engine.revision().0;
    let ticket = d.clone().ticket().0;
    let (effects, answers) = split(d.effects(request));
    assert_eq!(effects, expected);
    assert_eq!(answers, [(ticket, before + 1, status.to_string())]);
    assert_eq!(d.engine.revision().0, before + 1, "one step");
}

fn put(record: Record) -> Effect {
    Effect::Persist(Write::Put(record))
}

fn delete(key: Key) -> Effect {
    Effect::Persist(Write::Delete(key))
}

fn moved(n: u64, from: Option<TxnState>, to: TxnState, reason: Option<EndReason>) -> Effect {
    Effect::Transition(Transition { client: client("c"), txn_id: id(n), from, to, reason })
}

fn wall(ms: u64) -> WallTime {
    WallTime::from_unix_millis(ms)
}

/// The record of client `c`, opened once at 0 and rewritten at 10.
fn client_record() -> ClientRecord {
    ClientRecord {
        epoch: Epoch::FIRST,
        incarnations: vec![incarnation(1)],
        owner: Some(text("owner-1")),
        previous_owner: None,
        evicted_through: None,
        newest_txn_id: Some(id(1)),
        last_committed: None,
        forgotten: false,
        written: Uptime::from_millis(10),
        generation: None,
    }
}

fn put_client(record: ClientRecord) -> Effect {
    put(Record::Client(client("c"), record))
}

fn committed_at_10(checkpoint: Option<u64>) -> ClientRecord {
    let last = LastCommittedRecord {
        txn_id: id(1),
        checkpoint_id: checkpoint.map(CheckpointId::new),
        end_time: wall(10),
        end_reason: EndReason::Client,
    };
    ClientRecord { last_committed: Some(last), ..client_record() }
}

fn entry(name: &str) -> ParticipantEntry {
    ParticipantEntry { name: participant(name), at_begin: true, retired: false }
}

/// A header begun at 0 with participant `p`.
fn header(state: TxnState) -> TransactionRecord {
    TransactionRecord {
        state,
        epoch: Epoch::FIRST,
        timeout_ms: TimeoutMs::DEFAULT,
        prepared_timeout_ms: None,
        require_prepare: false,
        checkpoint_id: None,
        labels: ratified_protocol::Labels::default(),
        participants: vec![entry("p")],
        begin_time: wall(0),
        prepare_time: None,
        begun: Uptime::from_millis(0),
        prepared: None,
        decision: None,
    }
}

fn ownership(after: u64, epoch: u64, previous: Option<&str>, event: OwnershipEvent) -> Effect {
    let ownership = Ownership {
        client: client("c"),
        epoch: Epoch::new(epoch),
        owner: Some(text(&format!("owner-{epoch}"))),
        previous_owner: previous.map(text),
        event,
    };
    Effect::Ownership { after: Revision(after), ownership }
}

fn opened(after: u64, epoch: u64, previous: Option<&str>) -> Effect {
    ownership(after, epoch, previous, OwnershipEvent::Opened { generation: None })
}

fn put_header(record: TransactionRecord) -> Effect {
    put(Record::Transaction(client("c"), id(1), record))
}

fn decided(state: TxnState, reason: EndReason) -> TransactionRecord {
    TransactionRecord { decision: Some(DecisionRecord { reason, number: 1 }), ..header(state) }
}

fn put_outcome(outcome: Outcome, end_reason: EndReason, checkpoint: Option<u64>, at: u64) -> Effect {
    let record = OutcomeRecord {
        outcome,
        end_reason,
        checkpoint_id: checkpoint.map(CheckpointId::new),
        end_time: wall(at),
        ended: Uptime::from_millis(at),
        termination: 1,
    };
    put(Record::Outcome(client("c"), id(1), record))
}

fn delete_header() -> Effect {
    delete(Key::Transaction(client("c"), id(1)))
}

/// Client `c` with id 1 begun at 0; now it is 10.
fn begun(participants: &[&str]) -> Driver {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": participants})));
    d.pass(10);
    d
}

const OPEN: Option<TxnState> = Some(TxnState::Open);
const PREPARED: Option<TxnState> = Some(TxnState::Prepared);
const CLIENT: Option<EndReason> = Some(EndReason::Client);

#[test]
fn open_writes_the_client() {
    let mut d = Driver::new(ratified_core::Limits::default());
    d.pass(10);
    let record = ClientRecord { newest_txn_id: None, ..client_record() };
    assert_effects(&mut d, open("c", 1), 200, &[opened(1, 1, None), put_client(record)]);
}

#[test]
fn open_of_a_new_owner_writes_the_client_and_the_fenced() {
    let mut d = begun(&["p"]);
    let record = ClientRecord {
        epoch: Epoch::new(2),
        incarnations: vec![incarnation(1), incarnation(2)],
        owner: Some(text("owner-2")),
        previous_owner: Some(text("owner-1")),
        ..client_record()
    };
    assert_effects(
        &mut d,
        open("c", 2),
        200,
        &[
            opened(3, 2, Some("owner-1")),
            moved(1, OPEN, TxnState::Aborting, Some(EndReason::Fenced)),
            put_client(record),
            put_header(decided(TxnState::Aborting, EndReason::Fenced)),
        ],
    );
}

fn effects_without_reply(d: &mut Driver, request: Request) -> Vec<Effect> {
    split(d.effects(request)).0
}

#[test]
fn a_refused_owner_is_told_with_both_owners_and_waits_for_the_open_that_superseded_it() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(open("c", 2));
    let given = Epoch::FIRST;
    let fenced = [ownership(3, 2, Some("owner-1"), OwnershipEvent::CallFenced { given })];
    assert_eq!(effects_without_reply(&mut d, begin("c", 2, &epoch(1))), fenced);
    let refused = OwnershipEvent::OpenFenced { by: Some(text("owner-1")), generation: None };
    assert_eq!(
        effects_without_reply(&mut d, open("c", 1)),
        [ownership(3, 2, Some("owner-1"), refused)],
        "a superseded incarnation"
    );
    let refused = OwnershipEvent::OpenFenced { by: Some(text("owner-4")), generation: Some(Generation::new(6)) };
    d.call(open_of("c", 3, 7));
    assert_eq!(
        effects_without_reply(&mut d, open_of("c", 4, 6)),
        [ownership(4, 3, Some("owner-2"), refused)],
        "a smaller generation"
    );
    assert_eq!(d.engine.stats().fenced_calls, 3);
}

#[test]
fn begin_writes_the_header() {
    let mut d = Driver::opened();
    assert_effects(
        &mut d,
        begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})),
        201,
        &[moved(1, None, TxnState::Open, None), put_header(header(TxnState::Open))],
    );
}

#[test]
fn prepare_writes_header_and_payload() {
    let mut d = begun(&["p"]);
    let record = TransactionRecord {
        checkpoint_id: Some(CheckpointId::new(4)),
        prepared_timeout_ms: TimeoutMs::try_from(70).ok(),
        prepare_time: Some(wall(10)),
        prepared: Some(Uptime::from_millis(10)),
        ..header(TxnState::Prepared)
    };
    assert_effects(
        &mut d,
        prepare("c", 1, &json!({"epoch": 1, "checkpointId": 4, "payload": "eA==", "preparedTimeoutMs": 70})),
        200,
        &[
            moved(1, OPEN, TxnState::Prepared, None),
            put_header(record),
            put(Record::Payload(client("c"), id(1), "x".into())),
        ],
    );
}

#[test]
fn keep_alive_and_get_only_reply() {
    let mut d = begun(&[]);
    for request in [keep_alive("c", 1, &epoch(1)), get("c", 1)] {
        let (effects, answers) = split(d.effects(request));
        assert_eq!(effects, []);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].1, 2, "it depends on begin, the second step");
    }
}

#[test]
fn registration_writes_the_header() {
    let mut d = begun(&["p"]);
    let mut record = header(TxnState::Open);
    record.participants.push(ParticipantEntry { at_begin: false, ..entry("q") });
    assert_effects(&mut d, register("c", 1, "q", &epoch(1)), 201, &[put_header(record)]);
}

#[test]
fn a_commit_with_participants_writes_decision_and_last_commit() {
    let mut d = begun(&["p"]);
    let record = TransactionRecord {
        checkpoint_id: Some(CheckpointId::new(4)),
        ..decided(TxnState::Committing, EndReason::Client)
    };
    assert_effects(
        &mut d,
        commit("c", 1, &json!({"epoch": 1, "checkpointId": 4, "payload": "eA=="})),
        202,
        &[
            moved(1, OPEN, TxnState::Committing, CLIENT),
            put_client(committed_at_10(Some(4))),
            put_header(record),
            put(Record::Payload(client("c"), id(1), "x".into())),
        ],
    );
}

#[test]
fn a_commit_without_participants_decides_flushes_and_ends_in_one_batch() {
    let mut d = begun(&[]);
    assert_effects(
        &mut d,
        commit("c", 1, &json!({"epoch": 1, "checkpointId": 4, "payload": "eA=="})),
        200,
        &[
            moved(1, OPEN, TxnState::Committing, CLIENT),
            moved(1, Some(TxnState::Committing), TxnState::Committed, CLIENT),
            put_outcome(Outcome::Committed, EndReason::Client, Some(4), 10),
            put_client(committed_at_10(Some(4))),
            delete_header(),
            put(Record::Payload(client("c"), id(1), "x".into())),
        ],
    );
}

#[test]
fn a_commit_of_prepared_leaves_the_last_commits_payload_where_it_is() {
    let mut d = begun(&[]);
    d.call(prepare("c", 1, &json!({"epoch": 1, "payload": "eA=="})));
    assert_effects(
        &mut d,
        commit("c", 1, &json!({})),
        200,
        &[
            moved(1, PREPARED, TxnState::Committing, CLIENT),
            moved(1, Some(TxnState::Committing), TxnState::Committed, CLIENT),
            put_outcome(Outcome::Committed, EndReason::Client, None, 10),
            put_client(committed_at_10(None)),
            delete_header(),
        ],
    );
}

#[test]
fn an_abort_of_prepared_drops_header_and_payload() {
    let mut d = begun(&[]);
    d.call(prepare("c", 1, &json!({"epoch": 1, "payload": "eA=="})));
    assert_effects(
        &mut d,
        abort("c", 1, &epoch(1)),
        200,
        &[
            moved(1, PREPARED, TxnState::Aborting, CLIENT),
            moved(1, Some(TxnState::Aborting), TxnState::Aborted, CLIENT),
            put_outcome(Outcome::Aborted, EndReason::Client, None, 10),
            delete_header(),
            delete(Key::Payload(client("c"), id(1))),
        ],
    );
}

#[test]
fn an_abort_with_participants_writes_the_decision() {
    let mut d = begun(&["p"]);
    assert_effects(
        &mut d,
        abort("c", 1, &epoch(1)),
        202,
        &[moved(1, OPEN, TxnState::Aborting, CLIENT), put_header(decided(TxnState::Aborting, EndReason::Client))],
    );
}

#[test]
fn an_acknowledgement_is_a_record_of_its_own_and_the_last_one_ends_the_transaction() {
    let mut d = begun(&["p", "q"]);
    d.call(commit("c", 1, &epoch(1)));
    let acked = |who: &str| (client("c"), id(1), participant(who));
    let (name, txn, who) = acked("q");
    assert_effects(&mut d, ack("c", 1, "q", Outcome::Committed), 200, &[put(Record::Ack(name, txn, who))]);
    d.pass(5);
    let mut record = committed_at_10(None);
    record.written = Uptime::from_millis(15);
    record.last_committed.as_mut().unwrap().end_time = wall(15);
    let (name, txn, who) = acked("q");
    assert_effects(
        &mut d,
        ack("c", 1, "p", Outcome::Committed),
        200,
        &[
            moved(1, Some(TxnState::Committing), TxnState::Committed, CLIENT),
            put_outcome(Outcome::Committed, EndReason::Client, None, 15),
            put_client(record),
            delete_header(),
            delete(Key::Ack(name, txn, who)),
        ],
    );
}

#[test]
fn a_newer_commit_deletes_the_payload_of_the_one_before() {
    let mut d = begun(&[]);
    d.call(commit("c", 1, &json!({"epoch": 1, "payload": "eA=="})));
    d.call(begin("c", 2, &epoch(1)));
    let effects = d.effects(commit("c", 2, &json!({"epoch": 1, "payload": "eQ=="})));
    assert!(effects.contains(&delete(Key::Payload(client("c"), id(1)))));
    assert!(effects.contains(&put(Record::Payload(client("c"), id(2), "y".into()))));
}

#[test]
fn a_deadline_writes_the_abort() {
    let mut d = begun(&["p"]);
    d.now_ms = 60_000;
    let mut effects = d.step(Input::Sweep(Sweep::Timeouts));
    effects.extend(d.seal().into_iter().map(Effect::Persist));
    d.sync();
    assert_eq!(
        effects,
        [
            moved(1, OPEN, TxnState::Aborting, Some(EndReason::Timeout)),
            put_header(decided(TxnState::Aborting, EndReason::Timeout))
        ]
    );
}

#[test]
fn an_operators_decision_is_logged() {
    let mut d = begun(&[]);
    d.call(prepare("c", 1, &epoch(1)));
    let request = ResolveRequest { outcome: Resolution::Abort, reason: text("because"), actor: Some(text("op")) };
    let operator = Some(EndReason::Operator);
    assert_effects(
        &mut d,
        resolve("c", 1, "ABORT"),
        200,
        &[
            Effect::Audit(Audit::Resolved { client: client("c"), txn_id: id(1), request }),
            moved(1, PREPARED, TxnState::Aborting, operator),
            moved(1, Some(TxnState::Aborting), TxnState::Aborted, operator),
            put_outcome(Outcome::Aborted, EndReason::Operator, None, 10),
            delete_header(),
        ],
    );
    assert_eq!(split(d.effects(resolve("c", 1, "ABORT"))).0, [], "a repeat is not logged again");
}

#[test]
fn retirement_and_reinstatement_are_recorded_and_logged() {
    let mut d = begun(&["p"]);
    d.call(abort("c", 1, &epoch(1)));
    let retired = ParticipantRecord { retired: true, reason: Some(text("gone")) };
    assert_effects(
        &mut d,
        retire("p"),
        200,
        &[
            Effect::Audit(Audit::Retired { participant: participant("p"), reason: text("gone"), transactions: 1 }),
            moved(1, Some(TxnState::Aborting), TxnState::Aborted, CLIENT),
            put_outcome(Outcome::Aborted, EndReason::Client, None, 10),
            delete_header(),
            put(Record::Participant(participant("p"), retired)),
        ],
    );
    let reinstated = ParticipantRecord { retired: false, reason: Some(text("back")) };
    assert_effects(
        &mut d,
        reinstate("p"),
        200,
        &[
            Effect::Audit(Audit::Reinstated { participant: participant("p"), reason: Some(text("back")) }),
            put(Record::Participant(participant("p"), reinstated)),
        ],
    );
}

#[test]
fn forget_deletes_outcomes_and_payload_and_is_logged() {
    let mut d = begun(&[]);
    d.call(commit("c", 1, &json!({"epoch": 1, "payload": "eA=="})));
    let tombstone = ClientRecord { owner: None, evicted_through: Some(id(1)), forgotten: true, ..client_record() };
    assert_effects(
        &mut d,
        forget("c"),
        200,
        &[
            Effect::Audit(Audit::Forgotten { client: client("c"), reason: text("over"), outcomes: 1 }),
            put_client(tombstone),
            delete(Key::Payload(client("c"), id(1))),
            delete(Key::Outcome(client("c"), id(1))),
        ],
    );
}

#[test]
fn expiry_deletes_the_outcome_and_raises_the_watermark_in_the_same_batch() {
    let mut d = begun(&[]);
    d.call(abort("c", 1, &epoch(1)));
    d.pass(72 * 3_600_000);
    let now = d.now();
    assert_eq!(d.step(Input::Sweep(Sweep::Expiry)), []);
    let Now { uptime, .. } = now;
    let record = ClientRecord { evicted_through: Some(id(1)), written: uptime, ..client_record() };
    assert_eq!(
        d.seal(),
        [Write::Put(Record::Client(client("c"), record)), Write::Delete(Key::Outcome(client("c"), id(1)))]
    );
    d.sync();
}

#[test]
fn a_batch_tells_the_keys_it_has_touched_until_it_is_sealed() {
    let mut d = Driver::opened();
    assert_eq!(d.engine.touched().count(), 0);
    d.submit(begin("c", 1, &epoch(1)));
    d.submit(prepare("c", 1, &json!({"epoch": 1, "payload": "eA=="})));
    let keys: Vec<_> = d.engine.touched().cloned().collect();
    assert_eq!(keys, [Key::Transaction(client("c"), id(1)), Key::Payload(client("c"), id(1))]);
    d.seal();
    assert_eq!(d.engine.touched().count(), 0);
}
