//! The store double: a disk that loses what was not synced, and what only seemed to have survived.
//!
//! A batch is written whole or not at all. A crash keeps some prefix of the unsynced batches; those that survive were
//! still never synced, so the next crash may take them, unless the load rewrote them as the store's contract demands. What
//! came before a round of rewriting is given up when the round is done: what is there follows from the batches since.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use ratified_coordinator::store::{Batch, Change, Claim, Store, StoreError, StoreStatus, Visit};

use crate::{
    fault::{Fault, Faults},
    rng::Rng,
};

/// Where a load is cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadCut {
    /// After some of it was read; nothing was rewritten.
    Reading,
    /// Everything was rewritten, but the load record was not written.
    Rewritten,
    /// The load record was written, not synced.
    Written,
    /// The load record was synced.
    Synced,
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// As little that most runs see some rounds of rewriting.
const SLACK_BYTES: u64 = 2000;

/// The state of the disk, shared by the process that uses it and the world that breaks it.
#[derive(Debug, Default)]
pub struct Platter {
    /// What no crash takes.
    base: Map,
    /// The batches that made it so, since the last round of rewriting began; a load leaves one that puts everything.
    history: Vec<Batch>,
    /// How often what came before a round was given up.
    pub rounds: u64,
    /// Written after that, oldest first, and whether a sync reached it.
    tail: Vec<(Batch, bool)>,
    /// How much of the tail was there when the process started: syncing the file again does not reach it.
    leftover: usize,
    last_batch: u64,
    /// Cut the next load here.
    pub cut: Option<LoadCut>,
    /// So many writes and syncs succeed before ...
    pub failing_after: u64,
    /// ... so many fail.
    pub failing: u64,
    /// What the store was told wrongly.
    pub misuse: Option<String>,
}

/// A handle on the disk.
#[derive(Debug, Clone)]
pub struct Disk {
    platter: Arc<Mutex<Platter>>,
    status: Arc<StoreStatus>,
    faults: Faults,
}

impl Platter {
    fn fold(&mut self) {
        let synced = self.tail.iter().take_while(|(_, synced)| *synced).count();
        for (batch, _) in self.tail.drain(..synced) {
            apply(&mut self.base, &batch);
            let since = batch.rewritten_since;
            self.history.push(batch);
            if let Some(since) = since {
                self.history.retain(|batch| batch.number >= since);
                self.base.clear();
                self.history.iter().for_each(|batch| apply(&mut self.base, batch));
                self.rounds += 1;
            }
        }
    }

    /// Whether something that was never synced is there.
    pub fn has_unsynced(&self) -> bool {
        self.tail.iter().any(|(_, synced)| !synced)
    }

    /// What a crash may or may not take.
    pub fn unsynced(&self) -> impl Iterator<Item = &Batch> {
        self.tail.iter().filter(|(_, synced)| !synced).map(|(batch, _)| batch)
    }
}

fn apply(map: &mut Map, batch: &Batch) {
    for change in &batch.changes {
        match &change.value {
            Some(value) => map.insert(change.key.clone(), value.clone()),
            None => map.remove(&change.key),
        };
    }
}

impl Disk {
    /// An empty disk.
    pub fn new(faults: Faults) -> Self {
        let status = StoreStatus::default();
        status.set_slack_bytes(SLACK_BYTES);
        Self { platter: Arc::default(), status: Arc::new(status), faults }
    }

    /// The state of the disk.
    pub fn platter(&self) -> std::sync::MutexGuard<'_, Platter> {
        self.platter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What no crash takes.
    pub fn with_synced<R>(&self, look: impl FnOnce(&Map) -> R) -> R {
        look(&self.platter().base)
    }

    /// What a process that starts now would read.
    pub fn readable(&self) -> Map {
        let platter = self.platter();
        let mut map = platter.base.clone();
        platter.tail.iter().for_each(|(batch, _)| apply(&mut map, batch));
        map
    }

    /// The process dies: some suffix of what was never synced is gone. Returns how many batches were lost and how
    /// many survived unsynced.
    pub fn crash(&self, rng: &mut Rng) -> (usize, usize) {
        let mut platter = self.platter();
        let all = platter.unsynced().count();
        let kept = rng.below(all as u64 + 1) as usize;
        let mut seen = 0;
        platter.tail.retain(|(_, synced)| {
            seen += usize::from(!synced);
            *synced || seen <= kept
        });
        platter.fold();
        platter.leftover = platter.tail.len();
        platter.last_batch = 0;
        (all - kept, kept)
    }

    fn cut_here(&self, cut: LoadCut) -> Result<(), StoreError> {
        let mut platter = self.platter();
        if platter.cut == Some(cut) {
            platter.cut = None;
            return Err(StoreError::indeterminate("load", "cut short"));
        }
        Ok(())
    }

    fn fails(&self) -> Result<(), StoreError> {
        let mut platter = self.platter();
        if platter.failing > 0 && platter.failing_after > 0 {
            platter.failing_after -= 1;
        } else if platter.failing > 0 {
            platter.failing -= 1;
            return Err(StoreError::indeterminate("write or sync", "input/output error"));
        }
        Ok(())
    }
}

impl Store for Disk {
    fn status(&self) -> Arc<StoreStatus> {
        self.status.clone()
    }

    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let map = self.readable();
        map.iter().try_for_each(|(key, value)| visit(key, value))?;
        self.cut_here(LoadCut::Reading)?;
        self.fails()?;
        if !self.faults.has(Fault::LoadNotRewritten) {
            let mut platter = self.platter();
            let changes = map.iter().map(|(key, value)| Change { key: key.clone(), value: Some(value.clone()) });
            platter.history = vec![Batch { changes: changes.collect(), ..Batch::default() }];
            platter.base = map;
            platter.tail.clear();
            platter.leftover = 0;
        }
        self.cut_here(LoadCut::Rewritten)
    }

    fn write(&mut self, _claim: Claim, batch: Batch) -> Result<(), StoreError> {
        self.fails()?;
        let mut platter = self.platter();
        if platter.last_batch > 0 && batch.number != platter.last_batch + 1 {
            platter.misuse = Some(format!("batch {} after {}", batch.number, platter.last_batch));
        }
        platter.last_batch = batch.number;
        platter.tail.push((batch, false));
        drop(platter);
        self.cut_here(LoadCut::Written)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.fails()?;
        if !self.faults.has(Fault::SyncSkipped) {
            let mut platter = self.platter();
            // The leftover of an earlier process looks clean to this one's sync.
            let leftover = platter.leftover;
            platter.tail.iter_mut().skip(leftover).for_each(|(_, synced)| *synced = true);
            platter.fold();
            let bytes = platter.history.iter().map(Batch::bytes).sum::<usize>() as u64;
            self.status.set_log_bytes(bytes, bytes);
        }
        self.cut_here(LoadCut::Synced)
    }
}
