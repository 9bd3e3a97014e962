//! The tasks of a load: owners of a client name, and its participant.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use super::{
    Shared,
    classify::{self, begin_body, prepare_body},
};
use crate::{
    oracle::{Answered, Asked, Opened, Outcome, Seen},
    poll,
    session::{id, incarnation},
};

/// A transaction that has not ended yet stays with its owner up to this many at once.
const MAX_LIVE: usize = 8;

struct Owner {
    shared: Arc<Shared>,
    client: String,
    numbers: Arc<AtomicU64>,
    rng: StdRng,
    epoch: u64,
    live: BTreeSet<u64>,
    newest: u64,
}

/// Opens the client and works with it until it is fenced or the coordinator is gone, again and again.
pub(super) async fn own(shared: Arc<Shared>, client: String, numbers: Arc<AtomicU64>, seed: u64) {
    let rng = StdRng::seed_from_u64(seed);
    let mut owner = Owner { shared, client, numbers, rng, epoch: 0, live: BTreeSet::new(), newest: 0 };
    while !owner.shared.is_stopped() {
        if owner.open().await {
            owner.work().await;
        }
    }
}

impl Owner {
    /// Opens the client by a new incarnation, asking again with the same one while there is no answer.
    async fn open(&mut self) -> bool {
        let incarnation_number = self.shared.incarnations.fetch_add(1, Ordering::Relaxed);
        let opening = self.shared.oracle.lock().unwrap().ask_open(&self.client, incarnation_number);
        let body = json!({"incarnation": incarnation(incarnation_number), "create": true});
        let path = format!("/v1/clients/{}/open", self.client);
        while !self.shared.is_stopped() {
            let Ok(reply) = self.shared.raw.try_call("POST", &path, Some(&body)).await else {
                wait_for_coordinator(&self.shared).await;
                continue;
            };
            self.shared.answered.fetch_add(1, Ordering::Relaxed);
            if reply.code() == "FENCED" {
                self.shared.oracle.lock().unwrap().superseded(&opening);
                return false;
            }
            if reply.status != 200 {
                if !matches!(reply.status, 429 | 503) {
                    self.shared.report(format!("open was answered {}", reply.text));
                }
                wait_for_coordinator(&self.shared).await;
                continue;
            }
            self.epoch = reply["epoch"].as_u64().unwrap_or_default();
            let told = Opened {
                epoch: self.epoch,
                newest: number(&reply["newestTxnId"]),
                last_committed: number(&reply["lastCommitted"]["txnId"]),
            };
            let checked = self.shared.oracle.lock().unwrap().opened(&opening, &told);
            if let Err(violation) = checked {
                self.shared.report(format!("{violation}\n{}", reply.text));
            }
            self.check_unfinished(&reply["unfinished"]);
            return true;
        }
        false
    }

    fn check_unfinished(&self, unfinished: &Value) {
        for txn in unfinished.as_array().into_iter().flatten() {
            let n = number(&txn["txnId"]).unwrap_or_default();
            // The list may be older than answers that have overtaken it, so only its own content is judged.
            if let Err(violation) = classify::answered(Asked::Look, n, 200, txn) {
                self.shared.report(format!("open lists {txn}: {violation}"));
            }
        }
    }

    async fn work(&mut self) {
        while !self.shared.is_stopped() {
            let answered = match self.rng.random_range(0..100) {
                0 => return,
                1..30 if self.live.len() < MAX_LIVE => self.begin().await,
                1..75 => self.advance().await,
                75..85 => self.batch().await,
                _ => self.ask_again().await,
            };
            match answered {
                Answered::Fenced => return,
                Answered::Unknown => wait_for_coordinator(&self.shared).await,
                Answered::Done(_) | Answered::Refused(_) => {}
            }
        }
    }

    fn new_number(&mut self) -> u64 {
        self.newest = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.newest
    }

    async fn begin(&mut self) -> Answered {
        let n = self.new_number();
        self.live.insert(n);
        self.send(n, Asked::Begin).await
    }

    /// Takes a live transaction one step on.
    async fn advance(&mut self) -> Answered {
        let at = self.rng.random_range(0..self.live.len().max(1));
        let Some(n) = self.live.iter().nth(at).copied() else { return self.begin().await };
        let asked = match self.rng.random_range(0..10) {
            0..4 => Asked::Prepare,
            4..9 => Asked::Commit,
            _ => Asked::Abort,
        };
        let answered = self.send(n, asked).await;
        match answered {
            Answered::Done(seen) | Answered::Refused(seen) if seen.outcome().is_some() || seen == Seen::Absent => {
                self.live.remove(&n);
            }
            _ => {}
        }
        answered
    }

    /// Asks something about any transaction of the past, whatever became of it.
    async fn ask_again(&mut self) -> Answered {
        let oldest = self.newest.saturating_sub(40).max(1);
        let n = self.rng.random_range(oldest..=self.newest.max(oldest));
        let asked = match self.rng.random_range(0..8) {
            0 => Asked::Begin,
            1 => Asked::Prepare,
            2..5 => Asked::Commit,
            5 => Asked::Abort,
            _ => Asked::Look,
        };
        // A commit that nobody had asked for would decide what another owner still works on.
        self.send(n, asked).await
    }

