//! One line for every change of a transaction's state and for every operator's call (PIP-31), once it is durable.

use ratified_core::{Audit, Transition};

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

/// An operator's call took effect.
pub(crate) fn audit(audit: &Audit) {
    match audit {
        Audit::Resolved { client, txn_id, request } => tracing::info!(
            %client,
            txn = %txn_id,
            outcome = request.outcome.outcome().as_str(),
            reason = %request.reason,
            actor = request.actor.as_ref().map_or("-", |actor| actor.as_str()),
            "operator resolved a transaction"
        ),
        Audit::Retired { participant, reason, transactions } => {
            tracing::info!(%participant, %reason, transactions, "operator retired a participant");
        }
        Audit::Reinstated { participant, reason } => tracing::info!(
            %participant,
            reason = reason.as_ref().map_or("-", |reason| reason.as_str()),
            "operator reinstated a participant"
        ),
        Audit::Forgotten { client, reason, outcomes } => {
            tracing::info!(%client, %reason, outcomes, "operator forgot a client");
        }
    }
}
