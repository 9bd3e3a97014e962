//! What a fuzzer calls: each decoder of the project, with what must hold whatever bytes it is given. Nothing panics, what
//! is taken means the same when it is written again, and unknown versions are refused.
//!
//! `fuzz/` drives the same functions with libFuzzer; the tests of this package drive them with mutations of valid inputs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test harness: a failure here is a finding"
)]

mod bodies;
mod files;
mod log;
mod mutate;
mod pending;
mod position;
mod snapshot;
mod store;

pub use bodies::{bodies, body_seeds};
pub use files::{file_seeds, files};
pub use log::{log, log_seeds};
pub use mutate::Mutator;
pub use pending::{pending_file, pending_seeds};
pub use position::{position, position_seeds};
pub use snapshot::{snapshot, snapshot_seeds};
pub use store::{store_entry, store_seeds};

/// A decoder to be tried: its name, what must hold, and valid inputs to begin with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// Every target.
pub const TARGETS: [Target; 7] = [
    ("store_entry", store_entry, store_seeds),
    ("log", log, log_seeds),
    ("bodies", bodies, body_seeds),
    ("pending_file", pending_file, pending_seeds),
    ("snapshot", snapshot, snapshot_seeds),
    ("files", files, file_seeds),
    ("position", position, position_seeds),
];
