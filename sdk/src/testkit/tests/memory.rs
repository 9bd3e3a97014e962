//! A sink in memory that can be broken in one way at a time. The "world" outlives the instances over it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use ratified_protocol::{ClientName, Epoch, TxnId};
use serde::{Deserialize, Serialize};

use crate::{
    error::SinkError,
    sink::{Committed, SinkCommitter, SinkWriter, TwoPhaseSink, TxnContext},
    testkit::{HarnessError, Medium, SinkHarness},
};

/// One way in which the sink breaks the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    StagedIsVisible,
    CommitLosesARecord,
    EmptyIsRejected,
    BufferIsCut,
    HandleLosesAField,
    HandleIsHuge,
    CommitRepeats,
    CommitSaysNowAgain,
    OnlyTheLastCommitIsProved,
    StagedInTheProcess,
    CommitRaces,
    NewestFirst,
    AbsenceIsAlready,
    AbsenceIsRetried,
    AbortKeepsPrepared,
    AbortOfNothingIsRejected,
    AbortNeedsTheHandle,
    AbortRemovesCommitted,
    AbortRemovesTheClient,
    AbortKeepsOpen,
    CommitTakesTheClient,
    IdAloneIsTheKey,
    ListsCommitted,
    ListsNothing,
    ListsEverybody,
    ListsByPrefix,
    ListsWithoutCase,
    ShowsStaged,
    ShowsEverybody,
    ShowsNothing,
    FenceRemovesPrepared,
    WriteErrorIsSwallowed,
}

type Key = (String, TxnId);

#[derive(Default)]
struct Staged {
    records: Vec<u64>,
    prepared: bool,
}

#[derive(Default)]
pub(crate) struct World {
    staged: BTreeMap<Key, Staged>,
    committed: Vec<(Key, Vec<u64>)>,
    broken: bool,
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the sink with a fault, or without.
pub(crate) struct Harness {
    pub(crate) fault: Option<Fault>,
    /// Whether it can do what only some can: break its medium, and tell what is visible.
    pub(crate) is_able: bool,
}

#[async_trait]
impl SinkHarness for Harness {
    type Sink = Memory;
    type Location = Shared;

    async fn fresh(&self) -> Result<Shared, HarnessError> {
        Ok(Shared::default())
    }

    async fn instance(&self, at: &Shared) -> Result<Memory, HarnessError> {
        let staging = if self.fault == Some(Fault::StagedInTheProcess) { Shared::default() } else { at.clone() };
        Ok(Memory { world: at.clone(), staging, fault: self.fault, tells: self.is_able })
    }

    fn record(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self, at: &Shared) -> Result<Vec<u64>, HarnessError> {
        let world = lock(at);
        let mut parts: Vec<_> = world.committed.iter().map(|(_, records)| records.clone()).collect();
        if self.fault == Some(Fault::NewestFirst) {
            parts.reverse();
        }
        if self.fault == Some(Fault::StagedIsVisible) {
            parts.extend(world.staged.values().map(|staged| staged.records.clone()));
        }
        Ok(parts.concat())
    }

    async fn break_medium(&self, at: &Shared) -> Result<Medium, HarnessError> {
        lock(at).broken = true;
        Ok(if self.is_able { Medium::Broken } else { Medium::Unbreakable })
    }

    fn large_records(&self) -> u64 {
        2000
    }
}

#[derive(Clone)]
pub(crate) struct Memory {
    world: Shared,
    staging: Shared,
    fault: Option<Fault>,
    tells: bool,
}

impl Memory {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn key(&self, client: &ClientName, txn_id: TxnId) -> Key {
        let client = if self.has(Fault::IdAloneIsTheKey) { "" } else { client.as_str() };
        (client.to_owned(), txn_id)
    }
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(into = "Wire", from = "Wire")]
pub(crate) struct Handle {
    records: Option<usize>,
    padding: String,
    lossy: bool,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    records: Option<usize>,
    padding: String,
}

impl From<Handle> for Wire {
    fn from(handle: Handle) -> Self {
        Self { records: handle.records.filter(|_| !handle.lossy), padding: handle.padding }
    }
}

impl From<Wire> for Handle {
    fn from(wire: Wire) -> Self {
        Self { records: wire.records, padding: wire.padding, lossy: false }
    }
}

#[async_trait]
impl TwoPhaseSink for Memory {
    type Record = u64;
    type Handle = Handle;
    type Writer = Memory;
    type Committer = Memory;

