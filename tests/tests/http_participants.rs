//! Participants: joining, acknowledging, asking for decisions, being declared gone.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    config::Config,
    process::Ratifyd,
    session::{Session, id},
    shape::{in_short, shape},
};
use serde_json::{Value, json};

async fn decisions(c: &Session, participant: &str, query: &str) -> Value {
    c.raw.get(&format!("/v1/participants/{participant}/decisions{query}")).await.ok(200).json
}

fn ids(answer: &Value) -> Vec<&Value> {
    answer["decisions"].as_array().unwrap().iter().map(|d| &d["txnId"]).collect()
}

#[tokio::test]
async fn a_participant_joins_while_the_transaction_is_open() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"participants": ["a"]})).await.ok(201);
    let joined = c.register(1, "b").await.ok(201);
    assert_eq!(joined["participants"], json!([{"name": "a", "acked": false}, {"name": "b", "acked": false}]));
    assert_eq!(in_short(&c.register(1, "b").await), "200 OPEN replayed");
    c.prepare(1, json!({})).await.ok(200);
    assert_eq!(in_short(&c.register(1, "b").await), "200 PREPARED replayed");
    assert_eq!(in_short(&c.register(1, "late").await), "INVALID_TXN_STATE (PREPARED)");
    c.commit(1, json!({})).await.ok(202);
    assert_eq!(in_short(&c.register(1, "b").await), "200 COMMITTING replayed");
    assert_eq!(in_short(&c.register(1, "late").await), "INVALID_TXN_STATE (COMMITTING)");
}

#[tokio::test]
async fn a_commit_is_accepted_until_everybody_has_acknowledged() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"participants": ["a", "b"]})).await.ok(201);
    assert_eq!(in_short(&c.commit(1, json!({})).await), "202 COMMITTING");
    let first = c.ack(1, "a", "COMMITTED").await.ok(200);
    assert_eq!(first["state"], "COMMITTING");
    assert_eq!(first["participants"], json!([{"name": "a", "acked": true}, {"name": "b", "acked": false}]));
    assert_eq!(in_short(&c.ack(1, "a", "COMMITTED").await), "200 COMMITTING replayed");
    assert_eq!(in_short(&c.commit(1, json!({})).await), "202 COMMITTING replayed");
    assert_eq!(in_short(&c.ack(1, "b", "COMMITTED").await), "200 COMMITTED");
    assert_eq!(in_short(&c.commit(1, json!({})).await), "200 COMMITTED replayed");
    assert_eq!(in_short(&c.ack(1, "b", "COMMITTED").await), "200 COMMITTED replayed");
}

#[tokio::test]
async fn a_stranger_cannot_acknowledge() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"participants": ["a"]})).await.ok(201);
    c.commit(1, json!({})).await.ok(202);
    assert_eq!(in_short(&c.ack(1, "stranger", "COMMITTED").await), "INVALID_TXN_STATE (COMMITTING)");
    assert_eq!(in_short(&c.ack(1, "a", "ABORTED").await), "INVALID_TXN_STATE (COMMITTING)");
    assert_eq!(c.get(1).await.ok(200)["participants"], json!([{"name": "a", "acked": false}]));
}

#[tokio::test]
async fn a_malformed_ack_names_the_field() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let path = format!("{}/participants/p/ack", c.path(1));
    for body in [json!({}), json!({"outcome": "COMMITTING"}), json!({"outcome": "COMMIT"}), json!({"outcome": null})] {
        let refused = c.raw.post(&path, body.clone()).await.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains("outcome"), "{body}: {}", refused.text);
    }
    let with_epoch = json!({"outcome": "COMMITTED", "epoch": 1});
    assert!(c.raw.post(&path, with_epoch).await.refused("INVALID_ARGUMENT").detail().contains("epoch"));
}

