//! From records back to an engine: what goes on, what gets a new period, and what is refused.

use ratified_core::{
    ClientRecord, DecisionRecord, Engine, Key, LastCommittedRecord, Limits, OutcomeRecord, ParticipantEntry, Record,
    Sweep, TransactionRecord, Uptime, check_all,
};
use ratified_protocol::{EndReason, Epoch, Outcome, TimeoutMs, TxnState, WallTime};
use serde_json::{Value, json};

use crate::support::{
    Driver, abort, ack, batch, begin, client, commit, decisions, epoch, get, id, id_text, incarnation, open,
    participant, prepare, preserver, recover, retire, text,
};

/// One transaction in each live state, with a deadline where it can have one; outcomes; a retired participant.
fn crowded() -> Driver {
    let mut d = Driver::opened();
    for n in [1, 2, 3] {
        d.call(begin("c", n, &epoch(1)));
    }
    d.call(commit("c", 1, &epoch(1)));
    d.call(abort("c", 2, &epoch(1)));
    d.call(prepare("c", 3, &json!({"epoch": 1, "payload": "eA==", "preparedTimeoutMs": 500})));
    for n in [5, 6, 7] {
        d.call(begin("c", n, &json!({"epoch": 1, "timeoutMs": 1000, "participants": ["p", "q"]})));
    }
    d.call(commit("c", 6, &json!({"epoch": 1, "checkpointId": 6, "payload": "eQ=="})));
    d.call(abort("c", 5, &epoch(1)));
    d.call(ack("c", 6, "q", Outcome::Committed));
    d.call(retire("gone"));
    d
}

#[test]
fn recovering_twice_is_recovering_once() {
    let mut d = crowded();
    d.seal();
    let once = recover(d.limits, 2, 50, d.engine.records()).unwrap();
    let twice = recover(d.limits, 2, 50, once.0.records()).unwrap();
    assert_eq!((once.1, twice.1), (Vec::new(), Vec::new()), "nothing has to be written");
    assert_eq!(once.0.records(), twice.0.records());
    assert_eq!(once.0.records(), d.engine.records());
    assert_eq!((once.0.revision(), once.0.uptime()), (twice.0.revision(), Uptime::from_millis(50)));
}

#[test]
fn the_order_of_the_records_does_not_matter() {
    let d = crowded();
    let mut records = d.engine.records();
    let expected = records.clone();
    records.reverse();
    assert_eq!(recover(d.limits, 2, 0, records).unwrap().0.records(), expected);
}

#[test]
fn endings_go_on_without_any_client() {
    let mut d = crowded();
    d.restart();
    let told = d.read(decisions("p", None));
    assert_eq!(told.ids("decisions"), [6, 5], "in the order they were decided");
    assert_eq!(told.each("decisions", "outcome"), ["COMMITTED", "ABORTED"]);
    assert_eq!(told.body["decisions"][0]["payload"], "eQ==");
    assert_eq!(d.read(decisions("q", None)).ids("decisions"), [5], "an acknowledgement survives");
    assert_eq!(d.call(ack("c", 6, "p", Outcome::Committed)).brief(), "200 COMMITTED CLIENT preserved");
    assert_eq!(d.read(get("c", 6)).member("payload"), "eQ==");
}

#[test]
fn a_recovered_ending_counts_as_its_outcome_at_once() {
    let mut d = crowded();
    d.restart();
    let told = d.read(preserver("c"));
    assert_eq!(told.ids("outcomes"), [6, 5, 2, 1]);
    assert_eq!(told.each("outcomes", "outcome"), ["COMMITTED", "ABORTED", "ABORTED", "COMMITTED"]);
    assert_eq!(told.body["lastCommitted"]["checkpointId"], 6);
    assert_eq!(d.read(abort("c", 6, &json!({}))).brief(), "409 OUTCOME_COMMITTED: COMMITTING CLIENT");
}

