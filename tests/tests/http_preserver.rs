//! The preserver: what is kept, how much, how long, and what is told of what is gone.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    config::Config,
    poll,
    process::Ratifyd,
    raw::Reply,
    session::{Session, id},
    shape::{in_short, shape},
};
use serde_json::{Value, json};

async fn end(c: &Session, n: u64, outcome: &str) {
    c.begin(n, json!({})).await.ok(201);
    match outcome {
        "COMMITTED" => c.commit(n, json!({"checkpointId": n})).await.ok(200),
        _ => c.abort(n).await.ok(200),
    };
}

fn kept(answer: &Reply) -> Vec<&Value> {
    answer["outcomes"].as_array().unwrap().iter().map(|o| &o["txnId"]).collect()
}

/// Waits until exactly these are kept, newest first.
async fn until_kept(c: &Session, ns: &[u64]) -> Reply {
    let expected: Vec<_> = ns.iter().map(|n| json!(id(*n))).collect();
    poll::until(&format!("exactly {ns:?} to be kept"), || async {
        let answer = c.preserver().await.ok(200);
        (kept(&answer) == expected.iter().collect::<Vec<_>>()).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn outcomes_are_listed_newest_first_and_whole() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    end(&c, 2, "COMMITTED").await;
    end(&c, 1, "ABORTED").await;
    c.begin(3, json!({"participants": ["p"]})).await.ok(201);
    c.commit(3, json!({"payload": "dGhyZWU="})).await.ok(202);
    c.begin(4, json!({})).await.ok(201);
    let answer = c.preserver().await.ok(200);
    let ended = |n: u64, outcome: &str, checkpoint: Value| {
        json!({"txnId": id(n), "outcome": outcome, "endReason": "CLIENT", "checkpointId": checkpoint, "endTime": "T",
            "keptForMs": "MS"})
    };
    let mut ending = ended(3, "COMMITTED", json!(null));
    ending.as_object_mut().unwrap().remove("endTime");
    assert_eq!(
        shape(&answer.json),
        json!({"clientName": "c", "persistCount": 64, "evictedThrough": null,
            "outcomes": [ending, ended(1, "ABORTED", json!(null)), ended(2, "COMMITTED", json!(2))],
            "lastCommitted": {"txnId": id(3), "checkpointId": null, "payload": "dGhyZWU=", "endTime": "T",
                "endReason": "CLIENT"}})
    );
}

#[tokio::test]
async fn the_newest_n_of_each_outcome_are_kept() {
    let ratifyd = Ratifyd::start(Config::evicting(2)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=4 {
        end(&c, n, "COMMITTED").await;
    }
    for n in 5..=8 {
        end(&c, n, "ABORTED").await;
    }
    let answer = until_kept(&c, &[8, 7, 4, 3]).await;
    assert_eq!((&answer["persistCount"], &answer["evictedThrough"]), (&json!(2), &json!(id(6))));
    assert_eq!(answer["lastCommitted"]["txnId"], id(4));
    assert_eq!(in_short(&c.commit(4, json!({})).await), "200 COMMITTED replayed");
    assert_eq!(in_short(&c.abort(8).await), "200 ABORTED replayed");
}

#[tokio::test]
async fn a_crash_looping_job_never_pushes_its_commit_out_by_its_aborts() {
    let ratifyd = Ratifyd::start(Config::evicting(1)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    end(&c, 1, "COMMITTED").await;
    end(&c, 2, "COMMITTED").await;
    for n in 3..=10 {
        end(&c, n, "ABORTED").await;
    }
    until_kept(&c, &[10, 2]).await;
    assert_eq!(in_short(&c.commit(2, json!({})).await), "200 COMMITTED replayed");
}

#[tokio::test]
async fn what_was_evicted_is_expired_and_never_guessed() {
    let ratifyd = Ratifyd::start(Config::evicting(1)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 2..=4 {
        end(&c, n, "COMMITTED").await;
    }
    let answer = until_kept(&c, &[4]).await;
    assert_eq!(answer["evictedThrough"], id(3));
    for n in [1, 2, 3] {
        assert_eq!(in_short(&c.get(n).await), "OUTCOME_EXPIRED");
        assert_eq!(in_short(&c.commit(n, json!({})).await), "OUTCOME_EXPIRED");
        assert_eq!(in_short(&c.abort(n).await), "OUTCOME_EXPIRED");
        assert_eq!(in_short(&c.prepare(n, json!({})).await), "OUTCOME_EXPIRED");
        assert_eq!(in_short(&c.keep_alive(n).await), "OUTCOME_EXPIRED");
        assert_eq!(in_short(&c.register(n, "p").await), "OUTCOME_EXPIRED");
        assert_eq!(in_short(&c.ack(n, "p", "COMMITTED").await), "OUTCOME_EXPIRED");
        assert_eq!(in_short(&c.resolve(n, "ABORT").await), "OUTCOME_EXPIRED");
        assert_eq!(in_short(&c.preserved(n).await), "OUTCOME_EXPIRED");
        assert_eq!(in_short(&c.begin(n, json!({})).await), "TXN_ID_TOO_OLD");
    }
    assert_eq!(in_short(&c.get(5).await), "TXN_NOT_FOUND");
    let opened = Session::open(&c.raw, "c", 2).await;
    assert_eq!(in_short(&opened.begin(5, json!({})).await), "201 OPEN");
}

#[tokio::test]
async fn an_id_that_never_ended_is_told_although_later_ones_were_evicted() {
    let ratifyd = Ratifyd::start(Config::evicting(1)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"timeoutMs": 600_000})).await.ok(201);
    for n in 2..=4 {
        end(&c, n, "ABORTED").await;
    }
    until_kept(&c, &[4]).await;
    assert_eq!(in_short(&c.get(1).await), "200 OPEN");
    assert_eq!(in_short(&c.commit(1, json!({})).await), "200 COMMITTED");
    assert_eq!(in_short(&c.commit(1, json!({})).await), "200 COMMITTED replayed");
}

#[tokio::test]
async fn a_count_of_zero_keeps_nothing_but_the_last_commit() {
    let ratifyd = Ratifyd::start(Config::evicting(0)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    end(&c, 1, "COMMITTED").await;
    end(&c, 2, "COMMITTED").await;
    let answer = until_kept(&c, &[]).await;
    assert_eq!((&answer["persistCount"], &answer["evictedThrough"]), (&json!(0), &json!(id(1))));
    assert_eq!(answer["lastCommitted"]["txnId"], id(2));
    let told = c.commit(2, json!({})).await.ok(200);
    assert_eq!((&told["state"], &told["preserved"]), (&json!("COMMITTED"), &json!(false)));
    assert_eq!(in_short(&c.abort(2).await), "OUTCOME_COMMITTED (COMMITTED)");
    assert_eq!(c.preserved(2).await.ok(200)["keptForMs"], Value::Null);
    assert_eq!(in_short(&c.get(1).await), "OUTCOME_EXPIRED");
}

#[tokio::test]
async fn expiry_takes_everything_old_but_the_last_commit() {
    let config = Config::new()
        .with("min_committed_per_client", 0)
        .with("transaction_meta_persist_time_in_hour", 0.000_05)
        .with("transaction_meta_expire_check_interval_in_second", 1);
    let ratifyd = Ratifyd::start(config).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    end(&c, 1, "COMMITTED").await;
    end(&c, 2, "COMMITTED").await;
    end(&c, 3, "ABORTED").await;
    let answer = until_kept(&c, &[]).await;
    assert_eq!(answer["evictedThrough"], id(3));
    assert_eq!(in_short(&c.get(2).await), "200 COMMITTED");
    assert_eq!(in_short(&c.get(1).await), "OUTCOME_EXPIRED");
    assert_eq!(in_short(&c.get(3).await), "OUTCOME_EXPIRED");
    end(&c, 4, "COMMITTED").await;
    assert_eq!(in_short(&c.get(2).await), "OUTCOME_EXPIRED");
}

#[tokio::test]
async fn expiry_deletes_the_record_and_a_restart_does_not_bring_it_back() {
    let config = Config::new()
        .with("transaction_meta_persist_time_in_hour", 0.000_05)
        .with("transaction_meta_expire_check_interval_in_second", 1);
    let mut ratifyd = Ratifyd::start(config).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    end(&c, 1, "ABORTED").await;
    until_kept(&c, &[]).await;
    ratifyd.configure(&Config::new());
    ratifyd.crash().await;
    assert_eq!(kept(&c.preserver().await.ok(200)), Vec::<&Value>::new());
    assert_eq!(in_short(&c.get(1).await), "OUTCOME_EXPIRED");
}

#[tokio::test]
async fn beyond_max_outcomes_the_oldest_goes_whatever_its_age() {
    let config = Config::new().with("transaction_meta_persist_count", 1).with("max_outcomes_per_client", 3);
    let ratifyd = Ratifyd::start(config).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=5 {
        end(&c, n, "ABORTED").await;
    }
    let answer = c.preserver().await.ok(200);
    assert_eq!(kept(&answer), [&json!(id(5)), &json!(id(4)), &json!(id(3))]);
    assert_eq!(answer["evictedThrough"], id(2));
}

#[tokio::test]
async fn an_outcome_somebody_still_has_to_acknowledge_is_never_evicted() {
    let ratifyd = Ratifyd::start(Config::evicting(1)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({"participants": ["p"]})).await.ok(201);
    c.abort(1).await.ok(202);
    for n in 2..=5 {
        end(&c, n, "ABORTED").await;
    }
    let answer = until_kept(&c, &[1, 5]).await;
    assert_eq!(answer["evictedThrough"], id(4));
    assert_eq!(in_short(&c.get(1).await), "200 ABORTING");
    c.ack(1, "p", "ABORTED").await.ok(200);
    until_kept(&c, &[1]).await;
}

#[tokio::test]
async fn the_payload_of_what_was_committed_before_the_last_is_dropped() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=2 {
        c.begin(n, json!({})).await.ok(201);
        c.commit(n, json!({"payload": "aGFuZGxl"})).await.ok(200);
    }
    assert_eq!(c.get(2).await.ok(200)["payload"], "aGFuZGxl");
    assert_eq!(c.get(1).await.ok(200).json.get("payload"), None);
}
