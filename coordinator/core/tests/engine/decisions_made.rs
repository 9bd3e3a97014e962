//! commit's parameters, acknowledgements, and operators' decisions.

use ratified_core::{Limits, Sweep};
use ratified_protocol::Outcome::{Aborted, Committed};
use serde_json::json;

use crate::support::{
    Driver, abort, ack, begin, commit, epoch, get, open, prepare, register, reinstate, resolve, retire,
};

#[test]
fn commit_from_open_stores_checkpoint_and_payload() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    let told = d.call(commit("c", 1, &json!({"epoch": 1, "checkpointId": 3, "payload": "eA=="})));
    assert_eq!(told.brief(), "200 COMMITTED CLIENT preserved");
    assert_eq!((told.member("checkpointId"), told.member("payload")), (json!(3), json!("eA==")));
    d.restart();
    let told = d.read(get("c", 1));
    assert_eq!((told.member("checkpointId"), told.member("payload")), (json!(3), json!("eA==")));
}

#[test]
fn commit_of_prepared_takes_absent_or_equal_parameters() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(prepare("c", 1, &json!({"epoch": 1, "checkpointId": 3, "payload": "eA=="})));
    for body in [json!({"checkpointId": 4}), json!({"payload": "eQ=="}), json!({"checkpointId": 3, "payload": ""})] {
        assert_eq!(d.read(commit("c", 1, &body)).brief(), "422 TXN_ID_REUSED: PREPARED", "{body}");
    }
    for body in [json!({}), json!({"checkpointId": 3}), json!({"payload": "eA=="}), epoch(1)] {
        assert_eq!(d.clone().call(commit("c", 1, &body)).brief(), "202 COMMITTING CLIENT", "{body}");
    }
    // Once decided they are ignored.
    d.call(commit("c", 1, &json!({})));
    let told = d.read(commit("c", 1, &json!({"checkpointId": 4, "payload": "eQ=="})));
    assert_eq!(told.brief(), "202 COMMITTING CLIENT replayed");
    assert_eq!((told.member("checkpointId"), told.member("payload")), (json!(3), json!("eA==")));
}

#[test]
fn commit_of_prepared_without_payload_refuses_one() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(prepare("c", 1, &epoch(1)));
    assert_eq!(d.read(commit("c", 1, &json!({"payload": "eA=="}))).brief(), "422 TXN_ID_REUSED: PREPARED");
    assert_eq!(d.read(commit("c", 1, &json!({"checkpointId": 1}))).brief(), "422 TXN_ID_REUSED: PREPARED");
}

#[test]
fn require_prepare_is_satisfied_by_prepare() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "requirePrepare": true})));
    assert_eq!(d.read(commit("c", 1, &epoch(1))).brief(), "409 TXN_NOT_PREPARED: OPEN");
    d.call(prepare("c", 1, &epoch(1)));
    assert_eq!(d.call(commit("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT preserved");
}

#[test]
fn a_transaction_ends_with_the_last_acknowledgement() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p", "q"]})));
    d.call(commit("c", 1, &epoch(1)));
    let told = d.call(ack("c", 1, "q", Committed));
    assert_eq!(told.brief(), "200 COMMITTING CLIENT");
    assert_eq!(told.member("participants"), json!([{"name": "p", "acked": false}, {"name": "q", "acked": true}]));
    assert_eq!(d.read(ack("c", 1, "q", Committed)).brief(), "200 COMMITTING CLIENT replayed");
    d.restart();
    assert_eq!(d.read(ack("c", 1, "q", Committed)).brief(), "200 COMMITTING CLIENT replayed");
    assert_eq!(d.call(ack("c", 1, "p", Committed)).brief(), "200 COMMITTED CLIENT preserved");
    for who in ["p", "q", "stranger"] {
        assert_eq!(d.read(ack("c", 1, who, Committed)).brief(), "200 COMMITTED CLIENT replayed preserved");
    }
}

#[test]
fn an_acknowledgement_before_the_decision_or_of_the_other_outcome_is_refused() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    assert_eq!(d.read(ack("c", 1, "p", Committed)).brief(), "409 INVALID_TXN_STATE: OPEN");
    d.call(prepare("c", 1, &epoch(1)));
    assert_eq!(d.read(ack("c", 1, "p", Aborted)).brief(), "409 INVALID_TXN_STATE: PREPARED");
    d.call(abort("c", 1, &epoch(1)));
    assert_eq!(d.read(ack("c", 1, "p", Committed)).brief(), "409 INVALID_TXN_STATE: ABORTING CLIENT");
    d.call(ack("c", 1, "p", Aborted));
    assert_eq!(d.read(ack("c", 1, "p", Committed)).brief(), "409 INVALID_TXN_STATE: ABORTED CLIENT preserved");
}

#[test]
fn an_acknowledgement_by_a_stranger_is_refused_and_by_a_retired_participant_welcome() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p", "q"]})));
    d.call(commit("c", 1, &epoch(1)));
    assert_eq!(d.read(ack("c", 1, "r", Committed)).brief(), "409 INVALID_TXN_STATE: COMMITTING CLIENT");
    d.call(retire("p"));
    d.call(retire("r"));
    assert_eq!(d.read(ack("c", 1, "p", Committed)).brief(), "200 COMMITTING CLIENT replayed");
    assert_eq!(d.read(ack("c", 1, "r", Committed)).brief(), "200 COMMITTING CLIENT replayed");
    assert_eq!(d.read(ack("c", 1, "p", Aborted)).brief(), "409 INVALID_TXN_STATE: COMMITTING CLIENT");
    d.call(reinstate("p"));
    assert_eq!(d.read(ack("c", 1, "p", Committed)).brief(), "200 COMMITTING CLIENT replayed");
    assert_eq!(d.call(ack("c", 1, "q", Committed)).brief(), "200 COMMITTED CLIENT preserved");
}

