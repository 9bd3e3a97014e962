//! The oracle of answers: whatever the coordinator has told anybody, it must never contradict.

use std::collections::{BTreeMap, BTreeSet};

use ratified::{ClientName, Outcome, TxnId, TxnState};
use serde_json::Value;

use crate::{
    participant::Applied,
    world::{Host, World},
};

/// A transaction's name for ever.
pub type Key = (ClientName, TxnId);

/// What was told.
#[derive(Debug, Default)]
pub struct Answers {
    outcomes: BTreeMap<Key, Outcome>,
    begun: BTreeSet<Key>,
    opened: BTreeSet<ClientName>,
    epochs: BTreeMap<(ClientName, u64), String>,
    greatest: BTreeMap<ClientName, u64>,
    /// What pulling participants have applied.
    pub applied: Applied,
}

impl Answers {
    /// The outcome that was told of a transaction.
    pub fn outcome(&self, key: &Key) -> Option<Outcome> {
        self.outcomes.get(key).copied()
    }

    /// Every transaction whose begin was acknowledged.
    pub fn begun(&self) -> &BTreeSet<Key> {
        &self.begun
    }

    fn told(&mut self, key: Key, outcome: Outcome) -> Result<(), String> {
        let known = *self.outcomes.entry(key.clone()).or_insert(outcome);
        if known == outcome { Ok(()) } else { Err(format!("{} of {} was told {known}, now {outcome}", key.1, key.0)) }
    }
}

/// A request, and what was known when it was sent.
pub struct Question {
    host: Host,
    method: String,
    path: String,
    client: Option<ClientName>,
    key: Option<Key>,
    incarnation: Option<String>,
    outcome: Option<Outcome>,
    was_begun: bool,
    was_opened: bool,
    least_epoch: u64,
    /// What each operation of a call over many clients asks, as if it were asked alone.
    operations: Vec<Question>,
}

impl Question {
    /// Takes down a request that is about to be sent.
    pub fn of(world: &World, host: Host, request: &reqwest::Request) -> Self {
        let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        Self::about(world, host, request.method().as_str(), request.url().path(), &body)
    }

    fn about(world: &World, host: Host, method: &str, path: &str, body: &Value) -> Self {
        let operations = body["operations"].as_array().filter(|_| path == "/v1/batch").into_iter().flatten();
        let alone = |operation: &Value| {
            let member = |name: &str| operation[name].as_str().unwrap_or_default();
            let path = format!("/v1/clients/{}/txns/{}/{}", member("clientName"), member("txnId"), member("op"));
            Self::about(world, host, "GATHERED", &path, &Value::Null)
        };
        let operations = operations.map(alone).collect();
        let parts: Vec<&str> = path.split('/').collect();
        let (client, id) = match parts.as_slice() {
            ["", "v1", "clients", client, "txns", id, ..] => {
                (client.parse::<ClientName>().ok(), id.parse::<TxnId>().ok())
            }
            ["", "v1", "clients", client, ..] => (client.parse().ok(), None),
            _ => (None, None),
        };
        let key = client.clone().zip(id);
        let answers = world.answers();
        Self {
            host,
            method: method.to_owned(),
            incarnation: body["incarnation"].as_str().map(str::to_owned),
            outcome: key.as_ref().and_then(|key| answers.outcome(key)),
            was_begun: key.as_ref().is_some_and(|key| answers.begun.contains(key)),
            was_opened: client.as_ref().is_some_and(|client| answers.opened.contains(client)),
            least_epoch: client.as_ref().and_then(|client| answers.greatest.get(client)).copied().unwrap_or_default(),
            path: path.to_owned(),
            client,
            key,
            operations,
        }
    }

    /// Judges its answer.
    pub fn answered(self, world: &World, status: u16, body: &[u8]) {
        self.told(world, status, &serde_json::from_slice(body).unwrap_or_default());
    }

