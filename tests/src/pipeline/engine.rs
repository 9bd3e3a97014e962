//! An engine in small: barriers, checkpoints on disk, notifications that get lost, attempts that supersede each other.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ratified::{Barrier, CheckpointId, EngineSinkBuilder, RuntimeError, Snapshot, TwoPhaseSink};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use super::{Plan, Row};

/// Why an attempt ended early.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The sink's runtime stopped.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The engine has started a newer attempt: the checkpoints of this one are refused.
    #[error("attempt {mine} was superseded by attempt {newest}")]
    Superseded {
        /// This attempt.
        mine: u64,
        /// The newest one.
        newest: u64,
    },
    /// The engine's own disk failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A completed checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Completed {
    id: u64,
    position: u64,
    snapshot: String,
}

/// Where an engine keeps its checkpoints.
#[derive(Debug, Clone)]
pub struct Engine {
    dir: PathBuf,
}

impl Engine {
    /// In this directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Starts a new attempt; all earlier ones are superseded.
    fn claim(&self) -> io::Result<u64> {
        let attempt = self.load::<u64>("attempt")?.unwrap_or(0) + 1;
        self.store("attempt", &attempt)?;
        Ok(attempt)
    }

    fn complete(&self, attempt: u64, completed: &Completed) -> Result<(), EngineError> {
        let newest = self.load::<u64>("attempt")?.unwrap_or(0);
        if newest != attempt {
            return Err(EngineError::Superseded { mine: attempt, newest });
        }
        Ok(self.store("completed", completed)?)
    }

    fn load<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        match fs::read(self.dir.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => serde_json::from_slice(&bytes?).map(Some).map_err(io::Error::other),
        }
    }

    fn store<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        let unfinished = self.dir.join(format!("{name}.unfinished"));
        let file = File::create(&unfinished)?;
        serde_json::to_writer(&file, value).map_err(io::Error::other)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.dir.join(name))?;
        File::open(&self.dir)?.sync_all()
    }
}

/// Runs the pipeline under an engine. Every fifth checkpoint is declined elsewhere, and every fourth notification is
/// lost.
///
/// # Errors
/// What stopped the attempt; the next one goes on from the last completed checkpoint.
pub async fn run_engine(plan: &Plan) -> Result<(), EngineError> {
    run_attempt(plan, plan.builder()).await
}

/// As [`run_engine`], into this sink.
pub(super) async fn run_attempt<S>(plan: &Plan, sink: EngineSinkBuilder<S>) -> Result<(), EngineError>
where
    S: TwoPhaseSink<Record = Row>,
{
    let engine = Engine::new(&plan.dir.join("engine"))?;
    let attempt = engine.claim()?;
    let restored = engine.load::<Completed>("completed")?.unwrap_or_default();
    let snapshot = STANDARD.decode(&restored.snapshot).map_err(io::Error::other)?;
    let snapshots = if snapshot.is_empty() { None } else { Some(Snapshot::from_bytes(&snapshot)?) };
    let from = Some(CheckpointId::new(restored.id));
    let mut runtime = sink.open(plan.sink_name(), from, snapshots).await?;
    (plan.places)("opened");
    let (mut id, mut position) = (restored.id, restored.position);
    let is_last = |position: u64| position >= plan.records;
    loop {
        let end = (position + plan.per_txn).min(plan.records);
        for n in position..end {
            runtime.write(Row { n }).await?;
        }
        position = end;
        id += 1;
        let checkpoint = CheckpointId::new(id);
        let barrier = if is_last(position) { Barrier::last(checkpoint) } else { Barrier::checkpoint(checkpoint) };
        let snapshot = runtime.pre_commit(barrier).await?;
        if id.is_multiple_of(5) && !is_last(position) {
            runtime.checkpoint_aborted(checkpoint)?;
            continue;
        }
        let snapshot = STANDARD.encode(snapshot.to_bytes());
        engine.complete(attempt, &Completed { id, position, snapshot })?;
        (plan.places)("stored");
        if !id.is_multiple_of(4) || is_last(position) {
            runtime.checkpoint_completed(checkpoint)?;
            (plan.places)("notified");
        }
        if is_last(position) {
            break;
        }
    }
    runtime.flush_commits().await?;
    (plan.places)("flushed");
    Ok(runtime.close().await?)
}
