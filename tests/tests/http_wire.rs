//! What holds for every call: routes, media types, bodies, headers, and the order in which refusals come.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::collections::BTreeSet;

use ratified_tests::{
    config::Config,
    process::Ratifyd,
    session::{Session, incarnation},
    shape::in_short,
};
use serde_json::{Value, json};

#[tokio::test]
async fn paths_that_do_not_exist_and_methods_they_do_not_take_have_codes_of_their_own() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    for path in [
        "/",
        "/v1/",
        "/v2",
        "/v1/client",
        "/v1/clients/c",
        "/v1/clients/c/txns",
        "/v1/clients/a/b/open",
        "/v1/participants/p",
        "/v1/preserver",
        "/v1/clients/c/txns/x/y/z",
    ] {
        raw.get(path).await.refused("ROUTE_NOT_FOUND");
    }
    let txn = "/v1/clients/c/txns/0190f2c4-7a61-7000-8000-000000000001";
    for (method, path, allowed) in [
        ("GET", "/v1/clients/c/open".to_owned(), "POST"),
        ("POST", txn.to_owned(), "PUT"),
        ("DELETE", txn.to_owned(), "GET"),
        ("PUT", format!("{txn}/commit"), "POST"),
        ("POST", format!("{txn}/participants/p"), "PUT"),
        ("POST", "/v1/txns".to_owned(), "GET"),
        ("PATCH", "/v1".to_owned(), "GET"),
    ] {
        let refused = raw.try_call(method, &path, None).await.unwrap().refused("METHOD_NOT_ALLOWED");
        let allow = refused.header("allow").unwrap_or_default();
        assert!(allow.split(", ").any(|m| m == allowed), "{method} {path}: {allow}");
    }
}

#[tokio::test]
async fn bodies_are_json_by_their_content_type_or_have_none() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let body = r#"{"epoch":1}"#;
    for (n, kind) in [(1, "application/json"), (2, "application/json; charset=utf-8"), (3, "Application/JSON"), (4, "")]
    {
        c.raw.bytes("PUT", &c.path(n), kind, body).await.ok(201);
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/problem+json", "application/jsonp"] {
        c.raw.bytes("PUT", &c.path(5), kind, body).await.refused("UNSUPPORTED_MEDIA_TYPE");
    }
    c.get(5).await.refused("TXN_NOT_FOUND");
}

#[tokio::test]
async fn a_body_that_is_not_an_object_of_known_fields_is_malformed() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let bodies: [&[u8]; 10] = [
        b"[]",
        b"7",
        b"\"x\"",
        b"null",
        b"{",
        b"{} {}",
        b"{\"epoch\":1,}",
        b"\xff\xfe",
        b"{\"epoch\":1,\"bogus\":2}",
        b"{\"epoch\":1,\"epoch\":1}",
    ];
    for body in bodies {
        c.raw.bytes("PUT", &c.path(1), "application/json", body).await.refused("INVALID_ARGUMENT");
    }
    c.get(1).await.refused("TXN_NOT_FOUND");
    assert!(c.begin(1, json!({"bogus": 1})).await.refused("INVALID_ARGUMENT").detail().contains("bogus"));
}

#[tokio::test]
async fn an_absent_body_is_an_empty_object() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=2 {
        c.begin(n, json!({})).await.ok(201);
    }
    let bare = async |n: u64, call: &str| c.raw.try_call("POST", &format!("{}/{call}", c.path(n)), None).await.unwrap();
    assert!(bare(1, "abort").await.refused("INVALID_ARGUMENT").detail().contains("epoch"));
    c.prepare(1, json!({})).await.ok(200);
    assert_eq!(in_short(&bare(1, "commit").await), "200 COMMITTED");
    c.abort(2).await.ok(200);
    assert_eq!(in_short(&bare(2, "abort").await), "200 ABORTED replayed");
}

#[tokio::test]
async fn null_is_the_same_as_absent() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let nulls = json!({"timeoutMs": null, "requirePrepare": null, "participants": null, "labels": null});
    c.begin(1, nulls).await.ok(201);
    assert_eq!(in_short(&c.begin(1, json!({})).await), "200 OPEN replayed");
    c.prepare(1, json!({"checkpointId": null, "payload": null, "preparedTimeoutMs": null})).await.ok(200);
    assert_eq!(in_short(&c.prepare(1, json!({})).await), "200 PREPARED replayed");
}

