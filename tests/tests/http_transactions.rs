//! begin, prepare, commit, abort, keep-alive, get: whole answers, equality of repeats, deadlines.

use ratified_tests::{
    config::Config,
    poll,
    process::Ratifyd,
    session::{Session, id},
    shape::{in_short, shape},
};
use serde_json::json;

#[tokio::test]
async fn a_begun_transaction_is_told_whole() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let body = json!({"timeoutMs": 5_000, "requirePrepare": true, "participants": ["b", "a", "b"],
        "labels": {"job": "orders"}});
    let expected = json!({"clientName": "c", "txnId": id(1), "state": "OPEN", "replayed": false, "preserved": false,
        "epoch": 1, "beginTime": "T", "deadlineInMs": "MS", "labels": {"job": "orders"},
        "participants": [{"name": "a", "acked": false}, {"name": "b", "acked": false}]});
    assert_eq!(shape(&c.begin(1, body).await.ok(201).json), expected);
    assert_eq!(shape(&c.get(1).await.ok(200).json), expected);
}

#[tokio::test]
async fn a_prepared_and_then_committed_transaction_is_told_whole() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"participants": ["p"]})).await.ok(201);
    let prepared = c.prepare(1, json!({"checkpointId": 42, "payload": "aGFuZGxl"})).await.ok(200);
    let mut expected = json!({"clientName": "c", "txnId": id(1), "state": "PREPARED", "replayed": false,
        "preserved": false, "epoch": 1, "checkpointId": 42, "beginTime": "T", "prepareTime": "T", "deadlineInMs": null,
        "participants": [{"name": "p", "acked": false}], "labels": {}, "payload": "aGFuZGxl"});
    assert_eq!(shape(&prepared.json), expected);
    expected["state"] = json!("COMMITTING");
    expected["endReason"] = json!("CLIENT");
    assert_eq!(shape(&c.commit(1, json!({})).await.ok(202).json), expected);
    assert_eq!(shape(&c.get(1).await.ok(200).json), expected);
    let ended = json!({"clientName": "c", "txnId": id(1), "state": "COMMITTED", "replayed": false, "preserved": true,
        "checkpointId": 42, "endTime": "T", "deadlineInMs": null, "endReason": "CLIENT", "payload": "aGFuZGxl"});
    assert_eq!(shape(&c.ack(1, "p", "COMMITTED").await.ok(200).json), ended);
    assert_eq!(shape(&c.get(1).await.ok(200).json), ended);
}

#[tokio::test]
async fn an_aborted_transaction_is_told_with_its_reason_and_without_its_payload() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({})).await.ok(201);
    c.prepare(1, json!({"payload": "aGFuZGxl"})).await.ok(200);
    let expected = json!({"clientName": "c", "txnId": id(1), "state": "ABORTED", "replayed": false, "preserved": true,
        "endTime": "T", "deadlineInMs": null, "endReason": "CLIENT"});
    assert_eq!(shape(&c.abort(1).await.ok(200).json), expected);
    let refused = c.commit(1, json!({})).await.refused("OUTCOME_ABORTED");
    assert_eq!(shape(&refused["txn"]), expected);
}

#[tokio::test]
async fn begin_again_with_any_other_parameter_is_refused() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let body = json!({"timeoutMs": 5_000, "requirePrepare": true, "participants": ["a", "b"], "labels": {"k": "v"}});
    c.begin(1, body.clone()).await.ok(201);
    let mut reordered = body.clone();
    reordered["participants"] = json!(["b", "a", "a"]);
    assert_eq!(in_short(&c.begin(1, reordered).await), "200 OPEN replayed");
    for (member, other) in [
        ("timeoutMs", json!(5_001)),
        ("timeoutMs", json!(null)),
        ("requirePrepare", json!(false)),
        ("participants", json!(["a"])),
        ("participants", json!(["a", "b", "c"])),
        ("labels", json!({"k": "w"})),
        ("labels", json!({})),
    ] {
        let mut changed = body.clone();
        changed[member] = other;
        assert_eq!(in_short(&c.begin(1, changed.clone()).await), "TXN_ID_REUSED (OPEN)", "{changed}");
    }
    c.register(1, "later").await.ok(201);
    assert_eq!(in_short(&c.begin(1, body).await), "200 OPEN replayed");
}

