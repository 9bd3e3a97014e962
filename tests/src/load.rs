//! Concurrent load on a coordinator that may be killed at any moment; every answer goes to the oracle.

mod classify;
mod worker;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use serde_json::json;
use tokio::task::JoinSet;

pub use classify::{begin_body, payload_of, prepare_body};

use crate::{
    oracle::{Answered, Asked, Counts, Oracle},
    poll,
    raw::{Lost, Raw, Reply},
    session::id,
};

/// How the load is made up.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// What the random choices follow from.
    pub seed: u64,
    /// Client names with one owner each.
    pub clients: u64,
    /// Client names that two owners fight about.
    pub contested: u64,
    /// How many outcomes the coordinator is configured to keep; `None` = all.
    pub keep: Option<usize>,
}

/// What all tasks of a load share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) raw: Raw,
    pub(crate) oracle: Mutex<Oracle>,
    pub(crate) violations: Mutex<Vec<String>>,
    pub(crate) answered: AtomicU64,
    pub(crate) incarnations: AtomicU64,
    pub(crate) stop: AtomicBool,
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Load {
    /// Starts the load.
    pub fn start(raw: Raw, mix: Mix) -> Self {
        let shared = Arc::new(Shared {
            raw,
            oracle: Mutex::new(Oracle::new(mix.keep)),
            violations: Mutex::default(),
            answered: AtomicU64::new(0),
            incarnations: AtomicU64::new(1),
            stop: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for at in 0..mix.clients + mix.contested {
            let client = format!("load.{at}");
            let numbers = Arc::new(AtomicU64::new(1));
            let owners = if at < mix.clients { 1 } else { 2 };
            for owner in 0..owners {
                let seed = mix.seed.wrapping_mul(1_000_003).wrapping_add(at * 10 + owner);
                tasks.spawn(worker::own(shared.clone(), client.clone(), numbers.clone(), seed));
            }
            tasks.spawn(worker::participate(shared.clone(), client, mix.seed ^ at));
        }
        Self { shared, tasks }
    }

    /// How many calls were answered so far.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// What was counted so far.
    ///
    /// # Panics
    /// When a task has panicked.
    pub fn counts(&self) -> Counts {
        self.shared.oracle.lock().unwrap().counts()
    }

    /// Waits until so many more calls were answered.
    ///
    /// # Panics
    /// When a rule was broken, or nothing is answered any more.
    pub async fn until_answered(&self, more: u64) {
        let goal = self.answered() + more;
        poll::until_some("calls to be answered", || {
            self.assert_no_violation();
            (self.answered() >= goal).then_some(())
        })
        .await;
    }

    /// Asks about every transaction that is not known to be gone, and checks the answers.
    ///
    /// # Panics
    /// When a rule was broken.
    pub async fn verify(&self) {
        self.look_at_all().await;
        self.assert_no_violation();
    }

    /// Asks about every transaction that is not known to be gone; the rules that were broken, so far.
    ///
    /// # Panics
    /// When a task has panicked.
    pub async fn violations(&self) -> Vec<String> {
        self.look_at_all().await;
        self.shared.violations.lock().unwrap().clone()
    }

    async fn look_at_all(&self) {
        let all = self.shared.oracle.lock().unwrap().all();
        for (client, txns) in all {
            let kept: Vec<_> = {
                let oracle = self.shared.oracle.lock().unwrap();
                txns.into_iter().filter(|txn| !oracle.is_expired(&client, *txn)).collect()
            };
            for chunk in kept.chunks(1000) {
                self.shared.look_at(&client, chunk).await;
            }
        }
    }

    /// Ends the load and waits for its last answers.
    ///
    /// # Panics
    /// When a rule was broken.
    pub async fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.assert_no_violation();
    }

    fn assert_no_violation(&self) {
        let violations = self.shared.violations.lock().unwrap();
        assert!(violations.is_empty(), "{} rules were broken, first:\n{}", violations.len(), violations[0]);
    }
}

impl Shared {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sends a call about one transaction and tells the oracle.
    pub(crate) async fn call(
        &self,
        client: &str,
        txn: u64,
        asked: Asked,
        request: impl AsyncFnOnce(&Raw) -> Result<Reply, Lost>,
    ) -> Answered {
        let call = self.oracle.lock().unwrap().ask(client, txn, asked);
        let reply = request(&self.raw).await;
        let answered = match &reply {
            Ok(reply) => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                classify::answered(asked, txn, reply.status, &reply.json)
            }
            Err(_) => Ok(Answered::Unknown),
        };
        let checked = answered.and_then(|answered| {
            let checked = self.oracle.lock().unwrap().answer(&call, answered);
            checked.map(|()| answered).map_err(|violation| violation.to_string())
        });
        checked.unwrap_or_else(|violation| {
            let reply = reply.map_or_else(|lost| lost.to_string(), |reply| format!("{} {}", reply.status, reply.text));
            self.report(format!("{violation}\n{client}/{txn} {asked:?}: {reply}"));
            Answered::Unknown
        })
    }

    /// Looks at many transactions at once.
    async fn look_at(&self, client: &str, txns: &[u64]) {
        let calls: Vec<_> = {
            let mut oracle = self.oracle.lock().unwrap();
            txns.iter().map(|txn| oracle.ask(client, *txn, Asked::Look)).collect()
        };
        let operations: Vec<_> = txns.iter().map(|txn| json!({"op": "get", "txnId": id(*txn)})).collect();
        let body = json!({"operations": operations, "ordered": false});
        let path = format!("/v1/clients/{client}/batch");
        let Ok(reply) = self.raw.try_call("POST", &path, Some(&body)).await else { return };
        if reply.code() == "CLIENT_NOT_FOUND" && calls.is_empty() {
            return;
        }
        let items = reply.json["results"].as_array().cloned().unwrap_or_default();
        if items.len() != txns.len() {
            self.report(format!("{client}: a batch of {} was answered {}", txns.len(), reply.text));
        }
        for ((call, txn), item) in calls.iter().zip(txns).zip(&items) {
            let body = if item["problem"].is_object() { &item["problem"] } else { &item["txn"] };
            let status = item["status"].as_u64().and_then(|s| u16::try_from(s).ok()).unwrap_or_default();
            let checked = classify::answered(Asked::Look, *txn, status, body).and_then(|answered| {
                self.oracle.lock().unwrap().answer(call, answered).map_err(|violation| violation.to_string())
            });
            if let Err(violation) = checked {
                self.report(format!("{violation}\n{client}/{txn}: {item}"));
            }
        }
    }

    pub(crate) fn report(&self, violation: String) {
        self.violations.lock().unwrap().push(violation);
    }
}
