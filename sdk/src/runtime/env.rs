//! What every part of a runtime needs: the coordinator, the sink's committer, and the state all of them share.

use std::{future::Future, sync::Arc, time::Duration};

use ratified_protocol::{
    ClientName, Code, CommitRequest, EndReason, EpochRequest, Outcome, ShortText, Told, Txn, TxnId,
};
use tokio::{sync::watch, time::Instant};

use super::{error::RuntimeError, metrics, policy::Observer};
use crate::{
    client::{ClientQuery, CoordinatorClient},
    error::{Cause, Certainty, SinkError},
    retry::{Attempt, Ended, Limit, RetryDelays, until_settled},
    sink::{Committed, SinkCommitter, TxnContext},
};

/// How long a fenced owner looks for the name of the new one.
const OWNER_LOOKUP: Duration = Duration::from_secs(5);

/// The first error, and how far the background committer has come.
#[derive(Debug, Clone)]
pub(crate) struct Status(Arc<watch::Sender<Progress>>);

/// What [`Status`] tells.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// The error that stopped the runtime.
    pub(crate) error: Option<RuntimeError>,
    /// How many transactions are completed and not finished to the end.
    pub(crate) ending: usize,
    /// Whether what no snapshot names is being looked at.
    pub(crate) is_settling: bool,
    /// The newest transaction finished to the end.
    pub(crate) finished: Option<TxnId>,
    /// How many commits found the data visible.
    pub(crate) already: u64,
}

impl Default for Status {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }
}

impl Status {
    /// Refuses once the runtime has stopped.
    pub(crate) fn check(&self) -> Result<(), RuntimeError> {
        self.0.borrow().error.clone().map_or(Ok(()), Err)
    }

    /// Stops the runtime; the first error stays.
    pub(crate) fn fail(&self, error: RuntimeError) {
        self.0.send_modify(|progress| {
            if progress.error.is_none() {
                metrics::failed();
                tracing::error!(%error, "the runtime stops");
                progress.error = Some(error);
            }
        });
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Progress)) {
        self.0.send_modify(change);
    }

    pub(crate) fn now(&self) -> Progress {
        self.0.borrow().clone()
    }

    /// Waits until fewer than `count` transactions are ending, or the runtime has stopped.
    pub(crate) async fn until_fewer_than(&self, count: usize) -> Result<(), RuntimeError> {
        let mut progress = self.0.subscribe();
        // The sender lives as long as `self`: waiting cannot end otherwise.
        let _ = progress.wait_for(|p| p.ending + usize::from(p.is_settling) < count || p.error.is_some()).await;
        self.check()
    }
}

pub(crate) struct Env<C> {
    pub(crate) coordinator: CoordinatorClient,
    pub(crate) committer: C,
    pub(crate) status: Status,
    pub(crate) observer: Observer,
    /// Who this runtime is.
    pub(crate) owner: ShortText,
}

impl<C: SinkCommitter> Env<C> {
    /// The coordinator, within a limit.
    pub(crate) fn limited(&self, limit: Limit) -> CoordinatorClient {
        match limit {
            Limit::Never => self.coordinator.clone(),
            Limit::Until(end) => self.coordinator.until(end),
        }
    }

    /// Why a sink really failed: a newer owner has aborted the transaction and removed what was staged. If that cannot be
    /// learnt soon, what the sink said.
    pub(crate) async fn unless_fenced(&self, txn: &TxnContext, error: RuntimeError) -> RuntimeError {
        let bounded = self.coordinator.until(Instant::now() + OWNER_LOOKUP);
        match bounded.get(&txn.client, txn.txn_id, None).await {
            Ok(told) if told.end_reason == Some(EndReason::Fenced.into()) => {
                let (client, txn_id) = (txn.client.clone(), txn.txn_id);
                RuntimeError::TxnAborted { client, txn_id, end_reason: told.end_reason }
            }
            _ => error,
        }
    }

    /// Tells both owners of a client that has changed hands: two jobs of one name must be able to find each other.
    pub(crate) async fn name_owners(&self, error: RuntimeError) -> RuntimeError {
        let this = self.owner.to_string();
        match error {
            RuntimeError::Fenced { client, current_epoch, owner, .. } => {
                RuntimeError::Fenced { client, this, current_epoch, owner }
            }
            RuntimeError::TxnAborted { client, end_reason: Some(Told::Known(EndReason::Fenced)), .. } => {
                let query = ClientQuery { prefix: Some(client.to_string()), ..ClientQuery::default() };
                let bounded = self.coordinator.until(Instant::now() + OWNER_LOOKUP);
                let items = bounded.clients(&query).await.map(|page| page.items).unwrap_or_default();
                let item = items.into_iter().find(|item| item.client_name == client);
                let current_epoch = item.as_ref().map(|item| item.epoch);
                RuntimeError::Fenced { client, this, current_epoch, owner: item.and_then(|item| item.owner) }
            }
            other => other,
        }
    }

