//! Fencing: when the epoch is looked at, and what a stale owner is told.

use ratified_tests::{
    config::Config,
    process::Ratifyd,
    raw::Reply,
    session::{Session, id},
    shape::in_short,
};
use serde_json::{Value, json};

/// A client in its second epoch, with one transaction in each live state and one ended each way; all of epoch 1 but
/// the OPEN one.
async fn client() -> (Ratifyd, Session, Session) {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let old = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=6 {
        old.begin(n, json!({"participants": if n <= 4 { vec!["p"] } else { vec![] }})).await.ok(201);
    }
    old.prepare(2, json!({})).await.ok(200);
    old.commit(3, json!({})).await.ok(202);
    old.abort(4).await.ok(202);
    old.commit(5, json!({})).await.ok(200);
    old.abort(6).await.ok(200);
    let new = Session::open(&ratifyd.raw(), "c", 2).await;
    new.begin(7, json!({})).await.ok(201);
    (ratifyd, old, new)
}

/// The calls that look at the epoch, with this epoch.
async fn with_epoch(c: &Session, n: u64, epoch: Value) -> Vec<(&'static str, Reply)> {
    let body = json!({"epoch": epoch});
    let path = format!("{}/participants/q", c.path(n));
    vec![
        ("begin", c.raw.put(&c.path(n), body.clone()).await),
        ("prepare", c.post(n, "prepare", body.clone()).await),
        ("keep-alive", c.post(n, "keep-alive", body.clone()).await),
        ("abort", c.post(n, "abort", body.clone()).await),
        ("commit", c.post(n, "commit", body.clone()).await),
        ("register", c.raw.put(&path, body).await),
    ]
}

#[tokio::test]
async fn a_smaller_epoch_is_fenced_and_told_who_holds_the_client() {
    let (_ratifyd, _, new) = client().await;
    for (call, reply) in with_epoch(&new, 7, json!(1)).await {
        let refused = reply.refused("FENCED");
        assert_eq!((&refused["currentEpoch"], &refused["owner"]), (&json!(2), &json!("owner 2")), "{call}");
    }
    assert_eq!(new.get(7).await.ok(200)["state"], "OPEN");
    new.begin(8, json!({"epoch": 0})).await.refused("FENCED");
}

#[tokio::test]
async fn a_larger_epoch_means_the_coordinator_has_forgotten() {
    let (_ratifyd, _, new) = client().await;
    for (_, reply) in with_epoch(&new, 7, json!(3)).await {
        reply.refused("EPOCH_UNKNOWN");
    }
    assert_eq!(new.get(7).await.ok(200)["state"], "OPEN");
}

#[tokio::test]
async fn a_missing_epoch_is_a_malformed_call_where_one_is_needed() {
    let (_ratifyd, _, new) = client().await;
    for (call, reply) in with_epoch(&new, 7, json!(null)).await {
        let refused = reply.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains("epoch"), "{call}: {}", refused.text);
    }
    assert_eq!(new.get(7).await.ok(200)["state"], "OPEN");
}

#[tokio::test]
async fn a_decided_outcome_is_told_to_every_epoch_whichever_was_asked_for() {
    let (_ratifyd, _, new) = client().await;
    for epoch in [json!(1), json!(2), json!(99), json!(null)] {
        let body = || json!({"epoch": epoch.clone()});
        let mut told = Vec::new();
        for n in [3, 4, 5, 6] {
            told.push(in_short(&new.commit(n, body()).await));
            told.push(in_short(&new.post(n, "abort", body()).await));
            told.push(in_short(&new.prepare(n, body()).await));
            told.push(in_short(&new.begin(n, body()).await));
        }
        assert_eq!(
            told,
            [
                "202 COMMITTING replayed",
                "OUTCOME_COMMITTED (COMMITTING)",
                "200 COMMITTING replayed",
                "200 COMMITTING replayed",
                "OUTCOME_ABORTED (ABORTING)",
                "202 ABORTING replayed",
                "OUTCOME_ABORTED (ABORTING)",
                "200 ABORTING replayed",
                "200 COMMITTED replayed",
                "OUTCOME_COMMITTED (COMMITTED)",
                "200 COMMITTED replayed",
                "200 COMMITTED replayed",
                "OUTCOME_ABORTED (ABORTED)",
                "200 ABORTED replayed",
                "OUTCOME_ABORTED (ABORTED)",
                "200 ABORTED replayed",
            ],
            "epoch {epoch}"
        );
    }
}

