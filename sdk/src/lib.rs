//! Exactly-once two-phase-commit sinks for stream-processing jobs.
//!
//! A sink that promises exactly once needs somebody who remembers, for longer than any process lives, whether a
//! transaction was committed: the answer to a commit may be lost, and asking again must not do it again. That is the
//! coordinator (PIP-255: idempotent commit and abort). This crate is what a job imports: the traits a sink implements,
//! the runtime that drives it through its transactions, and a typed client of the coordinator.
//!
//! # A whole pipeline
//!
//! A source that can be read again, a transformation, and a sink of files, checkpointed by the job itself. Running it
//! again goes on behind the last commit; here there is nothing left to do.
//!
//! ```
//! use ratified::{
//!     Cause, CoordinatorClient, JobSinkBuilder,
//!     job::{Job, MemorySource},
//!     sinks::file::{FileSink, TargetName, read_target},
//! };
//! use ratified_coordinator::{Config, Coordinator};
//!
//! # type Error = Box<dyn std::error::Error>;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! # let dir = tempfile::tempdir()?;
//! # let (data, out) = (dir.path().join("data"), dir.path().join("out"));
//! // In production the coordinator is a program of its own, `ratifyd`.
//! let coordinator = Coordinator::start(Config::local(data)).await?;
//!
//! let (orders, rejects): (TargetName, TargetName) = ("orders".parse()?, "rejects".parse()?);
//! let both = (orders.clone(), rejects.clone());
//! // One transaction writes both files: what is rejected is kept exactly once, too.
//! let route = move |line: &String| if line.starts_with("bad") { both.1.clone() } else { both.0.clone() };
//! let sink = FileSink::json_lines(&out, orders.clone()).route(route).build()?;
//!
//! for round in 0..2 {
//!     let source = MemorySource::new(["order 1", "bad 2", "order 3"]);
//!     let transform = |line: &'static str, emit: &mut Vec<String>| {
//!         emit.push(line.to_uppercase().replace("BAD", "bad"));
//!         Ok::<_, Cause>(())
//!     };
//!     let client = CoordinatorClient::new(&coordinator.base_url())?;
//!     let sink = JobSinkBuilder::new(sink.clone(), client).first_start(round == 0);
//!     let report = Job::new("orders-job.part-0".parse()?, source, transform, sink).run().await?;
//!     assert_eq!((report.records_in, report.commits), if round == 0 { (3, 1) } else { (0, 0) });
//! }
//!
//! assert_eq!(read_target(&out, &orders)?, b"\"ORDER 1\"\n\"ORDER 3\"\n");
//! assert_eq!(read_target(&out, &rejects)?, b"\"bad 2\"\n");
//! coordinator.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Two ways to drive a sink
//!
//! * [`job::Job`], and below it [`JobSink`]: the job checkpoints itself. One durable write of the coordinator decides
//!   a transaction and keeps the source's position with it; nothing else has to be stored.
//! * [`EngineSink`]: an engine draws barriers, stores a [`Snapshot`] in each checkpoint, and tells which checkpoints
//!   completed, as Flink does. Notifications may be late, repeated, skipped or reordered.
//!
//! A resource in another process joins a transaction of either as a [`participant`].
//!
//! Each is set up by a builder of its own ([`JobSinkBuilder`], [`EngineSinkBuilder`]) and finishes at `open` whatever an earlier run left behind, on this host or another.
//!
//! # What a job must keep to
//!
//! * Its names are its own for ever: the same across restarts, never containing a job id or a host ([`SinkName`]).
//! * [`first_start`](SinkBuilder::first_start) is for the first start. Later, a client that the coordinator does not know means that its
//!   store was lost, and going on would write twice.
//! * An error of the runtime is sticky: open again, and read again from the restored position.
//! * Calls of a runtime are not cancellation-safe; a dropped one stops it.
//!
//! # Writing a sink
//!
//! Implement [`TwoPhaseSink`], [`SinkWriter`] and [`SinkCommitter`] with the help of [`author`], and let the `testkit`
//! feature check them. The one rule
//! that matters most: [`Committed::Already`] needs a proof read from the sink, never the absence of staged data.

pub mod author;
mod client;
mod error;
mod ids;
pub mod job;
pub mod participant;
pub mod pending;
mod retry;
pub mod runtime;
mod sink;
pub mod sinks;
#[cfg(feature = "testkit")]
pub mod testkit;
mod tls;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod transport;
#[cfg(not(feature = "simulation"))]
#[allow(unreachable_pub, reason = "public only under the `simulation` feature")]
mod transport;

pub use ratified_protocol as protocol;
pub use ratified_protocol::{
    CheckpointId, ClientName, Code, EndReason, Epoch, Generation, Outcome, ParticipantName, Problem, StoreId, Told,
    TxnId, TxnState,
};

pub use client::{ClientOptions, ClientQuery, CoordinatorClient, MetStore, TxnQuery};
pub use error::{Cause, Certainty, ClientError, SinkError};
pub use retry::RetryDelays;
pub use runtime::{
    Barrier, BarrierKind, EngineDriven, EngineSink, EngineSinkBuilder, JobSink, JobSinkBuilder, Lost, LostPolicy, Mode,
    OpenReport, Point, RuntimeError, SelfCheckpointing, SinkBuilder, SinkName, Snapshot, SnapshotElement,
    UnnamedPolicy, Worker,
};
pub use sink::{Committed, MAX_VISIBLE, Place, SinkCommitter, SinkWriter, Slot, TwoPhaseSink, TxnContext};
