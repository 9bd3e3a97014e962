//! A pending store that lives as long as the process: for jobs whose disk does not outlive them, and for tests.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use ratified_protocol::{ClientName, TxnId};

use super::{Change, PendingContents, PendingError, PendingLog, PendingStore};
use crate::client::MetStore;

/// Keeps pending transactions in memory. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    clients: Arc<Mutex<BTreeMap<ClientName, Arc<MemoryLog>>>>,
}

impl MemoryStore {
    /// A store that remembers nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl PendingStore for MemoryStore {
    async fn open(&self, client: &ClientName) -> Result<Arc<dyn PendingLog>, PendingError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(clients.entry(client.clone()).or_default().clone())
    }
}

#[derive(Debug, Default)]
struct MemoryLog {
    contents: Mutex<PendingContents>,
}

impl MemoryLog {
    fn lock(&self) -> MutexGuard<'_, PendingContents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: Change) -> Result<(), PendingError> {
        let mut contents = self.lock();
        contents.check_bounds(&change)?;
        contents.apply(change);
        Ok(())
    }
}

#[async_trait]
impl PendingLog for MemoryLog {
    fn contents(&self) -> PendingContents {
        self.lock().clone()
    }

    async fn begin(&self, id: TxnId) -> Result<(), PendingError> {
        self.change(Change::Begin(id))
    }

    async fn begin_at_least_once(&self, id: TxnId) -> Result<(), PendingError> {
        self.change(Change::BeginAtLeastOnce(id))
    }

    async fn attach(&self, id: TxnId, handle: Vec<u8>) -> Result<(), PendingError> {
        self.change(Change::Handle(id, handle))
    }

    async fn remove(&self, id: TxnId) -> Result<(), PendingError> {
        self.change(Change::Remove(id))
    }

    async fn note_store(&self, store: MetStore) -> Result<(), PendingError> {
        self.change(Change::Store(store))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::IdSource;

    #[tokio::test]
    async fn it_takes_as_many_as_it_has_room_for() {
        let log = MemoryStore::new().open(&"job.0".parse().unwrap()).await.unwrap();
        let mut ids = IdSource::above([]);
        for _ in 0..10_000 {
            log.begin(ids.draw().unwrap()).await.unwrap();
        }
        assert!(matches!(log.begin(ids.draw().unwrap()).await, Err(PendingError::Full)));
        let first = *log.contents().entries.first_key_value().unwrap().0;
        log.remove(first).await.unwrap();
        assert!(log.begin(ids.draw().unwrap()).await.is_ok());
    }

    #[tokio::test]
    async fn a_handle_is_taken_up_to_its_bound() {
        let log = MemoryStore::new().open(&"job.0".parse().unwrap()).await.unwrap();
        let id = IdSource::above([]).draw().unwrap();
        log.begin(id).await.unwrap();
        log.attach(id, vec![7; 65_536]).await.unwrap();
        let refused = log.attach(id, vec![7; 65_537]).await;
        assert!(matches!(refused, Err(PendingError::HandleTooLarge { bytes: 65_537 })));
    }

    #[tokio::test]
    async fn clients_do_not_see_each_other() {
        let store = MemoryStore::new();
        let log = store.open(&"job.0".parse().unwrap()).await.unwrap();
        log.begin(IdSource::above([]).draw().unwrap()).await.unwrap();
        let again = store.open(&"job.0".parse().unwrap()).await.unwrap();
        let other = store.open(&"job.1".parse().unwrap()).await.unwrap();
        assert_eq!((again.contents().entries.len(), other.contents().entries.len()), (1, 0));
    }
}
