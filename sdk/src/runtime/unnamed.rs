//! What no snapshot of this worker names although the restored checkpoint covers it. Another worker may have restored its
//! handle; once a checkpoint completes every worker has opened, and what is still prepared belongs to nobody.

use std::sync::Arc;

use ratified_protocol::{CheckpointId, Outcome, TxnState};
use tokio::sync::Notify;

use super::{
    committer::OwnedTask,
    env::{Env, Status},
    error::RuntimeError,
    payload::{Envelope, decode_handle},
    policy::UnnamedPolicy,
};
use crate::{
    retry::Limit,
    sink::{SinkCommitter, TxnContext},
};

/// Waits for the first completed checkpoint, then looks.
pub(crate) struct Unnamed {
    wake: Option<Arc<Notify>>,
    status: Status,
    _task: OwnedTask,
}

impl Unnamed {
    /// `None`: there is nothing to look at.
    pub(crate) fn watch<C>(
        env: Arc<Env<C>>,
        policy: UnnamedPolicy,
        restored: Option<CheckpointId>,
        left: Vec<TxnContext>,
    ) -> Option<Self>
    where
        C: SinkCommitter,
        C::Handle: serde::de::DeserializeOwned,
    {
        if left.is_empty() || policy == UnnamedPolicy::LeaveAlone {
            return None;
        }
        let (woken, status) = (Arc::new(Notify::new()), env.status.clone());
        let wake = Some(woken.clone());
        let task = OwnedTask::spawn(async move {
            woken.notified().await;
            let _settling = Settling(env.status.clone());
            if let Err(error) = settle(&env, policy, restored, left).await {
                env.status.fail(error);
            }
        });
        Some(Self { wake, status, _task: task })
    }

    /// A checkpoint has completed. `flush_commits` waits for what is done about it.
    pub(crate) fn completed(&mut self) {
        if let Some(wake) = self.wake.take() {
            self.status.update(|progress| progress.is_settling = true);
            wake.notify_one();
        }
    }
}

/// Says that it is done, also when the task ends otherwise.
struct Settling(Status);

impl Drop for Settling {
    fn drop(&mut self) {
        self.0.update(|progress| progress.is_settling = false);
    }
}

async fn settle<C>(
    env: &Env<C>,
    policy: UnnamedPolicy,
    restored: Option<CheckpointId>,
    left: Vec<TxnContext>,
) -> Result<(), RuntimeError>
where
    C: SinkCommitter,
    C::Handle: serde::de::DeserializeOwned,
{
    let mut unnamed = Vec::new();
    for txn in left {
        let looked_up = env.limited(Limit::Never).get(&txn.client, txn.txn_id, None).await;
        let told = match looked_up {
            Ok(told) if told.state == TxnState::Prepared => told,
            // Whoever has restored it has ended it, or an operator has.
            Ok(_) => continue,
            Err(error) => match RuntimeError::about_txn(&txn.client, txn.txn_id, error) {
                RuntimeError::TxnExpired { .. } | RuntimeError::TxnNotFound { .. } => continue,
                error => return Err(error),
            },
        };
        if policy == UnnamedPolicy::Fail {
            unnamed.push((txn.client, txn.txn_id));
            continue;
        }
        let lost = || RuntimeError::HandleLost { client: txn.client.clone(), txn_id: txn.txn_id };
        let payload = told.payload.as_ref().map(Envelope::from_payload).transpose()?;
        let handle = decode_handle(&payload.and_then(|envelope| envelope.handle).ok_or_else(lost)?)?;
        let decided = env.decide_commit(Limit::Never, &txn.client, txn.txn_id).await?;
        let _ = env.sink_commit(Limit::Never, &txn, &handle).await?;
        if !decided.state.is_terminal() {
            env.ack(Limit::Never, &txn, Outcome::Committed).await?;
        }
    }
    if unnamed.is_empty() { Ok(()) } else { Err(RuntimeError::Unnamed { restored, txns: unnamed }) }
}
