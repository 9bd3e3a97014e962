//! One client name in one epoch: the calls a job makes, with the epoch filled in.

use serde_json::{Value, json};

use crate::raw::{Raw, Reply};

/// The n-th transaction id of a test: ascending with n, and readable.
pub fn id(n: u64) -> String {
    format!("0190f2c4-7a61-7000-8000-{n:012x}")
}

/// The n-th incarnation of a test.
pub fn incarnation(n: u64) -> String {
    format!("6b1c2e3f-0000-4000-8000-{n:012x}")
}

/// A JSON body of exactly so many bytes.
///
/// # Panics
/// When it is longer already.
pub fn padded(body: &Value, bytes: usize) -> String {
    let mut text = body.to_string();
    text.push_str(&" ".repeat(bytes.checked_sub(text.len()).expect("a body to be filled up")));
    text
}

/// A client that was opened.
#[derive(Debug, Clone)]
pub struct Session {
    /// The way to the coordinator.
    pub raw: Raw,
    /// The client's name.
    pub client: String,
    /// The epoch its `open` was given.
    pub epoch: u64,
}

impl Session {
    /// Opens the client by its n-th incarnation, making it if need be.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn open(raw: &Raw, client: &str, n: u64) -> Self {
        let body = json!({"incarnation": incarnation(n), "owner": format!("owner {n}"), "create": true});
        let answer = raw.post(&format!("/v1/clients/{client}/open"), body).await.ok(200);
        let epoch = answer["epoch"].as_u64().expect("an epoch");
        Self { raw: raw.clone(), client: client.to_owned(), epoch }
    }

    /// The path of the n-th transaction.
    pub fn path(&self, n: u64) -> String {
        format!("/v1/clients/{}/txns/{}", self.client, id(n))
    }

    /// `begin`.
    pub async fn begin(&self, n: u64, body: Value) -> Reply {
        self.raw.put(&self.path(n), self.with_epoch(body)).await
    }

    /// `prepare`.
    pub async fn prepare(&self, n: u64, body: Value) -> Reply {
        self.post(n, "prepare", body).await
    }

    /// `commit`.
    pub async fn commit(&self, n: u64, body: Value) -> Reply {
        self.post(n, "commit", body).await
    }

    /// `abort`.
    pub async fn abort(&self, n: u64) -> Reply {
        self.post(n, "abort", json!({})).await
    }

    /// `keep-alive`.
    pub async fn keep_alive(&self, n: u64) -> Reply {
        self.post(n, "keep-alive", json!({})).await
    }

    /// `GET` of the transaction.
    pub async fn get(&self, n: u64) -> Reply {
        self.raw.get(&self.path(n)).await
    }

    /// Registration of a participant.
    pub async fn register(&self, n: u64, participant: &str) -> Reply {
        self.raw.put(&format!("{}/participants/{participant}", self.path(n)), self.with_epoch(json!({}))).await
    }

    /// `ack` of an outcome by a participant.
    pub async fn ack(&self, n: u64, participant: &str, outcome: &str) -> Reply {
        let path = format!("{}/participants/{participant}/ack", self.path(n));
        self.raw.post(&path, json!({"outcome": outcome})).await
    }

    /// `resolve` by an operator.
    pub async fn resolve(&self, n: u64, outcome: &str) -> Reply {
        let body = json!({"outcome": outcome, "reason": "test", "actor": "operator"});
        self.raw.post(&format!("{}/resolve", self.path(n)), body).await
    }

    /// `batch` of these operations.
    pub async fn batch(&self, operations: Value, ordered: bool) -> Reply {
        let body = json!({"operations": operations, "ordered": ordered});
        self.raw.post(&format!("/v1/clients/{}/batch", self.client), body).await
    }

    /// What the preserver keeps about the client.
    pub async fn preserver(&self) -> Reply {
        self.raw.get(&format!("/v1/preserver/{}", self.client)).await
    }

    /// What the preserver keeps about the n-th transaction.
    pub async fn preserved(&self, n: u64) -> Reply {
        self.raw.get(&format!("/v1/preserver/{}/{}", self.client, id(n))).await
    }

    /// A call about the n-th transaction, the epoch filled in unless the body names one.
    pub async fn post(&self, n: u64, call: &str, body: Value) -> Reply {
        self.raw.post(&format!("{}/{call}", self.path(n)), self.with_epoch(body)).await
    }

    fn with_epoch(&self, mut body: Value) -> Value {
        let members = body.as_object_mut().expect("a body is an object");
        members.entry("epoch").or_insert_with(|| self.epoch.into());
        body
    }
}
