//! Exactly-once two-phase-commit sinks for stream-processing jobs.

mod error;
mod sink;
pub mod sinks;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use ratified_protocol as protocol;
pub use ratified_protocol::{
    CheckpointId, ClientName, Code, EndReason, Epoch, Outcome, ParticipantName, Problem, StoreId, TxnId, TxnState,
};

pub use error::{Cause, Certainty, SinkError};
pub use sink::{Committed, SinkCommitter, SinkWriter, Slot, TwoPhaseSink, TxnContext};
