//! begin, prepare, keep-alive and registration.

use ratified_core::{Limits, Sweep};
use ratified_protocol::Outcome::Committed;
use serde_json::{Value, json};

use crate::support::{
    Driver, Told, abort, ack, begin, commit, epoch, get, keep_alive, open, prepare, register, retire,
};

fn with_epoch(n: u64, extra: &Value) -> Value {
    let mut body = epoch(n);
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

#[test]
fn begin_answers_the_new_transaction_with_its_defaults() {
    let mut d = Driver::opened();
    d.pass(5);
    let told = d.call(begin("c", 1, &epoch(1)));
    assert_eq!(told.status, 201);
    assert_eq!(
        told.body,
        json!({
            "clientName": "c", "txnId": "00000000-0000-7000-8000-000000000001", "state": "OPEN",
            "replayed": false, "preserved": false, "epoch": 1, "beginTime": "1970-01-01T00:00:00.005Z",
            "deadlineInMs": 60000, "participants": [], "labels": {}
        })
    );
}

#[test]
fn begin_twice_is_one_transaction_and_writes_once() {
    let mut d = Driver::opened();
    let parameters = json!({"epoch": 1, "timeoutMs": 9, "requirePrepare": true, "participants": ["b", "a"],
                            "labels": {"x": "y"}});
    assert_eq!(d.call(begin("c", 1, &parameters)).brief(), "201 OPEN");
    let reordered = json!({"epoch": 1, "timeoutMs": 9, "requirePrepare": true, "participants": ["a", "b", "a"],
                           "labels": {"x": "y"}});
    assert_eq!(d.read(begin("c", 1, &reordered)).brief(), "200 OPEN replayed");
    d.restart();
    assert_eq!(d.read(begin("c", 1, &parameters)).brief(), "200 OPEN replayed");
}

#[test]
fn begin_of_a_live_id_with_any_other_parameter_is_refused() {
    let mut d = Driver::opened();
    let parameters = json!({"timeoutMs": 9000, "requirePrepare": true, "participants": ["p"], "labels": {"x": "y"}});
    d.call(begin("c", 1, &with_epoch(1, &parameters)));
    for (member, other) in [
        ("timeoutMs", json!(9001)),
        ("requirePrepare", json!(false)),
        ("participants", json!([])),
        ("participants", json!(["p", "q"])),
        ("labels", json!({"x": "z"})),
        ("labels", json!({})),
    ] {
        let mut body = with_epoch(1, &parameters);
        body[member] = other;
        assert_eq!(d.read(begin("c", 1, &body)).brief(), "422 TXN_ID_REUSED: OPEN", "{member}");
    }
    d.call(prepare("c", 1, &epoch(1)));
    assert_eq!(d.read(begin("c", 1, &epoch(1))).brief(), "422 TXN_ID_REUSED: PREPARED");
    assert_eq!(d.read(begin("c", 1, &with_epoch(1, &parameters))).brief(), "200 PREPARED replayed");
}

#[test]
fn equality_of_begin_ignores_the_epoch_and_later_registrations() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(register("c", 1, "q", &epoch(1)));
    d.call(prepare("c", 1, &epoch(1)));
    d.call(open("c", 2));
    assert_eq!(d.read(begin("c", 1, &json!({"epoch": 2, "participants": ["p"]}))).brief(), "200 PREPARED replayed");
    assert_eq!(
        d.read(begin("c", 1, &json!({"epoch": 2, "participants": ["p", "q"]}))).brief(),
        "422 TXN_ID_REUSED: PREPARED"
    );
}

#[test]
fn equality_of_begin_outlives_the_retirement_of_a_participant() {
    let mut d = Driver::opened();
    let body = json!({"epoch": 1, "participants": ["p", "q"]});
    d.call(begin("c", 1, &body));
    d.call(retire("p"));
    assert_eq!(d.read(begin("c", 1, &body)).brief(), "200 OPEN replayed");
}