#[tokio::test]
async fn decisions_are_told_oldest_first_with_their_payload_until_acknowledged() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let d = Session::open(&ratifyd.raw(), "d", 2).await;
    for (s, n) in [(&c, 1), (&c, 2), (&d, 1)] {
        s.begin(n, json!({"participants": ["p", "q"]})).await.ok(201);
    }
    assert_eq!(decisions(&c, "p", "").await["decisions"], json!([]));
    c.commit(2, json!({"payload": "dHdv"})).await.ok(202);
    d.abort(1).await.ok(202);
    c.abort(1).await.ok(202);
    let told = decisions(&c, "p", "").await;
    assert_eq!(
        told["decisions"],
        json!([
            {"clientName": "c", "txnId": id(2), "outcome": "COMMITTED", "payload": "dHdv"},
            {"clientName": "d", "txnId": id(1), "outcome": "ABORTED", "payload": null},
            {"clientName": "c", "txnId": id(1), "outcome": "ABORTED", "payload": null},
        ])
    );
    d.ack(1, "p", "ABORTED").await.ok(200);
    assert_eq!(ids(&decisions(&c, "p", "").await), [&json!(id(2)), &json!(id(1))]);
    assert_eq!(decisions(&c, "q", "").await["decisions"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_cursor_asks_for_what_is_newer_and_one_of_an_earlier_load_for_everything() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=2 {
        c.begin(n, json!({"participants": ["p"]})).await.ok(201);
    }
    c.commit(1, json!({})).await.ok(202);
    let cursor = decisions(&c, "p", "").await["cursor"].as_str().unwrap().to_owned();
    let after = format!("?after={cursor}");
    assert_eq!(ids(&decisions(&c, "p", &after).await), Vec::<&Value>::new());
    c.commit(2, json!({})).await.ok(202);
    assert_eq!(ids(&decisions(&c, "p", &after).await), [&json!(id(2))]);
    ratifyd.crash().await;
    assert_eq!(ids(&decisions(&c, "p", &after).await), [&json!(id(1)), &json!(id(2))]);
    c.raw.get("/v1/participants/p/decisions?after=nonsense").await.refused("INVALID_ARGUMENT");
}

#[tokio::test]
async fn a_retired_participant_is_waited_for_no_more_and_joins_nothing_new() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=3 {
        c.begin(n, json!({"participants": if n == 3 { vec!["gone"] } else { vec!["gone", "p"] }})).await.ok(201);
    }
    c.commit(1, json!({})).await.ok(202);
    c.commit(3, json!({})).await.ok(202);
    let retired = c.raw.post("/v1/participants/gone/retire", json!({"reason": "host lost"})).await.ok(200);
    assert_eq!(retired.json, json!({"name": "gone", "retired": true, "reason": "host lost"}));
    assert_eq!(c.get(3).await.ok(200)["state"], "COMMITTED");
    assert_eq!(c.get(1).await.ok(200)["participants"], json!([{"name": "p", "acked": false}]));
    assert_eq!(c.get(2).await.ok(200)["participants"], json!([{"name": "p", "acked": false}]));
    assert_eq!(decisions(&c, "gone", "").await["decisions"], json!([]));
    c.begin(4, json!({"participants": ["gone"]})).await.refused("PARTICIPANT_RETIRED");
    c.register(2, "gone").await.refused("PARTICIPANT_RETIRED");
    assert_eq!(in_short(&c.ack(1, "gone", "COMMITTED").await), "200 COMMITTING replayed");
}

#[tokio::test]
async fn a_reinstated_participant_may_join_again() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.raw.post("/v1/participants/p/retire", json!({"reason": "gone"})).await.ok(200);
    ratifyd.crash().await;
    c.begin(1, json!({"participants": ["p"]})).await.refused("PARTICIPANT_RETIRED");
    let back = c.raw.post("/v1/participants/p/reinstate", json!({"reason": "found"})).await.ok(200);
    assert_eq!(back["retired"], false);
    ratifyd.crash().await;
    c.begin(1, json!({"participants": ["p"]})).await.ok(201);
    c.raw.post("/v1/participants/q/reinstate", json!({})).await.ok(200);
}

#[tokio::test]
async fn retire_needs_a_reason_and_may_be_repeated() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    let refused = raw.post("/v1/participants/p/retire", json!({})).await.refused("INVALID_ARGUMENT");
    assert!(refused.detail().contains("reason"), "{}", refused.text);
    for _ in 0..2 {
        let retired = raw.post("/v1/participants/p/retire", json!({"reason": "gone"})).await.ok(200);
        assert_eq!(retired.json, json!({"name": "p", "retired": true, "reason": "gone"}));
    }
    ratifyd.until_logged("gone").await;
}

#[tokio::test]
async fn an_aborted_transaction_is_told_to_its_participants_like_a_committed_one() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"participants": ["p"]})).await.ok(201);
    assert_eq!(in_short(&c.abort(1).await), "202 ABORTING");
    assert_eq!(in_short(&c.ack(1, "p", "ABORTED").await), "200 ABORTED");
    let kept = c.preserved(1).await.ok(200);
    assert_eq!(
        shape(&kept.json),
        json!({"txnId": id(1), "outcome": "ABORTED", "endReason": "CLIENT", "checkpointId": null, "endTime": "T",
            "keptForMs": "MS"})
    );
}
