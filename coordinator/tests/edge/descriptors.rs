//! File descriptors: silent connections never take the store's.

use std::{fs::File, process::Command};

use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};

use crate::{process::Process, raw::call};

/// A connection that says nothing; the system may leave it in its queue.
async fn silent(source: &str, process: &Process) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
    socket.connect(process.address).await.ok()
}

#[tokio::test]
async fn silent_connections_beyond_the_limit_of_open_files_leave_the_store_its_own() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let process = Process::start_after("ulimit -n 400", File::create(log.path()).unwrap()).await;
    let told = std::fs::read_to_string(log.path()).unwrap();
    assert!(told.contains("descriptors=400 max_connections=200 configured=10000"), "{told}");
    process.open().await;
    // One connection for all calls, since a second one would have to wait.
    let mut calls = TcpStream::connect(process.address).await.unwrap();
    let get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert!(call(&mut calls, get).await.starts_with("HTTP/1.1 200"));
    let mut held = Vec::new();
    for n in 0..260 {
        held.push(silent(&format!("127.0.0.{}", 1 + n % 4), &process).await);
    }
    // More than the 16 MiB at which the store writes a table.
    let payload = "A".repeat(80_000);
    for n in 0..24 {
        let operations: Vec<_> = (0..12)
            .flat_map(|m| {
                let id = format!("0190f2c4-7a61-7c3e-9d0a-{:012x}", n * 12 + m);
                [
                    json!({"op": "begin", "txnId": id, "epoch": 1}),
                    json!({"op": "prepare", "txnId": id, "epoch": 1, "payload": payload}),
                ]
            })
            .collect();
        let body = json!({"operations": operations}).to_string();
        let head =
            format!("POST /v1/clients/c/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
        let answer = call(&mut calls, &format!("{head}\r\n{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{n}: {answer}");
    }
    process.terminate();
    assert_eq!(process.wait(), Some(0));
}

#[tokio::test]
async fn a_process_without_descriptors_accepts_again_when_it_has_some() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let process = Process::start(&[], &[], File::create(log.path()).unwrap()).await;
    let limit = |files: &str| {
        let limit =
            Command::new("prlimit").args([format!("--pid={}", process.id()), format!("--nofile={files}:")]).status();
        assert!(limit.unwrap().success());
    };
    limit("3");
    let late = silent("127.0.0.1", &process).await.unwrap();
    while process.metric("ratified_accept_errors_total").await < 2 {}
    limit("1024");
    let get = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut late = late;
    tokio::io::AsyncWriteExt::write_all(&mut late, get).await.unwrap();
    assert!(crate::raw::rest(&mut late).await.starts_with("HTTP/1.1 200"));
    let told = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(told.matches("connections cannot be accepted").count(), 1, "{told}");
}
