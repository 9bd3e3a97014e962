//! The states of a transaction and the legal ways between them, as one table.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TxnState {
    /// Begun; has a deadline.
    Open,
    /// Staged data survives a crash; held until somebody decides, unless `preparedTimeoutMs` was given.
    Prepared,
    /// Commit is decided and durable; participants still have to acknowledge.
    Committing,
    /// Committed and acknowledged by every participant.
    Committed,
    /// Abort is decided and durable; participants still have to acknowledge.
    Aborting,
    /// Aborted and acknowledged by every participant.
    Aborted,
}

impl TxnState {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Open, Self::Prepared, Self::Committing, Self::Committed, Self::Aborting, Self::Aborted];

    /// The legal transitions. Everything else is a defect.
    pub const TRANSITIONS: [(Self, Self); 7] = [
        (Self::Open, Self::Prepared),
        (Self::Open, Self::Committing),
        (Self::Open, Self::Aborting),
        (Self::Prepared, Self::Committing),
        (Self::Prepared, Self::Aborting),
        (Self::Committing, Self::Committed),
        (Self::Aborting, Self::Aborted),
    ];

    /// Whether one step may lead from here to `next`.
    pub fn may_become(self, next: Self) -> bool {
        Self::TRANSITIONS.contains(&(self, next))
    }

    /// The decision, once there is one. PIP-255: `Aborting` is equivalent to `Aborted`, `Committing` to `Committed`.
    pub const fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Open | Self::Prepared => None,
            Self::Committing | Self::Committed => Some(Outcome::Committed),
            Self::Aborting | Self::Aborted => Some(Outcome::Aborted),
        }
    }

    /// Whether the transaction is over: decided, and acknowledged by every participant.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Committed | Self::Aborted)
    }

    /// The state's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Prepared => "PREPARED",
            Self::Committing => "COMMITTING",
            Self::Committed => "COMMITTED",
            Self::Aborting => "ABORTING",
            Self::Aborted => "ABORTED",
        }
    }
}

impl fmt::Display for TxnState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A decision. It is made once and never reverts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Outcome {
    /// The data is to be visible.
    Committed,
    /// The data is to be removed.
    Aborted,
}

impl Outcome {
    /// Both outcomes.
    pub const ALL: [Self; 2] = [Self::Committed, Self::Aborted];

    /// The state of a transaction with this decision whose participants still have to acknowledge.
    pub const fn ending(self) -> TxnState {
        match self {
            Self::Committed => TxnState::Committing,
            Self::Aborted => TxnState::Aborting,
        }
    }

    /// The state of a transaction with this decision once every participant has acknowledged.
    pub const fn terminal(self) -> TxnState {
        match self {
            Self::Committed => TxnState::Committed,
            Self::Aborted => TxnState::Aborted,
        }
    }

    /// The outcome's name on the wire.
    pub const fn as_str(self) -> &'static str {
        self.terminal().as_str()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who or what ended a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EndReason {
    /// The client asked for it.
    Client,
    /// An OPEN transaction passed its deadline.
    Timeout,
    /// A newer `open` of the same client aborted it.
    Fenced,
    /// An operator resolved it.
    Operator,
    /// A PREPARED transaction passed the `preparedTimeoutMs` it was given (PIP-31 `maxMessageUnknownTime`).
    PreparedTimeout,
}

impl EndReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::Client, Self::Timeout, Self::Fenced, Self::Operator, Self::PreparedTimeout];

    /// The reason's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "CLIENT",
            Self::Timeout => "TIMEOUT",
            Self::Fenced => "FENCED",
            Self::Operator => "OPERATOR",
            Self::PreparedTimeout => "PREPARED_TIMEOUT",
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_never_reverts() {
        for (from, to) in TxnState::TRANSITIONS {
            if let Some(decided) = from.outcome() {
                assert_eq!(to.outcome(), Some(decided), "{from} -> {to}");
            }
        }
    }

    #[test]
    fn nothing_leads_out_of_a_terminal_state_or_back_to_open() {
        for from in TxnState::ALL {
            assert!(!from.may_become(TxnState::Open), "{from} -> OPEN");
            assert!(!from.may_become(from), "{from} -> {from}");
        }
        for to in TxnState::ALL {
            assert!(!TxnState::Committed.may_become(to), "COMMITTED -> {to}");
            assert!(!TxnState::Aborted.may_become(to), "ABORTED -> {to}");
        }
    }

    #[test]
    fn names_on_the_wire_and_in_logs_agree() {
        for state in TxnState::ALL {
            assert_eq!(serde_json::to_string(&state).ok(), Some(format!("\"{state}\"")));
        }
        for reason in EndReason::ALL {
            assert_eq!(serde_json::to_string(&reason).ok(), Some(format!("\"{reason}\"")));
        }
        for outcome in Outcome::ALL {
            assert_eq!(serde_json::to_string(&outcome).ok(), Some(format!("\"{outcome}\"")));
        }
    }
}
