//! A dataflow of several workers into one sink: epoch = checkpoint = transaction.
//!
//! ```text
//! worker 0   events --\       /-- totals -- sink: write, prepare, part --\                      /-- commit
//! worker 1   events ---> by network -- ...                                --> worker 0: complete --> commit
//! ```
//!
//! Each worker counts the networks that are its own and writes a row per network and epoch. When the frontier has passed
//! an epoch its sink prepares the epoch's transaction and stores a part: the snapshot and the totals. When the frontier
//! says that all workers have, worker 0 completes the checkpoint, and tells all of them, which commit. A killed process
//! goes on behind the last completed checkpoint, with the same number of workers or another one.

mod checkpoint;
mod dataflow;
mod totals;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use earthquakes::CatalogueError;
use ratified::{
    ClientError, EngineSink, EngineSinkBuilder, RuntimeError, TwoPhaseSink, Worker,
    protocol::IdError,
    sinks::file::{FileSink, FileSinkError, TargetName, read_target},
};
use thiserror::Error;
use timely::{CommunicationConfig, Config, WorkerConfig};

use self::checkpoint::Restored;
pub use self::{
    checkpoint::Checkpoints,
    totals::{Event, Row, Total, events_of, expected_rows},
};

const SINK: &str = "totals.sink";
const TARGET: &str = "totals";

/// Why the dataflow did not come to its end. Nothing is lost by it: run it again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The input cannot be read.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A checkpoint or the output cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The sink stopped.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The sink cannot be set up.
    #[error(transparent)]
    Sink(#[from] FileSinkError),
    /// The URL of the coordinator is none.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A name is none.
    #[error(transparent)]
    Name(#[from] IdError),
    /// The number of workers is none. The caller must give 1 or more.
    #[error("there must be at least one worker")]
    Workers,
    /// The dataflow itself failed.
    #[error("the dataflow failed: {0}")]
    Dataflow(String),
}

/// A dataflow.
#[derive(Clone)]
pub struct Flow {
    /// The catalogue of events.
    pub input: PathBuf,
    /// How often it is read, one time after the other.
    pub passes: u64,
    /// How many events make an epoch, at least 1.
    pub epoch_events: usize,
    /// How many workers there are, each a thread; may be another number at each start.
    pub workers: u32,
    /// Where output and checkpoints are.
    pub dir: PathBuf,
}

impl Flow {
    /// Runs to the end of the input; run again it goes on behind the last completed checkpoint. `sinks` sets up the sink
    /// of each worker. Blocks, and must not be called from async code.
    ///
    /// # Errors
    /// See [`FlowError`]; running it again is always safe.
    pub fn run<S: TwoPhaseSink<Record = Row>>(
        &self,
        tokio: &tokio::runtime::Handle,
        sinks: impl Fn(Worker) -> Result<EngineSinkBuilder<S>, FlowError> + Send + Sync + 'static,
    ) -> Result<(), FlowError> {
        if self.workers == 0 {
            return Err(FlowError::Workers);
        }
        let events = Arc::new(events_of(&self.input, self.passes, self.epoch_events)?);
        let checkpoints = Checkpoints::open(&self.dir.join("checkpoints"))?;
        let restored = Arc::new(checkpoints.restore()?);
        let failure: Failure = Failure::default();
        let config = Config {
            communication: CommunicationConfig::Process(usize::try_from(self.workers).unwrap_or(1)),
            worker: WorkerConfig::default(),
        };
        let (workers, tokio, told) = (self.workers, tokio.clone(), failure.clone());
        let guards = timely::execute(config, move |worker| {
            let opened = open(worker.index(), workers, &tokio, &sinks, &restored);
            let ran =
                opened.and_then(|sink| dataflow::run(sink, worker, &tokio, &events, &checkpoints, &restored, &told));
            if let Err(error) = ran {
                told.note(error);
            }
            // One that has failed holds up the others for ever: all of them end, and the next start goes on.
            for dataflow in worker.installed_dataflows() {
                worker.drop_dataflow(dataflow);
            }
        });
        for worker in guards.map_err(FlowError::Dataflow)?.join() {
            worker.map_err(FlowError::Dataflow)?;
        }
        failure.take().map_or(Ok(()), Err)
    }
}

/// Opens the sink of one worker.
fn open<S: TwoPhaseSink<Record = Row>>(
    index: usize,
    workers: u32,
    tokio: &tokio::runtime::Handle,
    sinks: impl Fn(Worker) -> Result<EngineSinkBuilder<S>, FlowError>,
    restored: &Restored,
) -> Result<EngineSink<S>, FlowError> {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    let worker = Worker::new(index, workers).ok_or(FlowError::Workers)?;
    let snapshots = restored.snapshots_of(index, workers);
    Ok(tokio.block_on(sinks(worker)?.open(SINK.parse()?, Some(restored.checkpoint()), snapshots))?)
}

/// The sink that all workers write to.
///
/// # Errors
/// Never for the names of this example.
pub fn sink(dir: &Path) -> Result<FileSink<Row>, FileSinkError> {
    FileSink::json_lines(dir.join("out"), target()?).build()
}

fn target() -> Result<TargetName, FileSinkError> {
    Ok(TARGET.parse()?)
}

/// All rows that are visible, sorted: workers write at the same time.
///
/// # Errors
/// [`FlowError::Io`].
pub fn visible_rows(dir: &Path) -> Result<Vec<u8>, FlowError> {
    let out = dir.join("out");
    let text = read_target(&out, &target()?).map_err(failed(&out))?;
    let mut lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    Ok(lines.concat())
}

fn failed(path: &Path) -> impl Fn(io::Error) -> FlowError + '_ {
    |source| FlowError::Io { path: path.to_owned(), source }
}

/// The first error of any worker.
#[derive(Debug, Clone, Default)]
struct Failure(Arc<Mutex<Option<FlowError>>>);

impl Failure {
    fn note(&self, error: FlowError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn is_noted(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn take(&self) -> Option<FlowError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
