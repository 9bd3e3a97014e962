//! A coordinator, a sink in memory, and a proxy that loses and garbles answers.
#![allow(dead_code, reason = "each test file uses its part")]

#[cfg(feature = "testkit")]
pub(crate) mod contract;
pub(crate) mod crash;
pub(crate) mod descriptors;
pub(crate) mod proxy;
pub(crate) mod sink;

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ratified::{
    CheckpointId, ClientName, ClientOptions, ClientQuery, CoordinatorClient, EngineSink, EngineSinkBuilder,
    JobSinkBuilder, RetryDelays, RuntimeError, SinkBuilder, SinkName, Snapshot, TxnQuery, TxnState, Worker,
    pending::{MemoryStore, PendingStore},
    protocol::{BeginRequest, CommitRequest, ParticipantSet, PrepareRequest, Txn},
};
use ratified_coordinator::{Config, Coordinator, Handle};
use sink::TestSink;
use tempfile::TempDir;

/// A coordinator that can be restarted at its address, and what a job of one sink needs.
pub(crate) struct World {
    pub(crate) coordinator: Option<Handle>,
    pub(crate) config: Config,
    pub(crate) sink: TestSink,
    pub(crate) pending: MemoryStore,
    pub(crate) dir: TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::local(dir.path().join("data"));
        change(&mut config);
        let coordinator = Coordinator::start(config.clone()).await.unwrap();
        config.listen = coordinator.local_addr();
        Self { coordinator: Some(coordinator), config, sink: TestSink::default(), pending: MemoryStore::new(), dir }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.config.listen
    }

    pub(crate) fn client(&self) -> CoordinatorClient {
        client_at(self.addr())
    }

    pub(crate) async fn stop_coordinator(&mut self) {
        self.coordinator.take().unwrap().shutdown().await.unwrap();
    }

    pub(crate) async fn start_coordinator(&mut self) {
        self.coordinator = Some(Coordinator::start(self.config.clone()).await.unwrap());
    }

    pub(crate) fn builder(&self) -> EngineSinkBuilder<TestSink> {
        self.builder_at(self.client())
    }

    pub(crate) fn builder_at(&self, client: CoordinatorClient) -> EngineSinkBuilder<TestSink> {
        self.any_builder_at(client)
    }

    fn any_builder_at<D: Default>(&self, client: CoordinatorClient) -> SinkBuilder<TestSink, D> {
        SinkBuilder::new(self.sink.clone(), client)
            .pending(self.pending.clone())
            .open_deadline(Duration::from_secs(20))
            .batch_records(1)
    }

    /// For a job that checkpoints itself.
    pub(crate) fn job_builder(&self) -> JobSinkBuilder<TestSink> {
        self.job_builder_at(self.client())
    }

    pub(crate) fn job_builder_at(&self, client: CoordinatorClient) -> JobSinkBuilder<TestSink> {
        self.any_builder_at(client)
    }

    /// Opens the only worker's sink of a job that has never run.
    pub(crate) async fn first(&self) -> EngineSink<TestSink> {
        self.builder().first_start(true).open(name(), None, []).await.unwrap()
    }

    /// Opens the only worker's sink of a restarted job.
    pub(crate) async fn restore(
        &self,
        checkpoint: u64,
        snapshot: Snapshot,
    ) -> Result<EngineSink<TestSink>, RuntimeError> {
        self.builder().open(name(), Some(CheckpointId::new(checkpoint)), [snapshot]).await
    }

    /// Where the newest transaction of a client stands, and all before it.
    pub(crate) async fn states(&self, client: &ClientName) -> Vec<TxnState> {
        let mut states = Vec::new();
        for id in self.sink.ids(client) {
            states.push(self.client().get(client, id, None).await.unwrap().state.known().unwrap());
        }
        states
    }

    pub(crate) async fn client_store_id(&self) -> Option<ratified::MetStore> {
        let client = self.client();
        client.version().await.unwrap();
        client.known_store()
    }

    /// The transactions that are not terminal.
    pub(crate) async fn unfinished(&self) -> Vec<Txn> {
        self.client().txns(&Default::default()).await.unwrap().items
    }
}

