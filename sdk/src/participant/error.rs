//! Why a participant could not take part, or could not go on.

use ratified_protocol::{ClientName, Code, Outcome, ParticipantName, Problem, Told, TxnId};
use thiserror::Error;

use crate::{
    error::{ClientError, SinkError},
    pending::PendingError,
    sink::TxnContext,
};

/// Why a participant could not take part, or could not go on.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ParticipantError {
    /// A newer owner of the client has taken over, or the coordinator has forgotten this one. The caller must stop
    /// working for the owner that named this epoch.
    #[error("{client} is owned by somebody else: {problem}")]
    Fenced {
        /// Whose transaction it was to be.
        client: ClientName,
        /// What the coordinator said.
        problem: Box<Problem>,
    },
    /// An operator has declared this participant gone: what it has staged may have been decided without it. The caller
    /// must look at what its resource holds, and ask an operator to reinstate it.
    #[error("{participant} is retired: its transactions go on without it; an operator must reinstate it")]
    Retired {
        /// Which one.
        participant: ParticipantName,
    },
    /// The transaction is not open any more. The caller must tell the owner, which gives it up.
    #[error("{txn_id} of {client} can no longer be joined: {problem}")]
    TooLate {
        /// Whose transaction.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
        /// What the coordinator said.
        problem: Box<Problem>,
    },
    /// This participant takes part in the transaction already.
    #[error("{txn_id} of {client} was joined before")]
    Twice {
        /// Whose transaction.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
    },
    /// The transaction was aborted while it was written. The caller must give the branch up; what was staged is removed.
    #[error("{txn_id} of {client} was aborted")]
    Aborted {
        /// Whose transaction.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
    },
    /// The transaction was committed although this participant had not flushed, or its pending store was lost. Its part
    /// is missing in the resource: somebody must put it there and acknowledge, or retire the participant.
    #[error("{txn_id} of {client} is committed, and {participant} had nothing flushed: its part is lost")]
    NotFlushed {
        /// Which participant.
        participant: ParticipantName,
        /// Whose transaction.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
    },
    /// The coordinator does not know, or no longer, what became of a transaction whose data is staged here. An operator
    /// decides; [`ParticipantBuilder::on_forgotten`](super::ParticipantBuilder::on_forgotten) can be told to go on.
    #[error("the coordinator cannot tell the outcome of {txn_id} of {client} ({code:?}), whose data is staged")]
    Forgotten {
        /// Whose transaction.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
        /// What the coordinator said.
        code: Code,
    },
    /// The coordinator could not be asked, or refused.
    #[error(transparent)]
    Coordinator(#[from] ClientError),
    /// The resource failed.
    #[error("{call}: {error}")]
    Sink {
        /// Which call.
        call: &'static str,
        /// What it said.
        error: SinkError,
    },
    /// The participant's own disk failed.
    #[error(transparent)]
    Pending(#[from] PendingError),
    /// What the pending store holds cannot be read by this version. The caller must use the one that wrote it.
    #[error("the pending store holds an entry that cannot be read: {why}")]
    Undecodable {
        /// Why.
        why: String,
    },
    /// The coordinator tells an outcome that this version does not know. The caller must use a newer one.
    #[error("the outcome {outcome} of {txn_id} of {client} is not known to this version")]
    OutcomeUnknown {
        /// Whose transaction.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
        /// The outcome's name.
        outcome: Told<Outcome>,
    },
    /// A part of the participant panicked.
    #[error("the participant panicked")]
    Panicked,
}

/// What a refusal by the coordinator means for a transaction.
pub(super) fn about(participant: &ParticipantName, txn: &TxnContext, error: ClientError) -> ParticipantError {
    let (client, txn_id) = (txn.client.clone(), txn.txn_id);
    match error {
        ClientError::Refused(problem) => match problem.code.known() {
            Some(Code::Fenced | Code::EpochUnknown) => ParticipantError::Fenced { client, problem },
            Some(Code::ParticipantRetired) => ParticipantError::Retired { participant: participant.clone() },
            Some(Code::InvalidTxnState | Code::OutcomeAborted | Code::OutcomeCommitted) => {
                ParticipantError::TooLate { client, txn_id, problem }
            }
            Some(code @ (Code::TxnNotFound | Code::ClientNotFound | Code::OutcomeExpired)) => {
                ParticipantError::Forgotten { client, txn_id, code }
            }
            _ => ClientError::Refused(problem).into(),
        },
        error => error.into(),
    }
}