#[tokio::test]
async fn refusals_come_in_the_order_of_the_protocol() {
    let config =
        Config::new().with("max_open_per_client", 4).with("max_body_bytes", 1024).with("max_batch_body_bytes", 2048);
    let ratifyd = Ratifyd::start(config).await;
    let old = Session::open(&ratifyd.raw(), "c", 1).await;
    old.begin(1, json!({})).await.ok(201);
    old.abort(1).await.ok(200);
    old.raw.post("/v1/clients/c/forget", json!({"reason": "x"})).await.ok(200);
    let c = Session::open(&ratifyd.raw(), "c", 2).await;
    for n in 2..=5 {
        c.begin(n, json!({"requirePrepare": true})).await.ok(201);
    }
    let garbage = "x".repeat(1025);
    let unknown = c.path(9).replace("/c/", "/stranger/");
    // path and method, before the body's size
    c.raw.bytes("POST", "/v1/nowhere", "text/plain", garbage.clone()).await.refused("ROUTE_NOT_FOUND");
    c.raw.bytes("POST", &c.path(9), "text/plain", garbage.clone()).await.refused("METHOD_NOT_ALLOWED");
    // the body's size, before JSON
    c.raw.bytes("PUT", &unknown, "application/json", garbage).await.refused("TOO_LARGE");
    // JSON and fields, before the client
    c.raw.put(&unknown, json!({"bogus": 1})).await.refused("INVALID_ARGUMENT");
    // the client, before the epoch
    c.raw.put(&unknown, json!({"epoch": 99})).await.refused("CLIENT_NOT_FOUND");
    // a decided outcome, before the epoch
    c.abort(5).await.ok(200);
    assert_eq!(in_short(&old.commit(5, json!({"epoch": 99})).await), "OUTCOME_ABORTED (ABORTED)");
    // evictedThrough, before the epoch
    c.begin(1, json!({"epoch": 99})).await.refused("TXN_ID_TOO_OLD");
    c.commit(1, json!({"epoch": 99})).await.refused("OUTCOME_EXPIRED");
    // the epoch, before the state
    c.commit(2, json!({"epoch": 1})).await.refused("FENCED");
    c.begin(2, json!({"epoch": 99})).await.refused("EPOCH_UNKNOWN");
    c.prepare(3, json!({})).await.ok(200);
    c.prepare(3, json!({"epoch": 1, "checkpointId": 5})).await.refused("FENCED");
    // the state, before the limits
    for n in 6..=7 {
        c.begin(n, json!({})).await.ok(201);
    }
    c.begin(8, json!({})).await.refused("TOO_MANY_OPEN");
    c.begin(8, json!({"epoch": 1})).await.refused("FENCED");
    assert_eq!(in_short(&c.begin(2, json!({})).await), "TXN_ID_REUSED (OPEN)");
}

#[tokio::test]
async fn every_answer_names_the_same_store() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let mut stores = BTreeSet::new();
    for reply in [
        c.begin(1, json!({})).await,
        c.commit(9, json!({})).await,
        c.begin(2, json!({"bogus": 1})).await,
        c.raw.get("/nowhere").await,
        c.raw.post("/v1/txns", json!({})).await,
        c.raw.get("/v1/txns").await,
        c.raw.get("/v1").await,
        c.raw.get("/healthz").await,
        c.raw.get("/readyz").await,
        c.raw.get("/metrics").await,
        c.raw.get("/openapi.json").await,
    ] {
        stores.insert(reply.header("ratified-store").unwrap());
    }
    assert_eq!(stores.len(), 1, "{stores:?}");
    let (cluster, loads) = stores.first().unwrap().split_once('.').unwrap();
    assert_eq!(loads, "1");
    assert!(cluster.len() == 36 && cluster.split('-').count() == 5, "{cluster} is a UUID");
}

#[tokio::test]
async fn version_health_and_numbers_are_told() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({})).await.ok(201);
    c.commit(1, json!({})).await.ok(200);
    c.begin(2, json!({})).await.ok(201);
    let version = c.raw.get("/v1").await.ok(200);
    assert_eq!((&version["name"], &version["protocol"]), (&json!("ratifyd"), &json!("v1")));
    assert!(version["version"].is_string() && version["features"].is_array(), "{}", version.text);
    assert_eq!(c.raw.get("/healthz").await.status, 200);
    assert_eq!(c.raw.get("/readyz").await.status, 200);
    let metrics = c.raw.get("/metrics").await;
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain"));
    for line in [
        "ratified_transactions_begun_total 2",
        "ratified_clients 1",
        "ratified_transactions{state=\"OPEN\"} 1",
        "ratified_preserver_entries{state=\"COMMITTED\"} 1",
        "ratified_preserver_appends_total 1",
    ] {
        assert!(metrics.text.lines().any(|l| l == line), "{line} is not in\n{}", metrics.text);
    }
}