#[test]
fn begin_of_a_decided_id_tells_the_outcome_to_every_epoch_and_parameter() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(commit("c", 1, &epoch(1)));
    d.call(begin("c", 2, &epoch(1)));
    d.call(abort("c", 2, &epoch(1)));
    for body in [json!({}), epoch(1), epoch(7), json!({"timeoutMs": 1})] {
        assert_eq!(d.read(begin("c", 1, &body)).brief(), "200 COMMITTING CLIENT replayed");
        assert_eq!(d.read(begin("c", 2, &body)).brief(), "200 ABORTED CLIENT replayed preserved");
    }
    d.call(ack("c", 1, "p", Committed));
    assert_eq!(d.read(begin("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT replayed preserved");
}

#[test]
fn begin_at_or_below_the_watermark_is_refused() {
    let mut d = Driver::opened();
    d.call(begin("c", 5, &epoch(1)));
    d.call(abort("c", 5, &epoch(1)));
    d.pass(Limits::default().persist_time_ms);
    d.sweep(Sweep::Expiry);
    for n in [4, 5] {
        for body in [json!({}), epoch(1), epoch(9)] {
            let told = d.read(begin("c", n, &body));
            assert_eq!(told.brief(), "410 TXN_ID_TOO_OLD");
            assert_eq!(told.member("final"), true);
        }
    }
    assert_eq!(d.call(begin("c", 6, &epoch(1))).brief(), "201 OPEN");
}

#[test]
fn begin_needs_the_current_epoch() {
    let mut d = Driver::opened();
    d.call(open("c", 2));
    assert_eq!(d.read(begin("c", 1, &json!({}))).brief(), "400 INVALID_ARGUMENT");
    let fenced = d.read(begin("c", 1, &epoch(1)));
    assert_eq!(fenced.brief(), "409 FENCED");
    assert_eq!((fenced.member("currentEpoch"), fenced.member("owner")), (json!(2), json!("owner-2")));
    assert_eq!(d.read(begin("c", 1, &epoch(3))).brief(), "409 EPOCH_UNKNOWN");
    d.call(begin("c", 1, &epoch(2)));
    // Repeats too.
    assert_eq!(d.read(begin("c", 1, &epoch(1))).brief(), "409 FENCED: OPEN");
    assert_eq!(d.read(begin("c", 1, &json!({}))).brief(), "400 INVALID_ARGUMENT: OPEN");
}

#[test]
fn begin_with_a_retired_participant_is_refused() {
    let mut d = Driver::opened();
    d.call(retire("p"));
    let body = json!({"epoch": 1, "participants": ["p", "q"]});
    assert_eq!(d.read(begin("c", 1, &body)).brief(), "409 PARTICIPANT_RETIRED");
    assert_eq!(d.read(get("c", 1)).brief(), "404 TXN_NOT_FOUND");
}

#[test]
fn open_transactions_are_bounded_and_prepared_ones_do_not_count() {
    let mut d = Driver::opened_with(Limits { max_open_per_client: 2, ..Limits::default() });
    d.call(begin("c", 1, &epoch(1)));
    d.call(begin("c", 2, &json!({"epoch": 1, "timeoutMs": 100})));
    let refused = d.read(begin("c", 3, &epoch(1)));
    assert_eq!((refused.brief().as_str(), refused.member("retryable")), ("429 TOO_MANY_OPEN", json!(true)));
    assert_eq!(d.read(begin("c", 1, &epoch(1))).brief(), "200 OPEN replayed");
    d.call(prepare("c", 1, &epoch(1)));
    assert_eq!(d.call(begin("c", 3, &epoch(1))).brief(), "201 OPEN");
    assert_eq!(d.read(begin("c", 4, &epoch(1))).brief(), "429 TOO_MANY_OPEN");
    // What is past its deadline makes room without waiting for the sweep.
    d.pass(100);
    assert_eq!(d.call(begin("c", 4, &epoch(1))).brief(), "201 OPEN");
    assert_eq!(d.read(get("c", 2)).brief(), "200 ABORTED TIMEOUT preserved");
}

#[test]
fn unfinished_transactions_are_bounded_whatever_they_wait_for() {
    let limits = Limits { max_open_per_client: 2, max_unfinished_per_client: 3, ..Limits::default() };
    let mut d = Driver::opened_with(limits);
    for n in 1..=2 {
        d.call(begin("c", n, &json!({"epoch": 1, "participants": ["p"]})));
        d.call(prepare("c", n, &epoch(1)));
    }
    assert_eq!(d.call(commit("c", 1, &epoch(1))).brief(), "202 COMMITTING CLIENT");
    assert_eq!(d.call(begin("c", 3, &json!({"epoch": 1, "timeoutMs": 100}))).brief(), "201 OPEN");
    let refused = d.read(begin("c", 4, &epoch(1)));
    assert_eq!((refused.brief().as_str(), refused.member("retryable")), ("429 TOO_MANY_OPEN", json!(true)));
    assert!(refused.member("detail").to_string().contains("max_unfinished_per_client"), "{}", refused.member("detail"));
    assert_eq!(d.read(begin("c", 2, &json!({"epoch": 1, "participants": ["p"]}))).brief(), "200 PREPARED replayed");
    // What is past its deadline makes room, and so does an acknowledgement.
    d.pass(100);
    assert_eq!(d.call(begin("c", 4, &epoch(1))).brief(), "201 OPEN");
    assert_eq!(d.read(begin("c", 5, &epoch(1))).brief(), "429 TOO_MANY_OPEN");
    d.call(ack("c", 1, "p", Committed));
    assert_eq!(d.call(begin("c", 5, &epoch(1))).brief(), "201 OPEN");
}

#[test]
fn the_bound_of_unfinished_transactions_is_never_below_that_of_open_ones() {
    let limits = Limits { max_open_per_client: 2, max_unfinished_per_client: 1, ..Limits::default() };
    let mut d = Driver::opened_with(limits);
    d.call(begin("c", 1, &epoch(1)));
    assert_eq!(d.call(begin("c", 2, &epoch(1))).brief(), "201 OPEN");
    assert_eq!(d.read(begin("c", 3, &epoch(1))).brief(), "429 TOO_MANY_OPEN");
}

fn prepared() -> (Driver, Value) {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    let body = json!({"epoch": 1, "checkpointId": 7, "payload": "eA==", "preparedTimeoutMs": 1000});
    d.pass(3);
    assert_eq!(
        d.call(prepare("c", 1, &body)).body,
        json!({
            "clientName": "c", "txnId": "00000000-0000-7000-8000-000000000001", "state": "PREPARED",
            "replayed": false, "preserved": false, "epoch": 1, "checkpointId": 7,
            "beginTime": "1970-01-01T00:00:00.000Z", "prepareTime": "1970-01-01T00:00:00.003Z",
            "deadlineInMs": 1000, "participants": [], "labels": {}, "payload": "eA=="
        })
    );
    (d, body)
}

#[test]
fn prepare_again_with_an_equal_body_is_told_the_same() {
    let (mut d, body) = prepared();
    assert_eq!(d.read(prepare("c", 1, &body)).brief(), "200 PREPARED replayed");
    d.restart();
    assert_eq!(d.read(prepare("c", 1, &body)).brief(), "200 PREPARED replayed");
}

#[test]
fn prepare_again_with_an_unequal_body_is_refused() {
    let (mut d, body) = prepared();
    for (member, other) in [
        ("checkpointId", json!(8)),
        ("checkpointId", Value::Null),
        ("payload", json!("eQ==")),
        ("payload", json!("")),
        ("payload", Value::Null),
        ("preparedTimeoutMs", json!(1001)),
        ("preparedTimeoutMs", Value::Null),
    ] {
        let mut unequal = body.clone();
        unequal[member] = other;
        assert_eq!(d.read(prepare("c", 1, &unequal)).brief(), "422 TXN_ID_REUSED: PREPARED", "{member}");
    }
}

#[test]
fn an_empty_payload_is_not_an_absent_one() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    assert_eq!(d.call(prepare("c", 1, &json!({"epoch": 1, "payload": ""}))).member("payload"), "");
    assert_eq!(d.read(prepare("c", 1, &epoch(1))).brief(), "422 TXN_ID_REUSED: PREPARED");
    d.restart();
    assert_eq!(d.read(get("c", 1)).member("payload"), "");
}

