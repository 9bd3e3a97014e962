//! Refusals that are told before the request was read to its end.

use ratified_coordinator::{Config, Coordinator, Handle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    raw::{rest, said, say, short},
    support::{Control, Http, T1, TestStore, config, start},
};

const BODY: &str = "{\"epoch\":1}";
const GOOD: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Lets the coordinator come to what was sent to it before.
async fn settle(http: &Http) {
    for _ in 0..3 {
        assert_eq!(http.get("/healthz").await.status, 200);
    }
}

fn head(method: &str, path: &str, more: &str, length: usize) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {length}\r\n\r\n")
}

/// Sends a head, later its body and a good call, and has both answered on the connection.
async fn good_after(handle: &Handle, head: &str, expected: (&str, &str)) {
    let mut stream = said(handle.local_addr(), head).await;
    settle(&Http::to(handle)).await;
    stream.write_all(format!("{BODY}{GOOD}").as_bytes()).await.unwrap();
    let answers = rest(&mut stream).await;
    assert_eq!(short(&answers), expected, "{head}: {answers}");
    let good = answers.rfind("HTTP/1.1 ").unwrap();
    assert!(good > 0 && answers[good..].starts_with("HTTP/1.1 200"), "{head}: {answers}");
    assert!(!answers[..good].contains("connection: close"), "{head}: {answers}");
}

#[tokio::test]
async fn what_is_refused_early_is_read_on_and_the_next_call_finds_its_beginning() {
    let control = Control::new();
    control.hold_load();
    let mut handle = Coordinator::listen_with(config(), Box::new(TestStore(control.clone()))).await.unwrap();
    let put = format!("/v1/clients/c/txns/{T1}");
    let loading = head("PUT", &put, "", BODY.len());
    good_after(&handle, &loading, ("503", "COORDINATOR_LOADING")).await;
    control.release();
    handle.loaded().await.unwrap();
    for (method, path, more, expected) in [
        ("POST", "/v1/clients/a%2Fb/open", "", ("400", "INVALID_ARGUMENT")),
        ("POST", "/nowhere", "", ("404", "ROUTE_NOT_FOUND")),
        ("DELETE", put.as_str(), "", ("405", "METHOD_NOT_ALLOWED")),
        ("PUT", &put, "Origin: http://evil.example\r\n", ("403", "CROSS_ORIGIN")),
        ("PUT", &put, "Content-Type: text/plain\r\n", ("415", "UNSUPPORTED_MEDIA_TYPE")),
        ("GET", &put, "", ("404", "CLIENT_NOT_FOUND")),
        ("OPTIONS", &put, "", ("204", "")),
        ("GET", "/v1", "", ("200", "")),
    ] {
        good_after(&handle, &head(method, path, more, BODY.len()), expected).await;
    }
}

#[tokio::test]
async fn what_is_refused_for_its_size_or_for_want_of_memory_is_read_on_too() {
    let mut small = config();
    (small.max_body_bytes, small.max_batch_body_bytes, small.max_reading_bytes) = (10, 1024, 1024);
    let handle = start(&Control::new(), small).await;
    let put = format!("/v1/clients/c/txns/{T1}");
    good_after(&handle, &head("PUT", &put, "", BODY.len()), ("413", "TOO_LARGE")).await;

    let mut full = config();
    (full.max_body_bytes, full.max_batch_body_bytes, full.max_reading_bytes) = (4096, 4096, 4096);
    full.max_reading_bytes_per_address = 4096;
    full.max_queue = 1;
    let handle = start(&Control::new(), full).await;
    let chunked = format!(
        "PUT {put} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n{}\r\n0\r\n\r\n{GOOD}",
        " ".repeat(0x2000)
    );
    let answers = say(handle.local_addr(), &chunked).await;
    assert_eq!(short(&answers), ("413", "TOO_LARGE"), "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 1, "{answers}");
}

async fn closing(config: Config, sent: &str) -> String {
    let handle = start(&Control::new(), config).await;
    let answer = say(handle.local_addr(), sent).await;
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    answer
}

#[tokio::test]
async fn what_does_not_come_to_its_end_within_the_bounds_ends_the_connection_and_says_so() {
    let put = format!("/v1/clients/c/txns/{T1}");
    // It does not come in time, to be read or to be thrown away.
    let mut hasty = config();
    hasty.discard_timeout_ms = 20;
    let answer = closing(hasty.clone(), &head("POST", "/nowhere", "", 10)).await;
    assert_eq!(short(&answer), ("404", "ROUTE_NOT_FOUND"));
    hasty.read_timeout_ms = 20;
    let answer = closing(hasty.clone(), &head("PUT", &put, "", 10)).await;
    assert_eq!(short(&answer), ("429", "OVERLOADED"));
    // There is too much of it, by one byte.
    hasty.max_discard_bytes = 9;
    let answer = closing(hasty.clone(), &head("POST", "/nowhere", "", 10)).await;
    assert_eq!(short(&answer), ("404", "ROUTE_NOT_FOUND"));
    let unannounced =
        "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n";
    closing(hasty, unannounced).await;
    // Its sender waits for leave to send it, and does not get it.
    let answer = closing(config(), &head("POST", "/nowhere", "Expect: 100-continue\r\n", 10)).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

#[tokio::test]
async fn a_sender_that_goes_on_after_the_refusal_gets_to_read_it() {
    let mut config = config();
    config.max_discard_bytes = 1024 * 1024;
    let handle = start(&Control::new(), config).await;
    let mut stream = said(handle.local_addr(), &head("POST", "/nowhere", "", 2 * 1024 * 1024)).await;
    settle(&Http::to(&handle)).await;
    for _ in 0..8 {
        stream.write_all(&[b' '; 64 * 1024]).await.unwrap();
        settle(&Http::to(&handle)).await;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(short(&answer), ("404", "ROUTE_NOT_FOUND"));
}

#[tokio::test]
async fn a_head_that_cannot_be_read_is_answered_with_a_problem() {
    let mut config = config();
    config.max_head_bytes = 128 * 1024;
    let handle = start(&Control::new(), config).await;
    let headers = (0..101).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    for (sent, status, code) in [
        ("BAD\r\n\r\n".to_owned(), "400", "INVALID_ARGUMENT"),
        ("GET /v1 HTTP/3.0\r\nHost: localhost\r\n\r\n".to_owned(), "400", "INVALID_ARGUMENT"),
        ("GET /v1 HTTP/1.1\r\nHost localhost\r\n\r\n".to_owned(), "400", "INVALID_ARGUMENT"),
        ("GET /v1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n".to_owned(), "400", "INVALID_ARGUMENT"),
        (format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(66_000)), "414", "TOO_LARGE"),
        (format!("GET /v1 HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"), "431", "TOO_LARGE"),
        (format!("GET /v1 HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(200 * 1024)), "431", "TOO_LARGE"),
    ] {
        let mut stream = said(handle.local_addr(), &sent).await;
        let answer = rest(&mut stream).await;
        assert_eq!(short(&answer), (status, code), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        for line in ["content-type: application/problem+json", "cache-control: no-store", "connection: close"] {
            assert!(head.lines().any(|l| l == line), "{line}: {head}");
        }
        assert!(head.contains(&format!("ratified-store: {}", handle.store_id().unwrap())), "{head}");
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["status"].to_string(), status);
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    }
}
