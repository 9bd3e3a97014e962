//! Refusals: `application/problem+json` (RFC 9457). Callers decide by `code`, never by prose.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{answer::Txn, ids::Epoch, told::Told};

/// The media type of a [`Problem`].
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $status:literal, $retryable:literal, $last_word:literal, $title:literal;)*) => {
        /// What went wrong, for programs: the codes that this version knows. An answer may carry one of a later version, see
        /// [`Told`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The code's name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The HTTP status that carries it.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),* }
            }

            /// Whether the same request may succeed later.
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$variant => $retryable),* }
            }

            /// Whether this is the last word about the transaction: asking again can never change it.
            pub const fn is_final(self) -> bool {
                match self { $(Self::$variant => $last_word),* }
            }

            /// One line for people.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }
        }
    };
}

codes! {
    /// Malformed body, unknown field, bad name or id; the detail names the field.
    InvalidArgument = "INVALID_ARGUMENT", 400, false, false, "The request is malformed";
    /// The caller did not say who it is, or not so that it can be believed.
    Unauthenticated = "UNAUTHENTICATED", 401, false, false, "The caller is not known";
    /// The caller has no right to this.
    Forbidden = "FORBIDDEN", 403, false, false, "The caller has no right to this";
    /// A page of another origin asks, or the host is not one of this server's names.
    CrossOrigin = "CROSS_ORIGIN", 403, false, false, "The request comes from another origin";
    /// The id never began here.
    TxnNotFound = "TXN_NOT_FOUND", 404, false, false, "The transaction never began here";
    /// The client never opened here, or was forgotten.
    ClientNotFound = "CLIENT_NOT_FOUND", 404, false, false, "The client never opened here";
    /// No such path.
    RouteNotFound = "ROUTE_NOT_FOUND", 404, false, false, "There is no such path";
    /// The path exists, but not with this method.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", 405, false, false, "The path does not take this method";
    /// The body is not JSON by its content type.
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", 415, false, false, "The body must be application/json";
    /// A commit was asked for, and the true outcome is abort.
    OutcomeAborted = "OUTCOME_ABORTED", 409, false, true, "The transaction was aborted";
    /// An abort was asked for, and the true outcome is commit.
    OutcomeCommitted = "OUTCOME_COMMITTED", 409, false, true, "The transaction was committed";
    /// The transaction must be prepared first.
    TxnNotPrepared = "TXN_NOT_PREPARED", 409, false, false, "The transaction is not prepared";
    /// The transaction's state does not allow the call.
    InvalidTxnState = "INVALID_TXN_STATE", 409, false, false, "The transaction's state does not allow this";
    /// The client has unfinished transactions.
    ClientBusy = "CLIENT_BUSY", 409, false, false, "The client has unfinished transactions";
    /// The participant was declared gone.
    ParticipantRetired = "PARTICIPANT_RETIRED", 409, false, false, "The participant is retired";
    /// A newer owner has opened the client; stop.
    Fenced = "FENCED", 409, false, false, "A newer owner has opened the client";
    /// The epoch is greater than any given out: the coordinator has forgotten; stop.
    EpochUnknown = "EPOCH_UNKNOWN", 409, false, false, "The epoch was never given out by this store";
    /// The store is not the one that the caller has met: another one, or an older copy that was put back; stop.
    StoreChanged = "STORE_CHANGED", 409, false, false, "The store is not the one that was known";
    /// The client was restored from a backup; an operator accepts that or not.
    StoreRestored = "STORE_RESTORED", 409, false, false, "The client was restored from a backup";
    /// The outcome is no longer kept, and never guessed; an operator decides.
    OutcomeExpired = "OUTCOME_EXPIRED", 410, false, true, "The outcome is no longer known";
    /// The id is not above the client's `evictedThrough`; the caller must draw a newer one.
    TxnIdTooOld = "TXN_ID_TOO_OLD", 410, false, true, "The transaction id is too old to begin";
    /// Body, payload or batch over its limit.
    TooLarge = "TOO_LARGE", 413, false, false, "The request is too large";
    /// The same id with other parameters.
    TxnIdReused = "TXN_ID_REUSED", 422, false, false, "The transaction id was used with other parameters";
    /// The client has too many OPEN transactions.
    TooManyOpen = "TOO_MANY_OPEN", 429, true, false, "The client has too many open transactions";
    /// The coordinator holds too many clients.
    TooManyClients = "TOO_MANY_CLIENTS", 429, true, false, "The coordinator holds too many clients";
    /// A queue is full.
    Overloaded = "OVERLOADED", 429, true, false, "The coordinator's queue is full";
    /// The store is still being read back; no outcome is told.
    CoordinatorLoading = "COORDINATOR_LOADING", 503, true, false, "The coordinator is loading";
    /// The store failed; a decision may already be on disk.
    StorageUnavailable = "STORAGE_UNAVAILABLE", 503, true, false, "The store failed";
    /// The decision is durable, the outcome not yet preserved, because the store failed after it.
    TransactionPreserverClosed = "TRANSACTION_PRESERVER_CLOSED", 503, true, false, "The preserver is closed";
    /// The coordinator is stopping.
    ShuttingDown = "SHUTTING_DOWN", 503, true, false, "The coordinator is shutting down";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal, or the news that the true outcome is the other one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Problem {
    /// `about:blank`: the code says it all.
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    /// One line for people.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What exactly, and what the caller must do; for people.
    #[serde(default)]
    pub detail: String,
    /// What programs decide by.
    pub code: Told<Code>,
    /// Whether the same request may succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// Whether asking again can never change the answer.
    #[serde(rename = "final", default)]
    pub is_final: bool,
    /// The transaction, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txn: Option<Box<Txn>>,
    /// With [`Code::Fenced`], and with [`Code::OutcomeAborted`] when a newer owner fenced the transaction: the client's
    /// current epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_epoch: Option<Epoch>,
    /// As `current_epoch`: who holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

fn about_blank() -> String {
    "about:blank".to_owned()
}

impl Problem {
    /// A problem with this code; `detail` names the field or thing and what the caller must do.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: about_blank(),
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.into(),
            code: code.into(),
            retryable: code.is_retryable(),
            is_final: code.is_final(),
            txn: None,
            current_epoch: None,
            owner: None,
        }
    }

    /// Whether the same request may succeed later. A code of a later version is judged by the class of its status.
    pub fn may_pass(&self) -> bool {
        self.code.known().map_or(self.status == 429 || self.status >= 500, Code::is_retryable)
    }

    /// The same problem about this transaction.
    #[must_use]
    pub fn with_txn(mut self, txn: Txn) -> Self {
        self.txn = Some(Box::new(txn));
        self
    }

    /// The same problem with the client's current epoch and owner.
    #[must_use]
    pub fn with_owner(mut self, current_epoch: Epoch, owner: Option<String>) -> Self {
        self.current_epoch = Some(current_epoch);
        self.owner = owner;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_flags_follow_the_table_of_the_protocol() {
        let rows: Vec<(&str, u16, bool, bool)> =
            Code::ALL.iter().map(|c| (c.as_str(), c.status(), c.is_retryable(), c.is_final())).collect();
        assert_eq!(
            rows,
            [
                ("INVALID_ARGUMENT", 400, false, false),
                ("UNAUTHENTICATED", 401, false, false),
                ("FORBIDDEN", 403, false, false),
                ("CROSS_ORIGIN", 403, false, false),
                ("TXN_NOT_FOUND", 404, false, false),
                ("CLIENT_NOT_FOUND", 404, false, false),
                ("ROUTE_NOT_FOUND", 404, false, false),
                ("METHOD_NOT_ALLOWED", 405, false, false),
                ("UNSUPPORTED_MEDIA_TYPE", 415, false, false),
                ("OUTCOME_ABORTED", 409, false, true),
                ("OUTCOME_COMMITTED", 409, false, true),
                ("TXN_NOT_PREPARED", 409, false, false),
                ("INVALID_TXN_STATE", 409, false, false),
                ("CLIENT_BUSY", 409, false, false),
                ("PARTICIPANT_RETIRED", 409, false, false),
                ("FENCED", 409, false, false),
                ("EPOCH_UNKNOWN", 409, false, false),
                ("STORE_CHANGED", 409, false, false),
                ("STORE_RESTORED", 409, false, false),
                ("OUTCOME_EXPIRED", 410, false, true),
                ("TXN_ID_TOO_OLD", 410, false, true),
                ("TOO_LARGE", 413, false, false),
                ("TXN_ID_REUSED", 422, false, false),
                ("TOO_MANY_OPEN", 429, true, false),
                ("TOO_MANY_CLIENTS", 429, true, false),
                ("OVERLOADED", 429, true, false),
                ("COORDINATOR_LOADING", 503, true, false),
                ("STORAGE_UNAVAILABLE", 503, true, false),
                ("TRANSACTION_PRESERVER_CLOSED", 503, true, false),
                ("SHUTTING_DOWN", 503, true, false),
            ]
        );
    }

    #[test]
    fn a_problem_is_written_with_its_flags() {
        let problem = Problem::new(Code::OutcomeAborted, "aborted by its deadline");
        assert_eq!(
            serde_json::to_value(&problem).ok(),
            Some(serde_json::json!({
                "type": "about:blank", "title": "The transaction was aborted", "status": 409,
                "detail": "aborted by its deadline", "code": "OUTCOME_ABORTED", "retryable": false, "final": true
            }))
        );
    }
}
