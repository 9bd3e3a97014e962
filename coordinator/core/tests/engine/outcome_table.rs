//! The outcome table: what commit, abort and GET are told, row by row, to every epoch the row allows, before and after
//! a restart.

use ratified_core::Limits;
use ratified_protocol::Outcome::{Aborted, Committed};
use serde_json::{Value, json};

use crate::support::{Driver, abort, ack, begin, commit, epoch, forget, get, open, prepare, resolve};

/// No epoch, an old one, the current one, and one that was never given out.
fn every_epoch() -> Vec<Value> {
    vec![json!({}), epoch(1), epoch(2), epoch(9)]
}

/// Client `c` at epoch 2.
fn at_epoch_2(limits: Limits) -> Driver {
    let mut d = Driver::opened_with(limits);
    assert_eq!(d.call(open("c", 2)).member("epoch"), 2);
    d
}

fn begun(n: u64, extra: &Value) -> Driver {
    let mut d = at_epoch_2(Limits { min_committed_per_client: 0, ..Limits::default() });
    let mut parameters = epoch(2);
    parameters.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    assert_eq!(d.call(begin("c", n, &parameters)).brief(), "201 OPEN");
    d
}

/// Asserts a row. Each call meets the situation afresh, and once more after a restart.
fn assert_row(situation: &Driver, bodies: &[Value], [to_commit, to_abort, to_get]: [&str; 3]) {
    let mut restarted = situation.clone();
    restarted.restart();
    for d in [situation, &restarted] {
        for body in bodies {
            assert_eq!(d.clone().call(commit("c", 1, body)).brief(), to_commit, "commit {body}");
            assert_eq!(d.clone().call(abort("c", 1, body)).brief(), to_abort, "abort {body}");
        }
        assert_eq!(d.clone().call(get("c", 1)).brief(), to_get);
    }
}

/// As [`assert_row`], for a row in which nothing is decided any more: no call writes anything.
fn assert_settled_row(situation: &Driver, row: [&str; 3]) {
    assert_row(situation, &every_epoch(), row);
    let mut d = situation.clone();
    for body in every_epoch() {
        d.read(commit("c", 1, &body));
        d.read(abort("c", 1, &body));
    }
    d.read(get("c", 1));
}

#[test]
fn open_is_decided_by_whoever_asks_first() {
    assert_row(
        &begun(1, &json!({})),
        &[epoch(2)],
        ["200 COMMITTED CLIENT preserved", "200 ABORTED CLIENT preserved", "200 OPEN"],
    );
}

#[test]
fn open_with_participants_is_decided_and_waits_for_them() {
    assert_row(
        &begun(1, &json!({"participants": ["p"]})),
        &[epoch(2)],
        ["202 COMMITTING CLIENT", "202 ABORTING CLIENT", "200 OPEN"],
    );
}

#[test]
fn open_that_requires_prepare_is_not_committed() {
    assert_row(
        &begun(1, &json!({"requirePrepare": true})),
        &[epoch(2)],
        ["409 TXN_NOT_PREPARED: OPEN", "200 ABORTED CLIENT preserved", "200 OPEN"],
    );
}

#[test]
fn open_is_not_decided_by_another_epoch_or_without_one() {
    let d = begun(1, &json!({}));
    assert_row(&d, &[json!({})], ["400 INVALID_ARGUMENT: OPEN", "400 INVALID_ARGUMENT: OPEN", "200 OPEN"]);
    assert_row(&d, &[epoch(1)], ["409 FENCED: OPEN", "409 FENCED: OPEN", "200 OPEN"]);
    assert_row(&d, &[epoch(3)], ["409 EPOCH_UNKNOWN: OPEN", "409 EPOCH_UNKNOWN: OPEN", "200 OPEN"]);
}

fn prepared() -> Driver {
    let mut d = begun(1, &json!({}));
    assert_eq!(d.call(prepare("c", 1, &epoch(2))).brief(), "200 PREPARED");
    d
}

#[test]
fn prepared_is_decided_by_whoever_asks_first() {
    assert_row(
        &prepared(),
        &[epoch(2)],
        ["200 COMMITTED CLIENT preserved", "200 ABORTED CLIENT preserved", "200 PREPARED"],
    );
}

#[test]
fn prepared_is_committed_without_epoch_and_never_aborted_so() {
    assert_row(
        &prepared(),
        &[json!({})],
        ["200 COMMITTED CLIENT preserved", "400 INVALID_ARGUMENT: PREPARED", "200 PREPARED"],
    );
}

