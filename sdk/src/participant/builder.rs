//! Setting up a participant.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ratified_protocol::{ClientName, ParticipantName, TxnId};
use tokio::sync::watch;

use super::{Observer, OwnedTask, Participant, ParticipantError, Progress, Shared, pull};
use crate::{
    client::CoordinatorClient,
    pending::{MemoryStore, PendingStore},
    runtime::LostPolicy,
    sink::TwoPhaseSink,
};

/// Places in the life of a participant's part at which a test or a drill may want to look, or to kill the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParticipantPoint {
    /// It is on the participant's own disk; the coordinator has not heard of it.
    Noted,
    /// The coordinator waits for this participant; nothing is staged.
    Joined,
    /// What is staged, and how to finish it, survives a crash; nobody was told.
    Flushed,
    /// The decision is here; the resource does not know.
    Decided,
    /// The resource has applied it; the coordinator does not know.
    Applied,
    /// The coordinator knows; the participant's own disk still lists it.
    Acknowledged,
}

/// What opening a participant found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParticipantReport {
    /// How many transactions of an earlier process were decided meanwhile and are applied now.
    pub applied: u64,
    /// What still waits for its decision.
    pub pending: Vec<(ClientName, TxnId)>,
    /// What an earlier process had noted and not joined: nothing was staged.
    pub never_joined: Vec<(ClientName, TxnId)>,
    /// What the coordinator knows no longer: applied before, never flushed, or given up by policy.
    pub forgotten: Vec<(ClientName, TxnId)>,
}

impl ParticipantReport {
    pub(super) fn add(&mut self, other: Self) {
        self.applied += other.applied;
        self.pending.extend(other.pending);
        self.never_joined.extend(other.never_joined);
        self.forgotten.extend(other.forgotten);
    }
}

/// A participant that is being set up.
pub struct ParticipantBuilder<S> {
    name: ParticipantName,
    sink: S,
    coordinator: CoordinatorClient,
    pending: Arc<dyn PendingStore>,
    poll_wait: Duration,
    open_patience: Duration,
    on_forgotten: LostPolicy,
    observer: Observer,
}

impl<S: TwoPhaseSink> ParticipantBuilder<S> {
    pub(super) fn new(name: ParticipantName, sink: S, coordinator: CoordinatorClient) -> Self {
        Self {
            name,
            sink,
            coordinator,
            pending: Arc::new(MemoryStore::new()),
            poll_wait: Duration::from_secs(30),
            open_patience: Duration::from_secs(10),
            on_forgotten: LostPolicy::default(),
            observer: Arc::new(|_| {}),
        }
    }

    /// Where joined transactions and their handles are kept, by default in memory. What is flushed is lost with it.
    #[must_use]
    pub fn pending(mut self, store: impl PendingStore) -> Self {
        self.pending = Arc::new(store);
        self
    }

    /// How long the coordinator is asked to wait for a decision; by default, and at most, 30 seconds.
    #[must_use]
    pub fn poll_wait(mut self, wait: Duration) -> Self {
        self.poll_wait = wait;
        self
    }

    /// How long `open` waits for a resource that fails for now, or does not answer; by default 10 seconds. What is not
    /// applied by then is applied in the background and is among the pending ones of the report; no client waits for
    /// another one.
    #[must_use]
    pub fn open_patience(mut self, patience: Duration) -> Self {
        self.open_patience = patience;
        self
    }

    /// What to do about staged data whose outcome the coordinator cannot tell: by default `open` fails.
    /// [`LostPolicy::Skip`] goes on; the data stays where it is.
    #[must_use]
    pub fn on_forgotten(mut self, policy: LostPolicy) -> Self {
        self.on_forgotten = policy;
        self
    }

    /// An observation hook for tests and drills: called synchronously whenever a [`ParticipantPoint`] is passed.
    #[must_use]
    pub fn on_point(mut self, hook: impl Fn(ParticipantPoint) + Send + Sync + 'static) -> Self {
        self.observer = Arc::new(hook);
        self
    }

    /// Opens the participant: applies what was decided while it was away, as far as the resource lets it within
    /// [`Self::open_patience`], and pulls decisions from then on.
    ///
    /// # Errors
    /// See [`ParticipantError`]. Opening again is always safe.
    pub async fn open(self) -> Result<Participant<S>, ParticipantError> {
        let undecodable = |e: ratified_protocol::IdError| ParticipantError::Undecodable { why: e.to_string() };
        let log = self.pending.open(&self.name.as_str().parse().map_err(undecodable)?).await?;
        let coordinator = self.coordinator.with_own_store();
        if let Some(store) = log.contents().store {
            coordinator.expect_store(&store)?;
        }
        let failed = |error| ParticipantError::Sink { call: "sink.committer", error };
        let committer = self.sink.committer().await.map_err(failed)?;
        let shared = Arc::new(Shared {
            name: self.name,
            sink: self.sink,
            committer,
            coordinator,
            log,
            on_forgotten: self.on_forgotten,
            observer: self.observer,
            epochs: tokio::sync::Mutex::new(BTreeMap::new()),
            live: std::sync::Mutex::default(),
            progress: watch::Sender::new(Progress::default()),
        });
        let report = shared.restore(self.open_patience).await?;
        let task = OwnedTask::spawn(pull::run(shared.clone(), self.poll_wait));
        Ok(Participant { shared, report, _task: task })
    }
}
