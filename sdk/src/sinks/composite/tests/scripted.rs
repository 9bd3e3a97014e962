//! A member in memory that notes its calls and fails when it is told to.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use ratified_protocol::{ClientName, Epoch, TxnId};

use crate::{
    error::SinkError,
    sink::{Committed, SinkCommitter, SinkWriter, TwoPhaseSink, TxnContext},
};

#[derive(Default)]
struct World {
    staged: BTreeMap<TxnId, Vec<u64>>,
    visible: Vec<u64>,
    committed: BTreeSet<TxnId>,
    failures: BTreeMap<&'static str, VecDeque<SinkError>>,
}

#[derive(Clone)]
pub(super) struct Scripted {
    name: &'static str,
    world: Arc<Mutex<World>>,
    calls: Arc<Mutex<Vec<String>>>,
    handle: String,
}

impl Scripted {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, world: Arc::default(), calls: Arc::default(), handle: String::new() }
    }

    /// With a list of calls shared with another one.
    pub(super) fn sharing(name: &'static str, other: &Self) -> Self {
        Self { calls: other.calls.clone(), ..Self::new(name) }
    }

    /// Whose handles have so many bytes, the quotes included.
    pub(super) fn with_handles_of(self, bytes: usize) -> Self {
        Self { handle: "x".repeat(bytes - 2), ..self }
    }

    pub(super) fn fail(&self, call: &'static str, error: SinkError) {
        self.world.lock().unwrap().failures.entry(call).or_default().push_back(error);
    }

    pub(super) fn lose_staged(&self) {
        self.world.lock().unwrap().staged.clear();
    }

    pub(super) fn visible(&self) -> Vec<u64> {
        self.world.lock().unwrap().visible.clone()
    }

    pub(super) fn staged(&self) -> usize {
        self.world.lock().unwrap().staged.len()
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    pub(super) fn forget_calls(&self) {
        self.calls.lock().unwrap().clear();
    }

    fn note(&self, call: &'static str) -> Result<(), SinkError> {
        self.calls.lock().unwrap().push(format!("{} {call}", self.name));
        let mut world = self.world.lock().unwrap();
        world.failures.get_mut(call).and_then(VecDeque::pop_front).map_or(Ok(()), Err)
    }
}

#[async_trait]
impl TwoPhaseSink for Scripted {
    type Record = u64;
    type Handle = String;
    type Writer = Scripted;
    type Committer = Scripted;

    async fn writer(&self) -> Result<Scripted, SinkError> {
        Ok(self.clone())
    }

    async fn committer(&self) -> Result<Scripted, SinkError> {
        Ok(self.clone())
    }
}

#[async_trait]
impl SinkWriter for Scripted {
    type Record = u64;
    type Handle = String;

    async fn begin(&mut self, txn: &TxnContext) -> Result<String, SinkError> {
        self.note("begin")?;
        self.world.lock().unwrap().staged.insert(txn.txn_id, Vec::new());
        Ok(self.handle.clone())
    }

    async fn write(&mut self, txn: &TxnContext, _: &mut String, records: Vec<u64>) -> Result<(), SinkError> {
        self.note("write")?;
        self.world.lock().unwrap().staged.get_mut(&txn.txn_id).unwrap().extend(records);
        Ok(())
    }

    async fn pre_commit(&mut self, _: &TxnContext, _: &mut String) -> Result<(), SinkError> {
        self.note("pre_commit")
    }
}

#[async_trait]
impl SinkCommitter for Scripted {
    type Handle = String;

    async fn commit(&self, txn: &TxnContext, _: &String) -> Result<Committed, SinkError> {
        self.note("commit")?;
        let mut world = self.world.lock().unwrap();
        if world.committed.contains(&txn.txn_id) {
            return Ok(Committed::Already);
        }
        let Some(records) = world.staged.remove(&txn.txn_id) else {
            return Err(SinkError::rejected("neither staged nor visible"));
        };
        world.visible.extend(records);
        world.committed.insert(txn.txn_id);
        Ok(Committed::Now)
    }

    async fn abort(&self, txn: &TxnContext, _: Option<&String>) -> Result<(), SinkError> {
        self.note("abort")?;
        self.world.lock().unwrap().staged.remove(&txn.txn_id);
        Ok(())
    }

    async fn list_staged(&self, _: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        self.note("list_staged")?;
        Ok(self.world.lock().unwrap().staged.keys().copied().collect())
    }

    async fn fence(&self, _: &ClientName, _: Epoch) -> Result<(), SinkError> {
        self.note("fence")
    }
}
