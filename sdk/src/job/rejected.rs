//! A record that the sink rejects: found by committing each record of its interval alone, and given to the job's recourse.

use super::JobError;
use crate::{
    error::{Cause, SinkError},
    runtime::RuntimeError,
};

/// What a job does with a record that the sink rejects: as a transformation, told why.
pub(super) type Recourse<I, O> = Box<dyn FnMut(I, &Rejection, &mut Vec<O>) -> Result<(), Cause> + Send>;

/// Why a record was rejected, and where it is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rejection {
    /// The source's position behind the record, as its `Debug` tells it.
    pub behind: String,
    /// What the sink said.
    pub error: RuntimeError,
}

/// Whether an error may be about a record: the sink refuses to write or to flush, for good.
pub(super) fn is_of_a_record(error: &RuntimeError) -> bool {
    let RuntimeError::Sink { call, error: SinkError::Rejected(_) } = error else { return false };
    matches!(*call, "sink.write" | "sink.pre_commit")
}

/// How carefully records are written.
#[derive(Debug, Default)]
pub(super) enum Care {
    /// Many to a transaction.
    #[default]
    Gathering,
    /// One of so many is rejected: each is committed alone.
    Searching { left: u64 },
    /// The next one is it.
    Found { left: u64, rejection: Rejection },
}

impl Care {
    /// After a rejection, with so many records written and not committed.
    pub(super) fn after(self, rejection: Rejection, uncommitted: u64, has_recourse: bool) -> Result<Self, JobError> {
        match self {
            Self::Gathering => Ok(Self::Searching { left: uncommitted }),
            Self::Searching { left } if has_recourse => Ok(Self::Found { left, rejection }),
            // Nobody knows better, or what stands for the record is rejected as well.
            Self::Searching { .. } | Self::Found { .. } => Err(JobError::Rejected(rejection)),
        }
    }

    /// So many records were committed.
    pub(super) fn passed(&mut self, records: u64) {
        let (Self::Searching { left } | Self::Found { left, .. }) = self else { return };
        let left = left.saturating_sub(records);
        *self = if left == 0 { Self::Gathering } else { Self::Searching { left } };
    }
}
