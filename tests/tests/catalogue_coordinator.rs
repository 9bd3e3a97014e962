//! Field reports about coordinators, each with what must happen instead of what did.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    config::Config,
    poll,
    process::{Address, Ratifyd},
    proxy::{Fault, Proxy},
    raw::Raw,
    session::{Session, id},
    shape::in_short,
};
use serde_json::{Value, json};

/// Pulsar #19629, #19744; pulsar-flink #417: a commit was applied and its answer lost.
#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_answered_the_same_ever_after() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({})).await.ok(201);
    c.prepare(1, json!({"checkpointId": 1})).await.ok(200);
    let proxy = Proxy::start(ratifyd.address(), Box::new(|_| Fault::DropAnswer)).await;
    let address = proxy.url().trim_start_matches("http://").parse().unwrap();
    let lossy = Session { raw: Raw::new(Address::fixed(address)), ..c.clone() };
    let path = format!("{}/commit", lossy.path(1));
    assert!(lossy.raw.try_call("POST", &path, Some(&json!({}))).await.is_err());
    for _ in 0..3 {
        assert_eq!(in_short(&c.commit(1, json!({})).await), "200 COMMITTED replayed");
        assert_eq!(in_short(&c.abort(1).await), "OUTCOME_COMMITTED (COMMITTED)");
        ratifyd.crash().await;
    }
}

/// Pulsar PR 20356: begun under one client name, ended under another.
#[tokio::test]
async fn the_client_name_is_part_of_the_key() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let d = Session::open(&ratifyd.raw(), "d", 2).await;
    c.begin(1, json!({})).await.ok(201);
    d.commit(1, json!({})).await.refused("TXN_NOT_FOUND");
    d.begin(1, json!({})).await.ok(201);
    d.abort(1).await.ok(200);
    assert_eq!(in_short(&c.commit(1, json!({})).await), "200 COMMITTED");
    assert_eq!(in_short(&d.get(1).await), "200 ABORTED");
}

/// Pulsar PR 20356: more terminations in flight than are kept.
#[tokio::test]
async fn more_terminations_in_flight_than_are_kept_lose_no_outcome() {
    let mut ratifyd = Ratifyd::start(Config::evicting(2).with("max_outcomes_per_client", 2)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=10 {
        c.begin(n, json!({"participants": ["p"]})).await.ok(201);
        c.commit(n, json!({})).await.ok(202);
    }
    ratifyd.crash().await;
    for n in 1..=10 {
        assert_eq!(in_short(&c.commit(n, json!({})).await), "202 COMMITTING replayed");
        assert_eq!(in_short(&c.preserved(n).await), "200 COMMITTED");
    }
    for n in 1..=10 {
        assert_eq!(in_short(&c.ack(n, "p", "COMMITTED").await), "200 COMMITTED");
    }
    let kept = c.preserver().await.ok(200);
    let ids: Vec<_> = kept["outcomes"].as_array().unwrap().iter().map(|o| &o["txnId"]).collect();
    assert_eq!(ids, [&json!(id(10)), &json!(id(9))]);
}

/// Pulsar #18923, #19200: recovery drives endings before it serves, and is stuck.
#[tokio::test]
async fn what_was_ending_at_the_crash_is_driven_on_although_no_client_comes_back() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=2 {
        c.begin(n, json!({"participants": ["p", "gone"]})).await.ok(201);
    }
    c.commit(1, json!({"payload": "eA=="})).await.ok(202);
    c.abort(2).await.ok(202);
    ratifyd.crash().await;
    let told = c.raw.get("/v1/participants/p/decisions").await.ok(200);
    let outcomes: Vec<_> =
        told["decisions"].as_array().unwrap().iter().map(|d| (&d["txnId"], &d["outcome"], &d["payload"])).collect();
    assert_eq!(
        outcomes,
        [(&json!(id(1)), &json!("COMMITTED"), &json!("eA==")), (&json!(id(2)), &json!("ABORTED"), &Value::Null)]
    );
    c.ack(1, "p", "COMMITTED").await.ok(200);
    c.ack(2, "p", "ABORTED").await.ok(200);
    ratifyd.crash().await;
    c.raw.post("/v1/participants/gone/retire", json!({"reason": "host lost"})).await.ok(200);
    assert_eq!(in_short(&c.get(1).await), "200 COMMITTED");
    assert_eq!(in_short(&c.get(2).await), "200 ABORTED");
}

