//! What the search remembers of answers: the least that can make a difference.

use ratified_core::{Answer, Request};
use ratified_protocol::{Code, Epoch, Outcome, ParticipantName, Txn, TxnId, TxnState};

/// Something that was told to somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Told {
    /// It began.
    Began(TxnId),
    /// It is prepared.
    Prepared(TxnId),
    /// Its outcome.
    Outcome(TxnId, Outcome),
    /// It has ended, with this outcome.
    Terminal(TxnId, Outcome),
    /// It never began.
    NotFound(TxnId),
    /// It is no longer known.
    Expired(TxnId),
    /// Who was given which epoch.
    Opened(u128, Epoch),
    /// Somebody was fenced.
    Fenced,
}

/// How much was told about a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// That it began.
    Began,
    /// Its outcome.
    Outcome(Outcome),
    /// That it has ended.
    Terminal(Outcome),
    /// That it is no longer known, after its end or before.
    Expired,
    /// Both outcomes.
    Torn,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Held {
    /// In order: what is told once the batch is synced.
    pub(super) told: Vec<Told>,
    pub(super) heard: Vec<(ParticipantName, TxnId, Outcome)>,
}

impl Level {
    pub(super) const fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Outcome(outcome) | Self::Terminal(outcome) => Some(outcome),
            _ => None,
        }
    }
}

impl Held {
    pub(super) fn extend(&mut self, other: Self) {
        // Told again is told.
        self.told.extend(other.told);
        self.told.sort_unstable();
        self.told.dedup();
        self.heard.extend(other.heard);
        self.heard.sort_unstable();
        self.heard.dedup();
    }
}

pub(super) fn held_of(request: Option<&Request>, answer: Answer) -> Held {
    let mut held = Held::default();
    match (request, answer) {
        (Some(Request::Open { body, .. }), Answer::Open(open)) => {
            held.told.push(Told::Opened(body.incarnation.as_uuid().as_u128(), open.epoch));
        }
        (_, Answer::Txn(_, txn)) => held.told.extend(about(&txn)),
        (Some(Request::Decisions { participant, .. }), Answer::Decisions(answer)) => {
            held.heard.extend(
                answer.decisions.into_iter().filter_map(|d| Some((participant.clone(), d.txn_id, d.outcome.known()?))),
            );
        }
        (Some(Request::Txn { txn_id, .. }), Answer::Problem(problem)) => {
            held.told.extend(problem.txn.as_deref().into_iter().flat_map(about));
            match problem.code.known() {
                Some(Code::TxnNotFound) => held.told.push(Told::NotFound(*txn_id)),
                Some(Code::OutcomeExpired | Code::TxnIdTooOld) => held.told.push(Told::Expired(*txn_id)),
                Some(Code::Fenced) => held.told.push(Told::Fenced),
                _ => {}
            }
        }
        _ => {}
    }
    held
}

fn about(txn: &Txn) -> Vec<Told> {
    let id = txn.txn_id;
    match (txn.state.known(), txn.state.outcome()) {
        (Some(TxnState::Open), _) => vec![Told::Began(id)],
        (Some(TxnState::Prepared), _) => vec![Told::Began(id), Told::Prepared(id)],
        (Some(state), Some(outcome)) if state.is_terminal() => {
            vec![Told::Began(id), Told::Outcome(id, outcome), Told::Terminal(id, outcome)]
        }
        (_, Some(outcome)) => vec![Told::Began(id), Told::Outcome(id, outcome)],
        _ => Vec::new(),
    }
}
