//! Batches: many calls of one client, or of many, in one durable write.

use ratified_core::Write;
use serde_json::{Value, json};

use crate::support::{Driver, batch, begin, epoch, get, id_text, many, open, told::brief_txn};

fn op(op: &str, n: u64, extra: &Value) -> Value {
    let mut item = json!({"op": op, "txnId": id_text(n)});
    item.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    item
}

/// The results in short: `201 OPEN`, `409 FENCED`.
fn results(body: &Value) -> Vec<String> {
    let short = |result: &Value| {
        let what = result.get("txn").map_or_else(|| result["problem"]["code"].as_str().unwrap().to_owned(), brief_txn);
        format!("{} {what}", result["status"])
    };
    body["results"].as_array().unwrap().iter().map(short).collect()
}

#[test]
fn items_see_the_items_before_them_and_are_one_write() {
    let mut d = Driver::opened();
    let ticket = d.submit(batch(
        "c",
        vec![
            op("begin", 1, &json!({"epoch": 1, "participants": ["p"]})),
            op("prepare", 1, &json!({"epoch": 1, "checkpointId": 4})),
            op("commit", 1, &json!({})),
            op("ack", 1, &json!({"participant": "p", "outcome": "COMMITTED"})),
            op("get", 1, &json!({})),
            op("begin", 2, &epoch(1)),
            op("abort", 2, &epoch(1)),
        ],
        true,
    ));
    assert_eq!(d.answer(ticket), None, "nothing is told before the write is synced");
    assert_eq!(d.engine.revision().0, 2, "one step");
    let writes = d.seal();
    assert!(writes.iter().all(|write| matches!(write, Write::Put(_))), "what came and went is not written: {writes:?}");
    assert_eq!(writes.len(), 3, "client and two outcomes");
    d.sync();
    let told = d.answer(ticket).unwrap();
    assert_eq!(
        results(&told.body),
        [
            "201 OPEN",
            "200 PREPARED",
            "202 COMMITTING CLIENT",
            "200 COMMITTED CLIENT preserved",
            "200 COMMITTED CLIENT preserved",
            "201 OPEN",
            "200 ABORTED CLIENT preserved",
        ]
    );
    assert_eq!(told.member("stoppedAt"), Value::Null);
}

fn half_wrong() -> Vec<Value> {
    vec![
        op("begin", 1, &epoch(1)),
        op("begin", 2, &epoch(9)),
        op("fly", 3, &json!({})),
        json!("not an object"),
        op("begin", 4, &json!({"timeoutMs": 0})),
        op("begin", 5, &epoch(1)),
    ]
}

#[test]
fn an_ordered_batch_stops_at_the_first_failed_item() {
    let mut d = Driver::opened();
    let told = d.call(batch("c", half_wrong(), true));
    assert_eq!(results(&told.body), ["201 OPEN", "409 EPOCH_UNKNOWN"]);
    assert_eq!(told.member("stoppedAt"), 1);
    assert_eq!(d.read(get("c", 1)).brief(), "200 OPEN", "what succeeded stays");
    assert_eq!(d.read(get("c", 5)).brief(), "404 TXN_NOT_FOUND");
    let told = d.read(batch("c", half_wrong().split_off(2), true));
    assert_eq!((results(&told.body), told.member("stoppedAt")), (vec!["400 INVALID_ARGUMENT".to_owned()], json!(0)));
}

#[test]
fn an_unordered_batch_goes_on_and_each_item_fails_alone() {
    let mut d = Driver::opened();
    let told = d.call(batch("c", half_wrong(), false));
    assert_eq!(
        results(&told.body),
        [
            "201 OPEN",
            "409 EPOCH_UNKNOWN",
            "400 INVALID_ARGUMENT",
            "400 INVALID_ARGUMENT",
            "400 INVALID_ARGUMENT",
            "201 OPEN"
        ]
    );
    assert_eq!(told.member("stoppedAt"), Value::Null);
}

