//! Pages of other origins, and requests that two readers may understand differently.

use serde_json::json;

use crate::{
    raw::{say, short},
    support::{Control, Http, T1, config, start},
};

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let handle = start(&Control::new(), config()).await;
    let (http, here, txn) = (Http::to(&handle), handle.local_addr(), format!("/v1/clients/c/txns/{T1}"));
    http.open("c").await;
    http.begin("c", T1).await;
    assert_eq!(http.post(&format!("{txn}/prepare"), json!({"epoch": 1})).await.status, 200);
    let body = r#"{"epoch":1}"#;
    // What Chromium 156 sends for `fetch` with mode no-cors from http://evil.example, from a sandboxed frame, and to a name
    // that the page's own DNS resolves to this address.
    for (host, page) in [
        (here.to_string(), "Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"),
        (here.to_string(), "Origin: http://127.0.0.1:8000\r\nSec-Fetch-Site: same-site\r\n"),
        (here.to_string(), "Origin: null\r\n"),
        (here.to_string(), "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"),
        (format!("evil.example:{}", here.port()), "Origin: http://evil.example\r\nSec-Fetch-Site: same-origin\r\n"),
        (format!("evil.example:{}", here.port()), ""),
    ] {
        let request = format!(
            "POST {txn}/abort HTTP/1.1\r\nHost: {host}\r\n{page}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = say(here, &request).await;
        assert_eq!(short(&answer), ("403", "CROSS_ORIGIN"), "{host} {page}: {answer}");
        assert!(!answer.to_ascii_lowercase().contains("access-control-"), "{answer}");
        assert_eq!(http.get(&txn).await.body["state"], "PREPARED", "{host} {page}");
    }
}

#[tokio::test]
async fn every_path_and_method_is_kept_from_foreign_pages_and_unknown_paths_come_first() {
    let handle = start(&Control::new(), config()).await;
    let here = handle.local_addr();
    for (method, path, expected) in [
        ("GET", "/healthz", ("403", "CROSS_ORIGIN")),
        ("GET", "/readyz", ("403", "CROSS_ORIGIN")),
        ("GET", "/metrics", ("403", "CROSS_ORIGIN")),
        ("GET", "/openapi.json", ("403", "CROSS_ORIGIN")),
        ("GET", "/v1", ("403", "CROSS_ORIGIN")),
        ("GET", "/v1/txns?bogus=1", ("403", "CROSS_ORIGIN")),
        ("HEAD", "/v1", ("403", "")),
        ("OPTIONS", "/v1/txns", ("403", "CROSS_ORIGIN")),
        ("POST", "/v1/clients/not%20a%20name/open", ("403", "CROSS_ORIGIN")),
        ("GET", "/nowhere", ("404", "ROUTE_NOT_FOUND")),
        ("DELETE", "/v1", ("405", "METHOD_NOT_ALLOWED")),
    ] {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {here}\r\nOrigin: http://a.example\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(short(&say(here, &request).await), expected, "{method} {path}");
    }
}

#[tokio::test]
async fn names_that_are_configured_are_taken() {
    let mut config = config();
    config.server_names = vec!["Ratifyd.Example".parse().unwrap()];
    let handle = start(&Control::new(), config).await;
    let here = handle.local_addr();
    for (host, expected) in [
        ("ratifyd.example:7117", ("200", "")),
        ("RATIFYD.example.", ("200", "")),
        ("localhost", ("200", "")),
        ("[::1]:1", ("200", "")),
        ("other.example", ("403", "CROSS_ORIGIN")),
    ] {
        let request = format!("GET /v1 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(short(&say(here, &request).await), expected, "{host}");
    }
}

#[tokio::test]
async fn what_two_readers_may_understand_differently_is_refused_or_ends_the_connection() {
    let handle = start(&Control::new(), config()).await;
    let here = handle.local_addr();
    for head in [
        "GET /v1 HTTP/1.1\r\n",
        "GET /v1 HTTP/1.0\r\n",
        "GET /v1 HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n",
        "GET /v1 HTTP/1.1\r\nHost: localhost, evil.example\r\n",
        "GET /v1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n",
        "GET http://localhost/v1 HTTP/1.1\r\nHost: localhost\r\n",
    ] {
        let answer = say(here, &format!("{head}Connection: close\r\n\r\n")).await;
        assert_eq!(short(&answer), ("400", "INVALID_ARGUMENT"), "{head}: {answer}");
    }
    // Whatever follows a request of two lengths is not read as a request.
    let two_lengths = "POST /v1/clients/c/open HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\
                       Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = say(here, two_lengths).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
}
