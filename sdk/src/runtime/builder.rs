//! Setting up a sink: what both drivers take, and what each takes alone.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ratified_protocol::{CheckpointId, ClientName, Generation, ShortText, TimeoutMs};

use super::{
    engine::EngineSink,
    error::RuntimeError,
    job_sink::JobSink,
    policy::{Lost, LostPolicy, Mode, Observer, Point, SinkName, UnnamedPolicy, Worker},
    snapshot::Snapshot,
};
use crate::{
    client::CoordinatorClient,
    ids::this_process,
    pending::{MemoryStore, PendingStore},
    sink::TwoPhaseSink,
};

/// What a runtime is told once.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) owner: ShortText,
    pub(crate) generation: Option<Generation>,
    pub(crate) timeout: TimeoutMs,
    pub(crate) open_deadline: Duration,
    pub(crate) close_deadline: Duration,
    pub(crate) batch_records: usize,
    pub(crate) max_pending: usize,
    pub(crate) first_start: bool,
    pub(crate) accept_unknown_data: bool,
    pub(crate) observer: Observer,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            owner: default_owner(),
            generation: None,
            timeout: TimeoutMs::DEFAULT,
            open_deadline: Duration::from_secs(60),
            close_deadline: Duration::from_secs(30),
            batch_records: 512,
            max_pending: 16,
            first_start: false,
            accept_unknown_data: false,
            observer: Observer::default(),
        }
    }
}

/// What only an engine's sink is told; part of an [`EngineSinkBuilder`].
#[derive(Debug, Clone)]
pub struct EngineDriven {
    pub(crate) worker: Worker,
    pub(crate) mode: Mode,
    pub(crate) max_prepared: usize,
    pub(crate) accept_rewind: bool,
    pub(crate) lost: BTreeMap<Lost, LostPolicy>,
    pub(crate) unnamed: UnnamedPolicy,
    pub(crate) run: Option<ShortText>,
}

impl Default for EngineDriven {
    fn default() -> Self {
        Self {
            worker: Worker::ONLY,
            mode: Mode::default(),
            max_prepared: 1000,
            accept_rewind: false,
            lost: BTreeMap::new(),
            unnamed: UnnamedPolicy::default(),
            run: None,
        }
    }
}

/// What only the sink of a job that checkpoints itself is told; part of a [`JobSinkBuilder`]. What an engine decides, such
/// a sink does not ask for:
///
/// ```compile_fail
/// # use ratified::{JobSinkBuilder, Mode, TwoPhaseSink};
/// fn loose<S: TwoPhaseSink>(sink: JobSinkBuilder<S>) {
///     let _ = sink.mode(Mode::AtLeastOnce);
/// }
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SelfCheckpointing {}

fn default_owner() -> ShortText {
    ShortText::try_from(this_process()).unwrap_or_default()
}

/// The sink of a job whose engine draws barriers and takes checkpoints, being set up. It opens as an [`EngineSink`].
///
/// ```no_run
/// # use ratified::{EngineSinkBuilder, Mode, TwoPhaseSink};
/// fn loose<S: TwoPhaseSink>(sink: EngineSinkBuilder<S>) {
///     let _ = sink.mode(Mode::AtLeastOnce);
/// }
/// ```
pub type EngineSinkBuilder<S> = SinkBuilder<S, EngineDriven>;

/// The sink of a job that checkpoints itself, being set up: for [`Job`](crate::job::Job), or to be opened as a [`JobSink`].
/// Such a sink writes exactly once and has no workers: each source split is a client of its own.
pub type JobSinkBuilder<S> = SinkBuilder<S, SelfCheckpointing>;

/// A sink that is being set up: what both drivers take. Everything has a default but the sink and the coordinator. Name
/// the driver when you make one: [`EngineSinkBuilder::new`](Self::new) or [`JobSinkBuilder::new`](Self::new).
pub struct SinkBuilder<S, D> {
    pub(crate) sink: Arc<S>,
    pub(crate) coordinator: CoordinatorClient,
    pub(crate) pending: Arc<dyn PendingStore>,
    pub(crate) settings: Settings,
    pub(crate) driver: D,
}

impl<S, D: Clone> Clone for SinkBuilder<S, D> {
    fn clone(&self) -> Self {
        let Self { sink, coordinator, pending, settings, driver } = self;
        let (sink, pending) = (sink.clone(), pending.clone());
        Self { sink, coordinator: coordinator.clone(), pending, settings: settings.clone(), driver: driver.clone() }
    }
}

impl<S: TwoPhaseSink, D: Default> SinkBuilder<S, D> {
    /// A sink whose transactions this coordinator decides.
    pub fn new(sink: S, coordinator: CoordinatorClient) -> Self {
        let (sink, pending, settings) = (Arc::new(sink), Arc::new(MemoryStore::new()), Settings::default());
        Self { sink, coordinator, pending, settings, driver: D::default() }
    }
}

impl<S, D> SinkBuilder<S, D> {
    /// Where drawn ids are kept; by default in memory.
    #[must_use]
    pub fn pending(mut self, store: impl PendingStore) -> Self {
        self.pending = Arc::new(store);
        self
    }

    /// Who this is, for the error of whoever is fenced by it; by default host and process.
    #[must_use]
    pub fn owner(mut self, owner: ShortText) -> Self {
        self.settings.owner = owner;
        self
    }

    /// The caller's own fencing number: the attempt of an engine, the generation of a consumer group, the transition of a
    /// lease. An `open` with a smaller one than the greatest that the client has seen is refused with
    /// [`RuntimeError::Fenced`] and changes nothing, so that an owner that was given up cannot take over by being late.
    /// Without one, whoever opens last owns the client.
    #[must_use]
    pub fn generation(mut self, generation: Generation) -> Self {
        self.settings.generation = Some(generation);
        self
    }

