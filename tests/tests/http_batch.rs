//! `batch`: many operations of one client, or of many, in one durable write.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    config::Config,
    process::Ratifyd,
    raw::{Reply, assert_item_refused},
    session::{Session, id, padded},
    shape::shape,
};
use serde_json::{Value, json};

/// The items of an answer in short: `200 COMMITTED`, `409 FENCED`.
fn items(answer: &Reply) -> Vec<String> {
    let results = answer["results"].as_array().unwrap();
    let told = |item: &Value| item["txn"]["state"].as_str().or(item["problem"]["code"].as_str()).unwrap().to_owned();
    results.iter().map(|item| format!("{} {}", item["status"], told(item))).collect()
}

#[tokio::test]
async fn begin_prepare_and_commit_fit_in_one_batch() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let operations = json!([
        {"op": "begin", "txnId": id(1), "epoch": 1, "requirePrepare": true},
        {"op": "prepare", "txnId": id(1), "epoch": 1, "checkpointId": 4, "payload": "aGFuZGxl"},
        {"op": "commit", "txnId": id(1), "epoch": 1},
        {"op": "get", "txnId": id(1)},
    ]);
    let answer = c.batch(operations.clone(), true).await.ok(200);
    assert_eq!(items(&answer), ["201 OPEN", "200 PREPARED", "200 COMMITTED", "200 COMMITTED"]);
    assert_eq!(answer["stoppedAt"], Value::Null);
    assert_eq!(
        shape(&answer["results"][3]["txn"]),
        json!({"clientName": "c", "txnId": id(1), "state": "COMMITTED", "replayed": false, "preserved": true,
            "checkpointId": 4, "endTime": "T", "deadlineInMs": null, "endReason": "CLIENT", "payload": "aGFuZGxl"})
    );
    let again = c.batch(operations, true).await.ok(200);
    assert_eq!(items(&again), ["200 COMMITTED", "200 COMMITTED", "200 COMMITTED", "200 COMMITTED"]);
    assert_eq!(again["results"][2]["txn"]["replayed"], true);
}

#[tokio::test]
async fn an_ordered_batch_ends_at_the_item_that_failed() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let operations = json!([
        {"op": "begin", "txnId": id(1), "epoch": 1},
        {"op": "commit", "txnId": id(9), "epoch": 1},
        {"op": "commit", "txnId": id(1), "epoch": 1},
    ]);
    let answer = c.batch(operations, true).await.ok(200);
    assert_eq!(
        (items(&answer), &answer["stoppedAt"]),
        (vec!["201 OPEN".to_owned(), "404 TXN_NOT_FOUND".to_owned()], &json!(1))
    );
    assert_item_refused(&answer["results"][1], "TXN_NOT_FOUND");
    assert_eq!(c.get(1).await.ok(200)["state"], "OPEN");
}

#[tokio::test]
async fn batches_are_ordered_unless_they_say_otherwise() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let operations = json!([{"op": "get", "txnId": id(1)}, {"op": "get", "txnId": id(2)}]);
    let answer = c.raw.post("/v1/clients/c/batch", json!({"operations": operations})).await.ok(200);
    assert_eq!((items(&answer).len(), &answer["stoppedAt"]), (1, &json!(0)));
}

#[tokio::test]
async fn items_of_an_unordered_batch_succeed_or_fail_alone() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let operations = json!([
        {"op": "begin", "txnId": id(1), "epoch": 1, "participants": ["p"]},
        {"op": "commit", "txnId": id(1), "epoch": 9},
        {"op": "fly", "txnId": id(1)},
        {"op": "commit", "txnId": "x"},
        7,
        {"op": "commit", "txnId": id(1), "epoch": 1, "bogus": true},
        {"op": "ack", "txnId": id(1), "participant": "p", "outcome": "COMMITTED"},
        {"op": "commit", "txnId": id(1), "epoch": 1},
        {"op": "ack", "txnId": id(1), "participant": "p", "outcome": "COMMITTED"},
        {"op": "abort", "txnId": id(1), "epoch": 1},
    ]);
    let answer = c.batch(operations, false).await.ok(200);
    assert_eq!(
        items(&answer),
        [
            "201 OPEN",
            "409 EPOCH_UNKNOWN",
            "400 INVALID_ARGUMENT",
            "400 INVALID_ARGUMENT",
            "400 INVALID_ARGUMENT",
            "400 INVALID_ARGUMENT",
            "409 INVALID_TXN_STATE",
            "202 COMMITTING",
            "200 COMMITTED",
            "409 OUTCOME_COMMITTED",
        ]
    );
    assert_eq!(answer["stoppedAt"], Value::Null);
    for (at, code) in [(1, "EPOCH_UNKNOWN"), (2, "INVALID_ARGUMENT"), (9, "OUTCOME_COMMITTED")] {
        assert_item_refused(&answer["results"][at], code);
    }
    assert_eq!(answer["results"][9]["problem"]["txn"]["state"], "COMMITTED");
}

#[tokio::test]
async fn a_malformed_item_ends_an_ordered_batch_after_the_items_before_it_took_effect() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let operations = json!([
        {"op": "begin", "txnId": id(1), "epoch": 1},
        {"op": "begin", "txnId": id(2), "epoch": 1, "timeoutMs": 0},
        {"op": "begin", "txnId": id(3), "epoch": 1},
    ]);
    let answer = c.batch(operations, true).await.ok(200);
    assert_eq!(items(&answer), ["201 OPEN", "400 INVALID_ARGUMENT"]);
    assert!(answer["results"][1]["problem"]["detail"].as_str().unwrap().contains("timeoutMs"), "{}", answer.text);
    c.get(3).await.refused("TXN_NOT_FOUND");
}

