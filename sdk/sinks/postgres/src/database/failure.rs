//! What a database says when something fails, and what that means.

use std::{fmt::Write as _, io, time::Duration};

use tokio_postgres::{Error, error::SqlState};

use ratified::{Certainty, SinkError};

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    doing: String,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Server(Box<Error>),
    Timeout(Duration),
}

impl Failure {
    pub(crate) fn new(doing: &str, error: Error) -> Self {
        Self { doing: doing.to_owned(), why: Why::Server(Box::new(error)) }
    }

    pub(crate) fn timeout(doing: &str, after: Duration) -> Self {
        Self { doing: doing.to_owned(), why: Why::Timeout(after) }
    }

    pub(crate) fn is(&self, state: &SqlState) -> bool {
        matches!(&self.why, Why::Server(error) if error.code() == Some(state))
    }

    /// Whether it may pass, and if so whether it is known to have changed nothing; `None`: it never passes.
    pub(crate) fn certainty(&self) -> Option<Certainty> {
        match &self.why {
            Why::Timeout(_) => Some(Certainty::Indeterminate),
            // Without an SQLSTATE it is the connection that failed, or a bad configuration of it.
            Why::Server(error) => error.code().map_or_else(|| of_driver(error), of_state),
        }
    }

    /// The same for a step that can only fail as a whole: what may pass is known to have changed nothing.
    pub(crate) fn into_determinate(self) -> SinkError {
        match self.certainty() {
            Some(_) => SinkError::determinate(self.to_string()),
            None => SinkError::rejected(self.to_string()),
        }
    }
}

impl From<Failure> for SinkError {
    fn from(failure: Failure) -> Self {
        match failure.certainty() {
            Some(Certainty::Determinate) => Self::determinate(failure.to_string()),
            Some(Certainty::Indeterminate) => Self::indeterminate(failure.to_string()),
            None => Self::rejected(failure.to_string()),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.why {
            Why::Timeout(after) => write!(f, "{}: no answer within {after:?}", self.doing),
            Why::Server(error) => write!(f, "{}: {}", self.doing, text_of(error)),
        }
    }
}

/// A certificate that is refused is refused again; anything else about a connection may pass.
fn of_driver(error: &Error) -> Option<Certainty> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if cause.is::<rustls::Error>() || wrapped.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return None;
        }
        source = cause.source();
    }
    Some(Certainty::Indeterminate)
}

/// PostgreSQL, Appendix A: the class of an SQLSTATE is its first two characters.
fn of_state(state: &SqlState) -> Option<Certainty> {
    if *state == SqlState::DATABASE_DROPPED {
        return None;
    }
    if *state == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN {
        return Some(Certainty::Indeterminate);
    }
    match state.code().get(..2).unwrap_or_default() {
        // Connection, operator intervention, system error, internal error.
        "08" | "57" | "58" | "XX" => Some(Certainty::Indeterminate),
        // Rolled back, resources, not now: told by a server that has undone the statement.
        "40" | "53" | "55" => Some(Certainty::Determinate),
        // A standby, or a primary that has become one.
        "25" if *state == SqlState::READ_ONLY_SQL_TRANSACTION => Some(Certainty::Determinate),
        _ => None,
    }
}

/// All that the server has said: what a reader of a log needs to act.
fn text_of(error: &Error) -> String {
    let Some(said) = error.as_db_error() else { return error.to_string() + &causes(error) };
    let mut text = format!("{}: {} (SQLSTATE {})", said.severity(), said.message(), said.code().code());
    for (what, more) in [("detail", said.detail()), ("hint", said.hint()), ("where", said.where_())] {
        if let Some(more) = more {
            // Writing to a string cannot fail.
            let _ = write!(text, "; {what}: {more}");
        }
    }
    text
}

fn causes(error: &Error) -> String {
    let mut text = String::new();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let _ = write!(text, ": {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_apart_by_whether_they_may_pass_and_have_happened() {
        for (state, expected) in [
            (SqlState::ADMIN_SHUTDOWN, Some(Certainty::Indeterminate)),
            (SqlState::CONNECTION_FAILURE, Some(Certainty::Indeterminate)),
            (SqlState::IO_ERROR, Some(Certainty::Indeterminate)),
            (SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN, Some(Certainty::Indeterminate)),
            (SqlState::DISK_FULL, Some(Certainty::Determinate)),
            (SqlState::T_R_SERIALIZATION_FAILURE, Some(Certainty::Determinate)),
            (SqlState::LOCK_NOT_AVAILABLE, Some(Certainty::Determinate)),
            (SqlState::READ_ONLY_SQL_TRANSACTION, Some(Certainty::Determinate)),
            (SqlState::IN_FAILED_SQL_TRANSACTION, None),
            (SqlState::DATABASE_DROPPED, None),
            (SqlState::INVALID_TEXT_REPRESENTATION, None),
            (SqlState::UNIQUE_VIOLATION, None),
            (SqlState::INSUFFICIENT_PRIVILEGE, None),
            (SqlState::UNDEFINED_TABLE, None),
            (SqlState::INVALID_PASSWORD, None),
        ] {
            assert_eq!(of_state(&state), expected, "{}", state.code());
        }
    }
}
