//! A sink in memory that keeps to the contract, notes every call, and fails when told to.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use ratified::{ClientName, Committed, Epoch, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink, TxnContext, TxnId};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

type Key = (ClientName, TxnId);

#[derive(Default)]
struct World {
    staged: BTreeMap<Key, Vec<String>>,
    /// In the order they became visible; the key is the proof.
    visible: Vec<(Key, Vec<String>)>,
    calls: Vec<String>,
    failures: BTreeMap<&'static str, VecDeque<SinkError>>,
    ids: Vec<Key>,
    padding: usize,
    rejected: Option<(&'static str, String)>,
}

/// Clones share what is staged and visible: it outlives every runtime, as a real sink does.
#[derive(Clone)]
pub(crate) struct TestSink {
    world: Arc<Mutex<World>>,
    gate: watch::Sender<bool>,
    hook: Hook,
}

type Hook = Arc<Mutex<Option<Box<dyn Fn() -> futures_util::future::BoxFuture<'static, ()> + Send + Sync>>>>;

impl Default for TestSink {
    fn default() -> Self {
        Self { world: Arc::default(), gate: watch::Sender::new(true), hook: Arc::default() }
    }
}

impl TestSink {
    /// What a reader of the sink sees, in order.
    pub(crate) fn visible(&self) -> Vec<String> {
        self.world.lock().unwrap().visible.iter().flat_map(|(_, records)| records.clone()).collect()
    }

    /// As `visible`, sorted: for jobs of several workers.
    pub(crate) fn visible_sorted(&self) -> Vec<String> {
        let mut visible = self.visible();
        visible.sort();
        visible
    }

    /// How many transactions are staged and not visible.
    pub(crate) fn staged(&self) -> usize {
        self.world.lock().unwrap().staged.len()
    }

    /// The ids a client has begun in this sink, ascending.
    pub(crate) fn ids(&self, client: &ClientName) -> Vec<TxnId> {
        let world = self.world.lock().unwrap();
        world.ids.iter().filter(|(owner, _)| owner == client).map(|(_, id)| *id).collect()
    }

    /// Every call so far: its name and the how-manieth transaction of the sink it was about.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.world.lock().unwrap().calls.clone()
    }

    pub(crate) fn forget_calls(&self) {
        self.world.lock().unwrap().calls.clear();
    }

    /// Lets the next call of this name fail.
    pub(crate) fn fail(&self, call: &'static str, error: SinkError) {
        self.world.lock().unwrap().failures.entry(call).or_default().push_back(error);
    }

    /// From now on this call (`write` or `pre_commit`) is refused where it is about this record.
    pub(crate) fn reject(&self, call: &'static str, record: &str) {
        self.world.lock().unwrap().rejected = Some((call, record.to_owned()));
    }

    fn judge(&self, call: &str, records: &[String]) -> Result<(), SinkError> {
        match &self.world.lock().unwrap().rejected {
            Some((at, record)) if *at == call && records.contains(record) => Err(SinkError::rejected("too long")),
            _ => Ok(()),
        }
    }

    /// Takes back every failure that was planned.
    pub(crate) fn forgive(&self) {
        self.world.lock().unwrap().failures.clear();
    }

    /// Puts something under an id that nobody began.
    pub(crate) fn plant(&self, client: &ClientName, id: TxnId) {
        self.world.lock().unwrap().staged.insert((client.clone(), id), vec!["planted".to_owned()]);
    }

    /// Makes visible what is staged, as a commit does whose answer is lost.
    pub(crate) fn show(&self, client: &ClientName, id: TxnId) {
        let mut world = self.world.lock().unwrap();
        let key = (client.clone(), id);
        let records = world.staged.remove(&key).unwrap();
        world.visible.push((key, records));
    }

    /// Takes away what is staged, as a careless operator would.
    pub(crate) fn lose_staged(&self) {
        self.world.lock().unwrap().staged.clear();
    }

    /// Makes every handle longer by this many bytes.
    pub(crate) fn pad_handles(&self, bytes: usize) {
        self.world.lock().unwrap().padding = bytes;
    }

    /// Holds every commit until [`Self::open_gate`].
    pub(crate) fn close_gate(&self) {
        self.gate.send_replace(false);
    }