#[tokio::test]
async fn commit_of_a_prepared_one_needs_no_epoch_but_a_given_one_must_be_current() {
    let (_ratifyd, old, new) = client().await;
    old.commit(2, json!({})).await.refused("FENCED");
    new.commit(2, json!({"epoch": 3})).await.refused("EPOCH_UNKNOWN");
    assert_eq!(in_short(&new.commit(2, json!({"epoch": null})).await), "202 COMMITTING");
}

#[tokio::test]
async fn the_new_owner_commits_what_the_old_one_prepared() {
    let (_ratifyd, _, new) = client().await;
    assert_eq!(in_short(&new.commit(2, json!({})).await), "202 COMMITTING");
    assert_eq!(new.get(2).await.ok(200)["epoch"], 1);
}

#[tokio::test]
async fn abort_of_a_prepared_one_needs_the_current_epoch() {
    let (_ratifyd, old, new) = client().await;
    old.abort(2).await.refused("FENCED");
    new.post(2, "abort", json!({"epoch": null})).await.refused("INVALID_ARGUMENT");
    assert_eq!(new.get(2).await.ok(200)["state"], "PREPARED");
    assert_eq!(in_short(&new.abort(2).await), "202 ABORTING");
}

#[tokio::test]
async fn a_slow_prepare_of_the_old_owner_leaves_no_orphan() {
    let (_ratifyd, old, _) = client().await;
    let refused = old.prepare(1, json!({})).await.refused("OUTCOME_ABORTED");
    assert_eq!(refused["txn"]["endReason"], "FENCED");
    old.begin(9, json!({})).await.refused("FENCED");
    old.get(9).await.refused("TXN_NOT_FOUND");
}

#[tokio::test]
async fn acks_need_no_epoch() {
    let (_ratifyd, old, _) = client().await;
    assert_eq!(in_short(&old.ack(3, "p", "COMMITTED").await), "200 COMMITTED");
    assert_eq!(in_short(&old.ack(4, "p", "ABORTED").await), "200 ABORTED");
}

#[tokio::test]
async fn an_absent_id_is_absent_to_every_epoch() {
    let (_ratifyd, _, new) = client().await;
    for epoch in [json!(1), json!(99), json!(null)] {
        new.commit(9, json!({"epoch": epoch})).await.refused("TXN_NOT_FOUND");
        new.post(9, "abort", json!({"epoch": epoch})).await.refused("TXN_NOT_FOUND");
        new.prepare(9, json!({"epoch": epoch})).await.refused("TXN_NOT_FOUND");
    }
}

#[tokio::test]
async fn of_many_that_open_at_once_exactly_one_owns_the_client() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    let opens = (1..=8).map(|n| {
        let raw = raw.clone();
        tokio::spawn(async move { Session::open(&raw, "c", n).await })
    });
    let mut sessions = Vec::new();
    for open in opens.collect::<Vec<_>>() {
        sessions.push(open.await.unwrap());
    }
    let mut epochs: Vec<_> = sessions.iter().map(|s| s.epoch).collect();
    epochs.sort_unstable();
    assert_eq!(epochs, (1..=8).collect::<Vec<_>>());
    for s in &sessions {
        let begun = s.begin(s.epoch, json!({})).await;
        assert_eq!(in_short(&begun), if s.epoch == 8 { "201 OPEN" } else { "FENCED" });
    }
    assert_eq!(raw.get("/v1/txns").await.ok(200)["items"].as_array().unwrap().len(), 1);
    assert_eq!(raw.get("/v1/txns").await.ok(200)["items"][0]["txnId"], id(8));
}
