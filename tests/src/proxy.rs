//! A proxy that loses, repeats, delays and damages what passes between the SDK and the coordinator.
//!
//! It reads whole requests and whole answers, so that each fault lies exactly where it is meant to.

mod connection;
mod policy;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

pub use policy::{Call, Fault, Policy, only, pass, seeded};

use crate::process::Address;

/// What the connections share.
struct Shared {
    upstream: Address,
    http: reqwest::Client,
    policy: Mutex<Policy>,
    injected: Mutex<BTreeMap<Fault, u64>>,
    seen: Mutex<BTreeMap<String, u64>>,
    begun: watch::Sender<BTreeSet<String>>,
}

/// A running proxy; it ends when dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy in front of whatever is at `upstream`, now and later.
    ///
    /// # Panics
    /// When it cannot listen.
    pub async fn start(upstream: Address, policy: Policy) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let shared = Arc::new(Shared {
            upstream,
            http,
            policy: Mutex::new(policy),
            injected: Mutex::default(),
            seen: Mutex::default(),
            begun: watch::Sender::default(),
        });
        let task = tokio::spawn({
            let shared = shared.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(connection::serve(shared.clone(), stream));
                }
            }
        });
        Self { address, shared, task }
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Decides otherwise from now on.
    ///
    /// # Panics
    /// When a policy has panicked.
    pub fn set_policy(&self, policy: Policy) {
        *self.shared.policy.lock().unwrap() = policy;
    }

    /// How often each fault was injected.
    ///
    /// # Panics
    /// When a connection has panicked.
    pub fn injected(&self) -> BTreeMap<Fault, u64> {
        self.shared.injected.lock().unwrap().clone()
    }

    /// How many calls were seen in all.
    ///
    /// # Panics
    /// When a connection has panicked.
    pub fn calls(&self) -> u64 {
        self.shared.seen.lock().unwrap().values().sum()
    }

    /// How often a call of this kind was seen.
    ///
    /// # Panics
    /// When a connection has panicked.
    pub fn seen(&self, kind: &str) -> u64 {
        self.shared.seen.lock().unwrap().get(kind).copied().unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// What to do with this request.
    fn decide(&self, method: &str, path: &str) -> Fault {
        let kind = policy::kind_of(method, path);
        let nth = {
            let mut seen = self.seen.lock().unwrap();
            let count = seen.entry(kind.clone()).or_default();
            *count += 1;
            *count - 1
        };
        let fault = (self.policy.lock().unwrap())(&Call { kind: &kind, nth, path });
        *self.injected.lock().unwrap().entry(fault).or_default() += 1;
        fault
    }
}