#[tokio::test]
async fn prepare_again_with_any_other_parameter_is_refused() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({})).await.ok(201);
    let body = json!({"checkpointId": 7, "payload": "aGFuZGxl", "preparedTimeoutMs": 60_000});
    c.prepare(1, body.clone()).await.ok(200);
    assert_eq!(in_short(&c.prepare(1, body.clone()).await), "200 PREPARED replayed");
    for (member, other) in [
        ("checkpointId", json!(8)),
        ("checkpointId", json!(null)),
        ("payload", json!("b3RoZXI=")),
        ("payload", json!(null)),
        ("preparedTimeoutMs", json!(60_001)),
        ("preparedTimeoutMs", json!(null)),
    ] {
        let mut changed = body.clone();
        changed[member] = other;
        assert_eq!(in_short(&c.prepare(1, changed.clone()).await), "TXN_ID_REUSED (PREPARED)", "{changed}");
    }
}

#[tokio::test]
async fn commit_of_a_prepared_one_takes_only_what_prepare_gave() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=2 {
        c.begin(n, json!({})).await.ok(201);
        c.prepare(n, json!({"checkpointId": 7, "payload": "aGFuZGxl"})).await.ok(200);
    }
    for other in [json!({"checkpointId": 8}), json!({"payload": "b3RoZXI="}), json!({"payload": ""})] {
        assert_eq!(in_short(&c.commit(1, other.clone()).await), "TXN_ID_REUSED (PREPARED)", "{other}");
    }
    assert_eq!(in_short(&c.commit(1, json!({"checkpointId": 7, "payload": "aGFuZGxl"})).await), "200 COMMITTED");
    assert_eq!(in_short(&c.commit(1, json!({"checkpointId": 8})).await), "200 COMMITTED replayed");
    assert_eq!(in_short(&c.commit(2, json!({})).await), "200 COMMITTED");
}

#[tokio::test]
async fn commit_from_open_stores_checkpoint_and_payload_with_the_decision() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({})).await.ok(201);
    c.commit(1, json!({"checkpointId": 9, "payload": "cG9zaXRpb24="})).await.ok(200);
    let told = c.get(1).await.ok(200);
    assert_eq!((&told["checkpointId"], &told["payload"]), (&json!(9), &json!("cG9zaXRpb24=")));
    let last = c.preserver().await.ok(200);
    assert_eq!(last["lastCommitted"]["payload"], "cG9zaXRpb24=");
}

#[tokio::test]
async fn an_empty_transaction_behaves_like_any_other() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({})).await.ok(201);
    assert_eq!(in_short(&c.prepare(1, json!({})).await), "200 PREPARED");
    assert_eq!(in_short(&c.commit(1, json!({})).await), "200 COMMITTED");
    c.begin(2, json!({})).await.ok(201);
    c.prepare(2, json!({"payload": ""})).await.ok(200);
    assert_eq!(c.commit(2, json!({"payload": ""})).await.ok(200)["payload"], "");
}

#[tokio::test]
async fn an_open_transaction_past_its_deadline_is_aborted_with_the_true_reason() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"timeoutMs": 1})).await.ok(201);
    let told = poll::until("the deadline of a transaction", || async {
        let told = c.get(1).await.ok(200);
        (told["state"] != "OPEN").then_some(told)
    })
    .await;
    assert_eq!((&told["state"], &told["endReason"]), (&json!("ABORTED"), &json!("TIMEOUT")));
    let refused = c.commit(1, json!({})).await.refused("OUTCOME_ABORTED");
    assert_eq!(refused["txn"]["endReason"], "TIMEOUT");
    let refused = c.prepare(1, json!({})).await.refused("OUTCOME_ABORTED");
    assert_eq!(refused["txn"]["endReason"], "TIMEOUT");
    assert_eq!(in_short(&c.abort(1).await), "200 ABORTED replayed");
}