    fn told(self, world: &World, status: u16, body: &Value) {
        let shown = match &self.key {
            Some((_, id)) => self.path.replace(&id.to_string(), &world.name(*id)),
            None => self.path.clone(),
        };
        let what = body["code"].as_str().or(body["state"].as_str()).unwrap_or_default();
        world.note(format!("{} {} {shown} -> {status} {what}", self.host, self.method));
        if let Err(violation) = self.judge(world, status, body) {
            world.violate(violation);
        }
        for (operation, result) in self.operations.into_iter().zip(body["results"].as_array().into_iter().flatten()) {
            world.count("calls gathered");
            let status = result["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or_default();
            operation.told(world, status, result.get("txn").unwrap_or(&result["problem"]));
        }
    }

    fn judge(&self, world: &World, status: u16, body: &Value) -> Result<(), String> {
        let mut answers = world.answers();
        let mut facts = Vec::new();
        collect(body, &mut facts);
        for (key, state) in &facts {
            if let Some(outcome) = state.outcome() {
                answers.told(key.clone(), outcome)?;
            } else if self.key.as_ref() == Some(key)
                && let Some(outcome) = self.outcome
            {
                return Err(format!("{} of {} was {outcome}, now {state:?}", key.1, key.0));
            }
        }
        if (200..300).contains(&status) {
            self.judge_success(&mut answers, body)?;
        }
        match (body["code"].as_str().unwrap_or_default(), &self.key) {
            ("TXN_NOT_FOUND", Some(key)) if self.was_begun => Err(format!("{key:?} had begun, now it is not found")),
            ("CLIENT_NOT_FOUND", _) if self.was_opened => Err(format!("{:?} had been opened", self.client)),
            // Nothing of a run is old enough to be evicted.
            ("OUTCOME_EXPIRED" | "TXN_ID_TOO_OLD" | "EPOCH_UNKNOWN" | "INVALID_ARGUMENT" | "TXN_ID_REUSED", _) => {
                Err(format!("{} {}: {body}", self.method, self.path))
            }
            _ => Ok(()),
        }
    }

    fn judge_success(&self, answers: &mut Answers, body: &Value) -> Result<(), String> {
        let Some(client) = &self.client else { return Ok(()) };
        if let Some(key) = &self.key {
            answers.begun.insert(key.clone());
        }
        if let Some(id) = body["lastCommitted"]["txnId"].as_str().and_then(|id| id.parse().ok()) {
            answers.told((client.clone(), id), Outcome::Committed)?;
        }
        let (Some(incarnation), Some(epoch)) = (&self.incarnation, body["epoch"].as_u64()) else { return Ok(()) };
        answers.opened.insert(client.clone());
        let holder = answers.epochs.entry((client.clone(), epoch)).or_insert_with(|| incarnation.clone());
        if holder != incarnation {
            return Err(format!("epoch {epoch} of {client} was given to two owners"));
        }
        let greatest = answers.greatest.entry(client.clone()).or_default();
        *greatest = epoch.max(*greatest);
        if epoch < self.least_epoch {
            return Err(format!("epoch {epoch} of {client} after {}", self.least_epoch));
        }
        Ok(())
    }
}

/// Every statement about a transaction, wherever in an answer it is.
fn collect(value: &Value, facts: &mut Vec<(Key, TxnState)>) {
    match value {
        Value::Object(members) => {
            let text = |name: &str| members.get(name).and_then(Value::as_str);
            let key = text("clientName").and_then(|c| c.parse().ok()).zip(text("txnId").and_then(|id| id.parse().ok()));
            let state = text("state").or(text("outcome")).map(|state| Value::from(state.to_owned()));
            if let (Some(key), Some(state)) = (key, state)
                && let Ok(state) = serde_json::from_value(state)
            {
                facts.push((key, state));
            }
            members.values().for_each(|member| collect(member, facts));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, facts)),
        _ => {}
    }
}