    /// Decides for commit, or learns what was decided. Carries no epoch: whoever holds the handle of a completed
    /// checkpoint may commit it, before or after another worker's `open`.
    pub(crate) async fn decide_commit(
        &self,
        limit: Limit,
        client: &ClientName,
        id: TxnId,
    ) -> Result<Txn, RuntimeError> {
        let decided = self.limited(limit).commit(client, id, &CommitRequest::default(), None).await;
        decided.map_err(|e| RuntimeError::about_txn(client, id, e))
    }

    /// Decides for abort. `None`: the true outcome is commit.
    pub(crate) async fn decide_abort(&self, limit: Limit, txn: &TxnContext) -> Result<Option<Txn>, RuntimeError> {
        let request = EpochRequest { epoch: Some(txn.epoch) };
        match self.limited(limit).abort(&txn.client, txn.txn_id, &request, None).await {
            Ok(decided) => Ok(Some(decided)),
            Err(error) if error.code() == Some(Code::OutcomeCommitted) => Ok(None),
            Err(error) => Err(RuntimeError::about_txn(&txn.client, txn.txn_id, error)),
        }
    }

    /// Makes a decided transaction visible.
    pub(crate) async fn sink_commit(
        &self,
        limit: Limit,
        txn: &TxnContext,
        handle: &C::Handle,
    ) -> Result<Committed, RuntimeError> {
        let how = self.sink_call("sink.commit", limit, || self.committer.commit(txn, handle)).await?;
        metrics::committed(how);
        if how == Committed::Already {
            self.status.update(|progress| progress.already += 1);
        }
        Ok(how)
    }

    /// Removes what is staged under an aborted transaction.
    pub(crate) async fn sink_abort(
        &self,
        limit: Limit,
        txn: &TxnContext,
        handle: Option<&C::Handle>,
    ) -> Result<(), RuntimeError> {
        self.sink_call("sink.abort", limit, || self.committer.abort(txn, handle)).await?;
        metrics::aborted();
        Ok(())
    }

    /// Tells the coordinator that the sink has applied the outcome.
    pub(crate) async fn ack(&self, limit: Limit, txn: &TxnContext, outcome: Outcome) -> Result<(), RuntimeError> {
        let participant = (&txn.client).into();
        match self.limited(limit).ack(&txn.client, txn.txn_id, &participant, outcome).await {
            Ok(_) => Ok(()),
            // Evicted: it had been acknowledged before, or the participant was retired. Nothing waits any longer.
            Err(error) if error.code() == Some(Code::OutcomeExpired) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Repeats a call of the sink until it settles or the limit is reached.
    pub(crate) async fn sink_call<T, F, Fut>(&self, call: &'static str, limit: Limit, f: F) -> Result<T, RuntimeError>
    where
        F: Fn() -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, SinkError>> + Send,
    {
        sink_call(call, self.coordinator.delays(), limit, f).await
    }
}

/// Repeats a call of a sink until it settles or the limit is reached.
pub(crate) async fn sink_call<T, F, Fut>(
    call: &'static str,
    delays: RetryDelays,
    limit: Limit,
    f: F,
) -> Result<T, RuntimeError>
where
    F: Fn() -> Fut + Send + Sync,
    Fut: Future<Output = Result<T, SinkError>> + Send,
{
    let settled = until_sink_settles(call, delays, limit, f).await;
    settled.map_err(|error| RuntimeError::Sink { call, error })
}

/// As [`sink_call`], for callers with errors of their own.
pub(crate) async fn until_sink_settles<T, F, Fut>(
    call: &'static str,
    delays: RetryDelays,
    limit: Limit,
    f: F,
) -> Result<T, SinkError>
where
    F: Fn() -> Fut + Send + Sync,
    Fut: Future<Output = Result<T, SinkError>> + Send,
{
    let f = &f;
    let attempt = || async move {
        match limited_call(limit, f()).await {
            Err(SinkError::Retry { after, cause, .. }) => Attempt::Again { after, cause },
            Err(error @ SinkError::Rejected(_)) => Attempt::Settled(Err(error)),
            Ok(value) => Attempt::Settled(Ok(value)),
        }
    };
    until_settled(call, delays, limit, attempt).await.map_err(Ended::into_sink_error)
}

async fn limited_call<T>(limit: Limit, call: impl Future<Output = Result<T, SinkError>>) -> Result<T, SinkError> {
    match limit {
        Limit::Never => call.await,
        Limit::Until(end) => match tokio::time::timeout_at(end, call).await {
            Ok(result) => result,
            Err(_) => Err(SinkError::indeterminate("no answer in time")),
        },
    }
}

impl Ended<SinkError> {
    pub(crate) fn into_sink_error(self) -> SinkError {
        match self {
            Self::Failed(error) => error,
            Self::GaveUp { attempts, cause } => SinkError::Retry {
                after: None,
                certainty: Certainty::Indeterminate,
                cause: Cause::new(format!("given up after {attempts} attempts: {cause}")),
            },
        }
    }
}
