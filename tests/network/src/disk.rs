//! The coordinator's disk: what was not synced may be lost at a crash, and what survived it unsynced may vanish at the
//! next one, unless the load wrote it anew. What came before a round of rewriting is given up when the round is done.

use std::{collections::BTreeMap, sync::Arc};

use ratified_coordinator::store::{Batch, Change, Claim, Store, StoreError, StoreStatus, Visit, codec};
use ratified_core::Record;

use crate::{entropy::Dice, mistake::Mistake, world::World};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// As little that a run sees some rounds of rewriting.
const SLACK_BYTES: u64 = 4000;

/// The state of the disk.
#[derive(Debug, Default)]
pub struct Platter {
    /// What no crash takes.
    base: Map,
    /// The batches that made it so, since the last round of rewriting began; a load leaves one that puts everything.
    history: Vec<Batch>,
    status: Arc<StoreStatus>,
    /// Written after that, oldest first, and whether a sync reached it.
    tail: Vec<(Batch, bool)>,
    /// How much of the tail an earlier process wrote: this one's syncs do not reach it.
    leftover: usize,
    last_batch: u64,
    /// So many writes and syncs succeed before one fails.
    pub fails_after: Option<u64>,
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
            }
        }
        let bytes = self.history.iter().map(Batch::bytes).sum::<usize>() as u64;
        self.status.set_log_bytes(bytes, bytes);
        self.status.set_slack_bytes(SLACK_BYTES);
    }

    fn readable(&self) -> Map {
        let mut map = self.base.clone();
        self.tail.iter().for_each(|(batch, _)| apply(&mut map, batch));
        map
    }

    /// The process dies: some suffix of what was never synced is gone. Tells how many batches were lost, and how many
    /// survived by chance.
    pub fn crash(&mut self, dice: &mut Dice) -> (u64, u64) {
        let all = self.tail.iter().filter(|(_, synced)| !synced).count() as u64;
        let kept = dice.roll(all + 1);
        let mut seen = 0;
        self.tail.retain(|(_, synced)| {
            seen += u64::from(!synced);
            *synced || seen <= kept
        });
        self.fold();
        self.leftover = self.tail.len();
        self.last_batch = 0;
        self.fails_after = None;
        (all - kept, kept)
    }

    /// The live transactions a process that starts now would find.
    pub fn live(&self) -> Vec<String> {
        let entries = self.readable();
        let live = entries.iter().filter_map(|(key, value)| match codec::decode(key, value) {
            Ok(codec::Entry::Record(Record::Transaction(client, id, header))) => {
                Some(format!("{client} {id} {:?}", header.state))
            }
            _ => None,
        });
        live.collect()
    }

    fn fails(&mut self) -> Result<(), StoreError> {
        match &mut self.fails_after {
            Some(0) => Err(StoreError::indeterminate("write or sync", "input/output error")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
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

/// The disk as the coordinator uses it.
#[derive(Clone)]
pub struct Disk(pub World);

impl Store for Disk {
    fn status(&self) -> Arc<StoreStatus> {
        self.0.platter().status.clone()
    }

    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let map = self.0.platter().readable();
        map.iter().try_for_each(|(key, value)| visit(key, value))?;
        let mut platter = self.0.platter();
        platter.fails()?;
        if self.0.mistake != Mistake::LoadNotRewritten {
            let changes = map.iter().map(|(key, value)| Change { key: key.clone(), value: Some(value.clone()) });
            platter.history = vec![Batch { changes: changes.collect(), ..Batch::default() }];
            platter.base = map;
            platter.tail.clear();
            platter.leftover = 0;
        }
        Ok(())
    }

    fn write(&mut self, _claim: Claim, batch: Batch) -> Result<(), StoreError> {
        let mut platter = self.0.platter();
        platter.fails()?;
        assert!(platter.last_batch == 0 || batch.number == platter.last_batch + 1, "batch {}", batch.number);
        platter.last_batch = batch.number;
        platter.tail.push((batch, false));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let mut platter = self.0.platter();
        platter.fails()?;
        let leftover = platter.leftover;
        platter.tail.iter_mut().skip(leftover).for_each(|(_, synced)| *synced = true);
        platter.fold();
        Ok(())
    }
}
