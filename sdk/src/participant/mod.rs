//! A resource in another process or on another host, under the same decision as those it works with.
//!
//! The owner of a transaction begins it, and hands its client, id and epoch to whoever shall take part, by any means it
//! has. Each participant [joins](Participant::join) while the transaction is open, stages, and [flushes](Branch::flush);
//! then it tells the owner so, which commits when it has heard of all. From then on nobody has to reach anybody but the
//! coordinator: each participant pulls the decision, applies it to its resource until that works, and acknowledges. The
//! coordinator keeps the transaction until every participant has.
//!
//! ```text
//! owner          begin ---------- ids ---------> ...        ... flushed by all -> commit
//! participant                      join  write  flush -> "flushed"      pull -> apply -> acknowledge
//! ```
//!
//! The resource is any [`TwoPhaseSink`]. What a participant needs after a crash is in its
//! [`PendingStore`](crate::pending::PendingStore): give it one that survives, in a directory of its own. An owner that
//! dies before it has decided is fenced by its successor's `open` or runs into the transaction's timeout: participants
//! are told of the abort like of any other decision.
//!
//! What must be known:
//! * A participant's name is one process's at a time, and stays the same for ever: decisions are kept for it until it
//!   comes back. If it never will, an operator retires it.
//! * An owner must not commit before every participant has flushed. A commit that finds a participant unflushed stops it:
//!   its part is lost, and the decision cannot be taken back.
//! * Errors are sticky. After one that the resource or the operator has mended, open again: nothing is forgotten.
//!
//! ```no_run
//! # use ratified::{ClientName, CoordinatorClient, Epoch, TxnId, participant::Participant, pending::FileStore, sinks::file::FileSink};
//! # async fn tell_the_owner() {}
//! # async fn take_part(client: ClientName, txn_id: TxnId, epoch: Epoch) -> Result<(), Box<dyn std::error::Error>> {
//! let sink = FileSink::json_lines("out", "rows".parse()?).build()?;
//! let coordinator = CoordinatorClient::new("http://127.0.0.1:7117")?;
//! let participant = Participant::builder("warehouse-2".parse()?, sink, coordinator)
//!     .pending(FileStore::new("participant"))
//!     .open()
//!     .await?;
//!
//! // For each transaction that an owner tells of:
//! let branch = participant.join(&client, txn_id, epoch).await?;
//! branch.write(vec!["a row".to_owned()]).await?;
//! branch.flush().await?;
//! tell_the_owner().await;
//! // The decision is applied in the background.
//! # Ok(()) }
//! ```

mod apply;
mod branch;
mod builder;
mod entry;
mod error;
mod pull;
mod reconcile;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ratified_protocol::{ClientName, Epoch, ParticipantName, TxnId};
use tokio::sync::watch;

use self::{branch::Live, error::about};
use crate::{
    client::CoordinatorClient,
    pending::PendingLog,
    runtime::{LostPolicy, OwnedTask},
    sink::{SinkCommitter, TwoPhaseSink, TxnContext},
};

pub use self::{
    branch::Branch,
    builder::{ParticipantBuilder, ParticipantPoint, ParticipantReport},
    error::ParticipantError,
};

/// A running participant. Dropping it ends nothing: what it has joined is decided without it, and the next one of its
/// name applies that.
pub struct Participant<S: TwoPhaseSink> {
    shared: Arc<Shared<S>>,
    report: ParticipantReport,
    _task: OwnedTask,
}

impl<S: TwoPhaseSink> fmt::Debug for Participant<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

type Observer = Arc<dyn Fn(ParticipantPoint) + Send + Sync>;

/// What the caller's half and the background half of a participant share.
struct Shared<S: TwoPhaseSink> {
    name: ParticipantName,
    sink: S,
    committer: S::Committer,
    coordinator: CoordinatorClient,
    log: Arc<dyn PendingLog>,
    on_forgotten: LostPolicy,
    observer: Observer,
    /// The greatest epoch of each client for which the resource was fenced.
    epochs: tokio::sync::Mutex<BTreeMap<ClientName, Epoch>>,
    live: Mutex<BTreeMap<TxnId, Arc<Live<S>>>>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    error: Option<ParticipantError>,
    pending: usize,
}

