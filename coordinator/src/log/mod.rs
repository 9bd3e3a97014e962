//! One line for every change of a transaction's state, of a client's owner, and for every operator's call (PIP-31), once
//! it is durable.
//! Text of callers is recorded quoted (`?`).

mod escape;
mod lines;
mod output;

pub use escape::LogFormat;
pub(crate) use lines::dropped_lines;
pub use output::{flush_log, log_to_stderr, say_last};

use ratified_core::{Audit, Ownership, OwnershipEvent, Transition};
use ratified_protocol::{Generation, ShortText};

/// A transaction changed its state.
pub(crate) fn transition(transition: &Transition) {
    tracing::info!(
        client = %transition.client,
        txn = %transition.txn_id,
        from = transition.from.map_or("-", |state| state.as_str()),
        to = transition.to.as_str(),
        reason = transition.reason.map_or("-", |reason| reason.as_str()),
        "transaction"
    );
}

/// A client has a new owner, or an old one was refused. Owners are text of callers: shown escaped.
pub(crate) fn ownership(ownership: &Ownership) {
    let Ownership { client, epoch, owner, previous_owner, event } = ownership;
    let (owner, previous_owner) = (shown(owner.as_ref()), shown(previous_owner.as_ref()));
    match event {
        OwnershipEvent::Opened { generation } => {
            let generation = generation.map(Generation::as_u64);
            tracing::info!(%client, %epoch, owner, previous_owner, generation, "client opened by a new owner");
        }
        OwnershipEvent::CallFenced { given } => {
            tracing::warn!(%client, %epoch, owner, previous_owner, %given, "call of a superseded owner refused");
        }
        OwnershipEvent::OpenFenced { by, generation } => {
            let (by, generation) = (shown(by.as_ref()), generation.map(Generation::as_u64));
            tracing::warn!(%client, %epoch, owner, previous_owner, by, generation, "open by a superseded owner refused");
        }
    }
}

fn shown(owner: Option<&ShortText>) -> String {
    owner.map_or_else(|| "-".to_owned(), |owner| format!("{:?}", owner.as_str()))
}

/// An operator's call took effect.
pub(crate) fn audit(audit: &Audit) {
    match audit {
        Audit::Resolved { client, txn_id, request } => tracing::info!(
            %client,
            txn = %txn_id,
            outcome = request.outcome.outcome().as_str(),
            reason = request.reason.as_str(),
            actor = request.actor.as_ref().map_or("-", |actor| actor.as_str()),
            "operator resolved a transaction"
        ),
        Audit::Retired { participant, reason, transactions } => {
            tracing::info!(%participant, reason = reason.as_str(), transactions, "operator retired a participant");
        }
        Audit::Reinstated { participant, reason } => tracing::info!(
            %participant,
            reason = reason.as_ref().map_or("-", |reason| reason.as_str()),
            "operator reinstated a participant"
        ),
        Audit::Forgotten { client, reason, outcomes } => {
            tracing::info!(%client, reason = reason.as_str(), outcomes, "operator forgot a client");
        }
    }
}