#[test]
fn prepared_is_not_decided_by_another_epoch() {
    let d = prepared();
    assert_row(&d, &[epoch(1)], ["409 FENCED: PREPARED", "409 FENCED: PREPARED", "200 PREPARED"]);
    assert_row(&d, &[epoch(3)], ["409 EPOCH_UNKNOWN: PREPARED", "409 EPOCH_UNKNOWN: PREPARED", "200 PREPARED"]);
}

#[test]
fn committing_tells_the_decision_while_acknowledgements_are_missing() {
    let mut d = begun(1, &json!({"participants": ["p", "q"]}));
    d.call(commit("c", 1, &epoch(2)));
    d.call(ack("c", 1, "p", Committed));
    assert_settled_row(
        &d,
        ["202 COMMITTING CLIENT replayed", "409 OUTCOME_COMMITTED: COMMITTING CLIENT", "200 COMMITTING CLIENT"],
    );
}

#[test]
fn committed_is_told_for_ever() {
    let row = [
        "200 COMMITTED CLIENT replayed preserved",
        "409 OUTCOME_COMMITTED: COMMITTED CLIENT preserved",
        "200 COMMITTED CLIENT preserved",
    ];
    let mut d = begun(1, &json!({}));
    d.call(commit("c", 1, &epoch(2)));
    assert_settled_row(&d, row);

    let mut d = begun(1, &json!({"participants": ["p"]}));
    d.call(commit("c", 1, &epoch(2)));
    d.call(ack("c", 1, "p", Committed));
    assert_settled_row(&d, row);
}

#[test]
fn aborting_tells_the_decision_while_acknowledgements_are_missing() {
    let mut d = begun(1, &json!({"participants": ["p"]}));
    d.call(abort("c", 1, &epoch(2)));
    assert_settled_row(
        &d,
        ["409 OUTCOME_ABORTED: ABORTING CLIENT", "202 ABORTING CLIENT replayed", "200 ABORTING CLIENT"],
    );
}

fn aborted_row(reason: &str) -> [String; 3] {
    [
        format!("409 OUTCOME_ABORTED: ABORTED {reason} preserved"),
        format!("200 ABORTED {reason} replayed preserved"),
        format!("200 ABORTED {reason} preserved"),
    ]
}

fn assert_aborted_row(situation: &Driver, reason: &str) {
    let row = aborted_row(reason);
    assert_settled_row(situation, [&row[0], &row[1], &row[2]]);
}

#[test]
fn aborted_by_the_client_tells_so() {
    let mut d = begun(1, &json!({"participants": ["p"]}));
    d.call(abort("c", 1, &epoch(2)));
    d.call(ack("c", 1, "p", Aborted));
    assert_aborted_row(&d, "CLIENT");
}

#[test]
fn aborted_by_its_deadline_tells_so() {
    let mut d = begun(1, &json!({"timeoutMs": 100}));
    d.pass(100);
    d.call(get("c", 1));
    assert_aborted_row(&d, "TIMEOUT");
}

#[test]
fn aborted_by_a_newer_owner_tells_so() {
    let mut d = begun(1, &json!({}));
    d.call(open("c", 3));
    assert_aborted_row(&d, "FENCED");
}

#[test]
fn aborted_by_an_operator_tells_so() {
    let mut d = prepared();
    d.call(resolve("c", 1, "ABORT"));
    assert_aborted_row(&d, "OPERATOR");
}

#[test]
fn aborted_by_its_prepared_timeout_tells_so() {
    let mut d = begun(1, &json!({}));
    d.call(prepare("c", 1, &json!({"epoch": 2, "preparedTimeoutMs": 100})));
    d.pass(100);
    d.call(get("c", 1));
    assert_aborted_row(&d, "PREPARED_TIMEOUT");
}

#[test]
fn a_committed_outcome_no_longer_preserved_is_told_while_it_is_the_last_commit() {
    let mut d = begun(1, &json!({}));
    d.call(commit("c", 1, &epoch(2)));
    d.pass(Limits::default().persist_time_ms);
    d.sweep(ratified_core::Sweep::Expiry);
    assert_settled_row(
        &d,
        ["200 COMMITTED CLIENT replayed", "409 OUTCOME_COMMITTED: COMMITTED CLIENT", "200 COMMITTED CLIENT"],
    );
}

#[test]
fn an_id_above_the_watermark_never_began_here() {
    let absent = ["404 TXN_NOT_FOUND", "404 TXN_NOT_FOUND", "404 TXN_NOT_FOUND"];
    assert_settled_row(&at_epoch_2(Limits::default()), absent);

    // Ids above what began and below it are the same: only the watermark counts.
    let mut d = begun(5, &json!({}));
    d.call(commit("c", 5, &epoch(2)));
    assert_settled_row(&d, absent);
}

