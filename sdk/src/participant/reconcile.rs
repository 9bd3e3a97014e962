//! Compares what a participant remembers with what the coordinator knows: at open, and whenever nothing else is to do.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use ratified_protocol::{Code, Txn, TxnId};
use tokio::time::Instant;

use super::{
    ParticipantError, ParticipantReport, Shared,
    branch::{Live, Stage},
    entry::Entry,
};
use crate::{
    error::SinkError,
    retry::Limit,
    runtime::LostPolicy,
    sink::{SinkCommitter, TwoPhaseSink},
};

impl<S: TwoPhaseSink> Shared<S> {
    /// Takes over what an earlier process of this name remembered, and ends what was decided meanwhile, client by client.
    /// What the resource does not do for now is left to the background once `patience` is over.
    pub(super) async fn restore(&self, patience: Duration) -> Result<ParticipantReport, ParticipantError> {
        let mut report = ParticipantReport::default();
        for (txn_id, entry) in self.log.contents().entries {
            // Noted, and nothing else: nobody was told of it, and nothing was staged.
            let Some(entry) = entry else {
                self.log.remove(txn_id).await?;
                continue;
            };
            self.admit(&Arc::new(Live::restored(txn_id, Entry::decode(&entry)?)))?;
        }
        let limit = Limit::Until(Instant::now() + patience);
        let by_client = self.live_by_client().into_values();
        let reconciled = join_all(by_client.map(|live| self.reconcile_all(live, limit))).await;
        for one in reconciled {
            report.add(one?);
        }
        report.pending = self.all_live().iter().map(|live| (live.txn.client.clone(), live.txn.txn_id)).collect();
        Ok(report)
    }

    /// Looks at transactions that are waited for. What is wrong with one does not keep the others from their end.
    pub(super) async fn reconcile_all(
        &self,
        all: Vec<Arc<Live<S>>>,
        limit: Limit,
    ) -> Result<ParticipantReport, ParticipantError> {
        let (mut report, mut first_error) = (ParticipantReport::default(), None);
        for live in all {
            match self.reconcile(&live, &mut report, limit).await {
                Ok(()) => {}
                // It may work later, and those behind it must not overtake it.
                Err(ParticipantError::Sink { call, error: error @ SinkError::Retry { .. } }) => {
                    tracing::warn!(participant = %self.name, call, %error, "what is decided is applied later");
                    break;
                }
                Err(error @ (ParticipantError::Coordinator(_) | ParticipantError::Pending(_))) => return Err(error),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(report), Err)
    }

    async fn reconcile(
        &self,
        live: &Live<S>,
        report: &mut ParticipantReport,
        limit: Limit,
    ) -> Result<(), ParticipantError> {
        let (stage, is_restored) = {
            let state = live.state.lock().await;
            (state.stage.clone(), state.writer.is_none())
        };
        let stage = match stage {
            // Nobody writes there any longer: it is as if an earlier process had joined.
            Stage::Joining if live.is_abandoned() => Stage::Open,
            Stage::Joining => return Ok(()),
            stage => stage,
        };
        let txn = &live.txn;
        match self.coordinator.get(&txn.client, txn.txn_id, None).await {
            Ok(told) => self.follow(live, (&stage, is_restored), &told, report, limit).await,
            Err(error) => match error.code() {
                Some(code @ (Code::TxnNotFound | Code::ClientNotFound | Code::OutcomeExpired)) => {
                    self.forgotten(live, &stage, code, report).await
                }
                _ => Err(error.into()),
            },
        }
    }

    async fn follow(
        &self,
        live: &Live<S>,
        (stage, is_restored): (&Stage, bool),
        told: &Txn,
        report: &mut ParticipantReport,
        limit: Limit,
    ) -> Result<(), ParticipantError> {
        let (client, txn_id) = (&live.txn.client, live.txn.txn_id);
        let is_listed = told.participants.iter().flatten().any(|p| p.name == self.name);
        match told.state.outcome() {
            Some(outcome) if is_listed => {
                self.apply(client, txn_id, outcome, limit).await?;
                report.applied += 1;
                return Ok(());
            }
            // Retired before the decision: nobody waits for an acknowledgement, but the outcome holds here as well.
            Some(outcome) => {
                tracing::warn!(participant = %self.name, %client, %txn_id, "decided without this participant");
                self.carry_out(client, txn_id, outcome, limit).await?;
                report.applied += 1;
                return self.give_up(txn_id).await;
            }
            None => {}
        }
        match stage {
            _ if is_listed => Ok(()),
            // It died before the coordinator had heard of it: nothing is staged, and nothing waits for it.
            Stage::Open if is_restored => {
                report.never_joined.push((client.clone(), txn_id));
                self.give_up(txn_id).await
            }
            _ => Err(ParticipantError::Retired { participant: self.name.clone() }),
        }
    }

    /// The coordinator cannot tell the outcome. If nothing is staged any more it was applied before.
    async fn forgotten(
        &self,
        live: &Live<S>,
        stage: &Stage,
        code: Code,
        report: &mut ParticipantReport,
    ) -> Result<(), ParticipantError> {
        let (client, txn_id) = (live.txn.client.clone(), live.txn.txn_id);
        let staged = self.committer.list_staged(&client).await;
        let staged = staged.map_err(|error| ParticipantError::Sink { call: "sink.list_staged", error })?;
        let is_staged = staged.contains(&txn_id) && matches!(stage, Stage::Flushed);
        if is_staged && self.on_forgotten == LostPolicy::Fail {
            return Err(ParticipantError::Forgotten { client, txn_id, code });
        }
        tracing::warn!(participant = %self.name, %client, %txn_id, ?code, is_staged, "no longer known; given up");
        report.forgotten.push((client, txn_id));
        self.give_up(txn_id).await
    }

    /// Forgets a transaction that is finished here.
    pub(super) async fn give_up(&self, txn_id: TxnId) -> Result<(), ParticipantError> {
        self.log.remove(txn_id).await?;
        self.drop_live(txn_id);
        Ok(())
    }
}