impl<S: TwoPhaseSink> Participant<S> {
    /// Starts to set up a participant of this name over this resource.
    pub fn builder(name: ParticipantName, sink: S, coordinator: CoordinatorClient) -> ParticipantBuilder<S> {
        ParticipantBuilder::new(name, sink, coordinator)
    }

    /// What `open` found and did.
    pub fn report(&self) -> &ParticipantReport {
        &self.report
    }

    /// Takes part in an open transaction. When it returns, the transaction ends only when this participant has applied
    /// its outcome.
    ///
    /// A call that is dropped half-way, or fails after the coordinator may have heard of it, has perhaps joined: the
    /// transaction then cannot be joined again here, and what it becomes is applied as soon as it is decided. The caller
    /// must tell the owner, which gives the transaction up.
    ///
    /// # Errors
    /// See [`ParticipantError`]. A refusal to join is no reason to stop: the caller must tell the owner, which gives the
    /// transaction up.
    pub async fn join(&self, client: &ClientName, txn_id: TxnId, epoch: Epoch) -> Result<Branch<S>, ParticipantError> {
        let shared = &self.shared;
        shared.check()?;
        let txn = TxnContext::new(client.clone(), txn_id, epoch);
        let live = Arc::new(Live::joining(txn));
        shared.admit(&live)?;
        let mut unfinished = Unfinished(Some(live.clone()));
        match shared.join(&live).await {
            Ok(()) => unfinished.0 = None,
            Err(NotJoined::Surely(error)) => {
                unfinished.0 = None;
                shared.drop_live(txn_id);
                return Err(error);
            }
            Err(NotJoined::Perhaps(error)) => return Err(error),
        }
        (shared.observer)(ParticipantPoint::Joined);
        Ok(Branch::new(live, shared.clone()))
    }

    /// Waits until no transaction is waiting for its decision here, nor for that to be applied.
    ///
    /// # Errors
    /// The sticky error, if the participant has stopped.
    pub async fn until_idle(&self) -> Result<(), ParticipantError> {
        let mut progress = self.shared.progress.subscribe();
        // The sender lives as long as `self`: waiting cannot end otherwise.
        let _ = progress.wait_for(|p| p.pending == 0 || p.error.is_some()).await;
        self.shared.check()
    }

    /// Waits until the participant has stopped, and tells why: for a process that does nothing else.
    pub async fn failed(&self) -> ParticipantError {
        let mut progress = self.shared.progress.subscribe();
        loop {
            let error = progress.borrow_and_update().error.clone();
            if let Some(error) = error {
                return error;
            }
            // The sender lives as long as `self`.
            let _ = progress.changed().await;
        }
    }
}

/// A call that joins, and may be dropped before it is done.
struct Unfinished<S: TwoPhaseSink>(Option<Arc<Live<S>>>);

impl<S: TwoPhaseSink> Drop for Unfinished<S> {
    fn drop(&mut self) {
        if let Some(live) = &self.0 {
            live.abandon();
        }
    }
}

/// Why a call that joins has failed.
enum NotJoined {
    /// Nothing waits for this participant.
    Surely(ParticipantError),
    /// The coordinator may wait for it.
    Perhaps(ParticipantError),
}

impl<S: TwoPhaseSink> Shared<S> {
    fn check(&self) -> Result<(), ParticipantError> {
        self.progress.borrow().error.clone().map_or(Ok(()), Err)
    }

