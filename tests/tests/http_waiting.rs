//! Long polls: `waitMs` on commit, abort, get and decisions; callers that hang up.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    config::Config,
    poll,
    process::Ratifyd,
    raw::{Raw, Reply},
    session::{Session, id},
    shape::in_short,
};
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinHandle};

/// A call on its way.
fn start(raw: &Raw, method: &'static str, path: String) -> JoinHandle<Reply> {
    let raw = raw.clone();
    let body = (method != "GET").then(|| json!({"epoch": 1}));
    tokio::spawn(async move { raw.try_call(method, &path, body.as_ref()).await.unwrap() })
}

/// Waits until so many requests are parked, by the coordinator's own count.
async fn until_parked(raw: &Raw, count: u64) {
    let line = format!("ratified_waiting_requests {count}");
    poll::until(&format!("{count} parked requests"), || async {
        raw.get("/metrics").await.text.lines().any(|l| l == line).then_some(())
    })
    .await;
}

async fn with_participant(ns: std::ops::RangeInclusive<u64>) -> (Ratifyd, Session) {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in ns {
        c.begin(n, json!({"participants": ["p"], "timeoutMs": 600_000})).await.ok(201);
    }
    (ratifyd, c)
}

#[tokio::test]
async fn commit_and_abort_wait_for_the_acknowledgements() {
    let (_ratifyd, c) = with_participant(1..=2).await;
    let commit = start(&c.raw, "POST", format!("{}/commit?waitMs=30000", c.path(1)));
    let abort = start(&c.raw, "POST", format!("{}/abort?waitMs=30000", c.path(2)));
    until_parked(&c.raw, 2).await;
    assert_eq!(c.get(1).await.ok(200)["state"], "COMMITTING");
    assert!(!commit.is_finished() && !abort.is_finished());
    c.ack(1, "p", "COMMITTED").await.ok(200);
    assert_eq!(in_short(&commit.await.unwrap()), "200 COMMITTED");
    c.ack(2, "p", "ABORTED").await.ok(200);
    assert_eq!(in_short(&abort.await.unwrap()), "200 ABORTED");
    until_parked(&c.raw, 0).await;
}

#[tokio::test]
async fn a_repeated_commit_waits_with_the_first_one() {
    let (_ratifyd, c) = with_participant(1..=1).await;
    let first = start(&c.raw, "POST", format!("{}/commit?waitMs=30000", c.path(1)));
    until_parked(&c.raw, 1).await;
    let again = start(&c.raw, "POST", format!("{}/commit?waitMs=30000", c.path(1)));
    until_parked(&c.raw, 2).await;
    c.ack(1, "p", "COMMITTED").await.ok(200);
    assert_eq!(in_short(&first.await.unwrap()), "200 COMMITTED");
    assert_eq!(in_short(&again.await.unwrap()), "200 COMMITTED replayed");
}

#[tokio::test]
async fn at_the_end_of_the_wait_the_current_state_is_answered() {
    let (_ratifyd, c) = with_participant(1..=3).await;
    let commit = start(&c.raw, "POST", format!("{}/commit?waitMs=1", c.path(1)));
    assert_eq!(in_short(&commit.await.unwrap()), "202 COMMITTING");
    let abort = start(&c.raw, "POST", format!("{}/abort?waitMs=1", c.path(2)));
    assert_eq!(in_short(&abort.await.unwrap()), "202 ABORTING");
    assert_eq!(in_short(&c.raw.get(&format!("{}?waitMs=1", c.path(3))).await), "200 OPEN");
    let nothing = c.raw.get("/v1/participants/q/decisions?waitMs=1").await.ok(200);
    assert_eq!(nothing["decisions"], json!([]));
}

#[tokio::test]
async fn get_waits_until_the_state_is_terminal() {
    let (_ratifyd, c) = with_participant(1..=1).await;
    let get = start(&c.raw, "GET", format!("{}?waitMs=30000", c.path(1)));
    until_parked(&c.raw, 1).await;
    c.prepare(1, json!({})).await.ok(200);
    c.commit(1, json!({})).await.ok(202);
    until_parked(&c.raw, 1).await;
    c.ack(1, "p", "COMMITTED").await.ok(200);
    assert_eq!(in_short(&get.await.unwrap()), "200 COMMITTED");
}