    /// How long an OPEN transaction survives without this process; by default a minute. A prepared one has no timeout.
    #[must_use]
    pub fn transaction_timeout(mut self, timeout: TimeoutMs) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// How long `open` may take to finish what is unfinished; by default a minute.
    #[must_use]
    pub fn open_deadline(mut self, deadline: Duration) -> Self {
        self.settings.open_deadline = deadline;
        self
    }

    /// How long `close` waits for what is being finished; by default half a minute.
    #[must_use]
    pub fn close_deadline(mut self, deadline: Duration) -> Self {
        self.settings.close_deadline = deadline;
        self
    }

    /// How many records are gathered for one call of the sink's `write`; by default 512, at least 1.
    #[must_use]
    pub fn batch_records(mut self, count: usize) -> Self {
        self.settings.batch_records = count.max(1);
        self
    }

    /// How many transactions may be completed and not finished before `write` waits; by default 16, at least 1.
    #[must_use]
    pub fn max_pending(mut self, count: usize) -> Self {
        self.settings.max_pending = count.max(1);
        self
    }

    /// Declares that the job has never run: only then a client that the coordinator does not know is made. Without it
    /// such a client is an error, since the coordinator's store may have been lost.
    #[must_use]
    pub fn first_start(mut self, is_first: bool) -> Self {
        self.settings.first_start = is_first;
        self
    }

    /// Accepts that the sink holds data of this job that the coordinator and the restored state do not know
    /// ([`RuntimeError::SinkAhead`]): its records are written twice.
    #[must_use]
    pub fn accept_unknown_data(mut self, is_accepted: bool) -> Self {
        self.settings.accept_unknown_data = is_accepted;
        self
    }

    /// An observation hook for tests and drills: called synchronously whenever a transaction passes a [`Point`].
    #[must_use]
    pub fn on_point(mut self, hook: impl Fn(Point) + Send + Sync + 'static) -> Self {
        self.settings.observer = Observer(Arc::new(hook));
        self
    }
}

impl<S: TwoPhaseSink> SinkBuilder<S, EngineDriven> {
    /// Which of the job's parallel workers this is; by default the only one.
    #[must_use]
    pub fn worker(mut self, worker: Worker) -> Self {
        self.driver.worker = worker;
        self
    }

    /// What the sink promises; by default exactly once.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.driver.mode = mode;
        self
    }

    /// How many transactions may be prepared and not completed before `write` fails; by default 1000, at least 1.
    #[must_use]
    pub fn max_prepared(mut self, count: usize) -> Self {
        self.driver.max_prepared = count.max(1);
        self
    }

    /// Accepts that the job restores an older checkpoint than the sink has committed: records are written twice.
    #[must_use]
    pub fn accept_rewind(mut self, is_accepted: bool) -> Self {
        self.driver.accept_rewind = is_accepted;
        self
    }

    /// What `open` does about a lost transaction of this kind; by default it fails.
    #[must_use]
    pub fn on_lost(mut self, lost: Lost, policy: LostPolicy) -> Self {
        self.driver.lost.insert(lost, policy);
        self
    }

    /// What `open` does about what was prepared for the restored checkpoint and is named by no snapshot; by default it
    /// fails.
    #[must_use]
    pub fn on_unnamed(mut self, policy: UnnamedPolicy) -> Self {
        self.driver.unnamed = policy;
        self
    }

    /// The engine's run: the same for all attempts of one submitted job, another one for any other job. A job that is
    /// started from nothing before its first checkpoint completed finds what it has prepared itself by it, and aborts that;
    /// what another run prepared refuses the start. It is kept as the label `run` of each transaction.
    #[must_use]
    pub fn run(mut self, run: ShortText) -> Self {
        self.driver.run = Some(run);
        self
    }

    /// Opens the sink for a job whose engine takes checkpoints: fences older owners, refuses a rewind, and finishes what
    /// is unfinished. `restored` is the checkpoint the job restores, `snapshots` what the engine gives this worker of
    /// it, in whatever split. A job that knows that no checkpoint of it ever completed gives `Some` of a number below
    /// its first checkpoint's; `None` says that it does not restore anything.
    ///
    /// Whoever opens last owns the sink, unless attempts are numbered ([`generation`](Self::generation)). Without that the
    /// engine must see to it that no attempt it has given up is still in `open` when a newer one completes a checkpoint:
    /// an overtaken attempt that opens late aborts what is prepared for a checkpoint it has not heard of, and restoring
    /// that one then fails with [`RuntimeError::TxnAborted`].
    ///
    /// # Errors
    /// See [`RuntimeError`]. Opening again is always safe.
    pub async fn open(
        self,
        name: SinkName,
        restored: Option<CheckpointId>,
        snapshots: impl IntoIterator<Item = Snapshot>,
    ) -> Result<EngineSink<S>, RuntimeError> {
        EngineSink::open(self, &name, restored, snapshots.into_iter().collect()).await
    }
}

impl<S: TwoPhaseSink> SinkBuilder<S, SelfCheckpointing> {
    /// Opens the sink for a job that checkpoints itself: one client per source split, named after the split.
    ///
    /// # Errors
    /// See [`RuntimeError`]. Opening again is always safe.
    pub async fn open(self, client: ClientName) -> Result<JobSink<S>, RuntimeError> {
        JobSink::open(self, client).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_is_not_named_is_host_and_process() {
        let owner = Settings::default().owner.to_string();
        let (host, process) = owner.rsplit_once(':').unwrap();
        assert!(!host.is_empty() && host.trim() == host, "{owner:?}");
        assert_eq!(process, std::process::id().to_string());
    }
}
