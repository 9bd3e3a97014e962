//! The outcome table: what every call is answered in every state. One row per call, one column per state.

use ratified_tests::{config::Config, process::Ratifyd, raw::Reply, session::Session, shape::in_short};
use serde_json::{Value, json};

/// The columns.
const STATES: [&str; 9] =
    ["OPEN", "OPEN requirePrepare", "PREPARED", "COMMITTING", "COMMITTED", "ABORTING", "ABORTED", "absent", "evicted"];
/// Ids up to here are below the client's `evictedThrough`.
const EVICTED: u64 = 100;

/// A coordinator with one client, and the ids its transactions are given.
struct Table {
    _ratifyd: Ratifyd,
    c: Session,
    next: u64,
    next_evicted: u64,
}

impl Table {
    async fn new() -> Self {
        let ratifyd = Ratifyd::start(Config::new()).await;
        let c = Session::open(&ratifyd.raw(), "c", 1).await;
        c.begin(EVICTED, json!({})).await.ok(201);
        c.abort(EVICTED).await.ok(200);
        c.raw.post("/v1/clients/c/forget", json!({"reason": "test"})).await.ok(200);
        let c = Session::open(&c.raw, "c", 2).await;
        Self { _ratifyd: ratifyd, c, next: EVICTED, next_evicted: 0 }
    }

    /// A transaction in this state. Where somebody still has to acknowledge, it is `p`.
    async fn bring(&mut self, state: &str) -> u64 {
        if state == "evicted" {
            self.next_evicted += 1;
            return self.next_evicted;
        }
        self.next += 1;
        let (c, n) = (&self.c, self.next);
        if state == "absent" {
            return n;
        }
        let waits = matches!(state, "COMMITTING" | "COMMITTED" | "ABORTING" | "ABORTED");
        let participants = if waits { vec!["p"] } else { vec![] };
        let body = json!({"participants": participants, "requirePrepare": state.ends_with("requirePrepare")});
        c.begin(n, body).await.ok(201);
        match state {
            "PREPARED" => drop(c.prepare(n, prepare()).await.ok(200)),
            "COMMITTING" | "COMMITTED" => drop(c.commit(n, json!({})).await.ok(202)),
            "ABORTING" | "ABORTED" => drop(c.abort(n).await.ok(202)),
            _ => {}
        }
        if matches!(state, "COMMITTED" | "ABORTED") {
            c.ack(n, "p", state).await.ok(200);
        }
        n
    }

    /// Makes the call in every state; the answers in short.
    async fn row(&mut self, call: impl AsyncFn(&Session, u64) -> Reply) -> Vec<String> {
        let mut answers = Vec::new();
        for state in STATES {
            let n = self.bring(state).await;
            let reply = call(&self.c, n).await;
            answers.push(in_short(&reply));
        }
        answers
    }
}

fn prepare() -> Value {
    json!({"checkpointId": 7, "payload": "aGFuZGxl"})
}

#[tokio::test]
async fn commit_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.commit(n, json!({})).await).await,
        [
            "200 COMMITTED",
            "TXN_NOT_PREPARED (OPEN)",
            "200 COMMITTED",
            "202 COMMITTING replayed",
            "200 COMMITTED replayed",
            "OUTCOME_ABORTED (ABORTING)",
            "OUTCOME_ABORTED (ABORTED)",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn abort_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.abort(n).await).await,
        [
            "200 ABORTED",
            "200 ABORTED",
            "200 ABORTED",
            "OUTCOME_COMMITTED (COMMITTING)",
            "OUTCOME_COMMITTED (COMMITTED)",
            "202 ABORTING replayed",
            "200 ABORTED replayed",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn an_abort_of_an_absent_id_stores_nothing() {
    let mut table = Table::new().await;
    let n = table.bring("absent").await;
    table.c.abort(n).await.refused("TXN_NOT_FOUND");
    table.c.begin(n, json!({})).await.ok(201);
    assert_eq!(table.c.commit(n, json!({})).await.ok(200)["state"], "COMMITTED");
}

#[tokio::test]
async fn get_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.get(n).await).await,
        [
            "200 OPEN",
            "200 OPEN",
            "200 PREPARED",
            "200 COMMITTING",
            "200 COMMITTED",
            "200 ABORTING",
            "200 ABORTED",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn begin_with_other_parameters_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.begin(n, json!({"timeoutMs": 59_999})).await).await,
        [
            "TXN_ID_REUSED (OPEN)",
            "TXN_ID_REUSED (OPEN)",
            "TXN_ID_REUSED (PREPARED)",
            "200 COMMITTING replayed",
            "200 COMMITTED replayed",
            "200 ABORTING replayed",
            "200 ABORTED replayed",
            "201 OPEN",
            "TXN_ID_TOO_OLD",
        ]
    );
}

