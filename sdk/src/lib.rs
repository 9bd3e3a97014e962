//! Exactly-once two-phase-commit sinks for stream-processing jobs.

mod client;
mod error;
mod ids;
pub mod job;
pub mod pending;
mod retry;
pub mod runtime;
mod sink;
pub mod sinks;
#[cfg(feature = "testkit")]
pub mod testkit;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod transport;
#[cfg(not(feature = "simulation"))]
#[allow(unreachable_pub, reason = "public only under the `simulation` feature")]
mod transport;

pub use ratified_protocol as protocol;
pub use ratified_protocol::{
    CheckpointId, ClientName, Code, EndReason, Epoch, Outcome, ParticipantName, Problem, StoreId, TxnId, TxnState,
};

pub use client::{ClientOptions, ClientQuery, CoordinatorClient, TxnQuery};
pub use error::{Cause, Certainty, ClientError, SinkError};
pub use retry::RetryDelays;
pub use runtime::{
    Barrier, BarrierKind, Lost, LostPolicy, Mode, OpenReport, Point, RuntimeError, SinkBuilder, SinkName, SinkRuntime,
    Snapshot, SnapshotElement, SplitRuntime, Worker,
};
pub use sink::{Committed, SinkCommitter, SinkWriter, Slot, TwoPhaseSink, TxnContext};