    /// Stops the participant; the first error stays.
    fn fail(&self, error: ParticipantError) {
        self.progress.send_modify(|progress| {
            if progress.error.is_none() {
                tracing::error!(participant = %self.name, %error, "the participant stops");
                progress.error = Some(error);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TxnId, Arc<Live<S>>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, txn_id: TxnId) -> Option<Arc<Live<S>>> {
        self.lock().get(&txn_id).cloned()
    }

    fn all_live(&self) -> Vec<Arc<Live<S>>> {
        self.lock().values().cloned().collect()
    }

    /// Oldest first per client.
    fn live_by_client(&self) -> BTreeMap<ClientName, Vec<Arc<Live<S>>>> {
        let mut by_client = BTreeMap::<_, Vec<_>>::new();
        for live in self.all_live() {
            by_client.entry(live.txn.client.clone()).or_default().push(live);
        }
        by_client
    }

    fn admit(&self, live: &Arc<Live<S>>) -> Result<(), ParticipantError> {
        let mut all = self.lock();
        if all.contains_key(&live.txn.txn_id) {
            let (client, txn_id) = (live.txn.client.clone(), live.txn.txn_id);
            return Err(ParticipantError::Twice { client, txn_id });
        }
        all.insert(live.txn.txn_id, live.clone());
        self.note_pending(all);
        Ok(())
    }

    fn drop_live(&self, txn_id: TxnId) {
        let mut all = self.lock();
        all.remove(&txn_id);
        self.note_pending(all);
    }

    fn note_pending(&self, all: MutexGuard<'_, BTreeMap<TxnId, Arc<Live<S>>>>) {
        let pending = all.len();
        drop(all);
        self.progress.send_modify(|progress| progress.pending = pending);
    }

    /// Remembers the store that has answered, so that the next process of this name knows it again.
    async fn note_store(&self) -> Result<(), ParticipantError> {
        match self.coordinator.known_store() {
            Some(met) if self.log.contents().store.as_ref() != Some(&met) => Ok(self.log.note_store(met).await?),
            _ => Ok(()),
        }
    }

    /// Own disk first, then the coordinator, then the resource.
    async fn join(&self, live: &Live<S>) -> Result<(), NotJoined> {
        self.note(live).await.map_err(NotJoined::Surely)?;
        (self.observer)(ParticipantPoint::Noted);
        let txn = &live.txn;
        if let Err(error) = self.coordinator.register(&txn.client, txn.txn_id, &self.name, txn.epoch).await {
            let is_definite = error.code().is_some();
            let error = about(&self.name, txn, error);
            if !is_definite {
                return Err(NotJoined::Perhaps(error));
            }
            let removed = self.log.remove(txn.txn_id).await;
            return Err(NotJoined::Surely(removed.map_or_else(Into::into, |()| error)));
        }
        self.fence(txn).await.map_err(NotJoined::Perhaps)?;
        live.begin(&self.sink).await.map_err(NotJoined::Perhaps)
    }

    /// On its own disk it is known before anybody else hears of it.
    async fn note(&self, live: &Live<S>) -> Result<(), ParticipantError> {
        self.note_store().await?;
        self.log.begin(live.txn.txn_id).await?;
        Ok(self.log.attach(live.txn.txn_id, live.entry(None)?).await?)
    }

    /// Ends what older owners of the client still hold open in the resource.
    async fn fence(&self, txn: &TxnContext) -> Result<(), ParticipantError> {
        let mut epochs = self.epochs.lock().await;
        if epochs.get(&txn.client).is_some_and(|known| *known >= txn.epoch) {
            return Ok(());
        }
        let fenced = self.committer.fence(&txn.client, txn.epoch).await;
        fenced.map_err(|error| ParticipantError::Sink { call: "sink.fence", error })?;
        // Bounded by what the coordinator lets clients be; forgetting one costs a fence more.
        if epochs.len() >= MAX_EPOCHS {
            epochs.pop_first();
        }
        epochs.insert(txn.client.clone(), txn.epoch);
        Ok(())
    }
}

/// Most clients whose epochs are remembered.
const MAX_EPOCHS: usize = 10_000;
