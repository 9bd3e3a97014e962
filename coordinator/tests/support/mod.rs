//! A coordinator in this process, and stores that a test can stop, break and crash.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex},
};

use ratified_coordinator::{
    Config, Coordinator, Handle,
    store::{Batch, BatchLimits, Claim, Store, StoreError, Visit},
};
use ratified_protocol::LoadNonce;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

pub const T1: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e01";
pub const T2: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e02";
pub const T3: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e03";
pub const T4: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e04";

/// What a [`TestStore`] is asked to do, and what it has done.
#[derive(Debug, Default)]
pub struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    synced: BTreeMap<Vec<u8>, Vec<u8>>,
    unsynced: Vec<Batch>,
    is_load_held: bool,
    is_sync_held: bool,
    fails: Option<Fails>,
    writes: u64,
    syncs_begun: u64,
    syncs_ended: u64,
    /// The last one who claimed the store, and whether others' writes are refused for that.
    claimed: Option<LoadNonce>,
    is_shared: bool,
    confirms: u64,
    max_changes: Option<usize>,
}

/// Which call fails from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fails {
    Write,
    Refuse,
    Confirm,
    Sync,
    Panic,
}

impl Control {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn hold_load(&self) {
        self.state.lock().unwrap().is_load_held = true;
    }

    pub fn hold_syncs(&self) {
        self.state.lock().unwrap().is_sync_held = true;
    }

    pub fn release(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_load_held = false;
        state.is_sync_held = false;
        self.changed.notify_all();
    }

    pub fn fail(&self, fails: Fails) {
        self.state.lock().unwrap().fails = Some(fails);
    }

    /// Several may load it, and the last one owns it, as a store on the network.
    pub fn share(&self) {
        self.state.lock().unwrap().is_shared = true;
    }

    /// A batch takes no more steps once it has this many changes.
    pub fn limit_changes(&self, max_changes: usize) {
        self.state.lock().unwrap().max_changes = Some(max_changes);
    }

    pub fn confirms(&self) -> u64 {
        self.state.lock().unwrap().confirms
    }

    pub fn writes(&self) -> u64 {
        self.state.lock().unwrap().writes
    }

    pub fn syncs_begun(&self) -> u64 {
        self.state.lock().unwrap().syncs_begun
    }

    pub fn is_sync_held(&self) -> bool {
        self.state.lock().unwrap().is_sync_held
    }

    /// Waits until this many syncs have begun.
    pub async fn sync_begun(self: &Arc<Self>, count: u64) {
        let control = self.clone();
        let wait = move || {
            let state = control.state.lock().unwrap();
            drop(control.changed.wait_while(state, |s| s.syncs_begun < count).unwrap());
        };
        tokio::task::spawn_blocking(wait).await.unwrap();
    }

    /// What a process that starts after a crash finds: everything that was synced, and nothing else.
    pub fn crash(&self) -> Arc<Self> {
        let synced = self.state.lock().unwrap().synced.clone();
        Arc::new(Self { state: Mutex::new(State { synced, ..State::default() }), changed: Condvar::new() })
    }

    pub fn entries(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.state.lock().unwrap().synced.clone()
    }

    pub fn put(&self, key: &[u8], value: &[u8]) {
        self.state.lock().unwrap().synced.insert(key.to_vec(), value.to_vec());
    }
}

/// A store in memory in which a batch is there after a crash only if it was synced.
pub struct TestStore(pub Arc<Control>);

impl Store for TestStore {
    fn limits(&self) -> BatchLimits {
        let changes = self.0.state.lock().unwrap().max_changes.unwrap_or(usize::MAX);
        BatchLimits { changes, ..BatchLimits::NONE }
    }

    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let state = self.0.state.lock().unwrap();
        let state = self.0.changed.wait_while(state, |s| s.is_load_held).unwrap();
        state.synced.iter().try_for_each(|(key, value)| visit(key, value))
    }

    fn claim(&mut self, nonce: LoadNonce) -> Result<Option<u64>, StoreError> {
        self.0.state.lock().unwrap().claimed = Some(nonce);
        Ok(None)
    }

    fn confirm(&mut self, claim: Claim) -> Result<(), StoreError> {
        let mut state = self.0.state.lock().unwrap();
        assert_eq!(state.claimed, Some(claim.nonce));
        state.confirms += 1;
        if state.fails == Some(Fails::Confirm) {
            return Err(StoreError::LostOwnership { ours: claim.loads, found: claim.loads + 1 });
        }
        Ok(())
    }

    fn write(&mut self, claim: Claim, batch: Batch) -> Result<(), StoreError> {
        let mut state = self.0.state.lock().unwrap();
        if state.claimed != Some(claim.nonce) {
            assert!(state.is_shared, "a write on behalf of nobody");
            return Err(StoreError::LostOwnership { ours: claim.loads, found: claim.loads + 1 });
        }
        state.writes += 1;
        if state.fails == Some(Fails::Refuse) {
            return Err(StoreError::refused("write", "no space left"));
        }
        if state.fails == Some(Fails::Write) {
            return Err(StoreError::indeterminate("write", "no space left"));
        }
        state.unsynced.push(batch);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let mut state = self.0.state.lock().unwrap();
        state.syncs_begun += 1;
        self.0.changed.notify_all();
        let mut state = self.0.changed.wait_while(state, |s| s.is_sync_held).unwrap();
        match state.fails {
            Some(Fails::Sync) => return Err(StoreError::indeterminate("sync", "input/output error")),
            Some(Fails::Panic) => {
                drop(state);
                panic!("the store was told to panic");
            }
            _ => {}
        }
        for change in std::mem::take(&mut state.unsynced).into_iter().flat_map(|batch| batch.changes) {
            match change.value {
                Some(value) => state.synced.insert(change.key, value),
                None => state.synced.remove(&change.key),
            };
        }
        state.syncs_ended += 1;
        Ok(())
    }
}

pub fn config() -> Config {
    Config::local("not-used")
}

/// A loaded coordinator on this store.
pub async fn start(control: &Arc<Control>, config: Config) -> Handle {
    let mut handle = Coordinator::listen_with(config, Box::new(TestStore(control.clone()))).await.unwrap();
    handle.loaded().await.unwrap();
    handle
}

/// Talks to a coordinator.
#[derive(Clone)]
pub struct Http {
    client: reqwest::Client,
    base: String,
}

impl Http {
    pub fn to(handle: &Handle) -> Self {
        Self { client: reqwest::Client::builder().no_proxy().build().unwrap(), base: handle.base_url() }
    }

    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.base))
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::read(self.request("GET", path).send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::read(self.request("POST", path).json(&body).send().await.unwrap()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        Answer::read(self.request("PUT", path).json(&body).send().await.unwrap()).await
    }

    pub async fn open(&self, client: &str) -> Answer {
        let body = json!({"incarnation": "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "create": true});
        self.post(&format!("/v1/clients/{client}/open"), body).await
    }

    pub async fn begin(&self, client: &str, txn: &str) -> Answer {
        self.put(&format!("/v1/clients/{client}/txns/{txn}"), json!({"epoch": 1})).await
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    pub async fn read(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        Self { status, headers, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|v| v.to_str().unwrap())
    }

    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or("")
    }

    /// Status and code of a refusal, which must be a problem in every other respect too.
    pub fn refusal(&self) -> (u16, &str) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.body["status"], self.status);
        let retry_after = matches!(self.status, 429 | 503).then_some("1");
        assert_eq!(self.header("retry-after"), retry_after);
        assert_eq!(self.header("cache-control"), Some("no-store"));
        (self.status, self.code())
    }
}