#[test]
fn a_batch_of_an_unknown_client_is_refused_whole() {
    let mut d = Driver::opened();
    assert_eq!(d.read(batch("x", half_wrong(), false)).brief(), "404 CLIENT_NOT_FOUND");
    assert_eq!(d.read(batch("c", Vec::new(), true)).body, json!({"results": [], "stoppedAt": null}));
}

#[test]
fn a_repeated_batch_is_told_the_same_and_writes_nothing() {
    let mut d = Driver::opened();
    let items = || vec![op("begin", 1, &epoch(1)), op("commit", 1, &epoch(1))];
    d.call(batch("c", items(), true));
    let told = d.read(batch("c", items(), true));
    let replayed = "200 COMMITTED CLIENT replayed preserved";
    assert_eq!(results(&told.body), [replayed, replayed]);
}

#[test]
fn a_batch_that_only_reads_synced_state_leaves_at_once() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    let ticket = d.submit(batch("c", vec![op("get", 1, &json!({}))], true));
    assert!(d.answer(ticket).is_some());
    // And one that reads an unsynced step waits for it.
    d.submit(begin("c", 2, &epoch(1)));
    let ticket = d.submit(batch("c", vec![op("get", 2, &json!({}))], true));
    assert_eq!(d.answer(ticket), None);
}

#[test]
fn a_batch_carries_payloads_up_to_a_mebibyte() {
    let payload = format!("{}AA==", "A".repeat(4 * (65535 / 3)));
    let mut d = Driver::opened();
    let mut items = Vec::new();
    for n in 1..=17 {
        items.push(op("begin", n, &epoch(1)));
        items.push(op("prepare", n, &json!({"epoch": 1, "payload": payload})));
    }
    let told = d.call(batch("c", items, true));
    let txn = |n: usize| told.body["results"][n * 2 - 1]["txn"].clone();
    assert_eq!((txn(16)["payload"].is_string(), txn(17)["payloadOmitted"].clone()), (true, json!(true)));
}

/// An operation of a batch over many clients.
fn of(client: &str, mut operation: Value) -> Value {
    operation["clientName"] = client.into();
    operation
}

#[test]
fn operations_of_many_clients_are_one_write_and_each_fails_alone() {
    let mut d = Driver::opened();
    assert_eq!(d.call(open("d", 1)).status, 200);
    let ticket = d.submit(many(vec![
        of("c", op("begin", 1, &epoch(1))),
        of("d", op("begin", 1, &epoch(1))),
        of("c", op("begin", 2, &epoch(9))),
        of("x", op("commit", 1, &json!({}))),
        op("commit", 1, &json!({})),
        json!(7),
        of("d", op("fly", 3, &json!({}))),
        of("d", op("commit", 9, &epoch(1))),
        of("c", op("commit", 1, &epoch(1))),
        of("d", op("abort", 1, &epoch(1))),
    ]));
    assert_eq!(d.answer(ticket), None, "nothing is told before the write is synced");
    assert_eq!(d.seal().len(), 3, "what the one that committed is, and two outcomes");
    d.sync();
    let told = d.answer(ticket).unwrap();
    assert_eq!(
        results(&told.body),
        [
            "201 OPEN",
            "201 OPEN",
            "409 EPOCH_UNKNOWN",
            "404 CLIENT_NOT_FOUND",
            "400 INVALID_ARGUMENT",
            "400 INVALID_ARGUMENT",
            "400 INVALID_ARGUMENT",
            "404 TXN_NOT_FOUND",
            "200 COMMITTED CLIENT preserved",
            "200 ABORTED CLIENT preserved",
        ]
    );
    assert_eq!(told.body.as_object().unwrap().keys().collect::<Vec<_>>(), ["results"]);
    assert_eq!(d.read(many(Vec::new())).body, json!({"results": []}));
}
