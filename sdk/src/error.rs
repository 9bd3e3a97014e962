//! What can go wrong, one small enum per surface. Every variant says what the caller must do.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use ratified_protocol::{Code, Problem};
use thiserror::Error;

use crate::client::MetStore;

/// The cause behind an error, shared so that a sticky error can be told again and again.
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// Wraps an error or a text.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::from(error.into()))
    }

    /// The error itself.
    pub fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

/// Whether something that failed is known not to have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// It did not happen.
    Determinate,
    /// It may have happened; only asking again tells.
    Indeterminate,
}

/// Why a sink could not do what it was asked to do.
///
/// `?` turns an [`std::io::Error`] into an indeterminate [`SinkError::Retry`]: what a sink cannot classify may have
/// happened, and passes.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum SinkError {
    /// It may work later. The runtime repeats `commit` and `abort` until they work; other calls only within a deadline,
    /// and only if the failure is [`Certainty::Determinate`].
    #[error("the sink failed for now ({certainty:?}): {cause}")]
    Retry {
        /// How long to wait at least, if the sink said so.
        after: Option<Duration>,
        /// Whether it is known not to have happened.
        certainty: Certainty,
        /// What the sink said.
        cause: Cause,
    },
    /// It will never work. The runtime stops; the caller must mend what the cause names and open again.
    #[error("the sink refused: {0}")]
    Rejected(Cause),
}

impl SinkError {
    /// A failure that may pass and of which it is not known whether it happened: the right choice when in doubt.
    pub fn indeterminate(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Retry { after: None, certainty: Certainty::Indeterminate, cause: Cause::new(error) }
    }

    /// A failure that may pass and that is known to have changed nothing.
    pub fn determinate(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Retry { after: None, certainty: Certainty::Determinate, cause: Cause::new(error) }
    }

    /// A refusal that no repetition can change.
    pub fn rejected(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Rejected(Cause::new(reason))
    }
}

impl From<std::io::Error> for SinkError {
    fn from(error: std::io::Error) -> Self {
        Self::indeterminate(error)
    }
}

/// Why a call to the coordinator brought no success. Everything that may pass has been asked again before this is told.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A definite answer that is not a success. The caller must decide by [`Problem::code`].
    #[error("the coordinator refused: {0}")]
    Refused(Box<Problem>),
    /// No answer before the deadline: whether it happened is not known. The caller must ask again with the same id.
    #[error("no answer to {call} after {attempts} attempts: {cause}")]
    Unanswered {
        /// The name of the call.
        call: &'static str,
        /// How often it was sent.
        attempts: u64,
        /// What went wrong last.
        cause: Cause,
    },
    /// Something in front of the coordinator refuses: a proxy, a gateway, another service at this address. Whether an
    /// earlier attempt was carried out is not known, and what was pending stays so. The caller must mend the URL, or what
    /// stands in front, and ask again with the same id.
    #[error(
        "{call} was answered by something that is not the coordinator: status {status}, {begins:?}. Nothing follows from \
         that: mend the URL or what stands in front of the coordinator, then start again"
    )]
    NotTheCoordinator {
        /// The name of the call.
        call: &'static str,
        /// The HTTP status.
        status: u16,
        /// The first bytes of its body, as ASCII.
        begins: String,
    },
    /// The store behind the coordinator is another one, or an older copy of itself: a restored backup or a stranger.
    /// Nothing was done. The caller must stop; an operator decides.
    #[error(
        "the coordinator's store was {known} and now is {met}: an older copy was put back, or it is another store. \
         Nothing was done. Put the newest copy of the known store back, or let this job talk to the coordinator that has \
         it; if it is lost, compare the sink with the coordinator first, and only then remove the pending store"
    )]
    StoreChanged {
        /// What was known when the request was sent.
        known: MetStore,
        /// What answered.
        met: MetStore,
    },
    /// The client cannot be made: a bad URL, no TLS. The caller must mend the configuration.
    #[error("the coordinator client cannot be set up: {0}")]
    Setup(Cause),
}

impl ClientError {
    /// The coordinator's code, if this is a definite answer with one that this version knows.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(problem) => problem.code.known(),
            _ => None,
        }
    }
}
