//! A store that forgets when the process ends.

use std::collections::BTreeMap;

use super::{Batch, Claim, Store, StoreError, Visit};

/// Everything in memory: for embedders that need no durability, and for tests.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything in it, in order of keys.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.map.iter().map(|(k, v)| (k.as_slice(), v.as_slice()))
    }
}

impl Store for MemoryStore {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.map.iter().try_for_each(|(key, value)| visit(key, value))
    }

    fn write(&mut self, _claim: Claim, batch: Batch) -> Result<(), StoreError> {
        for change in batch.changes {
            match change.value {
                Some(value) => self.map.insert(change.key, value),
                None => self.map.remove(&change.key),
            };
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}
