//! Why the runtime stopped. Each variant says what the caller must do.

use ratified_protocol::{CheckpointId, ClientName, Code, EndReason, Epoch, IdError, Told, TxnId};
use thiserror::Error;

use crate::{
    error::{ClientError, SinkError},
    pending::PendingError,
};

/// Why a runtime cannot open, or has stopped. An error of `write`, `pre_commit` or a commit in the background is sticky:
/// every later call but `close` returns it, until the sink is opened again and the job reads its records again.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The coordinator refused, did not answer in time, or its store has changed.
    #[error(transparent)]
    Coordinator(#[from] ClientError),
    /// The pending store failed.
    #[error(transparent)]
    Pending(#[from] PendingError),
    /// The sink failed or refused.
    #[error("{call}: {error}")]
    Sink {
        /// Which of its methods.
        call: &'static str,
        /// What it said.
        error: SinkError,
    },
    /// A newer owner has opened the client. The caller must stop; two jobs of one name must not run at once.
    #[error("{client} of {this} was opened by a newer owner: {}, epoch {}", show(owner), show(current_epoch))]
    Fenced {
        /// Whose owner changed.
        client: ClientName,
        /// Who is fenced: the owner text of this runtime.
        this: String,
        /// The epoch that is current now, if it was told.
        current_epoch: Option<Epoch>,
        /// Who holds it, if it was told.
        owner: Option<String>,
    },
    /// The coordinator does not know an epoch it has given out: it has forgotten. The caller must stop.
    #[error("the coordinator has forgotten the epoch of {client}")]
    EpochUnknown {
        /// Whose epoch.
        client: ClientName,
    },
    /// The client is not known to the coordinator. At a first start the caller must say so (`first_start`); otherwise the
    /// coordinator's store may have been lost, and an operator decides.
    #[error(
        "the coordinator does not know {client}: its store may be lost, or this is a first start that was not declared"
    )]
    ClientUnknown {
        /// Which client.
        client: ClientName,
    },
    /// A transaction that had to be committed was aborted.
    #[error("{txn_id} of {client} was aborted ({}): its records are lost unless they are read again", show(end_reason))]
    TxnAborted {
        /// Whose.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
        /// Who or what aborted it, if it was told.
        end_reason: Option<Told<EndReason>>,
    },
    /// The outcome of a transaction that had to be committed is no longer kept. An operator must look into the sink.
    #[error("the outcome of {txn_id} of {client} is no longer kept")]
    TxnExpired {
        /// Whose.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
    },
    /// A transaction that had to be committed never began as far as the coordinator knows: it may have been restored from
    /// a backup, or be another one.
    #[error("the coordinator does not know {txn_id} of {client}")]
    TxnNotFound {
        /// Whose.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
    },
    /// The job restores an older state than the sink has committed: its records would be written twice. The caller must
    /// restore a newer checkpoint, or accept the duplicates (`accept_rewind`).
    #[error("restoring {} would write twice what {client} has {}", restored_checkpoint(restored), progress(committed))]
    Rewound {
        /// The checkpoint the job restores; `None` if it starts without one.
        restored: Option<CheckpointId>,
        /// The client that is further.
        client: ClientName,
        /// The checkpoint it has committed; `None` if it has only prepared, or committed without a checkpoint.
        committed: Option<CheckpointId>,
    },
    /// The sink holds data of this client that the coordinator and the restored state do not know, or are about to end: both
    /// were put back, the coordinator's store was lost, or a job that another coordinator knows has the same client and
    /// writes to the same place. The caller must put the sink back, too, restore a newer state, give one of the two jobs
    /// another name or another place, or accept the duplicates (`accept_unknown_data`).
    #[error(
        "the sink is ahead of what is known of {client} ({} visible, {} staged, the newest {}) in {place}: the job, the \
         coordinator or both were put back, or its store was lost, and records would be written twice; or beside this \
         owner, {this}, another one writes there under the same client and another coordinator",
        visible.len(), staged.len(), show(&visible.iter().chain(staged).max())
    )]
    SinkAhead {
        /// Whose data.
        client: ClientName,
        /// Where it is, as far as the sink can tell.
        place: String,
        /// The owner text of this runtime.
        this: String,
        /// What readers of the sink see and nobody accounts for.
        visible: Vec<TxnId>,
        /// What is staged although nothing ever began.
        staged: Vec<TxnId>,
    },
    /// No snapshot names what was prepared for the restored checkpoint: its records would stay invisible for ever. The
    /// caller must restore the sink's state, or say what is to become of them (`on_unnamed`).
    #[error(
        "no snapshot names {} prepared transactions of {} ({}): the sink's state was not restored, and their records \
         would be lost",
        txns.len(), restored_checkpoint(restored), named(txns)
    )]
    Unnamed {
        /// The checkpoint the job restores.
        restored: Option<CheckpointId>,
        /// What it has prepared.
        txns: Vec<(ClientName, TxnId)>,
    },
    /// A restored snapshot names a transaction of a later checkpoint than the one that is said to be restored.
    #[error("a snapshot of checkpoint {snapshot} cannot belong to {}", restored_checkpoint(restored))]
    SnapshotNotRestored {
        /// The snapshot's checkpoint.
        snapshot: CheckpointId,
        /// The checkpoint that is said to be restored.
        restored: Option<CheckpointId>,
    },
    /// A snapshot or payload cannot be read. The caller must use the version of this library that wrote it.
    #[error("{what}: {why}")]
    Undecodable {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A decided commit cannot be carried out: neither the coordinator nor a snapshot has the sink's handle.
    #[error("{txn_id} of {client} is committed, but its handle is lost")]
    HandleLost {
        /// Whose.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
    },
    /// Handle and position together are too large. The caller must keep the data beside and refer to it.
    #[error("handle and position take {bytes} bytes, at most 65536 are taken")]
    PayloadTooLarge {
        /// How many bytes they take.
        bytes: usize,
    },
    /// The deadline of `open` passed. The caller may open again; what is left is finished then.
    #[error("open could not finish in time, {} transactions are left: {cause}", left.len())]
    OpenIncomplete {
        /// What is not finished.
        left: Vec<(ClientName, TxnId)>,
        /// What it was waiting for.
        cause: Box<RuntimeError>,
    },
    /// `close` was called with records that no barrier or commit covers: they were given up.
    #[error("closed with {records} records after the last barrier")]
    Unflushed {
        /// How many.
        records: u64,
    },
    /// A barrier is not newer than the one before, or than the restored checkpoint.
    #[error("checkpoint {given} is not newer than {last}")]
    BarrierOutOfOrder {
        /// The newest one so far.
        last: CheckpointId,
        /// The one that was given.
        given: CheckpointId,
    },
    /// Something was written after the final barrier.
    #[error("the final barrier has passed")]
    AfterFinal,
    /// So many checkpoints were prepared and none completed that the bound is reached.
    #[error("{prepared} transactions are prepared and no checkpoint completes")]
    TooManyPrepared {
        /// How many.
        prepared: usize,
    },
    /// A call's future was dropped before it was done: nobody knows how far it came. Open again.
    #[error("an earlier call was dropped before it was done")]
    Interrupted,
    /// Time and again somebody committed what `open` was about to abort. The caller must find out who, and open again.
    #[error("{client} does not come to rest: something else keeps committing its transactions")]
    Contended {
        /// Whose transactions.
        client: ClientName,
    },
    /// No greater transaction id exists.
    #[error("no transaction id is left above the newest one")]
    IdsExhausted(#[from] IdError),
}

fn show<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| "not told".to_owned(), ToString::to_string)
}