#[tokio::test]
async fn begin_with_the_default_parameters_in_every_state() {
    let mut table = Table::new().await;
    let body = json!({"timeoutMs": 60_000, "requirePrepare": false, "participants": [], "labels": {}});
    assert_eq!(
        table.row(async |c, n| c.begin(n, body.clone()).await).await,
        [
            "200 OPEN replayed",
            "TXN_ID_REUSED (OPEN)",
            "200 PREPARED replayed",
            "200 COMMITTING replayed",
            "200 COMMITTED replayed",
            "200 ABORTING replayed",
            "200 ABORTED replayed",
            "201 OPEN",
            "TXN_ID_TOO_OLD",
        ]
    );
}

#[tokio::test]
async fn prepare_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.prepare(n, prepare()).await).await,
        [
            "200 PREPARED",
            "200 PREPARED",
            "200 PREPARED replayed",
            "200 COMMITTING replayed",
            "200 COMMITTED replayed",
            "OUTCOME_ABORTED (ABORTING)",
            "OUTCOME_ABORTED (ABORTED)",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn keep_alive_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.keep_alive(n).await).await,
        [
            "200 OPEN",
            "200 OPEN",
            "200 PREPARED",
            "200 COMMITTING replayed",
            "200 COMMITTED replayed",
            "OUTCOME_ABORTED (ABORTING)",
            "OUTCOME_ABORTED (ABORTED)",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn registration_of_a_new_name_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.register(n, "q").await).await,
        [
            "201 OPEN",
            "201 OPEN",
            "INVALID_TXN_STATE (PREPARED)",
            "INVALID_TXN_STATE (COMMITTING)",
            "INVALID_TXN_STATE (COMMITTED)",
            "INVALID_TXN_STATE (ABORTING)",
            "INVALID_TXN_STATE (ABORTED)",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn ack_of_a_commit_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.ack(n, "p", "COMMITTED").await).await,
        [
            "INVALID_TXN_STATE (OPEN)",
            "INVALID_TXN_STATE (OPEN)",
            "INVALID_TXN_STATE (PREPARED)",
            "200 COMMITTED",
            "200 COMMITTED replayed",
            "INVALID_TXN_STATE (ABORTING)",
            "INVALID_TXN_STATE (ABORTED)",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn ack_of_an_abort_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.ack(n, "p", "ABORTED").await).await,
        [
            "INVALID_TXN_STATE (OPEN)",
            "INVALID_TXN_STATE (OPEN)",
            "INVALID_TXN_STATE (PREPARED)",
            "INVALID_TXN_STATE (COMMITTING)",
            "INVALID_TXN_STATE (COMMITTED)",
            "200 ABORTED",
            "200 ABORTED replayed",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn resolve_to_commit_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.resolve(n, "COMMIT").await).await,
        [
            "TXN_NOT_PREPARED (OPEN)",
            "TXN_NOT_PREPARED (OPEN)",
            "200 COMMITTED",
            "202 COMMITTING replayed",
            "200 COMMITTED replayed",
            "OUTCOME_ABORTED (ABORTING)",
            "OUTCOME_ABORTED (ABORTED)",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn resolve_to_abort_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.resolve(n, "ABORT").await).await,
        [
            "200 ABORTED",
            "200 ABORTED",
            "200 ABORTED",
            "OUTCOME_COMMITTED (COMMITTING)",
            "OUTCOME_COMMITTED (COMMITTED)",
            "202 ABORTING replayed",
            "200 ABORTED replayed",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn preserver_lookup_in_every_state() {
    let mut table = Table::new().await;
    assert_eq!(
        table.row(async |c, n| c.preserved(n).await).await,
        [
            "INVALID_TXN_STATE (OPEN)",
            "INVALID_TXN_STATE (OPEN)",
            "INVALID_TXN_STATE (PREPARED)",
            "200 COMMITTED",
            "200 COMMITTED",
            "200 ABORTED",
            "200 ABORTED",
            "TXN_NOT_FOUND",
            "OUTCOME_EXPIRED",
        ]
    );
}

#[tokio::test]
async fn every_call_about_a_client_that_never_opened_is_client_not_found() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session { raw: ratifyd.raw(), client: "stranger".to_owned(), epoch: 1 };
    for reply in [
        c.begin(1, json!({})).await,
        c.prepare(1, json!({})).await,
        c.commit(1, json!({})).await,
        c.abort(1).await,
        c.keep_alive(1).await,
        c.get(1).await,
        c.register(1, "p").await,
        c.ack(1, "p", "COMMITTED").await,
        c.resolve(1, "ABORT").await,
        c.batch(json!([]), true).await,
        c.preserver().await,
        c.preserved(1).await,
        c.raw.post("/v1/clients/stranger/forget", json!({"reason": "test"})).await,
    ] {
        let _ = reply.refused("CLIENT_NOT_FOUND");
    }
}