#[tokio::test]
async fn the_openapi_document_names_every_call_and_every_code() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let document = ratifyd.raw().get("/openapi.json").await.ok(200);
    let mut calls = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|k| ["get", "put", "post"].contains(&k.as_str())) {
            let parts = path.split('/').map(|part| if part.starts_with('{') { "*" } else { part });
            calls.insert(format!("{method} {}", parts.collect::<Vec<_>>().join("/")));
            for status in ["200", "400", "403", "405"] {
                assert!(item[method]["responses"].get(status).is_some(), "{method} {path}: {status}");
            }
        }
    }
    let expected = [
        "get /healthz",
        "get /metrics",
        "get /openapi.json",
        "get /readyz",
        "get /v1",
        "get /v1/clients",
        "get /v1/clients/*/txns/*",
        "get /v1/participants/*/decisions",
        "get /v1/preserver/*",
        "get /v1/preserver/*/*",
        "get /v1/txns",
        "post /v1/batch",
        "post /v1/clients/*/batch",
        "post /v1/clients/*/forget",
        "post /v1/clients/*/open",
        "post /v1/clients/*/txns/*/abort",
        "post /v1/clients/*/txns/*/commit",
        "post /v1/clients/*/txns/*/keep-alive",
        "post /v1/clients/*/txns/*/participants/*/ack",
        "post /v1/clients/*/txns/*/prepare",
        "post /v1/clients/*/txns/*/resolve",
        "post /v1/participants/*/reinstate",
        "post /v1/participants/*/retire",
        "put /v1/clients/*/txns/*",
        "put /v1/clients/*/txns/*/participants/*",
    ];
    assert_eq!(calls.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    for code in ["OUTCOME_EXPIRED", "TXN_ID_TOO_OLD", "FENCED", "TRANSACTION_PRESERVER_CLOSED", "SHUTTING_DOWN"] {
        assert!(document.text.contains(code), "{code} is documented");
    }
}

#[tokio::test]
async fn full_queues_are_answered_with_overloaded_and_nothing_is_lost() {
    let config = Config::new().with("max_queue", 1).with("max_batch_requests", 1);
    let ratifyd = Ratifyd::start(config).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let mut next = 0;
    let (mut begun, mut overloaded) = (Vec::new(), Vec::new());
    while overloaded.is_empty() {
        assert!(next < 10_000, "the queue never filled");
        let flood: Vec<_> = (next..next + 64)
            .map(|n| {
                let c = c.clone();
                tokio::spawn(async move { (n, c.begin(n, json!({})).await) })
            })
            .collect();
        next += 64;
        for call in flood {
            let (n, reply) = call.await.unwrap();
            match in_short(&reply).as_str() {
                "201 OPEN" => begun.push(n),
                "OVERLOADED" => overloaded.push(n),
                other => panic!("{n}: {other}"),
            }
        }
        for n in begun.drain(..) {
            c.abort(n).await.ok(200);
        }
    }
    for n in overloaded {
        assert_eq!(in_short(&c.get(n).await), "TXN_NOT_FOUND");
        assert_eq!(in_short(&c.begin(n, json!({})).await), "201 OPEN");
        c.abort(n).await.ok(200);
    }
}

#[tokio::test]
async fn nothing_is_told_while_the_store_is_loaded() {
    let mut ratifyd = Ratifyd::start(Config::new().with("max_open_per_client", 1_000_000)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for from in 0..20 {
        let begins: Vec<_> = (1..=1000)
            .map(|n| json!({"op": "begin", "txnId": ratified_tests::session::id(from * 1000 + n), "epoch": 1}))
            .collect();
        assert_eq!(c.batch(json!(begins), true).await.ok(200)["stoppedAt"], Value::Null);
    }
    let mut seen_loading = 0;
    for _ in 0..20 {
        ratifyd.kill();
        ratifyd.spawn();
        ratifyd.until_listening().await;
        loop {
            let reply = c.raw.get("/v1/clients").await;
            if reply.status == 200 {
                break;
            }
            reply.refused("COORDINATOR_LOADING");
            seen_loading += 1;
            let open = json!({"incarnation": incarnation(2)});
            let opened = c.raw.post("/v1/clients/stranger/open", open).await;
            assert!(["COORDINATOR_LOADING", "CLIENT_NOT_FOUND"].contains(&opened.code()), "{}", opened.text);
        }
        ratifyd.until_ready().await;
        if seen_loading > 0 {
            return;
        }
    }
    panic!("the load was never seen");
}