    pub(crate) fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    /// Is run by the next `fence`.
    pub(crate) fn on_fence(
        &self,
        hook: impl Fn() -> futures_util::future::BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// Waits until a call of this name was made.
    pub(crate) async fn until_called(&self, call: &str) {
        while !self.calls().iter().any(|made| made == call) {
            tokio::task::yield_now().await;
        }
    }

    fn note(&self, call: &'static str, txn: &TxnContext) -> Result<(), SinkError> {
        let mut world = self.world.lock().unwrap();
        let key = (txn.client.clone(), txn.txn_id);
        let number = world.ids.iter().position(|known| *known == key).map_or_else(|| "?".to_owned(), |n| n.to_string());
        world.calls.push(format!("{call} {number}"));
        world.failures.get_mut(call).and_then(VecDeque::pop_front).map_or(Ok(()), Err)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TestHandle {
    pub(crate) records: u64,
    pub(crate) padding: String,
}

#[async_trait]
impl TwoPhaseSink for TestSink {
    type Record = String;
    type Handle = TestHandle;
    type Writer = TestSink;
    type Committer = TestSink;

    async fn writer(&self) -> Result<TestSink, SinkError> {
        Ok(self.clone())
    }

    async fn committer(&self) -> Result<TestSink, SinkError> {
        Ok(self.clone())
    }
}

#[async_trait]
impl SinkWriter for TestSink {
    type Record = String;
    type Handle = TestHandle;

    async fn begin(&mut self, txn: &TxnContext) -> Result<TestHandle, SinkError> {
        self.world.lock().unwrap().ids.push((txn.client.clone(), txn.txn_id));
        self.note("begin", txn)?;
        let mut world = self.world.lock().unwrap();
        world.staged.insert((txn.client.clone(), txn.txn_id), Vec::new());
        Ok(TestHandle { records: 0, padding: "x".repeat(world.padding) })
    }

    async fn write(
        &mut self,
        txn: &TxnContext,
        handle: &mut TestHandle,
        records: Vec<String>,
    ) -> Result<(), SinkError> {
        self.note("write", txn)?;
        self.judge("write", &records)?;
        handle.records += records.len() as u64;
        let mut world = self.world.lock().unwrap();
        let staged = world.staged.get_mut(&(txn.client.clone(), txn.txn_id));
        staged.ok_or_else(|| SinkError::rejected("nothing is staged under this id"))?.extend(records);
        Ok(())
    }

    async fn pre_commit(&mut self, txn: &TxnContext, _handle: &mut TestHandle) -> Result<(), SinkError> {
        let staged = self.world.lock().unwrap().staged.get(&(txn.client.clone(), txn.txn_id)).cloned();
        self.judge("pre_commit", &staged.unwrap_or_default())?;
        self.note("pre_commit", txn)
    }
}

#[async_trait]
impl SinkCommitter for TestSink {
    type Handle = TestHandle;

    async fn commit(&self, txn: &TxnContext, handle: &TestHandle) -> Result<Committed, SinkError> {
        let noted = self.note("commit", txn);
        self.gate.subscribe().wait_for(|is_open| *is_open).await.unwrap();
        noted?;
        let mut world = self.world.lock().unwrap();
        let key = (txn.client.clone(), txn.txn_id);
        if world.visible.iter().any(|(known, _)| *known == key) {
            return Ok(Committed::Already);
        }
        let Some(records) = world.staged.remove(&key) else {
            return Err(SinkError::rejected("neither staged nor visible"));
        };
        assert_eq!(records.len() as u64, handle.records, "the handle is of the flushed state");
        world.visible.push((key, records));
        Ok(Committed::Now)
    }

    async fn abort(&self, txn: &TxnContext, _handle: Option<&TestHandle>) -> Result<(), SinkError> {
        self.note("abort", txn)?;
        let mut world = self.world.lock().unwrap();
        let key = (txn.client.clone(), txn.txn_id);
        assert!(!world.visible.iter().any(|(known, _)| *known == key), "aborting what is visible");
        world.staged.remove(&key);
        Ok(())
    }

    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        let world = self.world.lock().unwrap();
        Ok(world.staged.keys().filter(|(owner, _)| owner == client).map(|(_, id)| *id).collect())
    }

    async fn list_visible(&self, client: &ClientName) -> Result<Option<Vec<TxnId>>, SinkError> {
        let world = self.world.lock().unwrap();
        let of_client = world.visible.iter().filter(|((owner, _), _)| owner == client);
        Ok(Some(of_client.map(|((_, id), _)| *id).collect()))
    }

    async fn fence(&self, _client: &ClientName, _epoch: Epoch) -> Result<(), SinkError> {
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook().await;
        }
        Ok(())
    }
}