    async fn writer(&self) -> Result<Memory, SinkError> {
        Ok(self.clone())
    }

    async fn committer(&self) -> Result<Memory, SinkError> {
        Ok(self.clone())
    }
}

#[async_trait]
impl SinkWriter for Memory {
    type Record = u64;
    type Handle = Handle;

    async fn begin(&mut self, txn: &TxnContext) -> Result<Handle, SinkError> {
        lock(&self.staging).staged.insert(self.key(&txn.client, txn.txn_id), Staged::default());
        let padding = "x".repeat(if self.has(Fault::HandleIsHuge) { 65_536 } else { 0 });
        Ok(Handle { records: None, padding, lossy: self.has(Fault::HandleLosesAField) })
    }

    async fn write(&mut self, txn: &TxnContext, _: &mut Handle, records: Vec<u64>) -> Result<(), SinkError> {
        let mut world = lock(&self.staging);
        if world.broken {
            // As a driver that writes in the background: nothing is told yet.
            return Ok(());
        }
        let staged = world.staged.entry(self.key(&txn.client, txn.txn_id)).or_default();
        staged.records.extend(records);
        if self.has(Fault::BufferIsCut) {
            staged.records.truncate(1000);
        }
        Ok(())
    }

    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut Handle) -> Result<(), SinkError> {
        let mut world = lock(&self.staging);
        if world.broken && !self.has(Fault::WriteErrorIsSwallowed) {
            return Err(SinkError::indeterminate("the medium is broken"));
        }
        let staged = world.staged.entry(self.key(&txn.client, txn.txn_id)).or_default();
        if staged.records.is_empty() && self.has(Fault::EmptyIsRejected) {
            return Err(SinkError::rejected("nothing was written"));
        }
        staged.prepared = true;
        handle.records = Some(staged.records.len());
        Ok(())
    }
}

#[async_trait]
impl SinkCommitter for Memory {
    type Handle = Handle;

    async fn commit(&self, txn: &TxnContext, handle: &Handle) -> Result<Committed, SinkError> {
        let key = self.key(&txn.client, txn.txn_id);
        if self.has(Fault::CommitRaces) && !self.is_committed(&key) {
            let records = lock(&self.staging).staged.get(&key).map(|staged| staged.records.clone());
            tokio::task::yield_now().await;
            if let Some(records) = records {
                lock(&self.world).committed.push((key.clone(), records));
                lock(&self.staging).staged.remove(&key);
                return Ok(Committed::Now);
            }
        }
        if self.is_committed(&key) {
            return Ok(self.repeat(&key));
        }
        let Some(staged) = lock(&self.staging).staged.remove(&key) else { return self.absent() };
        if handle.records != Some(staged.records.len()) {
            return Err(SinkError::rejected("the handle is of something else"));
        }
        self.apply(key, staged.records);
        Ok(Committed::Now)
    }

