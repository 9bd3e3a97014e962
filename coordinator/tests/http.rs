//! What a caller meets over HTTP, whatever the engine says.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

mod support;

use ratified_coordinator::{Coordinator, store::MemoryStore};
use serde_json::json;
use support::{Answer, Control, Http, T1, T2, TestStore, config, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn refusals_come_in_the_order_of_the_protocol() {
    let control = Control::new();
    control.hold_load();
    let mut handle = Coordinator::listen_with(config(), Box::new(TestStore(control.clone()))).await.unwrap();
    let http = Http::to(&handle);
    let huge = "x".repeat(1024 * 1024 + 1);
    let small = r#"{"epoch":"one"}"#;
    let good = r#"{"epoch":1}"#;
    for (method, path, body, media_type, expected, detail) in [
        ("DELETE", "/v1/nothing", huge.as_str(), "text/plain", (404, "ROUTE_NOT_FOUND"), "/v1/nothing: "),
        ("DELETE", "/v1/clients/b%20d/txns/x", &huge, "text/plain", (405, "METHOD_NOT_ALLOWED"), "/v1/clients/"),
        ("PUT", "/v1/clients/b%20d/txns/x?y=1", &huge, "text/plain", (400, "INVALID_ARGUMENT"), "clientName: "),
        ("PUT", "/v1/clients/c/txns/x?y=1", &huge, "text/plain", (400, "INVALID_ARGUMENT"), "txnId: "),
        ("PUT", &format!("/v1/clients/c/txns/{T1}?y=1"), &huge, "text/plain", (400, "INVALID_ARGUMENT"), "y: "),
        ("PUT", &format!("/v1/clients/c/txns/{T1}"), &huge, "text/plain", (413, "TOO_LARGE"), "body: at most 1048576"),
        (
            "PUT",
            &format!("/v1/clients/c/txns/{T1}"),
            small,
            "text/plain",
            (415, "UNSUPPORTED_MEDIA_TYPE"),
            "Content-Type: ",
        ),
        ("PUT", &format!("/v1/clients/c/txns/{T1}"), small, "application/json", (400, "INVALID_ARGUMENT"), "epoch: "),
        ("PUT", &format!("/v1/clients/c/txns/{T1}"), good, "application/json", (503, "COORDINATOR_LOADING"), ""),
    ] {
        let request = http.request(method, path).header("content-type", media_type).body(body.to_owned());
        let answer = Answer::read(request.send().await.unwrap()).await;
        assert_eq!(answer.refusal(), expected, "{method} {path}");
        assert!(answer.body["detail"].as_str().unwrap().starts_with(detail), "{answer:?}");
        assert_eq!(answer.header("ratified-store"), None, "which store it is, is not known while loading");
    }
    control.release();
    handle.loaded().await.unwrap();
    let answer = http.put(&format!("/v1/clients/c/txns/{T1}"), json!({"epoch": 1})).await;
    assert_eq!(answer.refusal(), (404, "CLIENT_NOT_FOUND"));
}

#[tokio::test]
async fn while_loading_only_operators_are_answered() {
    let control = Control::new();
    control.hold_load();
    let mut handle = Coordinator::listen_with(config(), Box::new(TestStore(control.clone()))).await.unwrap();
    let http = Http::to(&handle);
    for (path, status) in [("/v1", 200), ("/healthz", 200), ("/metrics", 200), ("/openapi.json", 200), ("/readyz", 503)]
    {
        assert_eq!(http.get(path).await.status, status, "{path}");
    }
    for path in ["/readyz", "/v1/clients", "/v1/txns", "/v1/preserver/c", "/v1/participants/p/decisions"] {
        assert_eq!(http.get(path).await.refusal(), (503, "COORDINATOR_LOADING"), "{path}");
    }
    control.release();
    handle.loaded().await.unwrap();
    assert_eq!(http.get("/readyz").await.body, json!({"status": "ready"}));
    assert_eq!(http.get("/healthz").await.body, json!({"status": "alive"}));
    assert_eq!(http.get("/v1").await.body["protocol"], "v1");
    assert_eq!(http.get("/openapi.json").await.body["openapi"], "3.1.0");
}

#[tokio::test]
async fn every_answer_names_its_store() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    let store = handle.store_id().unwrap().to_string();
    assert!(store.ends_with(".1"), "{store}");
    let load = http.get("/v1").await.header("ratified-load").map(str::to_owned);
    assert_eq!(load.as_ref().map(String::len), Some(32));
    let mut answers = vec![http.open("c").await, http.begin("c", T1).await, http.begin("d", T1).await];
    for (method, path) in [
        ("GET", "/v1"),
        ("GET", "/metrics"),
        ("GET", "/nowhere"),
        ("DELETE", "/v1/clients"),
        ("OPTIONS", "/v1/clients"),
        ("HEAD", "/readyz"),
        ("GET", "/v1/clients?x=1"),
    ] {
        answers.push(Answer::read(http.request(method, path).send().await.unwrap()).await);
    }
    for answer in answers {
        assert_eq!(answer.header("ratified-store"), Some(store.as_str()), "{answer:?}");
        assert_eq!(answer.header("ratified-load"), load.as_deref(), "{answer:?}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_name_is_the_same_raw_and_percent_encoded() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    assert_eq!(http.open("a.b_c:d@e~f-g").await.body["epoch"], 1);
    assert_eq!(http.open("a%2Eb%5Fc%3Ad%40e%7Ef%2Dg").await.body["epoch"], 1);
    let listed = http.get("/v1/clients").await.body;
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["items"][0]["clientName"], "a.b_c:d@e~f-g");
    for (name, expected) in [
        ("a%2Fb", (400, "INVALID_ARGUMENT")),
        ("%ff", (400, "INVALID_ARGUMENT")),
        ("-a", (400, "INVALID_ARGUMENT")),
        ("a/b", (404, "ROUTE_NOT_FOUND")),
    ] {
        assert_eq!(http.open(name).await.refusal(), expected, "{name}");
    }
}

#[tokio::test]
async fn methods_a_path_does_not_take_are_refused_with_those_it_takes() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    let path = format!("/v1/clients/c/txns/{T1}");
    let answer = Answer::read(http.request("PATCH", &path).send().await.unwrap()).await;
    assert_eq!(answer.refusal(), (405, "METHOD_NOT_ALLOWED"));
    assert_eq!(answer.header("allow"), Some("PUT, GET, HEAD, OPTIONS"));
    let answer = Answer::read(http.request("OPTIONS", &path).send().await.unwrap()).await;
    assert_eq!((answer.status, answer.header("allow")), (204, Some("PUT, GET, HEAD, OPTIONS")));
    let answer = Answer::read(http.request("HEAD", "/v1").send().await.unwrap()).await;
    assert_eq!(answer.status, 200);
    let answer = Answer::read(http.request("HEAD", "/v1/clients/c/open").send().await.unwrap()).await;
    assert_eq!(answer.status, 405);
}

