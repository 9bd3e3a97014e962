//! `open`: epochs, incarnations, what is unfinished, what was committed last.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure here is a failed test")]

use ratified_tests::{
    config::Config,
    process::Ratifyd,
    session::{Session, id, incarnation},
    shape::shape,
};
use serde_json::{Value, json};

const OPEN: &str = "/v1/clients/c/open";

fn by(n: u64) -> Value {
    json!({"incarnation": incarnation(n), "owner": format!("owner {n}")})
}

#[tokio::test]
async fn an_unknown_client_is_made_only_when_it_is_asked_for() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    raw.post(OPEN, by(1)).await.refused("CLIENT_NOT_FOUND");
    raw.post(OPEN, json!({"incarnation": incarnation(1), "create": null})).await.refused("CLIENT_NOT_FOUND");
    assert_eq!(raw.get("/v1/clients").await.ok(200).json, json!({"items": []}));
    let first = raw.post(OPEN, json!({"incarnation": incarnation(1), "create": true})).await.ok(200);
    assert_eq!(
        first.json,
        json!({"epoch": 1, "previousEpoch": null, "previousOwner": null, "unfinished": [], "lastCommitted": null,
            "newestTxnId": null, "evictedThrough": null, "acceptedFrom": []})
    );
}

#[tokio::test]
async fn a_new_incarnation_raises_the_epoch_by_one_and_learns_who_was_before() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    Session::open(&raw, "c", 1).await;
    let second = raw.post(OPEN, by(2)).await.ok(200);
    assert_eq!((&second["epoch"], &second["previousEpoch"]), (&json!(2), &json!(1)));
    assert_eq!(second["previousOwner"], "owner 1");
}

#[tokio::test]
async fn the_current_incarnation_again_gets_the_same_epoch_and_the_lists_anew() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    Session::open(&raw, "c", 1).await;
    let owner = Session::open(&raw, "c", 2).await;
    owner.begin(1, json!({})).await.ok(201);
    let again = raw.post(OPEN, by(2)).await.ok(200);
    assert_eq!((&again["epoch"], &again["previousOwner"]), (&json!(2), &json!("owner 1")));
    assert_eq!(again["unfinished"][0]["txnId"], id(1));
    assert_eq!(again["unfinished"][0]["state"], "OPEN");
    assert_eq!(again["newestTxnId"], id(1));
}

#[tokio::test]
async fn a_late_duplicate_of_an_old_open_is_fenced_and_disturbs_nobody() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    Session::open(&raw, "c", 1).await;
    let owner = Session::open(&raw, "c", 2).await;
    owner.begin(1, json!({})).await.ok(201);
    let late = raw.post(OPEN, by(1)).await.refused("FENCED");
    assert_eq!((&late["currentEpoch"], &late["owner"]), (&json!(2), &json!("owner 2")));
    assert!(late.detail().contains("owner 2"), "{}", late.text);
    assert_eq!(owner.commit(1, json!({})).await.ok(200)["state"], "COMMITTED");
}

#[tokio::test]
async fn the_last_sixteen_incarnations_are_remembered() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    for n in 1..=16 {
        assert_eq!(Session::open(&raw, "c", n).await.epoch, n);
    }
    raw.post(OPEN, by(1)).await.refused("FENCED");
    assert_eq!(Session::open(&raw, "c", 17).await.epoch, 17);
    raw.post(OPEN, by(2)).await.refused("FENCED");
    assert_eq!(raw.post(OPEN, by(1)).await.ok(200)["epoch"], 18);
}

#[tokio::test]
async fn open_aborts_what_older_epochs_left_open_and_never_touches_what_is_prepared() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    let old = Session::open(&raw, "c", 1).await;
    for n in 1..=3 {
        old.begin(n, json!({"participants": if n == 3 { vec!["p"] } else { vec![] }})).await.ok(201);
    }
    old.prepare(2, json!({"checkpointId": 5, "payload": "aGFuZGxl"})).await.ok(200);
    let opened = raw.post(OPEN, by(2)).await.ok(200);
    let states: Vec<_> = opened["unfinished"].as_array().unwrap().iter().map(|t| (&t["txnId"], &t["state"])).collect();
    assert_eq!(states, [(&json!(id(2)), &json!("PREPARED")), (&json!(id(3)), &json!("ABORTING"))]);
    assert_eq!(opened["unfinished"][0]["payload"], "aGFuZGxl");
    let fenced = old.get(1).await.ok(200);
    assert_eq!((&fenced["state"], &fenced["endReason"]), (&json!("ABORTED"), &json!("FENCED")));
    assert_eq!(opened["unfinished"][1]["endReason"], "FENCED");
    let told = old.commit(1, json!({})).await.refused("OUTCOME_ABORTED");
    assert_eq!(told["txn"]["endReason"], "FENCED");
}