    async fn abort(&self, txn: &TxnContext, handle: Option<&Handle>) -> Result<(), SinkError> {
        let key = self.key(&txn.client, txn.txn_id);
        if self.has(Fault::AbortNeedsTheHandle) && handle.is_none() {
            return Ok(());
        }
        if self.has(Fault::AbortRemovesCommitted) {
            lock(&self.world).committed.retain(|(committed, _)| *committed != key);
        }
        let mut world = lock(&self.staging);
        if self.has(Fault::AbortRemovesTheClient) {
            world.staged.retain(|(client, _), _| *client != key.0);
        }
        let prepared = world.staged.get(&key).map(|staged| staged.prepared);
        let kept = match prepared {
            Some(true) => self.has(Fault::AbortKeepsPrepared),
            Some(false) => self.has(Fault::AbortKeepsOpen),
            None if self.has(Fault::AbortOfNothingIsRejected) => return Err(SinkError::rejected("unknown")),
            None => true,
        };
        if !kept {
            world.staged.remove(&key);
        }
        Ok(())
    }

    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        let name = self.key(client, TxnId::from_bytes(LEAST_ID).map_err(SinkError::rejected)?).0;
        let taken = |other: &str| match self.fault {
            Some(Fault::ListsNothing) => false,
            Some(Fault::ListsEverybody) => true,
            Some(Fault::ListsByPrefix) => other.starts_with(&name),
            Some(Fault::ListsWithoutCase) => other.eq_ignore_ascii_case(&name),
            _ => other == name,
        };
        let world = lock(&self.staging);
        let committed = world.committed.iter().map(|(key, _)| key).filter(|_| self.has(Fault::ListsCommitted));
        let keys = world.staged.keys().chain(committed);
        Ok(keys.filter(|(other, _)| taken(other)).map(|(_, txn_id)| *txn_id).collect())
    }

    async fn list_visible(&self, client: &ClientName) -> Result<Option<Vec<TxnId>>, SinkError> {
        if !self.tells {
            return Ok(None);
        }
        let committed: Vec<_> = lock(&self.world).committed.iter().map(|(key, _)| key.clone()).collect();
        let staged: Vec<_> = lock(&self.staging).staged.keys().cloned().collect();
        let shown = committed.into_iter().filter(|_| !self.has(Fault::ShowsNothing));
        let keys = shown.chain(staged.into_iter().filter(|_| self.has(Fault::ShowsStaged)));
        let of_client = keys.filter(|(other, _)| self.has(Fault::ShowsEverybody) || other == client.as_str());
        Ok(Some(of_client.map(|(_, txn_id)| txn_id).collect()))
    }

    async fn fence(&self, client: &ClientName, _: Epoch) -> Result<(), SinkError> {
        if self.has(Fault::FenceRemovesPrepared) {
            lock(&self.staging).staged.retain(|(other, _), _| other != client.as_str());
        }
        Ok(())
    }
}

const LEAST_ID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];

impl Memory {
    fn is_committed(&self, key: &Key) -> bool {
        let world = lock(&self.world);
        if self.has(Fault::OnlyTheLastCommitIsProved) {
            return world.committed.last().is_some_and(|(last, _)| last == key);
        }
        world.committed.iter().any(|(committed, _)| committed == key)
    }

    fn repeat(&self, key: &Key) -> Committed {
        if self.has(Fault::CommitRepeats) {
            let mut world = lock(&self.world);
            let again: Vec<_> = world.committed.iter().filter(|(committed, _)| committed == key).cloned().collect();
            world.committed.extend(again);
        }
        if self.has(Fault::CommitSaysNowAgain) { Committed::Now } else { Committed::Already }
    }

    fn absent(&self) -> Result<Committed, SinkError> {
        match self.fault {
            Some(Fault::AbsenceIsAlready) => Ok(Committed::Already),
            Some(Fault::AbsenceIsRetried) => Err(SinkError::indeterminate("not there yet")),
            _ => Err(SinkError::rejected("lost: neither staged nor committed")),
        }
    }

    fn apply(&self, key: Key, mut records: Vec<u64>) {
        if self.has(Fault::CommitLosesARecord) {
            records.pop();
        }
        if self.has(Fault::CommitTakesTheClient) {
            let mut world = lock(&self.staging);
            let others: Vec<Key> = world.staged.keys().filter(|(client, _)| *client == key.0).cloned().collect();
            for other in others {
                records.extend(world.staged.remove(&other).map(|staged| staged.records).unwrap_or_default());
            }
        }
        lock(&self.world).committed.push((key, records));
    }
}
