//! The log: one line an event whatever callers write, and nobody waits for who reads it.

use std::{
    fs::File,
    io::{Read, pipe},
};

use serde_json::{Value, json};

use crate::{
    process::Process,
    support::{T1, T2},
};

/// A line of its own, a field of its own, colours, a title, and text that is shown backwards.
const FORGED: &str = "gone\" to=\"COMMITTED\" x=\"\n2026-01-01T00:00:00.000000Z  INFO transaction client=bank\u{1b}[31m\r\
                      \u{1b}]0;title\u{7}\u{9b}2J\u{202e}\u{2066}\u{200b}\u{2028}\u{85}";

async fn say_it_everywhere(process: &Process) {
    let open = json!({"incarnation": "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "owner": FORGED, "create": true});
    assert_eq!(process.post("/v1/clients/c/open", open).await, 200);
    let txn = |id: &str| format!("/v1/clients/c/txns/{id}");
    let begin = json!({"epoch": 1, "labels": {FORGED: FORGED}});
    assert_eq!(process.send("PUT", &txn(T1), Some(begin.clone())).await.0, 201);
    let resolve = json!({"outcome": "ABORT", "reason": FORGED, "actor": FORGED});
    assert_eq!(process.post(&format!("{}/resolve", txn(T1)), resolve).await, 200);
    assert_eq!(process.post("/v1/participants/p/retire", json!({"reason": FORGED})).await, 200);
    assert_eq!(process.post("/v1/participants/p/reinstate", json!({"reason": FORGED})).await, 200);
    assert_eq!(process.post("/v1/clients/c/forget", json!({"reason": FORGED})).await, 200);
    // A newer owner, and the older one after it.
    let again = json!({"incarnation": "6ba7b810-9dad-41d1-80b4-00c04fd430c9", "owner": FORGED, "create": true});
    assert_eq!(process.post("/v1/clients/c/open", again).await, 200);
    assert_eq!(process.send("PUT", &txn(T2), Some(begin)).await.0, 409);
    assert_eq!(process.send("GET", "/v1/%0aINFO%1b[31m", None).await.0, 404);
}

/// What it logs at every level while callers say such things.
async fn logged(format: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let process = Process::start(&[], &["--log-format", format], File::create(file.path()).unwrap()).await;
    say_it_everywhere(&process).await;
    process.terminate();
    assert_eq!(process.wait(), Some(0));
    let log = std::fs::read_to_string(file.path()).unwrap();
    assert!(
        !log.chars().any(|c| c != '\n' && (c.is_control() || "\u{202e}\u{2066}\u{200b}\u{2028}".contains(c))),
        "{log:?}"
    );
    log
}

#[tokio::test]
async fn an_event_is_one_line_of_text_whatever_callers_write() {
    let log = logged("text").await;
    for line in log.lines() {
        assert!(line.starts_with("20") && !line.starts_with("2026-01-01T00:00:00"), "{line}");
    }
    let written = r#"reason="gone\" to=\"COMMITTED\" x=\"\n2026-01-01T00:00:00.000000Z  INFO transaction"#;
    assert_eq!(log.matches(written).count(), 4, "{log}");
}

#[tokio::test]
async fn an_event_is_one_line_of_json_whatever_callers_write() {
    let log = logged("json").await;
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let reasons = lines.iter().filter(|line| line["fields"]["reason"] == FORGED).count();
    assert_eq!(reasons, 4, "{log}");
}

/// Begins and aborts transactions until lines are dropped.
async fn overflow(process: &Process) {
    process.open().await;
    let mut next = 0_u64;
    while process.metric("ratified_log_lines_dropped_total").await == 0 {
        let operations: Vec<_> = (next..next + 200)
            .flat_map(|n| {
                let id = format!("0190f2c4-7a61-7c3e-9d0a-{n:012x}");
                [json!({"op": "begin", "txnId": id, "epoch": 1}), json!({"op": "abort", "txnId": id, "epoch": 1})]
            })
            .collect();
        next += 200;
        assert_eq!(process.post("/v1/clients/c/batch", json!({"operations": operations})).await, 200);
        assert!(next < 1_000_000, "no line was ever dropped");
    }
}

#[tokio::test]
async fn a_stderr_that_nobody_reads_stops_neither_deciding_nor_stopping() {
    let (unread, stderr) = pipe().unwrap();
    let process = Process::start(&["max_log_queue_bytes=4096"], &[], stderr).await;
    overflow(&process).await;
    assert_eq!(process.send("GET", "/readyz", None).await.0, 200);
    process.terminate();
    assert_eq!(process.wait(), Some(0));
    drop(unread);
}

#[tokio::test]
async fn how_many_lines_were_dropped_is_told_once_stderr_is_read_again() {
    let (mut unread, stderr) = pipe().unwrap();
    let process = Process::start(&["max_log_queue_bytes=4096"], &[], stderr).await;
    overflow(&process).await;
    let told = std::thread::spawn(move || {
        let mut log = String::new();
        let mut buffer = [0; 4096];
        while !log.contains("lines of the log were dropped, because stderr was not read dropped=") {
            let read = unread.read(&mut buffer).unwrap();
            assert_ne!(read, 0, "{log}");
            log.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        unread
    });
    drop(told.join().unwrap());
}

#[tokio::test]
async fn a_stderr_that_is_gone_stops_nothing() {
    let (reader, stderr) = pipe().unwrap();
    let process = Process::start(&[], &[], stderr).await;
    drop(reader);
    process.open().await;
    assert_eq!(process.send("GET", "/readyz", None).await.0, 200);
    process.terminate();
    assert_eq!(process.wait(), Some(0));
}
