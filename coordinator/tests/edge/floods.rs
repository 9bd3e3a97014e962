//! Many connections and bodies from few addresses.

use std::net::SocketAddr;

use ratified_coordinator::Config;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use crate::{
    raw::{rest, said, short},
    support::{Control, Http, T1, config, start},
};

const GET: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A connection that comes from this loopback address.
async fn connect_from(source: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

/// The beginning of a body, whose sender was told that it is being read.
async fn half_a_body(mut stream: TcpStream, announced: usize, sent: usize) -> TcpStream {
    let head = format!(
        "PUT /v1/clients/c/txns/{T1} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {announced}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(" ".repeat(sent).as_bytes()).await.unwrap();
    stream
}

/// Status and detail of a call with a body of this many bytes.
async fn large_call(from: &str, to: SocketAddr, bytes: usize) -> (String, String) {
    let mut stream = connect_from(from, to).await;
    let head = format!(
        "PUT /v1/clients/c/txns/{T1} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n"
    );
    stream.write_all(format!("{head}{}{{\"epoch\":1}}", " ".repeat(bytes - 11)).as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    let detail = answer.split("\"detail\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    (short(&answer).0.to_owned(), detail.to_owned())
}

fn small() -> Config {
    let mut config = config();
    (config.max_body_bytes, config.max_batch_body_bytes, config.max_reading_bytes) = (4096, 4096, 4096);
    config
}

#[tokio::test]
async fn bodies_that_are_announced_and_do_not_come_take_nothing() {
    let handle = start(&Control::new(), small()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(half_a_body(TcpStream::connect(handle.local_addr()).await.unwrap(), 4096, 0).await);
    }
    assert_eq!(http.begin("c", T1).await.status, 201);
    assert_eq!(large_call("127.0.0.1", handle.local_addr(), 4096).await.0, "200");
}

#[tokio::test]
async fn bodies_count_as_they_arrive_and_small_ones_always_find_a_place() {
    let handle = start(&Control::new(), small()).await;
    let (http, here) = (Http::to(&handle), handle.local_addr());
    http.open("c").await;
    http.begin("c", T1).await;
    let slow = half_a_body(TcpStream::connect(here).await.unwrap(), 4096, 4095).await;
    // Three of four KiB are taken, as soon as they have arrived; the first of each body does not count.
    let refused = loop {
        match large_call("127.0.0.1", here, 3072).await {
            (status, _) if status == "200" => {}
            refused => break refused,
        }
    };
    assert_eq!(
        refused,
        (
            "429".to_owned(),
            "too many bodies from one address are being read; nothing was done, send it again".to_owned()
        )
    );
    assert_eq!(large_call("127.0.0.1", here, 2048).await.0, "200");
    let txn = format!("/v1/clients/c/txns/{T1}");
    assert_eq!(http.post(&format!("{txn}/keep-alive"), json!({"epoch": 1})).await.status, 200);
    assert_eq!(http.post(&format!("{txn}/commit"), json!({"epoch": 1})).await.status, 200);
    drop(slow);
    while large_call("127.0.0.1", here, 4096).await.0 != "200" {}
}

#[tokio::test]
async fn an_address_has_its_part_of_the_memory_for_bodies() {
    let mut config = small();
    config.max_reading_bytes = 8192;
    let handle = start(&Control::new(), config).await;
    let here = handle.local_addr();
    Http::to(&handle).open("c").await;
    let slow = half_a_body(TcpStream::connect(here).await.unwrap(), 4096, 4095).await;
    while large_call("127.0.0.1", here, 3072).await.0 != "429" {}
    assert_ne!(large_call("127.0.0.2", here, 4096).await.0, "429");
    let another = half_a_body(connect_from("127.0.0.2", here).await, 4096, 4095).await;
    let third = half_a_body(connect_from("127.0.0.3", here).await, 4096, 4095).await;
    let refused = loop {
        match large_call("127.0.0.4", here, 4096).await {
            (status, _) if status != "429" => {}
            refused => break refused,
        }
    };
    assert_eq!(refused.1, "too many bodies are being read; nothing was done, send it again");
    drop((slow, another, third));
}

#[tokio::test]
async fn an_address_has_half_of_the_connections_and_is_told_so() {
    let mut config = config();
    config.max_connections = 4;
    let handle = start(&Control::new(), config).await;
    let here = handle.local_addr();
    let mut held = Vec::new();
    for source in ["127.0.0.1", "127.0.0.1"] {
        let mut stream = connect_from(source, here).await;
        stream.write_all(GET.as_bytes()).await.unwrap();
        assert_ne!(stream.read(&mut [0; 1024]).await.unwrap(), 0);
        held.push(stream);
    }
    let refused = rest(&mut connect_from("127.0.0.1", here).await).await;
    assert_eq!(short(&refused), ("429", "OVERLOADED"), "{refused}");
    assert!(refused.contains("\r\nconnection: close\r\n") && refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
    let mut another = connect_from("127.0.0.2", here).await;
    another.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let metrics = rest(&mut another).await;
    assert!(metrics.contains("\nratified_connections_refused_total 1\n"), "{metrics}");
    held.pop();
    let get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    loop {
        let mut stream = said(here, "").await;
        let _ = stream.write_all(get.as_bytes()).await;
        if rest(&mut stream).await.starts_with("HTTP/1.1 200") {
            break;
        }
    }
}
