//! From what is on disk to an engine that may serve.

use ratified_core::{Engine, Limits, LoadHistory, Now, Recovery, RecoveryError, Uptime};
use ratified_protocol::LoadNonce;
use thiserror::Error;
use uuid::Uuid;

use super::pipeline::{Pipeline, Room};
use crate::{
    clock::Clock,
    store::{
        Claim, Store, StoreError,
        codec::{self, Entry, FORMAT, Meta},
    },
};

/// Why a load is refused. The caller must not serve.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The store cannot be read, or what is in it cannot be what a coordinator wrote.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The records contradict each other.
    #[error("damaged data: {0}")]
    Recovery(#[from] RecoveryError),
}

impl LoadError {
    /// See [`StoreError::is_of_the_disk`].
    pub fn is_of_the_disk(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_of_the_disk())
    }
}

/// A loaded coordinator.
#[derive(Debug)]
pub struct Loaded {
    /// Ready to step.
    pub pipeline: Pipeline,
    /// Which store, which start of it, and the starts before.
    pub history: LoadHistory,
    /// What every write must carry.
    pub claim: Claim,
    /// How many records were read back.
    pub records: u64,
}

/// What was drawn at random for a start.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    /// The name of the store, if it is new.
    pub cluster_id: Uuid,
    /// Tells this load from every other one, those of a copy that is put back later included.
    pub nonce: LoadNonce,
}

impl Drawn {
    /// Draws.
    pub fn at_random() -> Self {
        Self { cluster_id: Uuid::new_v4(), nonce: LoadNonce::new(Uuid::new_v4()) }
    }
}

/// What the meta records say.
#[derive(Debug, Default)]
struct Found {
    format: Option<u64>,
    cluster_id: Option<Uuid>,
    loads: Option<u64>,
    batch: Option<u64>,
    uptime: Option<Uptime>,
    history: Option<Vec<(u64, LoadNonce)>>,
    records: u64,
    bytes: u64,
}

/// Reads the store back, rebuilds the engine, and makes the start durable: the load record, with whatever recovery has
/// to write, is synced before this returns.
///
/// # Errors
/// The load is refused; nothing may be served.
pub fn load(
    store: &mut dyn Store,
    limits: Limits,
    room: Room,
    clock: &dyn Clock,
    drawn: Drawn,
) -> Result<Loaded, LoadError> {
    let given = store.claim(drawn.nonce)?;
    let (mut found, recovery) = read(store, limits, given)?;
    let cluster_id = store.cluster_id().unwrap_or(drawn.cluster_id);
    let history = found.history(Drawn { cluster_id, ..drawn }, given)?;
    if store.cluster_id().is_some_and(|own| own != history.store_id().cluster_id()) {
        let problem = format!("it is {}, in a store that is {cluster_id}", history.store_id().cluster_id());
        return Err(StoreError::damaged("meta clusterId", problem).into());
    }
    let store_id = history.store_id();
    let claim = Claim { loads: store_id.newest_loads(), nonce: drawn.nonce };
    clock.resume(found.uptime.unwrap_or_default());
    let recovery = recovery.unwrap_or_else(|| Recovery::new(limits, store_id.newest_loads()));
    let (engine, effects) = finish(recovery, clock.now())?;
    let pipeline = Pipeline::new(engine, found.batch.unwrap_or_default(), effects, room, store.limits())?;
    let mut pipeline = pipeline.following(store.status(), found.bytes);
    let start = [
        Meta::Format(FORMAT),
        Meta::ClusterId(store_id.cluster_id()),
        Meta::Loads(store_id.newest_loads()),
        Meta::History(history.loads().collect()),
    ];
    if let Some(batch) = pipeline.seal_with(&start)? {
        store.write(claim, batch)?;
        store.sync()?;
        pipeline.synced();
    }
    store.confirm(claim)?;
    Ok(Loaded { pipeline, history, claim, records: found.records })
}

fn finish(recovery: Recovery, now: Now) -> Result<(Engine, Vec<ratified_core::Effect>), LoadError> {
    Ok(recovery.finish(now)?)
}

// Meta records come first in the order of keys, and so the number of this load is known before the first record.
fn read(store: &mut dyn Store, limits: Limits, given: Option<u64>) -> Result<(Found, Option<Recovery>), LoadError> {
    let mut found = Found::default();
    let mut recovery = None;
    store.load(&mut |key, value| {
        found.bytes = found.bytes.saturating_add((key.len() + value.len()) as u64);
        match codec::decode(key, value)? {
            Entry::Meta(meta) => found.take(meta)?,
            Entry::Record(record) => {
                found.records += 1;
                let loads = given.unwrap_or_else(|| found.loads.unwrap_or_default().saturating_add(1));
                let recovery = recovery.get_or_insert_with(|| Recovery::new(limits, loads));
                recovery.add(record).map_err(|e| StoreError::damaged(e.place, e.problem))?;
            }
        }
        Ok(())
    })?;
    Ok((found, recovery))
}

impl Found {
    fn take(&mut self, meta: Meta) -> Result<(), StoreError> {
        match meta {
            Meta::Format(FORMAT) => self.format = Some(FORMAT),
            Meta::Format(other) => {
                let problem = format!("version {other}, this program reads {FORMAT}; written by a newer one?");
                return Err(StoreError::damaged("meta format", problem));
            }
            Meta::ClusterId(id) => self.cluster_id = Some(id),
            Meta::Loads(loads) => self.loads = Some(loads),
            Meta::Batch(batch) => self.batch = Some(batch),
            Meta::Uptime(uptime) => self.uptime = Some(uptime),
            Meta::History(loads) => self.history = Some(loads),
        }
        Ok(())
    }

    /// All meta records are written by the first batch and never removed: either all are there, or nothing is.
    fn history(&mut self, drawn: Drawn, given: Option<u64>) -> Result<LoadHistory, LoadError> {
        let is_new = self.records == 0
            && self.format.is_none()
            && self.cluster_id.is_none()
            && self.loads.is_none()
            && self.batch.is_none()
            && self.uptime.is_none()
            && self.history.is_none();
        if is_new {
            return Ok(LoadHistory::new(drawn.cluster_id, given.unwrap_or(1), drawn.nonce));
        }
        let missing = |name: &str| StoreError::damaged(format!("meta {name}"), "the record is missing");
        self.format.ok_or_else(|| missing("format"))?;
        self.batch.ok_or_else(|| missing("batch"))?;
        self.uptime.ok_or_else(|| missing("uptime"))?;
        let cluster_id = self.cluster_id.ok_or_else(|| missing("clusterId"))?;
        let loads = self.loads.ok_or_else(|| missing("loads"))?;
        let remembered = self.history.take().ok_or_else(|| missing("history"))?;
        let loads = given.unwrap_or_else(|| loads.saturating_add(1));
        Ok(LoadHistory::resume(cluster_id, remembered, loads, drawn.nonce)?)
    }
}