#[tokio::test]
async fn an_item_that_is_too_large_fails_alone() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let payload = "A".repeat(87_384);
    let operations = json!([
        {"op": "begin", "txnId": id(1), "epoch": 1},
        {"op": "prepare", "txnId": id(1), "epoch": 1, "payload": payload},
        {"op": "commit", "txnId": id(1), "epoch": 1},
    ]);
    let answer = c.batch(operations, false).await.ok(200);
    assert_eq!(items(&answer), ["201 OPEN", "413 TOO_LARGE", "200 COMMITTED"]);
}

#[tokio::test]
async fn a_thousand_operations_are_taken_and_not_one_more() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let mut operations: Vec<_> = (1..=500).map(|n| json!({"op": "begin", "txnId": id(n), "epoch": 1})).collect();
    operations.extend((1..=500).map(|n| json!({"op": "commit", "txnId": id(n), "epoch": 1})));
    let answer = c.batch(json!(operations), true).await.ok(200);
    assert_eq!(items(&answer).iter().filter(|item| *item == "200 COMMITTED").count(), 500);
    operations.push(json!({"op": "get", "txnId": id(1)}));
    c.batch(json!(operations), true).await.refused("TOO_LARGE");
}

#[tokio::test]
async fn a_batch_of_eight_mebibytes_is_taken_and_not_one_byte_more() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let body = json!({"operations": [{"op": "begin", "txnId": id(1), "epoch": 1}]});
    let filled = |bytes| padded(&body, bytes);
    let path = "/v1/clients/c/batch";
    let taken = c.raw.bytes("POST", path, "application/json", filled(8 * 1024 * 1024)).await.ok(200);
    assert_eq!(items(&taken), ["201 OPEN"]);
    c.raw.bytes("POST", path, "application/json", filled(8 * 1024 * 1024 + 1)).await.refused("TOO_LARGE");
}

#[tokio::test]
async fn the_shape_of_a_batch_is_checked_before_the_client_and_the_client_before_its_items() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session { raw: ratifyd.raw(), client: "stranger".to_owned(), epoch: 1 };
    let path = "/v1/clients/stranger/batch";
    for (body, field) in [
        (json!({}), "operations"),
        (json!({"operations": {}}), "operations"),
        (json!({"operations": [], "ordered": "yes"}), "ordered"),
        (json!({"operations": [], "atomic": true}), "atomic"),
    ] {
        let refused = c.raw.post(path, body.clone()).await.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains(field), "{body}: {}", refused.text);
    }
    c.batch(json!([{"op": "fly"}]), true).await.refused("CLIENT_NOT_FOUND");
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let empty = c.batch(json!([]), true).await.ok(200);
    assert_eq!(empty.json, json!({"results": [], "stoppedAt": null}));
}

#[tokio::test]
async fn operations_of_many_clients_succeed_or_fail_alone_and_are_never_ordered() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    let c = Session::open(&raw, "c", 1).await;
    let d = Session::open(&raw, "d", 1).await;
    let operations = json!([
        {"clientName": "c", "op": "begin", "txnId": id(1), "epoch": 1},
        {"clientName": "d", "op": "begin", "txnId": id(1), "epoch": 1},
        {"clientName": "c", "op": "commit", "txnId": id(1), "epoch": 9},
        {"clientName": "x", "op": "commit", "txnId": id(1)},
        {"clientName": "a/b", "op": "get", "txnId": id(1)},
        {"op": "get", "txnId": id(1)},
        "no object",
        {"clientName": "d", "op": "abort", "txnId": id(1), "epoch": 1},
        {"clientName": "c", "op": "commit", "txnId": id(1), "epoch": 1},
    ]);
    let answer = raw.post("/v1/batch", json!({"operations": operations})).await.ok(200);
    assert_eq!(
        items(&answer),
        [
            "201 OPEN",
            "201 OPEN",
            "409 EPOCH_UNKNOWN",
            "404 CLIENT_NOT_FOUND",
            "400 INVALID_ARGUMENT",
            "400 INVALID_ARGUMENT",
            "400 INVALID_ARGUMENT",
            "200 ABORTED",
            "200 COMMITTED",
        ]
    );
    assert_item_refused(&answer["results"][3], "CLIENT_NOT_FOUND");
    assert_eq!(answer.json.get("stoppedAt"), None);
    assert_eq!(c.get(1).await.ok(200)["state"], "COMMITTED");
    assert_eq!(d.get(1).await.ok(200)["state"], "ABORTED");
}

#[tokio::test]
async fn a_batch_over_many_clients_has_the_bounds_of_any_batch() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    Session::open(&raw, "c", 1).await;
    let operations = |n: usize| json!({"operations": vec![json!({"clientName": "c", "op": "get", "txnId": id(1)}); n]});
    assert_eq!(raw.post("/v1/batch", operations(1000)).await.ok(200)["results"].as_array().unwrap().len(), 1000);
    raw.post("/v1/batch", operations(1001)).await.refused("TOO_LARGE");
    raw.post("/v1/batch", json!({"operations": [], "ordered": false})).await.refused("INVALID_ARGUMENT");
    raw.post("/v1/batch", json!({})).await.refused("INVALID_ARGUMENT");
}