#[tokio::test]
async fn a_wait_ends_with_the_deadline_of_its_transaction() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"timeoutMs": 500})).await.ok(201);
    let told = c.raw.get(&format!("{}?waitMs=30000", c.path(1))).await.ok(200);
    assert_eq!((&told["state"], &told["endReason"]), (&json!("ABORTED"), &json!("TIMEOUT")));
}

#[tokio::test]
async fn a_longer_wait_than_the_longest_is_taken() {
    let (_ratifyd, c) = with_participant(1..=1).await;
    let commit = start(&c.raw, "POST", format!("{}/commit?waitMs=9999999", c.path(1)));
    until_parked(&c.raw, 1).await;
    c.ack(1, "p", "COMMITTED").await.ok(200);
    assert_eq!(in_short(&commit.await.unwrap()), "200 COMMITTED");
}

#[tokio::test]
async fn decisions_wait_for_something_newer_than_the_cursor() {
    let (_ratifyd, c) = with_participant(1..=2).await;
    let first = start(&c.raw, "GET", "/v1/participants/p/decisions?waitMs=30000".to_owned());
    until_parked(&c.raw, 1).await;
    c.commit(1, json!({})).await.ok(202);
    let first = first.await.unwrap().ok(200);
    assert_eq!(first["decisions"][0]["txnId"], id(1));
    let cursor = first["cursor"].as_str().unwrap();
    let second = start(&c.raw, "GET", format!("/v1/participants/p/decisions?waitMs=30000&after={cursor}"));
    until_parked(&c.raw, 1).await;
    c.abort(2).await.ok(202);
    let second = second.await.unwrap().ok(200);
    assert_eq!(second["decisions"].as_array().unwrap().len(), 1);
    assert_eq!(second["decisions"][0]["txnId"], id(2));
}

#[tokio::test]
async fn beyond_max_waiting_the_current_state_is_answered_at_once() {
    let ratifyd = Ratifyd::start(Config::new().with("max_waiting", 1)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"timeoutMs": 600_000})).await.ok(201);
    let path = format!("{}?waitMs=30000", c.path(1));
    let parked = start(&c.raw, "GET", path.clone());
    until_parked(&c.raw, 1).await;
    // Parked, it would be answered after the one that came before it.
    assert_eq!(in_short(&c.raw.get(&path).await), "200 OPEN");
    assert!(!parked.is_finished());
    c.abort(1).await.ok(200);
    assert_eq!(in_short(&parked.await.unwrap()), "200 ABORTED");
}

#[tokio::test]
async fn a_caller_that_hangs_up_cancels_nothing() {
    let (_ratifyd, c) = with_participant(1..=1).await;
    let commit = start(&c.raw, "POST", format!("{}/commit?waitMs=30000", c.path(1)));
    until_parked(&c.raw, 1).await;
    commit.abort();
    let _ = commit.await;
    assert_eq!(in_short(&c.get(1).await), "200 COMMITTING");
    assert_eq!(in_short(&c.ack(1, "p", "COMMITTED").await), "200 COMMITTED");
}

#[tokio::test]
async fn a_request_whose_caller_has_gone_is_carried_out_whole_or_not_at_all() {
    let (ratifyd, c) = with_participant(1..=1).await;
    let (mut carried_out, mut n) = (0, 1);
    // A caller that has gone before its request was looked at may be ignored, but not all of them.
    while carried_out == 0 {
        n += 1;
        assert!(n < 500, "no caller that hung up was ever heard");
        let body = r#"{"epoch":1}"#;
        let request =
            format!("PUT {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", c.path(n), body.len());
        let mut stream = TcpStream::connect(ratifyd.address().current().unwrap()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        drop(stream);
        match in_short(&c.begin(n, json!({})).await).as_str() {
            "200 OPEN replayed" => carried_out += 1,
            told => assert_eq!(told, "201 OPEN"),
        }
        c.abort(n).await.ok(200);
    }
}

#[tokio::test]
async fn parked_callers_are_answered_when_the_coordinator_stops() {
    let (mut ratifyd, c) = with_participant(1..=1).await;
    let get = start(&c.raw, "GET", format!("{}?waitMs=30000", c.path(1)));
    let decisions = start(&c.raw, "GET", "/v1/participants/p/decisions?waitMs=30000".to_owned());
    until_parked(&c.raw, 2).await;
    assert_eq!(ratifyd.terminate().await.code(), Some(0));
    for parked in [get, decisions] {
        let reply = parked.await.unwrap();
        if reply.status != 200 {
            reply.refused("SHUTTING_DOWN");
        }
    }
}
