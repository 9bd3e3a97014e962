//! Listings: filters, order, pages.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    config::Config,
    process::Ratifyd,
    raw::{Raw, Reply},
    session::{Session, id},
    shape::shape,
};
use serde_json::{Value, json};

/// What a listing of transactions names, as `client/n`.
fn names(answer: &Reply) -> Vec<String> {
    let items = answer["items"].as_array().unwrap();
    let n = |t: &Value| u64::from_str_radix(&t["txnId"].as_str().unwrap()[24..], 16).unwrap();
    items.iter().map(|t| format!("{}/{}", t["clientName"].as_str().unwrap(), n(t))).collect()
}

fn clients(answer: &Reply) -> Vec<&str> {
    answer["items"].as_array().unwrap().iter().map(|c| c["clientName"].as_str().unwrap()).collect()
}

/// Three clients with transactions in every state.
async fn filled() -> (Ratifyd, Raw) {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let raw = ratifyd.raw();
    for (at, name) in ["job.0", "job.1", "other"].into_iter().enumerate() {
        let c = Session::open(&raw, name, at as u64).await;
        for n in 1..=6 {
            c.begin(n, json!({"participants": if n <= 4 { vec!["p"] } else { vec![] }})).await.ok(201);
        }
        c.prepare(2, json!({"checkpointId": 2})).await.ok(200);
        c.commit(3, json!({})).await.ok(202);
        c.abort(4).await.ok(202);
        c.commit(5, json!({})).await.ok(200);
        c.abort(6).await.ok(200);
    }
    (ratifyd, raw)
}

#[tokio::test]
async fn transactions_are_listed_live_unless_a_terminal_state_is_asked_for() {
    let (_ratifyd, raw) = filled().await;
    for (query, expected) in [
        (
            "?clientPrefix=job.",
            vec!["job.0/1", "job.0/2", "job.0/3", "job.0/4", "job.1/1", "job.1/2", "job.1/3", "job.1/4"],
        ),
        ("?client=other", vec!["other/1", "other/2", "other/3", "other/4"]),
        ("?state=OPEN", vec!["job.0/1", "job.1/1", "other/1"]),
        ("?state=PREPARED", vec!["job.0/2", "job.1/2", "other/2"]),
        ("?state=COMMITTING&client=job.1", vec!["job.1/3"]),
        ("?state=ABORTING&clientPrefix=o", vec!["other/4"]),
        ("?state=COMMITTED", vec!["job.0/5", "job.1/5", "other/5"]),
        ("?state=ABORTED&client=job.0", vec!["job.0/6"]),
        ("?client=job.0&clientPrefix=job.", vec!["job.0/1", "job.0/2", "job.0/3", "job.0/4"]),
        ("?client=job.0&clientPrefix=other", vec![]),
        ("?client=stranger", vec![]),
        ("?olderThanMs=600000", vec![]),
        ("?olderThanMs=0&client=other&state=OPEN", vec!["other/1"]),
    ] {
        assert_eq!(names(&raw.get(&format!("/v1/txns{query}")).await.ok(200)), expected, "{query}");
    }
}

#[tokio::test]
async fn the_clients_of_a_sink_are_its_name_and_a_number() {
    let (_ratifyd, raw) = filled().await;
    Session::open(&raw, "job.x", 1).await;
    assert_eq!(clients(&raw.get("/v1/clients?sink=job").await.ok(200)), ["job.0", "job.1"]);
    assert_eq!(clients(&raw.get("/v1/clients?sink=job&pageSize=1").await.ok(200)), ["job.0"]);
    assert_eq!(clients(&raw.get("/v1/clients?sink=other").await.ok(200)), [] as [&str; 0]);
    raw.get("/v1/clients?sink=a%2Fb").await.refused("INVALID_ARGUMENT");
    raw.get("/v1/clients?sink=job&prefix=job.").await.refused("INVALID_ARGUMENT");
}

#[tokio::test]
async fn pages_lead_on_until_the_token_is_absent() {
    let (_ratifyd, raw) = filled().await;
    let mut all = Vec::new();
    let mut query = "?pageSize=5".to_owned();
    loop {
        let page = raw.get(&format!("/v1/txns{query}")).await.ok(200);
        assert!(names(&page).len() <= 5);
        all.extend(names(&page));
        let Some(token) = page["nextPageToken"].as_str() else { break };
        query = format!("?pageSize=5&pageToken={token}");
    }
    assert_eq!(all.len(), 12);
    let mut sorted = all.clone();
    sorted.sort();
    assert_eq!(all, sorted);
}

