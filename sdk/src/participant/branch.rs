//! One transaction that a participant takes part in.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ratified_protocol::TxnId;
use tokio::sync::Mutex;

use super::{ParticipantError, ParticipantPoint, Shared, entry::Entry};
use crate::sink::{SinkWriter, TwoPhaseSink, TxnContext};

/// A transaction between joining and acknowledging.
pub(super) struct Live<S: TwoPhaseSink> {
    pub(super) txn: TxnContext,
    /// Held while something is staged or applied: an abort must not meet a write.
    pub(super) state: Mutex<State<S>>,
    /// Whether the call that joins was given up half-way: nobody has the branch, and it ends as the coordinator says.
    is_abandoned: AtomicBool,
}

pub(super) struct State<S: TwoPhaseSink> {
    pub(super) writer: Option<S::Writer>,
    pub(super) handle: Option<S::Handle>,
    pub(super) stage: Stage,
}

#[derive(Debug, Clone)]
pub(super) enum Stage {
    /// The coordinator may not have heard yet.
    Joining,
    /// Data is being staged.
    Open,
    /// What is staged survives a crash.
    Flushed,
    /// The outcome is known.
    Ended,
    /// Staging failed, and can never be completed.
    Failed(ParticipantError),
}

impl<S: TwoPhaseSink> Live<S> {
    pub(super) fn joining(txn: TxnContext) -> Self {
        Self::new(txn, State { writer: None, handle: None, stage: Stage::Joining })
    }

    fn new(txn: TxnContext, state: State<S>) -> Self {
        Self { txn, state: Mutex::new(state), is_abandoned: AtomicBool::new(false) }
    }

    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }

    /// What an earlier process left behind.
    pub(super) fn restored(txn_id: TxnId, entry: Entry<S::Handle>) -> Self {
        let stage = if entry.handle.is_some() { Stage::Flushed } else { Stage::Open };
        let txn = TxnContext::new(entry.client, txn_id, entry.epoch);
        Self::new(txn, State { writer: None, handle: entry.handle, stage })
    }

    /// The entry for the pending store.
    pub(super) fn entry(&self, handle: Option<S::Handle>) -> Result<Vec<u8>, ParticipantError> {
        Entry { client: self.txn.client.clone(), epoch: self.txn.epoch, handle }.encode()
    }

    pub(super) async fn begin(&self, sink: &S) -> Result<(), ParticipantError> {
        let failed = |error| ParticipantError::Sink { call: "sink.begin", error };
        let mut state = self.state.lock().await;
        let mut writer = sink.writer().await.map_err(failed)?;
        state.handle = Some(writer.begin(&self.txn).await.map_err(failed)?);
        state.writer = Some(writer);
        state.stage = Stage::Open;
        Ok(())
    }
}

/// A participant's part of one transaction. Dropping it ends nothing; without a flush the owner must not commit.
pub struct Branch<S: TwoPhaseSink> {
    live: Arc<Live<S>>,
    shared: Arc<Shared<S>>,
}

impl<S: TwoPhaseSink> fmt::Debug for Branch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branch").field("txn", &self.live.txn).finish_non_exhaustive()
    }
}

impl<S: TwoPhaseSink> Branch<S> {
    pub(super) fn new(live: Arc<Live<S>>, shared: Arc<Shared<S>>) -> Self {
        Self { live, shared }
    }

    /// The transaction.
    pub fn txn_id(&self) -> TxnId {
        self.live.txn.txn_id
    }

    /// Stages records. An error stays: the owner must be told, and gives the transaction up.
    ///
    /// # Errors
    /// See [`ParticipantError`].
    pub async fn write(&self, records: Vec<S::Record>) -> Result<(), ParticipantError> {
        let mut state = self.enter().await?;
        let State { writer: Some(writer), handle: Some(handle), .. } = &mut *state else { return Err(self.gone()) };
        let written = writer.write(&self.live.txn, handle, records).await;
        let written = written.map_err(|error| ParticipantError::Sink { call: "sink.write", error });
        state.keep(written, Stage::Open)
    }

    /// Makes what was staged survive a crash. When it returns the owner may be told: this participant can commit.
    ///
    /// # Errors
    /// See [`ParticipantError`]; an error stays.
    pub async fn flush(&self) -> Result<(), ParticipantError> {
        let mut state = self.enter().await?;
        let State { writer: Some(writer), handle: Some(handle), .. } = &mut *state else { return Err(self.gone()) };
        let flushed = writer.pre_commit(&self.live.txn, handle).await;
        let flushed = flushed.map_err(|error| ParticipantError::Sink { call: "sink.pre_commit", error });
        let kept = match flushed {
            Ok(()) => self.remember(handle.clone()).await,
            Err(error) => Err(error),
        };
        state.keep(kept, Stage::Flushed)?;
        drop(state);
        (self.shared.observer)(ParticipantPoint::Flushed);
        Ok(())
    }

    /// A handle is durable with the next `begin`; that of the same id changes nothing else.
    async fn remember(&self, handle: S::Handle) -> Result<(), ParticipantError> {
        let txn_id = self.live.txn.txn_id;
        self.shared.log.attach(txn_id, self.live.entry(Some(handle))?).await?;
        Ok(self.shared.log.begin(txn_id).await?)
    }

    /// A call that is given up half-way leaves a failed branch behind.
    async fn enter(&self) -> Result<tokio::sync::MutexGuard<'_, State<S>>, ParticipantError> {
        self.shared.check()?;
        let mut state = self.live.state.lock().await;
        match &state.stage {
            Stage::Open => {}
            Stage::Flushed => return Err(self.sink_error("the branch is flushed")),
            Stage::Failed(error) => return Err(error.clone()),
            Stage::Joining | Stage::Ended => return Err(self.gone()),
        }
        state.stage = Stage::Failed(self.sink_error("an earlier call was given up half-way"));
        Ok(state)
    }

    fn sink_error(&self, why: &str) -> ParticipantError {
        let error = crate::error::SinkError::rejected(format!("{}: {why}", self.live.txn.txn_id));
        ParticipantError::Sink { call: "branch", error }
    }

    fn gone(&self) -> ParticipantError {
        ParticipantError::Aborted { client: self.live.txn.client.clone(), txn_id: self.live.txn.txn_id }
    }
}

impl<S: TwoPhaseSink> State<S> {
    fn keep(&mut self, result: Result<(), ParticipantError>, next: Stage) -> Result<(), ParticipantError> {
        self.stage = match &result {
            Ok(()) => next,
            Err(error) => Stage::Failed(error.clone()),
        };
        result
    }
}