#[tokio::test]
async fn query_parameters_are_known_once_and_of_their_form() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    http.begin("c", T1).await;
    for (path, detail) in [
        ("/v1/clients?page=1", "page: is not a query parameter"),
        ("/v1/clients?prefix=a&prefix=a", "prefix: comes more than once"),
        ("/v1/clients?pageSize=", "pageSize: must be a whole number"),
        ("/v1/clients?pageSize=-1", "pageSize: must be a whole number"),
        ("/v1/txns?state=open", "state: must be one of OPEN, PREPARED"),
        ("/v1/txns?client=a%20b", "client: must be 1..=200"),
        ("/v1/txns?olderThanMs=1s", "olderThanMs: must be a whole number"),
        ("/v1/participants/p/decisions?waitMs=x", "waitMs: must be a whole number"),
        ("/v1/preserver/c?waitMs=1", "waitMs: is not a query parameter"),
    ] {
        let answer = http.get(path).await;
        assert_eq!(answer.refusal(), (400, "INVALID_ARGUMENT"), "{path}");
        assert!(answer.body["detail"].as_str().unwrap().starts_with(detail), "{path}: {answer:?}");
    }
    for path in [
        "/v1/clients?pageSize=0",
        "/v1/clients?pageSize=99999999999999999999999",
        "/v1/clients?prefix=",
        "/v1/txns?state=OPEN&client=c&clientPrefix=c&olderThanMs=0&pageSize=1",
        "/v1/txns?",
    ] {
        let answer = http.get(path).await;
        assert_eq!((answer.status, answer.body["items"].as_array().map(Vec::len)), (200, Some(1)), "{path}");
    }
}

