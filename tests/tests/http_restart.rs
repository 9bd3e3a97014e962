//! What a restart must not change: every answer, after SIGKILL and after SIGTERM.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    answers::{ask, fill, without_countdowns},
    config::Config,
    process::Ratifyd,
    session::{Session, id, incarnation},
    shape::in_short,
};
use serde_json::json;

#[tokio::test]
async fn answers_are_the_same_after_sigkill() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = fill(&ratifyd).await;
    let before = ask(&c).await;
    for _ in 0..3 {
        ratifyd.crash().await;
        assert_eq!(ask(&c).await, before);
    }
}

#[tokio::test]
async fn answers_are_the_same_after_sigterm() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = fill(&ratifyd).await;
    let before = ask(&c).await;
    for _ in 0..2 {
        assert_eq!(ratifyd.terminate().await.code(), Some(0));
        ratifyd.start_again().await;
        assert_eq!(ask(&c).await, before);
    }
}

#[tokio::test]
async fn a_repeated_open_is_answered_the_same_after_a_restart() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = fill(&ratifyd).await;
    let open = || c.raw.post("/v1/clients/c/open", json!({"incarnation": incarnation(2)}));
    let before = without_countdowns(open().await.ok(200).json);
    assert_eq!((&before["epoch"], before["unfinished"].as_array().unwrap().len()), (&json!(2), 7));
    ratifyd.crash().await;
    assert_eq!(without_countdowns(open().await.ok(200).json), before);
    c.raw.post("/v1/clients/c/open", json!({"incarnation": incarnation(1)})).await.refused("FENCED");
    assert_eq!(Session::open(&c.raw, "c", 4).await.epoch, 3);
}

#[tokio::test]
async fn every_start_raises_the_loads_of_the_same_store_by_one() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    let store = c.raw.get("/v1").await.header("ratified-store").unwrap();
    let cluster = store.split('.').next().unwrap();
    assert_eq!(store, format!("{cluster}.1"));
    for loads in 2..=4 {
        if loads % 2 == 0 {
            ratifyd.kill();
        } else {
            ratifyd.terminate().await;
        }
        ratifyd.start_again().await;
        let store = c.raw.get("/v1").await.header("ratified-store").unwrap();
        assert_eq!(store, format!("{cluster}.{loads}"));
    }
}

#[tokio::test]
async fn what_is_open_gets_one_full_new_period() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"timeoutMs": 600_000})).await.ok(201);
    c.begin(2, json!({})).await.ok(201);
    c.prepare(2, json!({"preparedTimeoutMs": 600_000})).await.ok(200);
    let left = async |n: u64| c.get(n).await.ok(200)["deadlineInMs"].as_u64().unwrap();
    ratified_tests::poll::until("some time to pass", || async { (left(1).await < 599_000).then_some(()) }).await;
    let before = (left(1).await, left(2).await);
    ratifyd.crash().await;
    let after = (left(1).await, left(2).await);
    assert!(after.0 > before.0 && after.1 > before.1, "{after:?} > {before:?}");
}

#[tokio::test]
async fn a_chain_goes_on_where_the_crash_stopped_it() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = fill(&ratifyd).await;
    ratifyd.crash().await;
    assert_eq!(in_short(&c.ack(3, "p", "COMMITTED").await), "200 COMMITTED");
    assert_eq!(in_short(&c.prepare(2, json!({"checkpointId": 2, "payload": "dHdv"})).await), "200 PREPARED replayed");
    ratifyd.crash().await;
    assert_eq!(in_short(&c.commit(3, json!({})).await), "200 COMMITTED replayed");
    assert_eq!(in_short(&c.commit(2, json!({})).await), "202 COMMITTING");
    ratifyd.crash().await;
    assert_eq!(in_short(&c.commit(2, json!({})).await), "202 COMMITTING replayed");
    assert_eq!(in_short(&c.abort(2).await), "OUTCOME_COMMITTED (COMMITTING)");
    for participant in ["p", "q"] {
        c.ack(2, participant, "COMMITTED").await.ok(200);
    }
    ratifyd.crash().await;
    assert_eq!(in_short(&c.get(2).await), "200 COMMITTED");
}

#[tokio::test]
async fn the_number_kept_per_outcome_survives_a_restart_and_follows_the_configuration() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=10 {
        c.begin(n, json!({})).await.ok(201);
        if n % 2 == 0 {
            c.commit(n, json!({})).await.ok(200);
        } else {
            c.abort(n).await.ok(200);
        }
    }
    ratifyd.configure(&Config::evicting(2));
    ratifyd.crash().await;
    let kept = ratified_tests::poll::until("what is beyond the count to go", || async {
        let kept = c.preserver().await.ok(200);
        (kept["outcomes"].as_array().unwrap().len() == 4).then_some(kept)
    })
    .await;
    let ids: Vec<_> = kept["outcomes"].as_array().unwrap().iter().map(|o| &o["txnId"]).collect();
    assert_eq!(ids, [&json!(id(10)), &json!(id(9)), &json!(id(8)), &json!(id(7))]);
    assert_eq!(kept["evictedThrough"], id(6));
    ratifyd.crash().await;
    assert_eq!(in_short(&c.get(6).await), "OUTCOME_EXPIRED");
    assert_eq!(in_short(&c.get(7).await), "200 ABORTED");
}
