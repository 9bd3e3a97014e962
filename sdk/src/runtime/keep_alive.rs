//! Renewing the OPEN transaction's deadline, and learning early that somebody else ended it.

use std::{sync::Arc, time::Duration};

use ratified_protocol::{ClientName, Epoch, TimeoutMs, TxnId};
use tokio::{sync::watch, time::Instant};

use super::{committer::OwnedTask, env::Env, error::RuntimeError};
use crate::{error::ClientError, sink::SinkCommitter};

/// Renews the current transaction at a third of its timeout.
pub(crate) struct KeepAlive {
    current: watch::Sender<Option<TxnId>>,
    _task: OwnedTask,
}

struct Renewal<C> {
    client: ClientName,
    epoch: Epoch,
    period: Duration,
    env: Arc<Env<C>>,
}

impl KeepAlive {
    pub(crate) fn start<C: SinkCommitter>(
        env: Arc<Env<C>>,
        client: ClientName,
        epoch: Epoch,
        timeout: TimeoutMs,
    ) -> Self {
        let (current, receiver) = watch::channel(None);
        let renewal = Renewal { client, epoch, period: timeout.as_duration() / 3, env };
        Self { current, _task: OwnedTask::spawn(renewal.run(receiver)) }
    }

    /// Says which transaction is OPEN.
    pub(crate) fn set(&self, id: Option<TxnId>) {
        self.current.send_replace(id);
    }
}

impl<C: SinkCommitter> Renewal<C> {
    async fn run(self, mut current: watch::Receiver<Option<TxnId>>) {
        loop {
            let open = *current.borrow_and_update();
            let Some(id) = open else {
                if current.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let changed = tokio::select! {
                // A renewal of what is no longer OPEN tells nothing.
                biased;
                changed = current.changed() => Some(changed),
                () = self.renew_after_a_period(id) => None,
            };
            if changed.is_some_and(|changed| changed.is_err()) {
                return;
            }
        }
    }

    async fn renew_after_a_period(&self, id: TxnId) {
        tokio::time::sleep(self.period).await;
        loop {
            let end = Instant::now() + self.period;
            match self.env.coordinator.until(end).keep_alive(&self.client, id, self.epoch).await {
                Ok(_) => return,
                // Asked again at once: another period's wait would be the last of the three that the timeout has.
                Err(ClientError::Unanswered { cause, .. }) => {
                    tracing::warn!(%cause, "the coordinator does not answer keep-alives");
                    tokio::time::sleep_until(end).await;
                }
                Err(error) => {
                    let error = RuntimeError::about_txn(&self.client, id, error);
                    return self.env.status.fail(self.env.name_owners(error).await);
                }
            }
        }
    }
}