#[tokio::test]
async fn a_token_is_stable_under_inserts() {
    let (_ratifyd, raw) = filled().await;
    let first = raw.get("/v1/txns?pageSize=6").await.ok(200);
    assert_eq!(names(&first).last().map(String::as_str), Some("job.1/2"));
    let token = first["nextPageToken"].as_str().unwrap();
    let early = Session::open(&raw, "a", 90).await;
    early.begin(1, json!({})).await.ok(201);
    let late = Session::open(&raw, "z", 91).await;
    late.begin(1, json!({})).await.ok(201);
    let rest = raw.get(&format!("/v1/txns?pageToken={token}")).await.ok(200);
    assert_eq!(names(&rest), ["job.1/3", "job.1/4", "other/1", "other/2", "other/3", "other/4", "z/1"]);
}

#[tokio::test]
async fn clients_are_listed_by_name_with_counts() {
    let (_ratifyd, raw) = filled().await;
    assert_eq!(clients(&raw.get("/v1/clients").await.ok(200)), ["job.0", "job.1", "other"]);
    let answer = raw.get("/v1/clients?prefix=oth").await.ok(200);
    assert_eq!(
        shape(&answer.json),
        json!({"items": [{"clientName": "other", "epoch": 1, "owner": "owner 2", "forgotten": false,
            "lastCommitted": {"txnId": id(5), "checkpointId": null, "endTime": "T", "endReason": "CLIENT"},
            "counts": {"OPEN": 1, "PREPARED": 1, "COMMITTING": 1, "COMMITTED": 1, "ABORTING": 1, "ABORTED": 1}}]})
    );
    let page = raw.get("/v1/clients?pageSize=2").await.ok(200);
    assert_eq!(clients(&page), ["job.0", "job.1"]);
    let token = page["nextPageToken"].as_str().unwrap();
    let rest = raw.get(&format!("/v1/clients?pageSize=2&pageToken={token}")).await.ok(200);
    assert_eq!((clients(&rest), rest.json.get("nextPageToken")), (vec!["other"], None));
}

#[tokio::test]
async fn page_sizes_are_coerced_into_their_bounds() {
    let ratifyd = Ratifyd::start(Config::new().with("max_open_per_client", 2000)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for from in [0, 1000] {
        let begins: Vec<_> =
            (from + 1..=from + 1000).map(|n| json!({"op": "begin", "txnId": id(n), "epoch": 1})).collect();
        assert_eq!(c.batch(json!(begins), true).await.ok(200)["stoppedAt"], Value::Null);
    }
    for (query, expected) in [("", 50), ("?pageSize=0", 1), ("?pageSize=1000", 1000), ("?pageSize=1001", 1000)] {
        assert_eq!(names(&c.raw.get(&format!("/v1/txns{query}")).await.ok(200)).len(), expected, "{query}");
    }
}

#[tokio::test]
async fn unknown_and_malformed_query_parameters_are_refused_by_name() {
    let (_ratifyd, raw) = filled().await;
    for (path, name) in [
        ("/v1/txns?status=OPEN", "status"),
        ("/v1/txns?state=open", "state"),
        ("/v1/txns?state=GONE", "state"),
        ("/v1/txns?client=a/b", "client"),
        ("/v1/txns?olderThanMs=-1", "olderThanMs"),
        ("/v1/txns?pageSize=many", "pageSize"),
        ("/v1/txns?pageToken=nonsense", "pageToken"),
        ("/v1/clients?clientPrefix=a", "clientPrefix"),
        ("/v1/clients?pageToken=%20", "pageToken"),
        ("/v1/clients/job.0/txns/0190f2c4-7a61-7000-8000-000000000001?wait=1", "wait"),
        ("/v1/clients/job.0/txns/0190f2c4-7a61-7000-8000-000000000001?waitMs=x", "waitMs"),
        ("/v1/participants/p/decisions?cursor=1", "cursor"),
        ("/v1/preserver/job.0?pageSize=1", "pageSize"),
    ] {
        let refused = raw.get(path).await.refused("INVALID_ARGUMENT");
        assert!(refused.detail().contains(name), "{path}: {}", refused.text);
    }
    let refused = raw.post("/v1/clients/job.0/open?waitMs=1", json!({})).await.refused("INVALID_ARGUMENT");
    assert!(refused.detail().contains("waitMs"), "{}", refused.text);
}

#[tokio::test]
async fn a_tombstone_is_listed_as_forgotten() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({})).await.ok(201);
    c.commit(1, json!({"payload": "eA=="})).await.ok(200);
    c.raw.post("/v1/clients/c/forget", json!({"reason": "moved"})).await.ok(200);
    assert_eq!(
        c.raw.get("/v1/clients").await.ok(200).json,
        json!({"items": [{"clientName": "c", "epoch": 1, "owner": null, "forgotten": true, "lastCommitted": null,
            "counts": {"OPEN": 0, "PREPARED": 0, "COMMITTING": 0, "COMMITTED": 0, "ABORTING": 0, "ABORTED": 0}}]})
    );
    assert_eq!(c.raw.get("/v1/txns?state=COMMITTED").await.ok(200).json, json!({"items": []}));
}
