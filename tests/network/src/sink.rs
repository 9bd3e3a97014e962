//! A sink in memory whose staged and visible data outlives every host, and which notices whatever must not happen.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use ratified::{ClientName, Committed, Outcome, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink, TxnContext, TxnId};
use serde::{Deserialize, Serialize};

use crate::{
    answers::Key,
    mistake::Mistake,
    world::{RECORDS, World},
};

/// Longest a call of the sink takes, in simulated milliseconds.
const CALL_MS: u64 = 12;

/// One record: the job it is of, and its place in that job's source.
pub type Record = (&'static str, u64);

/// What is durable in the sink.
#[derive(Debug, Default)]
pub struct SinkState {
    staged: BTreeMap<Key, Vec<Record>>,
    visible: BTreeMap<Key, Vec<Record>>,
    aborted: BTreeSet<Key>,
    shown: BTreeMap<Record, TxnId>,
}

impl SinkState {
    /// The places of a job's visible records, ascending.
    pub fn visible(&self, job: &str) -> Vec<u64> {
        self.shown.keys().filter(|(owner, _)| *owner == job).map(|(_, place)| *place).collect()
    }

    fn show(&mut self, key: &Key, records: Vec<Record>) -> Result<(), String> {
        for record in &records {
            if let Some(before) = self.shown.insert(*record, key.1) {
                return Err(format!("{record:?} is visible twice: by {before} and by {}", key.1));
            }
            if record.1 >= RECORDS {
                return Err(format!("{record:?} of an attempt that was given up is visible"));
            }
        }
        self.visible.insert(key.clone(), records);
        Ok(())
    }
}

/// The sink; clones share everything durable.
#[derive(Clone)]
pub struct SimSink(pub World);

/// What of a transaction is not flushed yet: it dies with its host.
pub struct SimWriter {
    world: World,
    unflushed: BTreeMap<TxnId, Vec<Record>>,
}

/// How many records were staged: a commit of less would be a loss.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Handle {
    records: u64,
}

fn key(txn: &TxnContext) -> Key {
    (txn.client.clone(), txn.txn_id)
}

/// Runs a step of the sink somewhere within the time its call takes, and lets the call fail before or after it.
async fn call<T>(world: &World, step: impl FnOnce() -> Result<T, SinkError>) -> Result<T, SinkError> {
    world.linger(CALL_MS).await;
    if world.mischief(25) {
        world.count("sink failures");
        return Err(if world.roll(2) == 0 {
            SinkError::determinate("not now")
        } else {
            SinkError::indeterminate("lost")
        });
    }
    let done = step();
    world.linger(CALL_MS).await;
    if world.mischief(25) {
        world.count("sink answers lost");
        return Err(SinkError::indeterminate("the answer is lost"));
    }
    done
}

#[async_trait]
impl TwoPhaseSink for SimSink {
    type Record = Record;
    type Handle = Handle;
    type Writer = SimWriter;
    type Committer = SimSink;

    async fn writer(&self) -> Result<SimWriter, SinkError> {
        Ok(SimWriter { world: self.0.clone(), unflushed: BTreeMap::new() })
    }

    async fn committer(&self) -> Result<SimSink, SinkError> {
        Ok(self.clone())
    }
}

#[async_trait]
impl SinkWriter for SimWriter {
    type Record = Record;
    type Handle = Handle;

    async fn begin(&mut self, txn: &TxnContext) -> Result<Handle, SinkError> {
        let unflushed = &mut self.unflushed;
        call(&self.world, || {
            unflushed.insert(txn.txn_id, Vec::new());
            Ok(Handle { records: 0 })
        })
        .await
    }

    async fn write(&mut self, txn: &TxnContext, handle: &mut Handle, records: Vec<Record>) -> Result<(), SinkError> {
        let unflushed = &mut self.unflushed;
        call(&self.world, || {
            handle.records += records.len() as u64;
            unflushed.entry(txn.txn_id).or_default().extend(records);
            Ok(())
        })
        .await
    }

    async fn pre_commit(&mut self, txn: &TxnContext, _handle: &mut Handle) -> Result<(), SinkError> {
        let (world, unflushed) = (&self.world, &self.unflushed);
        call(world, || {
            let records = unflushed.get(&txn.txn_id).cloned().unwrap_or_default();
            world.note(format!("sink stages {} records of {}", records.len(), world.name(txn.txn_id)));
            if world.mistake == Mistake::ShowsStaged
                && let Err(violation) = world.sink().show(&key(txn), records.clone())
            {
                world.violate(violation);
            }
            world.sink().staged.insert(key(txn), records);
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl SinkCommitter for SimSink {
    type Handle = Handle;

    async fn commit(&self, txn: &TxnContext, handle: &Handle) -> Result<Committed, SinkError> {
        call(&self.0, || self.apply_commit(&key(txn), handle)).await
    }

    async fn abort(&self, txn: &TxnContext, _handle: Option<&Handle>) -> Result<(), SinkError> {
        call(&self.0, || {
            self.apply_abort(&key(txn));
            Ok(())
        })
        .await
    }

    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        let staged = || self.0.sink().staged.keys().filter(|(owner, _)| owner == client).map(|(_, id)| *id).collect();
        call(&self.0, || Ok(staged())).await
    }
}

impl SimSink {
    fn apply_commit(&self, key: &Key, handle: &Handle) -> Result<Committed, SinkError> {
        let world = &self.0;
        if world.answers().outcome(key) != Some(Outcome::Committed) {
            world.violate(format!("sink.commit of {}, of which nobody was told that it is committed", key.1));
        }
        let mut sink = world.sink();
        if sink.aborted.contains(key) {
            drop(sink);
            world.violate(format!("the sink heard both outcomes of {}", key.1));
            return Err(SinkError::rejected("aborted"));
        }
        let is_forgetful = world.mistake == Mistake::CommitsTwice;
        if sink.visible.contains_key(key) && !is_forgetful {
            drop(sink);
            world.count("commits repeated");
            return Ok(Committed::Already);
        }
        let staged = if is_forgetful { sink.staged.get(key).cloned() } else { sink.staged.remove(key) };
        let shown = match staged {
            Some(records) if records.len() as u64 == handle.records => sink.show(key, records),
            Some(records) => Err(format!("{} of {} records of {} are staged", records.len(), handle.records, key.1)),
            None => Err(format!("{} is committed, and its data is neither staged nor visible", key.1)),
        };
        drop(sink);
        world.note(format!("sink commits {}", world.name(key.1)));
        if let Err(violation) = shown {
            world.violate(violation);
            return Err(SinkError::rejected("lost"));
        }
        Ok(Committed::Now)
    }

    fn apply_abort(&self, key: &Key) {
        let world = &self.0;
        if world.answers().outcome(key) != Some(Outcome::Aborted) {
            world.violate(format!("sink.abort of {}, of which nobody was told that it is aborted", key.1));
        }
        let mut sink = world.sink();
        let is_visible = sink.visible.contains_key(key);
        sink.staged.remove(key);
        sink.aborted.insert(key.clone());
        drop(sink);
        world.note(format!("sink aborts {}", world.name(key.1)));
        if is_visible {
            world.violate(format!("the sink heard both outcomes of {}", key.1));
        }
    }
}