#[tokio::test]
async fn a_deadline_ends_a_transaction_nobody_asks_about() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"timeoutMs": 1, "participants": ["p"]})).await.ok(201);
    let decisions = c.raw.get("/v1/participants/p/decisions?waitMs=30000").await.ok(200);
    assert_eq!(
        decisions["decisions"],
        json!([{"clientName": "c", "txnId": id(1), "outcome": "ABORTED", "payload": null}])
    );
    assert_eq!(c.get(1).await.ok(200)["state"], "ABORTING");
}

#[tokio::test]
async fn a_prepared_transaction_is_held_unless_it_was_given_a_timeout() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=2 {
        c.begin(n, json!({"timeoutMs": 1_000})).await.ok(201);
    }
    assert_eq!(c.prepare(1, json!({})).await.ok(200)["deadlineInMs"], json!(null));
    assert_eq!(shape(&c.prepare(2, json!({"preparedTimeoutMs": 1})).await.ok(200).json)["deadlineInMs"], "MS");
    let told = poll::until("the deadline of a prepared transaction", || async {
        let told = c.get(2).await.ok(200);
        (told["state"] != "PREPARED").then_some(told)
    })
    .await;
    assert_eq!((&told["state"], &told["endReason"]), (&json!("ABORTED"), &json!("PREPARED_TIMEOUT")));
    // A third one begun with the first one's timeout is over: the first one would be, too.
    c.begin(3, json!({"timeoutMs": 1_000})).await.ok(201);
    poll::until("the deadline of a later transaction", || async {
        (c.get(3).await.ok(200)["state"] == "ABORTED").then_some(())
    })
    .await;
    assert_eq!(c.get(1).await.ok(200)["state"], "PREPARED");
}

#[tokio::test]
async fn keep_alive_renews_the_whole_timeout() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"timeoutMs": 600_000})).await.ok(201);
    let left = poll::until("some of the timeout to pass", || async {
        let left = c.get(1).await.ok(200)["deadlineInMs"].as_u64().unwrap();
        (left < 599_900).then_some(left)
    })
    .await;
    let renewed = c.keep_alive(1).await.ok(200)["deadlineInMs"].as_u64().unwrap();
    assert!(renewed > left, "{renewed} > {left}");
}

#[tokio::test]
async fn many_transactions_of_one_client_are_open_prepared_and_ending_at_once() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=4 {
        c.begin(n, json!({"participants": ["p"]})).await.ok(201);
    }
    c.prepare(2, json!({})).await.ok(200);
    c.commit(3, json!({})).await.ok(202);
    c.abort(4).await.ok(202);
    let mut states = Vec::new();
    for n in 1..=4 {
        states.push(c.get(n).await.ok(200)["state"].clone());
    }
    assert_eq!(states, ["OPEN", "PREPARED", "COMMITTING", "ABORTING"]);
}

#[tokio::test]
async fn beyond_max_open_per_client_begin_is_refused_until_one_ends() {
    let ratifyd = Ratifyd::start(Config::new().with("max_open_per_client", 2)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let other = Session::open(&c.raw, "other", 2).await;
    for n in 1..=2 {
        c.begin(n, json!({})).await.ok(201);
    }
    c.begin(3, json!({})).await.refused("TOO_MANY_OPEN");
    c.begin(2, json!({})).await.ok(200);
    other.begin(3, json!({})).await.ok(201);
    c.prepare(1, json!({})).await.ok(200);
    c.begin(3, json!({})).await.ok(201);
}

#[tokio::test]
async fn beyond_max_unfinished_per_client_begin_is_refused_until_one_is_acknowledged() {
    let config = Config::new().with("max_open_per_client", 1).with("max_unfinished_per_client", 2);
    let ratifyd = Ratifyd::start(config).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"participants": ["p"]})).await.ok(201);
    c.commit(1, json!({})).await.ok(202);
    c.begin(2, json!({})).await.ok(201);
    c.prepare(2, json!({})).await.ok(200);
    let refused = c.begin(3, json!({})).await;
    assert!(refused.text.contains("max_unfinished_per_client"), "{}", refused.text);
    refused.refused("TOO_MANY_OPEN");
    c.ack(1, "p", "COMMITTED").await.ok(200);
    c.begin(3, json!({})).await.ok(201);
}