    /// begin, prepare and commit in one durable write.
    async fn batch(&mut self) -> Answered {
        let n = self.new_number();
        let (client, epoch) = (self.client.clone(), self.epoch);
        let steps = [Asked::Begin, Asked::Prepare, Asked::Commit];
        let bodies = [begin_body(&client, n, epoch), prepare_body(n, Some(epoch)), prepare_body(n, Some(epoch))];
        let operations: Vec<_> = ["begin", "prepare", "commit"]
            .iter()
            .zip(bodies)
            .map(|(op, mut body)| {
                body["op"] = json!(op);
                body["txnId"] = json!(id(n));
                body
            })
            .collect();
        let calls: Vec<_> = {
            let mut oracle = self.shared.oracle.lock().unwrap();
            steps.iter().map(|asked| oracle.ask(&client, n, *asked)).collect()
        };
        let path = format!("/v1/clients/{client}/batch");
        let body = json!({"operations": operations});
        let reply = self.shared.raw.try_call("POST", &path, Some(&body)).await;
        let items = reply.map(|r| r.json["results"].as_array().cloned().unwrap_or_default()).unwrap_or_default();
        let mut last = Answered::Unknown;
        for (at, (call, asked)) in calls.iter().zip(steps).enumerate() {
            let answered = items.get(at).map_or(Ok(Answered::Unknown), |item| {
                let body = if item["problem"].is_object() { &item["problem"] } else { &item["txn"] };
                let status = item["status"].as_u64().and_then(|s| u16::try_from(s).ok()).unwrap_or_default();
                classify::answered(asked, n, status, body)
            });
            let checked = answered.and_then(|answered| {
                last = answered;
                self.shared.oracle.lock().unwrap().answer(call, answered).map_err(|v| v.to_string())
            });
            if let Err(violation) = checked {
                self.shared.report(format!("{violation}\n{client}/{n}: {items:?}"));
            }
        }
        self.shared.answered.fetch_add(u64::from(!items.is_empty()), Ordering::Relaxed);
        last
    }

    async fn send(&self, n: u64, asked: Asked) -> Answered {
        let path = format!("/v1/clients/{}/txns/{}", self.client, id(n));
        let epoch = self.epoch;
        let (method, path, body) = match asked {
            Asked::Begin => ("PUT", path, Some(begin_body(&self.client, n, epoch))),
            Asked::Prepare => ("POST", format!("{path}/prepare"), Some(prepare_body(n, Some(epoch)))),
            Asked::Commit => ("POST", format!("{path}/commit"), Some(prepare_body(n, Some(epoch)))),
            Asked::Abort => ("POST", format!("{path}/abort"), Some(json!({"epoch": epoch}))),
            Asked::Ack(_) | Asked::Look => ("GET", path, None),
        };
        self.shared.call(&self.client, n, asked, async |raw| raw.try_call(method, &path, body.as_ref()).await).await
    }
}

/// The participant of a client: asks for decisions and acknowledges them, not always at once.
pub(super) async fn participate(shared: Arc<Shared>, client: String, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let path = format!("/v1/participants/{client}/decisions?waitMs=50");
    while !shared.is_stopped() {
        let Ok(reply) = shared.raw.try_call("GET", &path, None).await else {
            wait_for_coordinator(&shared).await;
            continue;
        };
        let decisions = reply.json["decisions"].as_array().cloned().unwrap_or_default();
        for decision in decisions.iter().filter(|_| rng.random_bool(0.7)).take(16) {
            if shared.is_stopped() || apply(&shared, &client, decision).await == Answered::Unknown {
                break;
            }
        }
    }
}

async fn apply(shared: &Shared, client: &str, decision: &Value) -> Answered {
    let n = number(&decision["txnId"]).unwrap_or_default();
    let name = decision["outcome"].as_str().unwrap_or_default();
    let outcome = if name == "COMMITTED" { Outcome::Committed } else { Outcome::Aborted };
    if outcome == Outcome::Committed && decision["payload"] != classify::payload_of(n) {
        shared.report(format!("a decision without its payload: {decision}"));
    }
    let path = format!("/v1/clients/{client}/txns/{}/participants/{client}/ack", id(n));
    let body = json!({"outcome": name});
    shared.call(client, n, Asked::Ack(outcome), async |raw| raw.try_call("POST", &path, Some(&body)).await).await
}

fn number(id: &Value) -> Option<u64> {
    u64::from_str_radix(id.as_str()?.get(24..)?, 16).ok()
}

async fn wait_for_coordinator(shared: &Shared) {
    poll::until("the coordinator to be back", || async {
        if shared.is_stopped() {
            return Some(());
        }
        let reply = shared.raw.try_call("GET", "/readyz", None).await.ok()?;
        (reply.status == 200).then_some(())
    })
    .await;
}
