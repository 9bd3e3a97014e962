//! Bounds of names, ids, bodies and values: taken at the bound, refused beyond it.

use ratified_tests::{
    config::Config,
    process::Ratifyd,
    session::{Session, id, incarnation, padded},
    shape::in_short,
};
use serde_json::{Value, json};

#[tokio::test]
async fn names_are_taken_and_refused_by_their_form() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    let body = json!({"incarnation": incarnation(1), "create": true});
    let longest = "a".repeat(200);
    for name in ["a", "0", "orders-job.sink.3", "A._:@~-z", longest.as_str()] {
        raw.post(&format!("/v1/clients/{name}/open"), body.clone()).await.ok(200);
        raw.post(&format!("/v1/participants/{name}/retire"), json!({"reason": "x"})).await.ok(200);
    }
    let too_long = "a".repeat(201);
    for name in [".a", "-a", "_a", "a%2Fb", "a%20b", "%C3%A4", "a%00", "a+b", too_long.as_str()] {
        let refused = raw.post(&format!("/v1/clients/{name}/open"), body.clone()).await.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains("clientName"), "{name}: {}", refused.text);
        let refused = raw.get(&format!("/v1/participants/{name}/decisions")).await.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains("participant"), "{name}: {}", refused.text);
    }
}

#[tokio::test]
async fn a_transaction_id_has_one_spelling() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for wrong in [
        "0190F2C4-7A61-7C3E-9D0A-0D0F6B1C2E3F",
        "0190f2c47a617c3e9d0a0d0f6b1c2e3f",
        "%7B0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f%7D",
        "0190f2c4-7a61-4c3e-9d0a-0d0f6b1c2e3f",
        "0190f2c4-7a61-7c3e-1d0a-0d0f6b1c2e3f",
        "1",
    ] {
        let path = format!("/v1/clients/c/txns/{wrong}");
        let refused = c.raw.put(&path, json!({"epoch": 1})).await.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains("txnId"), "{wrong}: {}", refused.text);
        c.raw.get(&format!("/v1/preserver/c/{wrong}")).await.refused("INVALID_ARGUMENT");
    }
}

#[tokio::test]
async fn a_body_of_one_mebibyte_is_taken_and_not_one_byte_more() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let filled = |bytes| padded(&json!({"epoch": 1}), bytes);
    c.raw.bytes("PUT", &c.path(1), "application/json", filled(1024 * 1024)).await.ok(201);
    c.raw.bytes("PUT", &c.path(2), "application/json", filled(1024 * 1024 + 1)).await.refused("TOO_LARGE");
    c.get(2).await.refused("TXN_NOT_FOUND");
}

#[tokio::test]
async fn a_payload_of_64_kibibytes_is_taken_and_not_one_byte_more() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    // 65536 and 65537 bytes, base64.
    let (full, beyond) = ("A".repeat(87_382) + "==", "A".repeat(87_383) + "=");
    for n in 1..=2 {
        c.begin(n, json!({})).await.ok(201);
    }
    c.prepare(1, json!({"payload": beyond})).await.refused("TOO_LARGE");
    c.commit(1, json!({"payload": beyond})).await.refused("TOO_LARGE");
    assert_eq!(c.prepare(1, json!({"payload": full})).await.ok(200)["payload"], full);
    assert_eq!(c.commit(2, json!({"payload": full})).await.ok(200)["payload"], full);
}

#[tokio::test]
async fn a_payload_is_standard_padded_base64() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({})).await.ok(201);
    for wrong in [json!("-_8="), json!("+/8"), json!("!"), json!(5), json!([1])] {
        let refused = c.prepare(1, json!({"payload": wrong})).await.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains("payload"), "{wrong}: {}", refused.text);
    }
    assert_eq!(c.prepare(1, json!({"payload": "+/8="})).await.ok(200)["payload"], "+/8=");
}