/// Kafka PR 23204: a commit that races the timeout is told the truth, whichever wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_races_its_timeout_is_told_the_truth() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let (mut committed, mut aborted, mut n) = (0, 0, 0);
    // Ever later commits, until both sides have won.
    while committed < 3 || aborted < 3 {
        n += 1;
        assert!(n < 1_000, "{committed} commits and {aborted} timeouts won");
        c.begin(n, json!({"timeoutMs": 1 + n % 30})).await.ok(201);
        if n % 3 == 0 {
            c.get(n).await.ok(200);
        }
        let told = c.commit(n, json!({})).await;
        match in_short(&told).as_str() {
            "200 COMMITTED" => {
                committed += 1;
                assert_eq!(in_short(&c.get(n).await), "200 COMMITTED");
            }
            "OUTCOME_ABORTED (ABORTED)" => {
                aborted += 1;
                assert_eq!(told["txn"]["endReason"], "TIMEOUT");
                assert_eq!(in_short(&c.get(n).await), "200 ABORTED");
            }
            other => panic!("{n}: {other}"),
        }
    }
}

/// KAFKA-6119, Jepsen on Bufstream: a timeout reported as "a newer producer must exist".
#[tokio::test]
async fn a_timeout_stays_a_timeout_although_a_newer_owner_comes() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"timeoutMs": 1})).await.ok(201);
    c.begin(2, json!({"timeoutMs": 600_000})).await.ok(201);
    poll::until("the deadline", || async { (c.get(1).await.ok(200)["state"] == "ABORTED").then_some(()) }).await;
    Session::open(&c.raw, "c", 2).await;
    assert_eq!(c.get(1).await.ok(200)["endReason"], "TIMEOUT");
    assert_eq!(c.get(2).await.ok(200)["endReason"], "FENCED");
}

/// Real Flink 2.3: every restore re-sends the commits of its checkpoint, from any worker, before or after `open`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_may_commit_everything_again_from_anywhere() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=5 {
        c.begin(n, json!({"requirePrepare": true})).await.ok(201);
        c.prepare(n, json!({"checkpointId": 1})).await.ok(200);
    }
    let mut restores = Vec::new();
    for restore in 0..11 {
        if restore % 4 == 3 {
            Session::open(&c.raw, "c", 10 + restore).await;
        }
        for n in [3, 1, 5, 2, 4] {
            let c = c.clone();
            restores.push(tokio::spawn(async move { c.commit(n, json!({"epoch": null})).await }));
        }
    }
    let mut decided = 0;
    for commit in restores {
        match in_short(&commit.await.unwrap()).as_str() {
            "200 COMMITTED" => decided += 1,
            told => assert_eq!(told, "200 COMMITTED replayed"),
        }
    }
    assert_eq!(decided, 5, "each was decided once");
}

/// KAFKA-14055, Pulsar PR 25884: the decision was deleted while a participant might still ask.
#[tokio::test]
async fn a_decision_is_kept_with_its_payload_while_anybody_may_still_ask() {
    let config = Config::evicting(0)
        .with("transaction_meta_persist_time_in_hour", 0.000_000_3)
        .with("transaction_meta_expire_check_interval_in_second", 1);
    let mut ratifyd = Ratifyd::start(config).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"participants": ["p"]})).await.ok(201);
    c.commit(1, json!({"payload": "eA=="})).await.ok(202);
    c.begin(2, json!({})).await.ok(201);
    c.abort(2).await.ok(200);
    poll::until("a sweep to take what may go", || async { (c.get(2).await.code() == "OUTCOME_EXPIRED").then_some(()) })
        .await;
    ratifyd.crash().await;
    let told = c.raw.get("/v1/participants/p/decisions").await.ok(200);
    assert_eq!(
        told["decisions"],
        json!([{"clientName": "c", "txnId": id(1), "outcome": "COMMITTED", "payload": "eA=="}])
    );
}

/// Late, repeated requests of the past: the same answer, nothing resurrected, and never a guess.
#[tokio::test]
async fn late_duplicates_of_every_call_change_nothing() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=2 {
        c.begin(n, json!({})).await.ok(201);
        c.prepare(n, json!({"checkpointId": n})).await.ok(200);
    }
    c.commit(1, json!({})).await.ok(200);
    c.abort(2).await.ok(200);
    let kept = c.preserver().await.ok(200).json;
    for (n, told) in [(1, "COMMITTED"), (2, "ABORTED")] {
        assert_eq!(in_short(&c.begin(n, json!({})).await), format!("200 {told} replayed"));
        let prepared = in_short(&c.prepare(n, json!({"checkpointId": n})).await);
        let keep_alive = in_short(&c.keep_alive(n).await);
        for answer in [prepared, keep_alive] {
            assert!(answer == "200 COMMITTED replayed" || answer == "OUTCOME_ABORTED (ABORTED)", "{answer}");
        }
    }
    assert_eq!(c.raw.get("/v1/txns").await.ok(200)["items"], json!([]));
    let after = ratified_tests::answers::without_countdowns(c.preserver().await.ok(200).json);
    assert_eq!(after, ratified_tests::answers::without_countdowns(kept));
}