/// prepare and keep-alive say the same about whatever is neither OPEN nor PREPARED.
fn assert_as_prepare(call: fn(&str, u64, &Value) -> ratified_core::Request) {
    let mut d = Driver::opened();
    for (n, participants) in [(1, json!(["p"])), (2, json!([])), (3, json!(["p"])), (4, json!([]))] {
        d.call(begin("c", n, &json!({"epoch": 1, "participants": participants})));
    }
    d.call(commit("c", 1, &epoch(1)));
    d.call(commit("c", 2, &epoch(1)));
    d.call(abort("c", 3, &epoch(1)));
    d.call(abort("c", 4, &epoch(1)));
    for body in [json!({}), epoch(1), epoch(5)] {
        assert_eq!(d.read(call("c", 1, &body)).brief(), "200 COMMITTING CLIENT replayed");
        assert_eq!(d.read(call("c", 2, &body)).brief(), "200 COMMITTED CLIENT replayed preserved");
        assert_eq!(d.read(call("c", 3, &body)).brief(), "409 OUTCOME_ABORTED: ABORTING CLIENT");
        assert_eq!(d.read(call("c", 4, &body)).brief(), "409 OUTCOME_ABORTED: ABORTED CLIENT preserved");
        assert_eq!(d.read(call("c", 5, &body)).brief(), "404 TXN_NOT_FOUND");
        assert_eq!(d.read(call("x", 1, &body)).brief(), "404 CLIENT_NOT_FOUND");
    }
    d.pass(Limits::default().persist_time_ms);
    d.sweep(Sweep::Expiry);
    assert_eq!(d.read(call("c", 4, &epoch(1))).brief(), "410 OUTCOME_EXPIRED");
}