pub(crate) fn client_at(addr: SocketAddr) -> CoordinatorClient {
    let delays = RetryDelays { first: Duration::from_millis(2), longest: Duration::from_millis(20) };
    let options = ClientOptions::default().delays(delays).request_timeout(Duration::from_secs(5));
    CoordinatorClient::with_options(&format!("http://{addr}"), options).unwrap()
}

pub(crate) fn name() -> SinkName {
    "job.sink".parse().unwrap()
}

pub(crate) fn client(slot: u32) -> ClientName {
    format!("job.sink.{slot}").parse().unwrap()
}

pub(crate) fn worker(index: u32, parallelism: u32) -> Worker {
    Worker::new(index, parallelism).unwrap()
}

pub(crate) fn checkpoint(id: u64) -> ratified::Barrier {
    ratified::Barrier::checkpoint(CheckpointId::new(id))
}

pub(crate) fn completed(id: u64) -> CheckpointId {
    CheckpointId::new(id)
}

/// Copies a directory, as a backup would.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A pending log of one client, to plant entries in.
pub(crate) async fn log_of(
    store: &impl PendingStore,
    client: &ClientName,
) -> std::sync::Arc<dyn ratified::pending::PendingLog> {
    store.open(client).await.unwrap()
}

/// A world in which checkpoint 1 is completed and committed, and a transaction of checkpoint 2 is prepared.
pub(crate) async fn one_committed_one_prepared() -> (World, Snapshot) {
    one_committed_one_prepared_with(|_| {}).await
}

/// The same, with another configuration of the coordinator.
pub(crate) async fn one_committed_one_prepared_with(change: impl FnOnce(&mut Config)) -> (World, Snapshot) {
    let world = World::with(change).await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    runtime.write("2".into()).await.unwrap();
    let snapshot = runtime.pre_commit(checkpoint(2)).await.unwrap();
    drop(runtime);
    (world, snapshot)
}

/// Why an operator does what a test makes it do.
pub(crate) fn reason() -> ratified::protocol::ShortText {
    ratified::protocol::ShortText::try_from("test".to_owned()).unwrap()
}

/// Somebody who never rests: whenever a client is fenced they commit what is PREPARED, and prepare one more. Counts how
/// often that happened.
pub(crate) fn never_rests(world: &World, client: ClientName, looks: Arc<AtomicU64>) {
    fence_and_prepare(world.sink.clone(), world.client(), client, looks);
}

fn fence_and_prepare(sink: TestSink, coordinator: CoordinatorClient, client: ClientName, looks: Arc<AtomicU64>) {
    sink.clone().on_fence(move || {
        let (sink, coordinator, client, looks) = (sink.clone(), coordinator.clone(), client.clone(), looks.clone());
        Box::pin(async move {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            assert!(look < 20, "it is looked at without an end");
            let query =
                TxnQuery { client: Some(client.clone()), state: Some(TxnState::Prepared), ..Default::default() };
            let prepared = coordinator.txns(&query).await.unwrap().items.remove(0);
            coordinator.commit(&client, prepared.txn_id, &CommitRequest::default(), None).await.unwrap();
            let id = format!("fff0f2c4-7a61-7c3e-9d0a-{look:012x}").parse().unwrap();
            sink.plant(&client, id);
            let query = ClientQuery { prefix: Some(client.to_string()), ..Default::default() };
            let epoch = Some(coordinator.clients(&query).await.unwrap().items[0].epoch);
            let participants = ParticipantSet::try_from(vec![(&client).into()]).unwrap();
            let begin = BeginRequest { epoch, participants, ..Default::default() };
            coordinator.begin(&client, id, &begin).await.unwrap();
            let (checkpoint_id, payload) = (prepared.checkpoint_id, prepared.payload);
            let prepare = PrepareRequest { epoch, checkpoint_id, payload, prepared_timeout_ms: None };
            coordinator.prepare(&client, id, &prepare).await.unwrap();
            fence_and_prepare(sink, coordinator, client, looks);
        })
    });
}
