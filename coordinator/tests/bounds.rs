//! Bounds of connections and of reading from them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

mod support;

use ratified_coordinator::Handle;
use serde_json::json;
use support::{Control, Http, T1, config, start};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const GET: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn connect(handle: &Handle) -> TcpStream {
    TcpStream::connect(handle.local_addr()).await.unwrap()
}

/// Sends a request without a body and reads its answer, which ends with a closing brace.
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(GET).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
    }
    String::from_utf8(answer).unwrap()
}

fn begin_of(bytes: usize) -> String {
    format!("PUT /v1/clients/c/txns/{T1} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\r\n{{")
}

#[tokio::test]
async fn no_more_connections_are_served_than_configured() {
    let mut config = config();
    config.max_connections = 1;
    let handle = start(&Control::new(), config).await;
    let mut first = connect(&handle).await;
    assert!(ask(&mut first).await.starts_with("HTTP/1.1 200"));
    let mut second = connect(&handle).await;
    let waiting = tokio::spawn(async move { ask(&mut second).await });
    for _ in 0..10 {
        assert!(ask(&mut first).await.starts_with("HTTP/1.1 200"));
    }
    assert!(!waiting.is_finished());
    drop(first);
    assert!(waiting.await.unwrap().starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let mut config = config();
    config.idle_timeout_ms = 20;
    let handle = start(&Control::new(), config).await;
    for sent in [&b""[..], b"GET /healthz HT", GET] {
        let mut stream = connect(&handle).await;
        stream.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{answer:?}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_refused_and_may_be_sent_again() {
    let mut config = config();
    config.read_timeout_ms = 20;
    let handle = start(&Control::new(), config).await;
    let mut stream = connect(&handle).await;
    stream.write_all(begin_of(10).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("\"code\":\"OVERLOADED\",\"retryable\":true"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_ever_for_a_connection() {
    let mut config = config();
    config.shutdown_timeout_ms = 20;
    let handle = start(&Control::new(), config).await;
    // Whoever does not read its answers keeps a request running.
    let mut deaf = connect(&handle).await;
    let get = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    while tokio::time::timeout(std::time::Duration::from_millis(20), deaf.write_all(get)).await.is_ok() {}
    assert!(Http::to(&handle).get("/healthz").await.status == 200);
    handle.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_wait_is_cut_to_its_bound_rather_than_refused() {
    let mut config = config();
    config.limits.max_waiting = 0;
    let handle = start(&Control::new(), config).await;
    let http = Http::to(&handle);
    http.open("c").await;
    http.put(&format!("/v1/clients/c/txns/{T1}"), json!({"epoch": 1, "participants": ["p"]})).await;
    for wait in ["30001", "99999999999999999999999"] {
        let path = format!("/v1/clients/c/txns/{T1}?waitMs={wait}");
        let answer = http.get(&path).await;
        assert_eq!((answer.status, &answer.body["state"]), (200, &json!("OPEN")), "{wait}");
    }
}
