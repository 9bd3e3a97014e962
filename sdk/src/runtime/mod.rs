//! The runtime: drives a sink through its transactions, and finishes what earlier owners left behind.

mod builder;
mod bytes;
mod committer;
mod engine;
mod env;
mod error;
mod finish;
mod interval;
mod keep_alive;
mod leftovers;
pub mod metrics;
mod open;
mod payload;
mod policy;
mod snapshot;
mod split;

pub(crate) use committer::OwnedTask;
pub(crate) use env::until_sink_settles;

pub use builder::SinkBuilder;
pub use engine::SinkRuntime;
pub use error::RuntimeError;
pub use open::OpenReport;
pub use policy::{Barrier, BarrierKind, Lost, LostPolicy, Mode, Point, SinkName, Worker};
pub use snapshot::{Snapshot, SnapshotElement};
pub use split::SplitRuntime;