#[tokio::test]
async fn values_of_begin_are_taken_up_to_their_bounds() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let labels = |n: usize, key: usize, value: usize| -> Value {
        (0..n).map(|i| (format!("{i:0key$}"), json!("v".repeat(value)))).collect::<serde_json::Map<_, _>>().into()
    };
    let participants = |n: usize| (0..n).map(|i| format!("p{i}")).collect::<Vec<_>>();
    let mut n = 0;
    for (taken, body) in [
        (true, json!({"timeoutMs": 604_800_000})),
        (false, json!({"timeoutMs": 604_800_001})),
        (false, json!({"timeoutMs": 0})),
        (false, json!({"timeoutMs": "60000"})),
        (false, json!({"timeoutMs": 1.5})),
        (true, json!({"labels": labels(16, 256, 256)})),
        (false, json!({"labels": labels(17, 2, 0)})),
        (false, json!({"labels": labels(1, 257, 0)})),
        (false, json!({"labels": labels(1, 1, 257)})),
        (false, json!({"labels": {"a": 1}})),
        (true, json!({"participants": participants(100)})),
        (false, json!({"participants": participants(101)})),
        (false, json!({"participants": ["not ok"]})),
        (false, json!({"participants": "p"})),
        (false, json!({"requirePrepare": 1})),
        (false, json!({"checkpointId": 1})),
    ] {
        n += 1;
        let reply = c.begin(n, body.clone()).await;
        if taken {
            reply.ok(201);
        } else {
            let refused = reply.refused("INVALID_ARGUMENT");
            let field = body.as_object().and_then(|b| b.keys().next()).map_or("", |k| k.as_str());
            assert!(refused.detail().contains(field), "{body}: {}", refused.text);
            c.get(n).await.refused("TXN_NOT_FOUND");
        }
    }
}

#[tokio::test]
async fn values_of_prepare_are_taken_up_to_their_bounds() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=2 {
        c.begin(n, json!({})).await.ok(201);
    }
    for (field, value) in [
        ("preparedTimeoutMs", json!(0)),
        ("preparedTimeoutMs", json!(604_800_001)),
        ("checkpointId", json!(-1)),
        ("checkpointId", json!("7")),
        ("checkpointId", json!(1.5)),
        ("timeoutMs", json!(5)),
    ] {
        let refused = c.prepare(1, json!({field: value})).await.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains(field), "{field} {value}: {}", refused.text);
    }
    let prepared = c.prepare(1, json!({"checkpointId": u64::MAX, "preparedTimeoutMs": 604_800_000})).await.ok(200);
    assert_eq!(prepared["checkpointId"], u64::MAX);
    assert_eq!(c.commit(2, json!({"checkpointId": 0})).await.ok(200)["checkpointId"], 0);
}

#[tokio::test]
async fn a_transaction_takes_a_hundred_participants_however_they_join() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let most = (0..99).map(|i| format!("p{i}")).collect::<Vec<_>>();
    c.begin(1, json!({"participants": most})).await.ok(201);
    c.register(1, "hundredth").await.ok(201);
    c.register(1, "beyond").await.refused("INVALID_ARGUMENT");
    assert_eq!(in_short(&c.register(1, "hundredth").await), "200 OPEN replayed");
}

#[tokio::test]
async fn smaller_body_limits_can_be_configured() {
    let config = Config::new().with("max_body_bytes", 1024).with("max_batch_body_bytes", 2048);
    let ratifyd = Ratifyd::start(config).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let begin = |bytes| padded(&json!({"epoch": 1}), bytes);
    c.raw.bytes("PUT", &c.path(1), "application/json", begin(1024)).await.ok(201);
    c.raw.bytes("PUT", &c.path(2), "application/json", begin(1025)).await.refused("TOO_LARGE");
    let batch = |bytes| padded(&json!({"operations": [{"op": "get", "txnId": id(1)}]}), bytes);
    c.raw.bytes("POST", "/v1/clients/c/batch", "application/json", batch(2048)).await.ok(200);
    c.raw.bytes("POST", "/v1/clients/c/batch", "application/json", batch(2049)).await.refused("TOO_LARGE");
}
