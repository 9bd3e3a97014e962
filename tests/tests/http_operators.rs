//! What operators do: resolve, forget, and what is logged of it; idle clients.

use ratified_tests::{
    config::Config,
    poll,
    process::Ratifyd,
    session::{Session, id, incarnation},
    shape::in_short,
};
use serde_json::json;

#[tokio::test]
async fn an_operator_decides_without_epoch_and_the_reason_says_so() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=3 {
        c.begin(n, json!({})).await.ok(201);
    }
    c.prepare(1, json!({})).await.ok(200);
    c.prepare(2, json!({})).await.ok(200);
    let committed = c.resolve(1, "COMMIT").await.ok(200);
    assert_eq!((&committed["state"], &committed["endReason"]), (&json!("COMMITTED"), &json!("OPERATOR")));
    assert_eq!(c.resolve(2, "ABORT").await.ok(200)["endReason"], "OPERATOR");
    assert_eq!(in_short(&c.resolve(3, "COMMIT").await), "TXN_NOT_PREPARED (OPEN)");
    assert_eq!(in_short(&c.resolve(3, "ABORT").await), "200 ABORTED");
    let refused = c.commit(2, json!({})).await.refused("OUTCOME_ABORTED");
    assert_eq!(refused["txn"]["endReason"], "OPERATOR");
    ratifyd.until_logged(r#"actor="operator""#).await;
}

#[tokio::test]
async fn a_malformed_resolve_names_the_field() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let path = format!("{}/resolve", c.path(1));
    for (body, field) in [
        (json!({"reason": "x"}), "outcome"),
        (json!({"outcome": "COMMITTED", "reason": "x"}), "outcome"),
        (json!({"outcome": "COMMIT"}), "reason"),
        (json!({"outcome": "COMMIT", "reason": "x".repeat(257)}), "reason"),
        (json!({"outcome": "COMMIT", "reason": "x", "actor": "x".repeat(257)}), "actor"),
        (json!({"outcome": "COMMIT", "reason": "x", "epoch": 1}), "epoch"),
    ] {
        let refused = c.raw.post(&path, body.clone()).await.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains(field), "{body}: {}", refused.text);
    }
}

#[tokio::test]
async fn a_client_with_unfinished_transactions_is_not_forgotten() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let forget = || c.raw.post("/v1/clients/c/forget", json!({"reason": "moved"}));
    c.begin(1, json!({"participants": ["p"]})).await.ok(201);
    forget().await.refused("CLIENT_BUSY");
    c.prepare(1, json!({})).await.ok(200);
    forget().await.refused("CLIENT_BUSY");
    c.commit(1, json!({})).await.ok(202);
    forget().await.refused("CLIENT_BUSY");
    c.ack(1, "p", "COMMITTED").await.ok(200);
    assert_eq!(forget().await.ok(200)["forgotten"], true);
    assert_eq!(forget().await.ok(200)["forgotten"], true);
    let refused = c.raw.post("/v1/clients/c/forget", json!({})).await.refused("INVALID_ARGUMENT");
    assert!(refused.detail().contains("reason"), "{}", refused.text);
}

#[tokio::test]
async fn a_forgotten_client_answers_by_its_watermark_for_ever() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in [3, 5] {
        c.begin(n, json!({})).await.ok(201);
        c.commit(n, json!({})).await.ok(200);
    }
    c.raw.post("/v1/clients/c/forget", json!({"reason": "moved"})).await.ok(200);
    for restarted in [false, true] {
        if restarted {
            ratifyd.crash().await;
        }
        for n in [1, 3, 5] {
            assert_eq!(in_short(&c.get(n).await), "OUTCOME_EXPIRED");
            assert_eq!(in_short(&c.commit(n, json!({})).await), "OUTCOME_EXPIRED");
        }
        assert_eq!(in_short(&c.get(6).await), "TXN_NOT_FOUND");
        assert_eq!(in_short(&c.begin(6, json!({})).await), "CLIENT_NOT_FOUND");
    }
    let again = Session::open(&c.raw, "c", 2).await;
    assert_eq!(again.epoch, 2);
    assert_eq!(in_short(&again.begin(5, json!({})).await), "TXN_ID_TOO_OLD");
    assert_eq!(in_short(&again.begin(6, json!({})).await), "201 OPEN");
    c.raw.post("/v1/clients/c/open", json!({"incarnation": incarnation(1), "create": true})).await.refused("FENCED");
}

#[tokio::test]
async fn an_idle_client_with_nothing_left_shrinks_to_a_tombstone() {
    let config = Config::evicting(0).with("client_retention_hours", 0.000_000_3);
    let ratifyd = Ratifyd::start(config).await;
    let idle = Session::open(&ratifyd.raw(), "idle", 1).await;
    let busy = Session::open(&ratifyd.raw(), "busy", 2).await;
    let kept = Session::open(&ratifyd.raw(), "kept", 3).await;
    busy.begin(1, json!({"timeoutMs": 600_000})).await.ok(201);
    kept.begin(1, json!({})).await.ok(201);
    kept.commit(1, json!({})).await.ok(200);
    let items = poll::until("the idle client to shrink", || async {
        let items = idle.raw.get("/v1/clients").await.ok(200)["items"].clone();
        (items[1]["forgotten"] == true).then_some(items)
    })
    .await;
    let told: Vec<_> = (0..3).map(|at| (&items[at]["clientName"], &items[at]["forgotten"])).collect();
    assert_eq!(
        told,
        [(&json!("busy"), &json!(false)), (&json!("idle"), &json!(true)), (&json!("kept"), &json!(false))]
    );
    idle.raw.post("/v1/clients/idle/open", json!({"incarnation": incarnation(4)})).await.refused("CLIENT_NOT_FOUND");
    assert_eq!(Session::open(&idle.raw, "idle", 4).await.epoch, 2);
    assert_eq!(busy.get(1).await.ok(200)["txnId"], id(1));
}
