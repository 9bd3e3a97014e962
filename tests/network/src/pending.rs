//! The jobs' own disks: what a `begin` made durable stays, the rest may be undone by a crash, and a whole disk may be lost.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use ratified::{
    ClientName, MetStore, TxnId,
    pending::{PendingContents, PendingError, PendingLog, PendingStore},
};

use crate::world::{Host, World};

/// The disks of all hosts.
#[derive(Debug, Default)]
pub struct PendingDisks(BTreeMap<(Host, ClientName), Log>);

#[derive(Debug, Default)]
struct Log {
    durable: PendingContents,
    current: PendingContents,
}

/// The disk of one host.
pub struct PendingDisk {
    /// Where everything is.
    pub world: World,
    /// Whose disk.
    pub host: Host,
}

struct OpenLog {
    world: World,
    key: (Host, ClientName),
}

/// A host dies.
pub fn crash(world: &World, host: Host) {
    if world.mischief(8) {
        world.count("job disks lost");
        world.pending().0.retain(|(owner, _), _| *owner != host);
    } else if world.roll(2) == 0 {
        for (_, log) in world.pending().0.iter_mut().filter(|((owner, _), _)| *owner == host) {
            log.current = log.durable.clone();
        }
    }
}

#[async_trait]
impl PendingStore for PendingDisk {
    async fn open(&self, client: &ClientName) -> Result<Arc<dyn PendingLog>, PendingError> {
        let key = (self.host, client.clone());
        self.world.pending().0.entry(key.clone()).or_default();
        Ok(Arc::new(OpenLog { world: self.world.clone(), key }))
    }
}

impl OpenLog {
    fn with<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        change(self.world.pending().0.entry(self.key.clone()).or_default())
    }
}

#[async_trait]
impl PendingLog for OpenLog {
    fn contents(&self) -> PendingContents {
        self.with(|log| log.current.clone())
    }

    async fn begin(&self, id: TxnId) -> Result<(), PendingError> {
        self.world.linger(6).await;
        self.with(|log| {
            log.current.entries.entry(id).or_default();
            log.durable = log.current.clone();
        });
        Ok(())
    }

    async fn begin_at_least_once(&self, id: TxnId) -> Result<(), PendingError> {
        self.world.linger(6).await;
        self.with(|log| {
            log.current.at_least_once.insert(id);
            log.durable = log.current.clone();
        });
        Ok(())
    }

    async fn attach(&self, id: TxnId, handle: Vec<u8>) -> Result<(), PendingError> {
        self.with(|log| log.current.entries.insert(id, Some(handle)));
        Ok(())
    }

    async fn remove(&self, id: TxnId) -> Result<(), PendingError> {
        self.with(|log| {
            log.current.entries.remove(&id);
            log.current.at_least_once.remove(&id);
        });
        Ok(())
    }

    async fn note_store(&self, store: MetStore) -> Result<(), PendingError> {
        self.with(|log| log.current.store = Some(store));
        Ok(())
    }
}