#[test]
fn open_and_prepared_with_a_timeout_get_one_full_new_period() {
    let mut d = crowded();
    d.pass(400);
    d.call(begin("c", 9, &epoch(1)));
    d.restart();
    assert_eq!(d.now_ms, 400);
    assert_eq!(d.read(get("c", 7)).member("deadlineInMs"), 1000);
    assert_eq!(d.read(get("c", 3)).member("deadlineInMs"), 500);
    d.now_ms = 899;
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.read(get("c", 3)).brief(), "200 PREPARED");
    d.now_ms = 900;
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.read(get("c", 3)).brief(), "200 ABORTED PREPARED_TIMEOUT preserved");
    d.now_ms = 1400;
    assert_eq!(d.call(get("c", 7)).brief(), "200 ABORTING TIMEOUT");
}

#[test]
fn prepared_without_a_timeout_is_held_over_any_number_of_restarts() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 1})));
    d.call(prepare("c", 1, &epoch(1)));
    for _ in 0..20 {
        d.restart();
        d.pass(1_000_000);
        d.sweep(Sweep::Timeouts);
        assert_eq!(d.read(get("c", 1)).member("deadlineInMs"), Value::Null);
    }
}

#[test]
fn numbers_go_on_where_they_were() {
    let mut d = crowded();
    d.restart();
    d.call(begin("c", 8, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(commit("c", 8, &epoch(1)));
    assert_eq!(d.read(decisions("p", None)).ids("decisions"), [6, 5, 8], "the newest decision is told last");
    d.call(begin("c", 4, &epoch(1)));
    d.call(abort("c", 4, &epoch(1)));
    assert_eq!(d.read(preserver("c")).ids("outcomes"), [8, 6, 5, 4, 2, 1], "the newest end is listed first");
    assert_eq!(d.call(open("c", 2)).member("epoch"), 2);
}

#[test]
fn a_lower_limit_trims_what_was_kept_and_raises_the_watermark_before_anything_is_served() {
    let mut d = Driver::opened();
    let op = |op: &str, n: u64| json!({"op": op, "txnId": id_text(n), "epoch": 1});
    d.call(batch("c", (1..=9).flat_map(|n| [op("begin", n), op("abort", n)]).collect(), true));
    d.limits = Limits { persist_count: 2, max_outcomes_per_client: 3, ..d.limits };
    d.restart();
    let told = d.read(preserver("c"));
    assert_eq!((told.ids("outcomes"), told.member("evictedThrough")), (vec![9, 8, 7], json!(id_text(6))));
    assert_eq!(d.engine.stats().evicted_by_limit, 6);
    assert_eq!(d.synced.len(), 4, "and it is written");
}

#[test]
fn an_ending_that_waits_for_nobody_is_ended_by_the_load() {
    let mut client_record = a_client();
    client_record.last_committed = Some(last(1));
    let header = TransactionRecord { participants: Vec::new(), ..header(TxnState::Committing) };
    let records = [Record::Client(client("c"), client_record), Record::Transaction(client("c"), id(1), header)];
    let (engine, writes) = recover(Limits::default(), 2, 5, records).unwrap();
    assert_eq!(writes.len(), 3, "outcome, client, and the header is deleted: {writes:?}");
    let keys: Vec<_> = engine.records().iter().map(Record::key).collect();
    assert_eq!(keys, [Key::Client(client("c")), Key::Outcome(client("c"), id(1))]);
    check_all(&engine).unwrap();
}

#[test]
fn a_crash_at_any_point_of_the_chain_is_driven_on_to_the_same_end() {
    for kept in 0..=4 {
        let mut d = Driver::opened();
        d.submit(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
        d.seal();
        d.submit(prepare("c", 1, &json!({"epoch": 1, "payload": "eA=="})));
        d.seal();
        d.submit(commit("c", 1, &json!({})));
        d.seal();
        d.submit(ack("c", 1, "p", Outcome::Committed));
        d.seal();
        assert_eq!(d.unsynced_batches(), 4);
        d.crash(kept);
        let stood = [
            "404 TXN_NOT_FOUND",
            "200 OPEN",
            "200 PREPARED",
            "200 COMMITTING CLIENT",
            "200 COMMITTED CLIENT preserved",
        ];
        assert_eq!(d.read(get("c", 1)).brief(), stood[kept]);
        // Whoever goes on with the same requests comes to the same end.
        d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
        d.call(prepare("c", 1, &json!({"epoch": 1, "payload": "eA=="})));
        d.call(commit("c", 1, &json!({})));
        d.call(ack("c", 1, "p", Outcome::Committed));
        assert_eq!(d.read(get("c", 1)).brief(), "200 COMMITTED CLIENT preserved");
    }
}

fn a_client() -> ClientRecord {
    ClientRecord {
        epoch: Epoch::new(2),
        incarnations: vec![incarnation(1), incarnation(2)],
        owner: Some(text("o")),
        previous_owner: None,
        evicted_through: None,
        newest_txn_id: None,
        last_committed: None,
        forgotten: false,
        generation: None,
        written: Uptime::from_millis(0),
    }
}

fn last(n: u64) -> LastCommittedRecord {
    LastCommittedRecord {
        txn_id: id(n),
        checkpoint_id: None,
        end_time: WallTime::from_unix_millis(0),
        end_reason: EndReason::Client,
    }
}

fn header(state: TxnState) -> TransactionRecord {
    let decision = state.outcome().map(|_| DecisionRecord { reason: EndReason::Client, number: 1 });
    let entry = ParticipantEntry { name: participant("p"), at_begin: true, retired: false };
    TransactionRecord {
        state,
        epoch: Epoch::new(2),
        timeout_ms: TimeoutMs::DEFAULT,
        prepared_timeout_ms: None,
        require_prepare: false,
        checkpoint_id: None,
        labels: ratified_protocol::Labels::default(),
        participants: vec![entry],
        begin_time: WallTime::from_unix_millis(0),
        prepare_time: None,
        begun: Uptime::from_millis(0),
        prepared: None,
        decision,
    }
}

fn outcome(outcome: Outcome, termination: u64) -> OutcomeRecord {
    OutcomeRecord {
        outcome,
        end_reason: EndReason::Client,
        checkpoint_id: None,
        end_time: WallTime::from_unix_millis(0),
        ended: Uptime::from_millis(0),
        termination,
    }
}

fn client_is(change: impl FnOnce(&mut ClientRecord)) -> Record {
    let mut record = a_client();
    change(&mut record);
    Record::Client(client("c"), record)
}

fn header_is(n: u64, state: TxnState, change: impl FnOnce(&mut TransactionRecord)) -> Record {
    let mut record = header(state);
    change(&mut record);
    Record::Transaction(client("c"), id(n), record)
}

fn outcome_is(n: u64, kind: Outcome, termination: u64) -> Record {
    Record::Outcome(client("c"), id(n), outcome(kind, termination))
}

fn payload_of(n: u64) -> Record {
    Record::Payload(client("c"), id(n), "x".into())
}

fn ack_of(n: u64, who: &str) -> Record {
    Record::Ack(client("c"), id(n), participant(who))
}

fn refusal(records: Vec<Record>) -> Option<String> {
    recover(Limits::default(), 2, 0, records).err().map(|e| e.to_string())
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn contradictions_are_refused_and_the_place_is_named() {
    use Outcome::{Aborted, Committed};
    use TxnState::{Aborting, Committing, Open, Prepared};
    let same = |_: &mut ClientRecord| {};
    let as_is = |_: &mut TransactionRecord| {};
    let committed = |n: u64| move |c: &mut ClientRecord| c.last_committed = Some(last(n));
    let txn = format!("transaction c/{}", id(1));
    let ended = format!("outcome c/{}", id(1));
    let cases: Vec<(Vec<Record>, String)> = vec![
        (vec![header_is(1, Open, as_is)], format!("{txn}: its client is missing")),
        (vec![outcome_is(1, Aborted, 1)], format!("{ended}: its client is missing")),
        (vec![client_is(same), payload_of(1)], format!("payload c/{}: nothing refers to it", id(1))),
        (vec![client_is(same), ack_of(1, "p")], format!("ack c/{}: its transaction is missing", id(1))),
        (
            vec![client_is(same), header_is(1, TxnState::Aborted, as_is)],
            format!("{txn}: a terminal transaction has no header"),
        ),
        (
            vec![client_is(same), header_is(1, Aborting, |t| t.decision = None)],
            format!("{txn}: its state and its decision contradict each other"),
        ),
        (
            vec![client_is(same), header_is(1, Open, |t| t.epoch = Epoch::new(3))],
            format!("{txn}: its epoch is greater than its client's"),
        ),
        (
            vec![client_is(same), header_is(1, Committing, as_is)],
            format!("{txn}: it is committed, and newer than its client's last commit"),
        ),
        (
            vec![client_is(committed(1)), header_is(1, Prepared, as_is)],
            format!("{txn}: it is not committed, and its client's last commit"),
        ),
        (
            vec![client_is(|c| c.forgotten = true), header_is(1, Prepared, as_is)],
            format!("{txn}: its client was forgotten"),
        ),
        (
            vec![client_is(same), header_is(1, Aborting, |t| t.decision.as_mut().unwrap().number = u64::MAX)],
            format!("{txn}: its decision's number is the last there is"),
        ),
        (
            vec![client_is(same), header_is(0, Aborting, as_is), header_is(1, Aborting, as_is)],
            format!("{txn}: its decision's number is taken"),
        ),
        (
            vec![client_is(same), header_is(1, Open, as_is), payload_of(1)],
            format!("{txn}: it is OPEN, and has a payload"),
        ),
        (
            vec![client_is(same), header_is(1, Prepared, as_is), ack_of(1, "p")],
            format!("{txn}: it is acknowledged before it is decided"),
        ),
        (
            vec![client_is(same), header_is(1, Aborting, as_is), ack_of(1, "q")],
            format!("{txn}: it is acknowledged by somebody who takes no part"),
        ),
        (
            vec![
                client_is(same),
                header_is(1, Open, |t| t.participants.push(ParticipantEntry { ..t.participants[0].clone() })),
            ],
            format!("{txn}: its participants are not in order"),
        ),
        (
            vec![client_is(same), header_is(1, Aborting, as_is), outcome_is(1, Aborted, 1)],
            format!("{ended}: its transaction is still live"),
        ),
        (
            vec![client_is(same), outcome_is(0, Aborted, 1), outcome_is(1, Aborted, 1)],
            format!("{ended}: its place in the order of termination is taken"),
        ),
        (
            vec![client_is(same), outcome_is(1, Aborted, u64::MAX)],
            format!("{ended}: its place in the order of termination is the last there is"),
        ),
        (
            vec![client_is(same), outcome_is(1, Committed, 1)],
            format!("{ended}: it is committed, and newer than its client's last commit"),
        ),
        (
            vec![client_is(committed(1)), outcome_is(1, Aborted, 1)],
            format!("{ended}: it is aborted, and its client's last commit"),
        ),
        (
            vec![client_is(|c| c.forgotten = true), outcome_is(1, Aborted, 1)],
            format!("{ended}: its client was forgotten"),
        ),
        (
            vec![client_is(|c| {
                c.forgotten = true;
                c.last_committed = Some(last(1));
            })],
            "client c: it was forgotten, and has a last commit".to_owned(),
        ),
        (
            vec![client_is(|c| {
                c.forgotten = true;
                c.newest_txn_id = Some(id(1));
            })],
            "client c: it was forgotten, and its evictedThrough is below its newest id".to_owned(),
        ),
    ];
    for (records, expected) in cases {
        assert_eq!(refusal(records), Some(expected));
    }
}

#[test]
fn a_key_given_twice_is_refused() {
    let twice = refusal(vec![client_is(|_| {}), client_is(|_| {})]).unwrap();
    assert_eq!(twice, "Client(\"c\"): it is there twice");
}

#[test]
fn what_belongs_together_is_taken() {
    use Outcome::{Aborted, Committed};
    use TxnState::{Committing, Open, Prepared};
    let records = vec![
        client_is(|c| c.last_committed = Some(last(3))),
        header_is(1, Open, |_| {}),
        header_is(2, Prepared, |t| t.epoch = Epoch::new(1)),
        payload_of(2),
        header_is(3, Committing, |_| {}),
        payload_of(3),
        outcome_is(4, Aborted, 9),
        outcome_is(0, Committed, 7),
    ];
    let (engine, writes): (Engine, _) = recover(Limits::default(), 2, 0, records).unwrap();
    assert_eq!(writes, []);
    check_all(&engine).unwrap();
}
