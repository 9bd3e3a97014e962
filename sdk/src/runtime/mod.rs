//! The runtime: drives a sink through its transactions, and finishes what earlier owners left behind.

mod builder;
mod bytes;
mod committer;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod decide;
#[cfg(not(feature = "simulation"))]
#[allow(unreachable_pub, unused_imports, reason = "public only under the `simulation` feature")]
mod decide;
mod engine;
mod env;
mod error;
mod finish;
mod interval;
mod job_sink;
mod keep_alive;
mod leftovers;
pub mod metrics;
mod open;
mod payload;
mod policy;
mod snapshot;
mod unnamed;

pub(crate) use committer::OwnedTask;
pub(crate) use env::until_sink_settles;

pub use builder::{EngineDriven, EngineSinkBuilder, JobSinkBuilder, SelfCheckpointing, SinkBuilder};
pub use engine::EngineSink;
pub use error::RuntimeError;
pub use job_sink::JobSink;
pub use open::OpenReport;
pub use policy::{Barrier, BarrierKind, Lost, LostPolicy, Mode, Point, SinkName, UnnamedPolicy, Worker};
pub use snapshot::{Snapshot, SnapshotElement};