/// Client `c` whose watermark is at id 1: that transaction was aborted and has expired.
fn expired() -> Driver {
    let mut d = begun(1, &json!({}));
    d.call(abort("c", 1, &epoch(2)));
    d.pass(Limits::default().persist_time_ms);
    d.sweep(ratified_core::Sweep::Expiry);
    d
}

#[test]
fn an_id_at_or_below_the_watermark_is_no_longer_known() {
    let row = ["410 OUTCOME_EXPIRED", "410 OUTCOME_EXPIRED", "410 OUTCOME_EXPIRED"];
    assert_settled_row(&expired(), row);

    // Below it as well, although it never began: nobody can tell any more.
    let mut d = begun(2, &json!({}));
    d.call(abort("c", 2, &epoch(2)));
    d.pass(Limits::default().persist_time_ms);
    d.sweep(ratified_core::Sweep::Expiry);
    assert_settled_row(&d, row);
    assert_eq!(d.read(get("c", 3)).brief(), "404 TXN_NOT_FOUND");
}

#[test]
fn a_client_that_never_opened_is_unknown() {
    let row = ["404 CLIENT_NOT_FOUND", "404 CLIENT_NOT_FOUND", "404 CLIENT_NOT_FOUND"];
    let mut d = Driver::new(Limits::default());
    d.call(open("d", 1));
    assert_settled_row(&d, row);
}

#[test]
fn a_forgotten_client_answers_by_its_watermark() {
    let mut d = begun(1, &json!({}));
    d.call(commit("c", 1, &epoch(2)));
    d.call(forget("c"));
    assert_settled_row(&d, ["410 OUTCOME_EXPIRED", "410 OUTCOME_EXPIRED", "410 OUTCOME_EXPIRED"]);
    assert_eq!(d.read(commit("c", 2, &epoch(2))).brief(), "404 TXN_NOT_FOUND");
    assert_eq!(d.read(abort("c", 2, &epoch(2))).brief(), "404 TXN_NOT_FOUND");
    assert_eq!(d.read(get("c", 2)).brief(), "404 TXN_NOT_FOUND");
}

#[test]
fn a_final_refusal_says_that_asking_again_is_in_vain() {
    let flags = |told: crate::support::Told| (told.member("retryable"), told.member("final"));
    let mut d = begun(1, &json!({}));
    assert_eq!(flags(d.call(commit("c", 1, &epoch(1)))), (json!(false), json!(false)));
    assert_eq!(flags(d.call(commit("c", 2, &epoch(2)))), (json!(false), json!(false)));
    d.call(commit("c", 1, &epoch(2)));
    assert_eq!(flags(d.call(abort("c", 1, &epoch(2)))), (json!(false), json!(true)));
    let mut d = expired();
    assert_eq!(flags(d.call(commit("c", 1, &epoch(2)))), (json!(false), json!(true)));
}

#[test]
fn a_transaction_is_told_whole_while_it_is_live_and_by_what_is_kept_afterwards() {
    let mut d = begun(1, &json!({"timeoutMs": 500, "participants": ["q", "p"], "labels": {"job": "orders"}}));
    d.pass(10);
    d.call(prepare("c", 1, &json!({"epoch": 2, "checkpointId": 42, "payload": "cGF5"})));
    d.call(commit("c", 1, &json!({})));
    d.call(ack("c", 1, "q", Committed));
    assert_eq!(
        d.call(get("c", 1)).body,
        json!({
            "clientName": "c", "txnId": "00000000-0000-7000-8000-000000000001", "state": "COMMITTING",
            "replayed": false, "preserved": false, "epoch": 2, "checkpointId": 42,
            "beginTime": "1970-01-01T00:00:00.000Z", "prepareTime": "1970-01-01T00:00:00.010Z",
            "deadlineInMs": null, "endReason": "CLIENT",
            "participants": [{"name": "p", "acked": false}, {"name": "q", "acked": true}],
            "labels": {"job": "orders"}, "payload": "cGF5"
        })
    );
    d.pass(10);
    d.call(ack("c", 1, "p", Committed));
    assert_eq!(
        d.call(get("c", 1)).body,
        json!({
            "clientName": "c", "txnId": "00000000-0000-7000-8000-000000000001", "state": "COMMITTED",
            "replayed": false, "preserved": true, "checkpointId": 42, "endTime": "1970-01-01T00:00:00.020Z",
            "deadlineInMs": null, "endReason": "CLIENT", "payload": "cGF5"
        })
    );
}
