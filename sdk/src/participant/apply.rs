//! Applies a decision to the resource until that works, and acknowledges.

use ratified_protocol::{ClientName, Code, Decision, Outcome, TxnId};

use super::{ParticipantError, ParticipantPoint, Shared, about, branch::Stage};
use crate::{
    retry::Limit,
    runtime::{metrics, until_sink_settles},
    sink::{SinkCommitter, TwoPhaseSink, TxnContext},
};

impl<S: TwoPhaseSink> Shared<S> {
    /// Applies the decisions of one client, oldest first, up to the first that cannot be applied.
    pub(super) async fn apply_all(&self, decisions: Vec<Decision>) -> Result<(), ParticipantError> {
        for Decision { client_name, txn_id, outcome, .. } in decisions {
            let applied = match outcome.known() {
                Some(outcome) => self.apply(&client_name, txn_id, outcome, Limit::Never).await,
                None => Err(ParticipantError::OutcomeUnknown { client: client_name.clone(), txn_id, outcome }),
            };
            if let Err(error) = applied {
                tracing::error!(participant = %self.name, %error, "a decision cannot be applied");
                return Err(error);
            }
        }
        Ok(())
    }

    /// Applies a decision to the end, or until the limit. Any number of times: the resource says whether it was applied
    /// before.
    pub(super) async fn apply(
        &self,
        client: &ClientName,
        txn_id: TxnId,
        outcome: Outcome,
        limit: Limit,
    ) -> Result<(), ParticipantError> {
        let Some(txn) = self.carry_out(client, txn_id, outcome, limit).await? else { return Ok(()) };
        self.acknowledge(&txn, outcome).await?;
        (self.observer)(ParticipantPoint::Acknowledged);
        self.give_up(txn_id).await
    }

    /// Makes the resource follow a decision; `None`: that was done and acknowledged before.
    pub(super) async fn carry_out(
        &self,
        client: &ClientName,
        txn_id: TxnId,
        outcome: Outcome,
        limit: Limit,
    ) -> Result<Option<TxnContext>, ParticipantError> {
        let Some(live) = self.find(txn_id).filter(|live| live.txn.client == *client) else {
            let Some(txn) = self.unknown(client, txn_id).await? else { return Ok(None) };
            (self.observer)(ParticipantPoint::Decided);
            self.apply_to_sink(&txn, outcome, None, limit).await?;
            return Ok(Some(txn));
        };
        (self.observer)(ParticipantPoint::Decided);
        let mut state = live.state.lock().await;
        if outcome == Outcome::Committed && !matches!(state.stage, Stage::Flushed | Stage::Ended) {
            return Err(self.not_flushed(&live.txn));
        }
        state.stage = Stage::Ended;
        // Whatever the writer holds open must not be in the way.
        state.writer = None;
        let handle = state.handle.clone();
        drop(state);
        self.apply_to_sink(&live.txn, outcome, handle, limit).await?;
        Ok(Some(live.txn.clone()))
    }

    async fn apply_to_sink(
        &self,
        txn: &TxnContext,
        outcome: Outcome,
        handle: Option<S::Handle>,
        limit: Limit,
    ) -> Result<(), ParticipantError> {
        let (delays, committer) = (self.coordinator.delays(), &self.committer);
        match (outcome, &handle) {
            (Outcome::Committed, Some(handle)) => {
                let call = "sink.commit";
                let applied = until_sink_settles(call, delays, limit, || committer.commit(txn, handle)).await;
                metrics::committed(applied.map_err(|error| ParticipantError::Sink { call, error })?);
            }
            (Outcome::Committed, None) => return Err(self.not_flushed(txn)),
            (Outcome::Aborted, handle) => {
                let (call, handle) = ("sink.abort", handle.as_ref());
                let applied = until_sink_settles(call, delays, limit, || committer.abort(txn, handle)).await;
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

    /// A transaction that this participant remembers nothing of: its pending store was lost, or never had it. `None`: it
    /// was acknowledged while the coordinator was telling of it.
    async fn unknown(&self, client: &ClientName, txn_id: TxnId) -> Result<Option<TxnContext>, ParticipantError> {
        let told = match self.coordinator.get(client, txn_id, None).await {
            Ok(told) => told,
            Err(error) if error.code() == Some(Code::OutcomeExpired) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !told.participants.iter().flatten().any(|one| one.name == self.name && !one.acked) {
            return Ok(None);
        }
        let epoch = told.epoch.unwrap_or(ratified_protocol::Epoch::FIRST);
        Ok(Some(TxnContext::new(client.clone(), txn_id, epoch)))
    }

    fn not_flushed(&self, txn: &TxnContext) -> ParticipantError {
        let (participant, client, txn_id) = (self.name.clone(), txn.client.clone(), txn.txn_id);
        ParticipantError::NotFlushed { participant, client, txn_id }
    }
}