#[test]
fn an_acknowledgement_of_an_absent_id_is_answered_by_the_watermark() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(abort("c", 1, &epoch(1)));
    assert_eq!(d.read(ack("c", 2, "p", Aborted)).brief(), "404 TXN_NOT_FOUND");
    assert_eq!(d.read(ack("x", 1, "p", Aborted)).brief(), "404 CLIENT_NOT_FOUND");
    assert_eq!(d.read(ack("c", 1, "p", Aborted)).brief(), "200 ABORTED CLIENT replayed preserved");
    d.pass(Limits::default().persist_time_ms);
    d.sweep(Sweep::Expiry);
    assert_eq!(d.read(ack("c", 1, "p", Aborted)).brief(), "410 OUTCOME_EXPIRED");
}

#[test]
fn an_acknowledgement_needs_no_epoch() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(commit("c", 1, &epoch(1)));
    d.call(open("c", 2));
    assert_eq!(d.call(ack("c", 1, "p", Committed)).brief(), "200 COMMITTED CLIENT preserved");
}

#[test]
fn an_operator_decides_a_prepared_transaction_either_way() {
    let mut d = Driver::opened();
    for n in [1, 2] {
        d.call(begin("c", n, &epoch(1)));
        d.call(prepare("c", n, &epoch(1)));
    }
    assert_eq!(d.call(resolve("c", 1, "COMMIT")).brief(), "200 COMMITTED OPERATOR preserved");
    assert_eq!(d.call(resolve("c", 2, "ABORT")).brief(), "200 ABORTED OPERATOR preserved");
    assert_eq!(d.read(resolve("c", 1, "COMMIT")).brief(), "200 COMMITTED OPERATOR replayed preserved");
    assert_eq!(d.read(resolve("c", 1, "ABORT")).brief(), "409 OUTCOME_COMMITTED: COMMITTED OPERATOR preserved");
    assert_eq!(d.read(resolve("c", 2, "COMMIT")).brief(), "409 OUTCOME_ABORTED: ABORTED OPERATOR preserved");
    assert_eq!(d.read(commit("c", 1, &json!({}))).brief(), "200 COMMITTED OPERATOR replayed preserved");
}

#[test]
fn an_operator_never_commits_an_open_transaction() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    assert_eq!(d.read(resolve("c", 1, "COMMIT")).brief(), "409 TXN_NOT_PREPARED: OPEN");
    assert_eq!(d.call(resolve("c", 1, "ABORT")).brief(), "202 ABORTING OPERATOR");
    assert_eq!(d.read(resolve("c", 1, "ABORT")).brief(), "202 ABORTING OPERATOR replayed");
}

#[test]
fn an_operator_is_told_that_an_id_is_absent() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(abort("c", 1, &epoch(1)));
    d.pass(Limits::default().persist_time_ms);
    d.sweep(Sweep::Expiry);
    assert_eq!(d.read(resolve("c", 1, "ABORT")).brief(), "410 OUTCOME_EXPIRED");
    assert_eq!(d.read(resolve("c", 2, "ABORT")).brief(), "404 TXN_NOT_FOUND");
    assert_eq!(d.read(resolve("x", 2, "ABORT")).brief(), "404 CLIENT_NOT_FOUND");
}

#[test]
fn the_last_commit_is_the_one_with_the_greatest_id_whatever_the_order_of_arrival() {
    let mut d = Driver::opened();
    for n in [1, 2, 3] {
        d.call(begin("c", n, &json!({"epoch": 1, "participants": ["p"]})));
        d.call(prepare("c", n, &json!({"epoch": 1, "checkpointId": n, "payload": "eA=="})));
    }
    let last = |d: &mut Driver| d.call(open("c", 1)).member("lastCommitted")["checkpointId"].clone();
    d.call(commit("c", 2, &json!({})));
    assert_eq!(last(&mut d), 2, "COMMITTING counts");
    d.call(commit("c", 1, &json!({})));
    assert_eq!(last(&mut d), 2);
    d.call(ack("c", 2, "p", Committed));
    d.call(ack("c", 1, "p", Committed));
    assert_eq!(last(&mut d), 2);
    assert_eq!(d.read(get("c", 1)).member("payload"), json!(null), "only the last commit's payload is kept");
    assert_eq!(d.read(get("c", 2)).member("payload"), "eA==");
    d.call(commit("c", 3, &json!({})));
    assert_eq!(last(&mut d), 3);
    assert_eq!(d.read(get("c", 2)).member("payload"), json!(null));
    d.call(abort("c", 4, &epoch(1)));
    d.restart();
    assert_eq!(last(&mut d), 3);
}

#[test]
fn the_last_commit_carries_its_end_and_its_reason() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.pass(7);
    d.call(prepare("c", 1, &epoch(1)));
    d.call(resolve("c", 1, "COMMIT"));
    let expected = |end: &str| {
        json!({"txnId": "00000000-0000-7000-8000-000000000001", "checkpointId": null, "endTime": end,
               "endReason": "OPERATOR"})
    };
    assert_eq!(d.call(open("c", 1)).member("lastCommitted"), expected("1970-01-01T00:00:00.007Z"));
    d.pass(7);
    d.call(ack("c", 1, "p", Committed));
    assert_eq!(d.call(open("c", 1)).member("lastCommitted"), expected("1970-01-01T00:00:00.014Z"));
}

#[test]
fn a_registered_participant_is_waited_for_like_one_named_at_begin() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(register("c", 1, "p", &epoch(1)));
    d.call(abort("c", 1, &epoch(1)));
    assert_eq!(d.call(ack("c", 1, "p", Aborted)).brief(), "200 ABORTED CLIENT preserved");
}
