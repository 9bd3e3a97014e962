//! The order of refusals: client; decided outcome; absence and watermark; epoch; state; limits. Each test breaks
//! several rules at once; the first one in the order is told.

use ratified_core::{Limits, Sweep};
use ratified_protocol::Outcome::Committed;
use serde_json::{Value, json};

use crate::support::{
    Driver, abort, ack, begin, commit, epoch, forget, get, keep_alive, open, open_with, prepare, register, retire,
};

type Call = fn(&str, u64, &Value) -> ratified_core::Request;

fn join(name: &str, n: u64, body: &Value) -> ratified_core::Request {
    register(name, n, "retired", body)
}

/// Ids: 1 ended and expired, 2 COMMITTED, 3 PREPARED, 4 OPEN and full; `retired` is retired; epoch 2 is current.
fn crowded() -> Driver {
    let mut d = Driver::opened_with(Limits { max_open_per_client: 1, max_clients: 1, ..Limits::default() });
    d.call(begin("c", 1, &epoch(1)));
    d.call(abort("c", 1, &epoch(1)));
    d.pass(Limits::default().persist_time_ms);
    d.sweep(Sweep::Expiry);
    d.call(begin("c", 2, &epoch(1)));
    d.call(commit("c", 2, &epoch(1)));
    d.call(begin("c", 3, &epoch(1)));
    d.call(prepare("c", 3, &epoch(1)));
    d.call(open("c", 2));
    d.call(begin("c", 4, &epoch(2)));
    d.call(retire("retired"));
    d
}

const ALL: [Call; 6] = [begin, prepare, commit, abort, keep_alive, join];

#[test]
fn the_client_comes_first() {
    let mut d = crowded();
    for call in ALL {
        assert_eq!(d.read(call("x", 1, &epoch(9))).brief(), "404 CLIENT_NOT_FOUND");
    }
    assert_eq!(d.read(ack("x", 1, "stranger", Committed)).brief(), "404 CLIENT_NOT_FOUND");
    assert_eq!(d.read(open_with("x", 1, false)).brief(), "404 CLIENT_NOT_FOUND", "before the limit of clients");
}

#[test]
fn a_decided_outcome_comes_before_epoch_and_parameters() {
    let mut d = crowded();
    for body in [json!({}), epoch(1), epoch(9)] {
        assert_eq!(d.read(begin("c", 2, &body)).brief(), "200 COMMITTED CLIENT replayed preserved");
        assert_eq!(d.read(prepare("c", 2, &body)).brief(), "200 COMMITTED CLIENT replayed preserved");
        assert_eq!(d.read(keep_alive("c", 2, &body)).brief(), "200 COMMITTED CLIENT replayed preserved");
        assert_eq!(d.read(commit("c", 2, &body)).brief(), "200 COMMITTED CLIENT replayed preserved");
        assert_eq!(d.read(abort("c", 2, &body)).brief(), "409 OUTCOME_COMMITTED: COMMITTED CLIENT preserved");
    }
}

#[test]
fn absence_and_watermark_come_before_the_epoch() {
    let mut d = crowded();
    for body in [json!({}), epoch(1), epoch(9)] {
        for call in [prepare as Call, commit, abort, keep_alive, join] {
            assert_eq!(d.read(call("c", 1, &body)).brief(), "410 OUTCOME_EXPIRED");
            assert_eq!(d.read(call("c", 5, &body)).brief(), "404 TXN_NOT_FOUND");
        }
        assert_eq!(d.read(begin("c", 1, &body)).brief(), "410 TXN_ID_TOO_OLD");
    }
}

#[test]
fn the_epoch_comes_before_the_state() {
    let mut d = crowded();
    for (body, refusal) in
        [(json!({}), "400 INVALID_ARGUMENT"), (epoch(1), "409 FENCED"), (epoch(9), "409 EPOCH_UNKNOWN")]
    {
        let with = |extra: &Value| {
            let mut body = body.clone();
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            body
        };
        let prepared = format!("{refusal}: PREPARED");
        assert_eq!(d.read(begin("c", 3, &with(&json!({"timeoutMs": 1})))).brief(), prepared, "before 422");
        assert_eq!(d.read(prepare("c", 3, &with(&json!({"checkpointId": 9})))).brief(), prepared, "before 422");
        assert_eq!(d.read(join("c", 3, &body)).brief(), prepared, "before INVALID_TXN_STATE");
        assert_eq!(d.read(join("c", 4, &body)).brief(), format!("{refusal}: OPEN"), "before PARTICIPANT_RETIRED");
        let begin = begin("c", 5, &with(&json!({"participants": ["retired"]})));
        assert_eq!(d.read(begin).brief(), refusal, "before PARTICIPANT_RETIRED and TOO_MANY_OPEN");
        if !body.as_object().unwrap().is_empty() {
            let commit = commit("c", 3, &with(&json!({"checkpointId": 9})));
            assert_eq!(d.read(commit).brief(), prepared, "before 422");
        }
    }
}

#[test]
fn the_epoch_comes_before_require_prepare() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "requirePrepare": true})));
    assert_eq!(d.read(commit("c", 1, &json!({}))).brief(), "400 INVALID_ARGUMENT: OPEN");
    assert_eq!(d.read(commit("c", 1, &epoch(2))).brief(), "409 EPOCH_UNKNOWN: OPEN");
}

#[test]
fn the_state_comes_before_the_limits() {
    let mut d = crowded();
    let body = json!({"epoch": 2, "participants": ["retired"]});
    assert_eq!(d.read(begin("c", 5, &body)).brief(), "409 PARTICIPANT_RETIRED");
    assert_eq!(d.read(begin("c", 5, &epoch(2))).brief(), "429 TOO_MANY_OPEN");
}

#[test]
fn a_superseded_incarnation_comes_before_the_limit_of_clients() {
    let mut d = Driver::opened_with(Limits { max_clients: 1, ..Limits::default() });
    d.call(open("c", 2));
    d.call(forget("c"));
    d.call(open("d", 1));
    assert_eq!(d.read(open("c", 1)).brief(), "409 FENCED");
    assert_eq!(d.read(open("c", 3)).brief(), "429 TOO_MANY_CLIENTS");
}

#[test]
fn a_refusal_about_a_live_transaction_tells_it() {
    let mut d = crowded();
    let told = d.read(commit("c", 3, &epoch(1)));
    assert_eq!(told.brief(), "409 FENCED: PREPARED");
    assert_eq!((told.member("currentEpoch"), told.member("owner")), (json!(2), json!("owner-2")));
    assert_eq!(told.member("txn"), d.read(get("c", 3)).body);
    assert!(told.member("detail").as_str().unwrap().contains("owner-2"), "the loser is told who has won");
}