fn restored_checkpoint(restored: &Option<CheckpointId>) -> String {
    restored.map_or_else(|| "no checkpoint".to_owned(), |id| format!("checkpoint {id}"))
}

/// The first few.
fn named(txns: &[(ClientName, TxnId)]) -> String {
    let named: Vec<_> = txns.iter().take(3).map(|(client, id)| format!("{id} of {client}")).collect();
    format!("{}{}", named.join(", "), if txns.len() > named.len() { ", ..." } else { "" })
}

fn progress(committed: &Option<CheckpointId>) -> String {
    committed.map_or_else(|| "prepared or committed".to_owned(), |id| format!("committed with checkpoint {id}"))
}

impl RuntimeError {
    /// The coordinator's refusal of a call about a transaction, as what it means for the job.
    pub(crate) fn about_txn(client: &ClientName, txn_id: TxnId, error: ClientError) -> Self {
        let ClientError::Refused(problem) = &error else { return Self::Coordinator(error) };
        let client = client.clone();
        match problem.code.known() {
            Some(Code::OutcomeAborted) => {
                let end_reason = problem.txn.as_ref().and_then(|txn| txn.end_reason.clone());
                Self::TxnAborted { client, txn_id, end_reason }
            }
            Some(Code::OutcomeExpired) => Self::TxnExpired { client, txn_id },
            Some(Code::TxnNotFound | Code::ClientNotFound) => Self::TxnNotFound { client, txn_id },
            _ => Self::about_client(&client, error),
        }
    }

    /// The coordinator's refusal of a call about a client, as what it means for the job.
    pub(crate) fn about_client(client: &ClientName, error: ClientError) -> Self {
        let ClientError::Refused(problem) = &error else { return Self::Coordinator(error) };
        let client = client.clone();
        match problem.code.known() {
            Some(Code::Fenced) => {
                let (current_epoch, owner) = (problem.current_epoch, problem.owner.clone());
                Self::Fenced { client, this: String::new(), current_epoch, owner }
            }
            Some(Code::EpochUnknown) => Self::EpochUnknown { client },
            Some(Code::ClientNotFound) => Self::ClientUnknown { client },
            _ => Self::Coordinator(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use ratified_protocol::Problem;

    use super::*;

    #[test]
    fn each_refusal_is_told_as_what_it_means_for_the_job() {
        let client: ClientName = "job.0".parse().unwrap();
        let txn_id = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
        let refused = |code| ClientError::Refused(Box::new(Problem::new(code, "because")));
        let about_txn = |code| RuntimeError::about_txn(&client, txn_id, refused(code)).to_string();
        let about_client = |code| RuntimeError::about_client(&client, refused(code)).to_string();
        let aborted = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f of job.0 was aborted (not told): its records are lost unless \
                       they are read again";
        let unknown = "the coordinator does not know 0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f of job.0";
        assert_eq!(about_txn(Code::OutcomeAborted), aborted);
        let expired = "the outcome of 0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f of job.0 is no longer kept";
        assert_eq!(about_txn(Code::OutcomeExpired), expired);
        assert_eq!(about_txn(Code::TxnNotFound), unknown);
        assert_eq!(about_txn(Code::ClientNotFound), unknown);
        for about in [&about_txn as &dyn Fn(Code) -> String, &about_client] {
            assert_eq!(about(Code::EpochUnknown), "the coordinator has forgotten the epoch of job.0");
            let fenced = "job.0 of  was opened by a newer owner: not told, epoch not told";
            assert_eq!(about(Code::Fenced), fenced, "who this is is added where it is known");
            assert_eq!(about(Code::TooManyOpen), refused(Code::TooManyOpen).to_string());
        }
        let lost = "the coordinator does not know job.0: its store may be lost, or this is a first start that was not \
                    declared";
        assert_eq!(about_client(Code::ClientNotFound), lost);
    }
}
