//! As much of a stream-processing engine as a sink can tell from a real one: barriers, snapshots, notifications, restores.
//!
//! The source counts: 1, 2, 3 ... So it is plain to see what must be visible, and what is missing or there twice.

use std::{collections::BTreeMap, fs, path::PathBuf};

use ratified::{
    Barrier, BarrierKind, CheckpointId, CoordinatorClient, EngineSink, EngineSinkBuilder, RuntimeError, SinkName,
    Snapshot, SnapshotElement, Worker,
    sinks::file::{FileSink, FileSinkError, TargetName, read_target},
};
use thiserror::Error;

/// Why a scene failed.
#[derive(Debug, Error)]
pub(crate) enum EngineError {
    /// The sink's runtime refused or stopped.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The sink cannot be set up.
    #[error(transparent)]
    Sink(#[from] FileSinkError),
    /// The output cannot be read.
    #[error("the output: {0}")]
    Output(#[from] std::io::Error),
    /// A number in the output is none.
    #[error("the output has a line that is no number: {0:?}")]
    NotANumber(String),
    /// The scene did not go as it had to.
    #[error("{0}")]
    Unexpected(String),
}

/// A completed checkpoint, as an engine stores it: bytes, and where the source stood.
#[derive(Debug, Clone)]
pub(crate) struct Checkpoint {
    /// Its number.
    pub(crate) id: CheckpointId,
    /// The last number that was read before the barrier.
    pub(crate) position: u64,
    /// What the workers gave, each part on its own, so that it can be dealt to any number of workers.
    pub(crate) elements: Vec<Vec<u8>>,
}

/// The engine: workers in this process, and what it keeps of them.
pub(crate) struct Engine {
    coordinator: CoordinatorClient,
    output: PathBuf,
    target: TargetName,
    name: SinkName,
    workers: Vec<EngineSink<FileSink<u64>>>,
    position: u64,
    newest: u64,
}

/// How an engine is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// For the first time ever.
    First,
    /// Again, from a checkpoint.
    Again,
    /// Again, from an older checkpoint than the sink has committed, and duplicates are wanted.
    Rewound,
}

impl Engine {
    /// A stopped engine.
    pub(crate) fn new(
        coordinator: CoordinatorClient,
        output: impl Into<PathBuf>,
        target: TargetName,
        name: SinkName,
    ) -> Self {
        let output = output.into();
        Self { coordinator, output, target, name, workers: Vec::new(), position: 0, newest: 0 }
    }

    /// Starts so many workers, in order. `deal` names the worker that gets a part of the restored checkpoint.
    ///
    /// # Errors
    /// The first worker that does not open.
    pub(crate) async fn start(
        &mut self,
        how: Start,
        parallelism: u32,
        restored: Option<&Checkpoint>,
        deal: impl Fn(usize) -> u32,
    ) -> Result<(), EngineError> {
        self.crash();
        self.position = restored.map_or(0, |checkpoint| checkpoint.position);
        for index in 0..parallelism {
            let worker = Worker::new(index, parallelism).ok_or_else(|| unexpected("a worker too many"))?;
            let mut elements = Vec::new();
            for (number, bytes) in restored.iter().flat_map(|checkpoint| checkpoint.elements.iter().enumerate()) {
                if deal(number) == index {
                    elements.push(SnapshotElement::from_bytes(bytes)?);
                }
            }
            let sink = FileSink::json_lines(&self.output, self.target.clone()).build()?;
            let runtime = EngineSinkBuilder::new(sink, self.coordinator.clone())
                .worker(worker)
                .first_start(how == Start::First)
                .accept_rewind(how == Start::Rewound)
                .open(self.name.clone(), restored.map(|checkpoint| checkpoint.id), [Snapshot::from_elements(elements)])
                .await?;
            self.workers.push(runtime);
        }
        Ok(())
    }

    /// All workers die at once. Nothing is closed.
    pub(crate) fn crash(&mut self) {
        self.workers.clear();
    }

    /// Reads the next numbers, and deals them to the workers in turn.
    ///
    /// # Errors
    /// A worker's sticky error.
    pub(crate) async fn read(&mut self, count: u64) -> Result<(), EngineError> {
        for _ in 0..count {
            self.position += 1;
            let workers = self.workers.len() as u64;
            let index = usize::try_from(self.position.checked_rem(workers).unwrap_or(0)).unwrap_or(0);
            let worker = self.workers.get_mut(index).ok_or_else(|| unexpected("no worker runs"))?;
            worker.write(self.position).await?;
        }
        Ok(())
    }

    /// Sends a barrier through all workers. The checkpoint is complete once the engine says so.
    ///
    /// # Errors
    /// A worker's sticky error: the checkpoint must be declined.
    pub(crate) async fn barrier(&mut self, kind: BarrierKind) -> Result<Checkpoint, EngineError> {
        self.newest += 1;
        let id = CheckpointId::new(self.newest);
        let mut elements = Vec::new();
        for worker in &mut self.workers {
            let snapshot = worker.pre_commit(Barrier { checkpoint: id, kind }).await?;
            elements.extend(snapshot.elements().iter().map(SnapshotElement::to_bytes));
        }
        Ok(Checkpoint { id, position: self.position, elements })
    }

    /// Tells all workers that a checkpoint is complete, and waits until they have committed.
    ///
    /// # Errors
    /// A worker's sticky error.
    pub(crate) async fn completed(&mut self, checkpoint: &Checkpoint) -> Result<(), EngineError> {
        for worker in &mut self.workers {
            worker.checkpoint_completed(checkpoint.id)?;
        }
        for worker in &self.workers {
            worker.flush_commits().await?;
        }
        Ok(())
    }

    /// Tells all workers that a checkpoint was given up.
    ///
    /// # Errors
    /// A worker's sticky error.
    pub(crate) async fn declined(&mut self, checkpoint: &Checkpoint) -> Result<(), EngineError> {
        for worker in &mut self.workers {
            worker.checkpoint_aborted(checkpoint.id)?;
        }
        Ok(())
    }

    /// Ends all workers in good order.
    ///
    /// # Errors
    /// A worker had records that no barrier covers.
    pub(crate) async fn stop(&mut self) -> Result<(), EngineError> {
        for worker in self.workers.drain(..) {
            worker.close().await?;
        }
        Ok(())
    }

    /// The running workers.
    pub(crate) fn workers(&self) -> &[EngineSink<FileSink<u64>>] {
        &self.workers
    }

    /// How often each number is visible.
    ///
    /// # Errors
    /// The output cannot be read.
    pub(crate) fn visible(&self) -> Result<BTreeMap<u64, u64>, EngineError> {
        fs::create_dir_all(&self.output)?;
        let text = String::from_utf8_lossy(&read_target(&self.output, &self.target)?).into_owned();
        let mut visible = BTreeMap::new();
        for line in text.lines() {
            let number = line.parse().map_err(|_| EngineError::NotANumber(line.to_owned()))?;
            *visible.entry(number).or_default() += 1;
        }
        Ok(visible)
    }
}

/// What a scene says that did not go as it had to.
pub(crate) fn unexpected(what: impl Into<String>) -> EngineError {
    EngineError::Unexpected(what.into())
}
