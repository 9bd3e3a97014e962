//! Pulls decisions, applies them to the resource until that works, and acknowledges.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ratified_protocol::{ClientName, Code, Decision, Outcome, TxnId};

use super::{ParticipantError, ParticipantPoint, Shared, about, branch::Stage};
use crate::{
    error::ClientError,
    retry::Limit,
    runtime::{metrics, until_sink_settles},
    sink::{SinkCommitter, TwoPhaseSink, TxnContext},
};

impl<S: TwoPhaseSink> Shared<S> {
    /// Runs until something is definitely wrong; returns what.
    pub(super) async fn pull(&self, wait: Duration) -> ParticipantError {
        let mut cursor: Option<String> = None;
        loop {
            let told = self.coordinator.decisions(&self.name, Some(wait), cursor.as_deref()).await;
            let applied = match told {
                Ok(answer) if answer.decisions.is_empty() => {
                    cursor = Some(answer.cursor);
                    // Nothing is decided; what waits must still be waited for.
                    self.reconcile_all().await.map(drop)
                }
                Ok(answer) => {
                    cursor = Some(answer.cursor);
                    self.apply_all(answer.decisions).await
                }
                Err(error @ ClientError::Unanswered { .. }) => {
                    tracing::warn!(participant = %self.name, %error, "the coordinator is asked again");
                    cursor = None;
                    Ok(())
                }
                Err(error) => Err(error.into()),
            };
            match applied {
                Ok(()) => {}
                Err(ParticipantError::Coordinator(ClientError::Unanswered { .. })) => cursor = None,
                Err(error) => return error,
            }
        }
    }

    /// Oldest first. What cannot be applied holds up its own client only; then it is told.
    async fn apply_all(&self, decisions: Vec<Decision>) -> Result<(), ParticipantError> {
        let mut first_error = None;
        let mut held_up: BTreeSet<ClientName> = BTreeSet::new();
        for decision in decisions {
            if held_up.contains(&decision.client_name) {
                continue;
            }
            let Decision { client_name, txn_id, outcome, .. } = decision;
            let applied = match outcome.known() {
                Some(outcome) => self.apply(&client_name, txn_id, outcome).await,
                None => Err(ParticipantError::OutcomeUnknown { client: client_name.clone(), txn_id, outcome }),
            };
            if let Err(error) = applied {
                tracing::error!(participant = %self.name, %error, "a decision cannot be applied");
                held_up.insert(client_name);
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Applies a decision to the end. Any number of times: the resource says whether it was applied before.
    pub(super) async fn apply(
        &self,
        client: &ClientName,
        txn_id: TxnId,
        outcome: Outcome,
    ) -> Result<(), ParticipantError> {
        let txn = self.carry_out(client, txn_id, outcome).await?;
        self.acknowledge(&txn, outcome).await?;
        (self.observer)(ParticipantPoint::Acknowledged);
        self.give_up(txn_id).await
    }

    /// Makes the resource follow a decision.
    pub(super) async fn carry_out(
        &self,
        client: &ClientName,
        txn_id: TxnId,
        outcome: Outcome,
    ) -> Result<TxnContext, ParticipantError> {
        (self.observer)(ParticipantPoint::Decided);
        let Some(live) = self.find(txn_id).filter(|live| live.txn.client == *client) else {
            let txn = self.unknown(client, txn_id).await?;
            self.apply_to_sink(&txn, outcome, None).await?;
            return Ok(txn);
        };
        let mut state = live.state.lock().await;
        if outcome == Outcome::Committed && !matches!(state.stage, Stage::Flushed | Stage::Ended) {
            return Err(self.not_flushed(&live.txn));
        }
        state.stage = Stage::Ended;
        // Whatever the writer holds open must not be in the way.
        state.writer = None;
        let handle = state.handle.clone();
        drop(state);
        self.apply_to_sink(&live.txn, outcome, handle).await?;
        Ok(live.txn.clone())
    }

    async fn apply_to_sink(
        &self,
        txn: &TxnContext,
        outcome: Outcome,
        handle: Option<S::Handle>,
    ) -> Result<(), ParticipantError> {
        let (delays, committer) = (self.coordinator.delays(), &self.committer);
        match (outcome, &handle) {
            (Outcome::Committed, Some(handle)) => {
                let call = "sink.commit";
                let applied = until_sink_settles(call, delays, Limit::Never, || committer.commit(txn, handle)).await;
                metrics::committed(applied.map_err(|error| ParticipantError::Sink { call, error })?);
            }
            (Outcome::Committed, None) => return Err(self.not_flushed(txn)),
            (Outcome::Aborted, handle) => {
                let (call, handle) = ("sink.abort", handle.as_ref());
                let applied = until_sink_settles(call, delays, Limit::Never, || committer.abort(txn, handle)).await;
                applied.map_err(|error| ParticipantError::Sink { call, error })?;
                metrics::aborted();
            }
        }
        (self.observer)(ParticipantPoint::Applied);
        Ok(())
    }

    async fn acknowledge(&self, txn: &TxnContext, outcome: Outcome) -> Result<(), ParticipantError> {
        match self.coordinator.ack(&txn.client, txn.txn_id, &self.name, outcome).await {
            Ok(_) => Ok(()),
            // Evicted: it had been acknowledged before, or the participant was retired. Nothing waits any longer.
            Err(error) if error.code() == Some(Code::OutcomeExpired) => Ok(()),
            Err(error) => Err(about(&self.name, txn, error)),
        }
    }

    /// A transaction that this participant remembers nothing of: its pending store was lost, or never had it.
    async fn unknown(&self, client: &ClientName, txn_id: TxnId) -> Result<TxnContext, ParticipantError> {
        let told = self.coordinator.get(client, txn_id, None).await?;
        let epoch = told.epoch.unwrap_or(ratified_protocol::Epoch::FIRST);
        Ok(TxnContext::new(client.clone(), txn_id, epoch))
    }

    fn not_flushed(&self, txn: &TxnContext) -> ParticipantError {
        let (participant, client, txn_id) = (self.name.clone(), txn.client.clone(), txn.txn_id);
        ParticipantError::NotFlushed { participant, client, txn_id }
    }
}

/// The background half.
pub(super) async fn run<S: TwoPhaseSink>(shared: Arc<Shared<S>>, wait: Duration) {
    use futures_util::FutureExt as _;
    let pulled = std::panic::AssertUnwindSafe(shared.pull(wait)).catch_unwind().await;
    shared.fail(pulled.unwrap_or(ParticipantError::Panicked));
}