#[tokio::test]
async fn bodies_are_taken_up_to_their_bounds() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    let padded = |bytes: usize, body: &str| format!("{}{body}", " ".repeat(bytes - body.len()));
    let (single, batch) = (format!("/v1/clients/c/txns/{T1}"), "/v1/clients/c/batch".to_owned());
    let mib = 1024 * 1024;
    for (method, path, bytes, status) in [
        ("PUT", &single, mib, 201),
        ("PUT", &single, mib + 1, 413),
        ("PUT", &single, 4 * mib + 1, 413),
        ("POST", &batch, 8 * mib, 200),
        ("POST", &batch, 8 * mib + 1, 413),
    ] {
        let body = padded(bytes, if method == "PUT" { r#"{"epoch":1}"# } else { r#"{"operations":[]}"# });
        let request = http.request(method, path).header("content-type", "application/json; charset=utf-8");
        let answer = Answer::read(request.body(body).send().await.unwrap()).await;
        assert_eq!(answer.status, status, "{path} {bytes}");
    }
}

#[tokio::test]
async fn bodies_of_untold_length_have_the_same_bounds() {
    let handle = start(&Control::new(), config()).await;
    Http::to(&handle).open("c").await;
    for (bytes, status) in [(1024 * 1024, "201"), (1024 * 1024 + 1, "413")] {
        let mut stream = tokio::net::TcpStream::connect(handle.local_addr()).await.unwrap();
        let path = format!("/v1/clients/c/txns/{T1}");
        let head = format!(
            "PUT {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        );
        let body = format!("{}{{\"epoch\":1}}", " ".repeat(bytes - 11));
        let chunked = format!("{head}{bytes:x}\r\n{body}\r\n0\r\n\r\n");
        stream.write_all(chunked.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{bytes}: {answer}");
    }
}

#[tokio::test]
async fn an_absent_body_is_an_empty_object() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    http.begin("c", T1).await;
    http.post(&format!("/v1/clients/c/txns/{T1}/prepare"), json!({"epoch": 1})).await;
    let request = http.request("POST", &format!("/v1/clients/c/txns/{T1}/commit"));
    let answer = Answer::read(request.send().await.unwrap()).await;
    assert_eq!((answer.status, answer.body["state"].as_str()), (200, Some("COMMITTED")));
}

#[tokio::test]
async fn every_call_of_the_protocol_is_answered() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    let txn = |id: &str| format!("/v1/clients/c/txns/{id}");
    assert_eq!(http.open("c").await.body["newestTxnId"], json!(null));
    let body = json!({"epoch": 1, "participants": ["p"], "requirePrepare": true, "labels": {"k": "v"}});
    assert_eq!(http.put(&txn(T1), body).await.status, 201);
    let answer = http.put(&format!("{}/participants/q", txn(T1)), json!({"epoch": 1})).await;
    assert_eq!((answer.status, answer.body["participants"].as_array().map(Vec::len)), (201, Some(2)));
    assert_eq!(http.post(&format!("{}/keep-alive", txn(T1)), json!({"epoch": 1})).await.status, 200);
    let body = json!({"epoch": 1, "checkpointId": 4, "payload": "AAE="});
    assert_eq!(http.post(&format!("{}/prepare", txn(T1)), body).await.body["state"], "PREPARED");
    let answer = http.post(&format!("{}/commit?waitMs=1", txn(T1)), json!({})).await;
    assert_eq!((answer.status, answer.body["state"].as_str()), (202, Some("COMMITTING")));
    let decisions = http.get("/v1/participants/p/decisions?waitMs=1000").await.body;
    assert_eq!(decisions["decisions"][0]["outcome"], "COMMITTED");
    assert_eq!(decisions["decisions"][0]["payload"], "AAE=");
    let ack = http.post(&format!("{}/participants/p/ack", txn(T1)), json!({"outcome": "COMMITTED"})).await;
    assert_eq!(ack.body["state"], "COMMITTING");
    let retired = http.post("/v1/participants/q/retire", json!({"reason": "gone"})).await;
    assert_eq!((retired.status, &retired.body["retired"]), (200, &json!(true)));
    assert_eq!(http.get(&format!("{}?waitMs=1000", txn(T1))).await.body["state"], "COMMITTED");
    let back = http.post("/v1/participants/q/reinstate", json!({})).await;
    assert_eq!((back.status, &back.body["retired"]), (200, &json!(false)));
    assert_eq!(http.get("/v1/preserver/c").await.body["outcomes"][0]["outcome"], "COMMITTED");
    assert_eq!(http.get(&format!("/v1/preserver/c/{T1}")).await.body["checkpointId"], 4);
    assert_eq!(http.begin("c", T2).await.status, 201);
    let resolved = http.post(&format!("{}/resolve", txn(T2)), json!({"outcome": "ABORT", "reason": "test"})).await;
    assert_eq!((resolved.status, resolved.body["endReason"].as_str()), (200, Some("OPERATOR")));
    assert_eq!(http.post(&format!("{}/abort", txn(T2)), json!({"epoch": 1})).await.body["replayed"], true);
    let operations = json!({"operations": [{"op": "get", "txnId": T1}, {"op": "fly", "txnId": T1}]});
    let batch = http.post("/v1/clients/c/batch", operations).await.body;
    assert_eq!((&batch["results"][0]["status"], &batch["stoppedAt"]), (&json!(200), &json!(1)));
    assert_eq!(batch["results"][1]["problem"]["code"], "INVALID_ARGUMENT");
    assert_eq!(http.get("/v1/txns?state=ABORTED").await.body["items"][0]["txnId"], T2);
    let forgotten = http.post("/v1/clients/c/forget", json!({"reason": "test"})).await;
    assert_eq!((forgotten.status, &forgotten.body["forgotten"]), (200, &json!(true)));
}

#[tokio::test]
async fn several_coordinators_count_for_themselves() {
    let mut first = Coordinator::listen_with(config(), Box::new(MemoryStore::new())).await.unwrap();
    let mut second = Coordinator::listen_with(config(), Box::new(MemoryStore::new())).await.unwrap();
    first.loaded().await.unwrap();
    second.loaded().await.unwrap();
    assert_ne!(first.store_id(), second.store_id());
    let http = Http::to(&first);
    http.open("c").await;
    http.begin("c", T1).await;
    for (handle, begun) in [(&first, 1), (&second, 0)] {
        let text = Http::to(handle).request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
        for line in [
            format!("ratified_transactions_begun_total {begun}"),
            format!("ratified_transactions{{state=\"OPEN\"}} {begun}"),
            format!("ratified_clients {begun}"),
            "ratified_transactions_decided_total{outcome=\"ABORTED\",reason=\"TIMEOUT\"} 0".to_owned(),
            "ratified_queue_length 0".to_owned(),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}

/// Where the document says more than a schema can.
#[tokio::test]
async fn a_number_has_no_fraction_and_an_epoch_is_missed_only_where_it_counts() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    let txn = format!("/v1/clients/c/txns/{T1}");
    for (body, detail) in [
        (r#"{"epoch":1,"timeoutMs":887.0}"#, "timeoutMs"),
        (r#"{"epoch":1,"timeoutMs":8e2}"#, "timeoutMs"),
        (r#"{"epoch":1.0}"#, "epoch"),
        (r#"{"epoch":null}"#, "epoch: missing"),
        ("{}", "epoch: missing"),
    ] {
        let refused = Answer::read(http.request("PUT", &txn).body(body).send().await.unwrap()).await;
        assert_eq!(refused.refusal(), (400, "INVALID_ARGUMENT"), "{body}");
        assert!(refused.body["detail"].as_str().unwrap().contains(detail), "{body}: {refused:?}");
    }
    assert_eq!(http.put(&txn, json!({"epoch": 1, "timeoutMs": 887})).await.status, 201);
    let keep_alive = format!("{txn}/keep-alive");
    assert_eq!(http.post(&keep_alive, json!({"epoch": null})).await.refusal(), (400, "INVALID_ARGUMENT"));
    assert_eq!(http.post(&format!("{txn}/commit"), json!({"epoch": 1})).await.status, 200);
    assert_eq!(http.post(&keep_alive, json!({"epoch": null})).await.body["state"], "COMMITTED");
}