fn assert_needs_epoch(call: fn(&str, u64, &Value) -> ratified_core::Request) {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(prepare("c", 1, &epoch(1)));
    d.call(open("c", 2));
    d.call(begin("c", 2, &epoch(2)));
    for (n, state) in [(1, "PREPARED"), (2, "OPEN")] {
        let refused = |told: Told| told.brief();
        assert_eq!(refused(d.read(call("c", n, &json!({})))), format!("400 INVALID_ARGUMENT: {state}"));
        assert_eq!(refused(d.read(call("c", n, &epoch(1)))), format!("409 FENCED: {state}"));
        assert_eq!(refused(d.read(call("c", n, &epoch(3)))), format!("409 EPOCH_UNKNOWN: {state}"));
    }
}

#[test]
fn prepare_tells_what_was_decided() {
    assert_as_prepare(prepare);
}

#[test]
fn prepare_needs_the_current_epoch() {
    assert_needs_epoch(prepare);
}

#[test]
fn keep_alive_tells_what_was_decided() {
    assert_as_prepare(keep_alive);
}

#[test]
fn keep_alive_needs_the_current_epoch() {
    assert_needs_epoch(keep_alive);
}

#[test]
fn registration_needs_the_current_epoch() {
    assert_needs_epoch(|name, n, body| register(name, n, "p", body));
}