#[tokio::test]
async fn last_committed_is_the_committed_transaction_with_the_greatest_id() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    let c = Session::open(&raw, "c", 1).await;
    for n in 1..=4 {
        c.begin(n, json!({"participants": if n == 3 { vec!["p"] } else { vec![] }})).await.ok(201);
    }
    c.commit(3, json!({"checkpointId": 3, "payload": "dGhyZWU="})).await.ok(202);
    c.commit(2, json!({"checkpointId": 2, "payload": "dHdv"})).await.ok(200);
    c.abort(4).await.ok(200);
    let opened = raw.post(OPEN, by(2)).await.ok(200);
    assert_eq!(
        shape(&opened["lastCommitted"]),
        json!({"txnId": id(3), "checkpointId": 3, "payload": "dGhyZWU=", "endTime": "T", "endReason": "CLIENT"})
    );
    assert_eq!(opened["newestTxnId"], id(4));
}

#[tokio::test]
async fn payloads_beyond_one_mebibyte_are_left_out_and_marked_last_committeds_first() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    let c = Session::open(&raw, "c", 1).await;
    let payload = "A".repeat(87_382) + "==";
    for n in 1..=17 {
        c.begin(n, json!({})).await.ok(201);
        c.prepare(n, json!({"payload": payload})).await.ok(200);
    }
    c.commit(17, json!({})).await.ok(200);
    let opened = raw.post(OPEN, by(2)).await.ok(200);
    assert_eq!(opened["lastCommitted"]["payload"], payload);
    let unfinished = opened["unfinished"].as_array().unwrap();
    let with_payload = unfinished.iter().filter(|t| t["payload"] == payload.as_str()).count();
    let omitted: Vec<_> = unfinished.iter().filter(|t| t["payloadOmitted"] == true).map(|t| &t["txnId"]).collect();
    assert_eq!((unfinished.len(), with_payload, omitted), (16, 15, vec![&json!(id(16))]));
    assert_eq!(c.get(16).await.ok(200)["payload"], payload);
}

#[tokio::test]
async fn the_first_thousand_unfinished_transactions_are_told_and_the_rest_is_listed() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    let c = Session::open(&raw, "c", 1).await;
    for from in [1, 501, 1001] {
        let steps = (from..(from + 500).min(1002)).flat_map(|n| {
            [json!({"op": "begin", "txnId": id(n), "epoch": 1}), json!({"op": "prepare", "txnId": id(n), "epoch": 1})]
        });
        c.batch(steps.collect(), true).await.ok(200);
    }
    let opened = raw.post(OPEN, by(2)).await.ok(200);
    let unfinished = opened["unfinished"].as_array().unwrap();
    assert_eq!((unfinished.len(), &unfinished[999]["txnId"]), (1000, &json!(id(1000))));
    let listed = raw.get("/v1/txns?client=c&pageSize=1000").await.ok(200);
    let token = listed["nextPageToken"].as_str().unwrap();
    let rest = raw.get(&format!("/v1/txns?client=c&pageToken={token}")).await.ok(200);
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    assert_eq!(rest["items"][0]["txnId"], id(1001));
}

#[tokio::test]
async fn a_forgotten_client_is_made_again_with_the_next_epoch() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    let c = Session::open(&raw, "c", 1).await;
    c.begin(1, json!({})).await.ok(201);
    c.commit(1, json!({})).await.ok(200);
    raw.post("/v1/clients/c/forget", json!({"reason": "moved"})).await.ok(200);
    raw.post(OPEN, by(2)).await.refused("CLIENT_NOT_FOUND");
    let mut body = by(2);
    body["create"] = json!(true);
    let opened = raw.post(OPEN, body).await.ok(200);
    assert_eq!((&opened["epoch"], &opened["previousEpoch"]), (&json!(2), &json!(1)));
    assert_eq!((&opened["lastCommitted"], &opened["evictedThrough"]), (&Value::Null, &json!(id(1))));
    assert_eq!(opened["newestTxnId"], id(1));
}

#[tokio::test]
async fn a_malformed_open_names_the_field() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    for (body, field) in [
        (json!({}), "incarnation"),
        (json!({"incarnation": "x"}), "incarnation"),
        (json!({"incarnation": incarnation(1), "create": "yes"}), "create"),
        (json!({"incarnation": incarnation(1), "owner": "x".repeat(257)}), "owner"),
        (json!({"incarnation": incarnation(1), "epoch": 1}), "epoch"),
    ] {
        let refused = raw.post(OPEN, body.clone()).await.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains(field), "{body}: {}", refused.text);
    }
    let longest = json!({"incarnation": incarnation(1), "owner": "x".repeat(256), "create": true});
    raw.post(OPEN, longest).await.ok(200);
}

#[tokio::test]
async fn beyond_max_clients_a_new_one_is_refused_and_a_tombstone_does_not_count() {
    let ratifyd = Ratifyd::start(Config::new().with("max_clients", 2)).await;
    let raw = ratifyd.raw();
    Session::open(&raw, "a", 1).await;
    Session::open(&raw, "b", 2).await;
    let body = json!({"incarnation": incarnation(3), "create": true});
    raw.post(OPEN, body.clone()).await.refused("TOO_MANY_CLIENTS");
    Session::open(&raw, "a", 4).await;
    raw.post("/v1/clients/b/forget", json!({"reason": "room"})).await.ok(200);
    raw.post(OPEN, body).await.ok(200);
    raw.post("/v1/clients/b/open", json!({"incarnation": incarnation(5), "create": true}))
        .await
        .refused("TOO_MANY_CLIENTS");
}
