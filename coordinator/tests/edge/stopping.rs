//! A shutdown waits for running requests, and for nothing else.

use std::time::Duration;

use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::{
    raw::{rest, said, short},
    support::{Control, Http, T1, config, start},
};

/// Far longer than a test may take: what is no running request is not waited for.
const FOR_EVER_MS: u64 = 3_600_000;

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.unwrap()
}

#[tokio::test]
async fn connections_without_a_whole_head_are_not_waited_for() {
    let get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for begun in ["", "GET /healthz HTTP/1.1\r\nHo", get, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal"] {
        let mut config = config();
        config.shutdown_timeout_ms = FOR_EVER_MS;
        let handle = start(&Control::new(), config).await;
        let mut stream = said(handle.local_addr(), begun).await;
        for _ in 0..3 {
            assert_eq!(Http::to(&handle).get("/healthz").await.status, 200);
        }
        soon(handle.shutdown()).await.unwrap();
        let answered = rest(&mut stream).await;
        assert_eq!(
            answered.matches("HTTP/1.1 200").count(),
            usize::from(begun.starts_with(get)),
            "{begun}: {answered}"
        );
    }
}

#[tokio::test]
async fn a_request_whose_body_has_not_arrived_is_refused() {
    let mut config = config();
    (config.shutdown_timeout_ms, config.read_timeout_ms) = (FOR_EVER_MS, FOR_EVER_MS);
    let handle = start(&Control::new(), config).await;
    let path = format!("/v1/clients/c/txns/{T1}");
    let half = format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 40\r\n\r\n");
    let mut stream = said(handle.local_addr(), &half).await;
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.unwrap();
    soon(handle.shutdown()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert_eq!(short(&answer), ("503", "SHUTTING_DOWN"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

/// A connection that asks for far more than any buffer holds, and reads nothing of it.
async fn deaf(handle: &ratified_coordinator::Handle) -> TcpStream {
    let get = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let stream = said(handle.local_addr(), &get.repeat(1000)).await;
    let http = Http::to(handle);
    let mut last = None;
    loop {
        let text = http.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
        let answered = text.lines().find(|line| line.contains("/openapi.json")).map(str::to_owned);
        if answered.is_some() && answered == last {
            return stream;
        }
        last = answered;
    }
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_answer_is_not_waited_for() {
    let mut config = config();
    (config.shutdown_timeout_ms, config.write_timeout_ms, config.discard_timeout_ms) = (FOR_EVER_MS, FOR_EVER_MS, 20);
    let handle = start(&Control::new(), config).await;
    let _deaf = deaf(&handle).await;
    soon(handle.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_answer_is_cut_in_the_end() {
    let mut config = config();
    config.write_timeout_ms = 20;
    let handle = start(&Control::new(), config).await;
    let _deaf = deaf(&handle).await;
    let http = Http::to(&handle);
    let open = async || {
        let text = http.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
        text.lines().find_map(|line| line.strip_prefix("ratified_connections_open ")).unwrap().to_owned()
    };
    while open().await != "1" {}
}

#[tokio::test]
async fn a_request_that_runs_is_answered_first() {
    let mut config = config();
    config.shutdown_timeout_ms = FOR_EVER_MS;
    let control = Control::new();
    let handle = start(&control, config).await;
    let (http, idle) = (Http::to(&handle), TcpStream::connect(handle.local_addr()).await.unwrap());
    http.open("c").await;
    control.hold_syncs();
    let begun = control.syncs_begun();
    let call = tokio::spawn(async move { http.begin("c", T1).await });
    control.sync_begun(begun + 1).await;
    let stopping = tokio::spawn(handle.shutdown());
    control.release();
    assert_eq!(soon(call).await.unwrap().status, 201);
    soon(stopping).await.unwrap().unwrap();
    drop(idle);
}