#[test]
fn keep_alive_renews_the_timeout_of_begin_without_a_write() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 100})));
    d.pass(99);
    let told = d.read(keep_alive("c", 1, &epoch(1)));
    assert_eq!((told.brief().as_str(), told.member("deadlineInMs")), ("200 OPEN", json!(100)));
    d.pass(99);
    assert_eq!(d.read(get("c", 1)).member("deadlineInMs"), 1);
    d.pass(1);
    assert_eq!(d.call(keep_alive("c", 1, &epoch(1))).brief(), "409 OUTCOME_ABORTED: ABORTED TIMEOUT preserved");
}

#[test]
fn a_keep_alive_that_waited_in_the_queue_does_not_shorten_the_deadline() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 100})));
    d.pass(50);
    d.read(keep_alive("c", 1, &epoch(1)));
    d.now_ms = 20;
    d.read(keep_alive("c", 1, &epoch(1)));
    d.now_ms = 149;
    assert_eq!(d.read(get("c", 1)).brief(), "200 OPEN");
}

#[test]
fn keep_alive_leaves_a_prepared_transaction_as_it_is() {
    let (mut d, _) = prepared();
    d.pass(400);
    assert_eq!(d.read(keep_alive("c", 1, &epoch(1))).member("deadlineInMs"), 600);
}

#[test]
fn a_participant_joins_an_open_transaction_once() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    let told = d.call(register("c", 1, "p", &epoch(1)));
    assert_eq!(told.brief(), "201 OPEN");
    assert_eq!(told.member("participants"), json!([{"name": "p", "acked": false}]));
    assert_eq!(d.read(register("c", 1, "p", &epoch(1))).brief(), "200 OPEN replayed");
    d.restart();
    assert_eq!(d.read(register("c", 1, "p", &epoch(1))).brief(), "200 OPEN replayed");
    assert_eq!(d.call(commit("c", 1, &epoch(1))).brief(), "202 COMMITTING CLIENT");
}

#[test]
fn a_known_participant_is_welcome_in_any_live_state_and_a_new_one_only_while_open() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(prepare("c", 1, &epoch(1)));
    assert_eq!(d.read(register("c", 1, "p", &epoch(1))).brief(), "200 PREPARED replayed");
    assert_eq!(d.read(register("c", 1, "q", &epoch(1))).brief(), "409 INVALID_TXN_STATE: PREPARED");
    d.call(commit("c", 1, &json!({})));
    // Decided: told to every epoch.
    for body in [json!({}), epoch(1), epoch(4)] {
        assert_eq!(d.read(register("c", 1, "p", &body)).brief(), "200 COMMITTING CLIENT replayed");
        assert_eq!(d.read(register("c", 1, "q", &body)).brief(), "409 INVALID_TXN_STATE: COMMITTING CLIENT");
    }
    d.call(ack("c", 1, "p", Committed));
    for who in ["p", "q"] {
        let told = d.read(register("c", 1, who, &epoch(1)));
        assert_eq!(told.brief(), "409 INVALID_TXN_STATE: COMMITTED CLIENT preserved");
    }
    assert_eq!(d.read(register("c", 2, "p", &epoch(1))).brief(), "404 TXN_NOT_FOUND");
    assert_eq!(d.read(register("x", 1, "p", &epoch(1))).brief(), "404 CLIENT_NOT_FOUND");
}

#[test]
fn a_retired_participant_does_not_join() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(retire("p"));
    assert_eq!(d.read(register("c", 1, "p", &epoch(1))).brief(), "409 PARTICIPANT_RETIRED: OPEN");
}

#[test]
fn a_hundred_participants_join_and_not_one_more() {
    let mut d = Driver::opened();
    let names: Vec<_> = (0..99).map(|i| format!("p{i}")).collect();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": names})));
    assert_eq!(d.call(register("c", 1, "last", &epoch(1))).brief(), "201 OPEN");
    assert_eq!(d.read(register("c", 1, "more", &epoch(1))).brief(), "400 INVALID_ARGUMENT: OPEN");
    assert_eq!(d.read(register("c", 1, "p0", &epoch(1))).brief(), "200 OPEN replayed");
}
