//! What can go wrong, one small enum per surface. Every variant says what the caller must do.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use thiserror::Error;

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
