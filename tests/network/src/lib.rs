//! The whole in a network that fails: the coordinator's real router and writer, the SDK's real runtime and client, and
//! between them simulated sockets, disks and clocks.
//!
//! One run is one seed: hosts crash and come back, links fall silent in one direction or both, hold messages back and
//! deliver them late, disks refuse to write, jobs are started twice. Then everything heals and has to converge. Checked
//! all the time: every record of a source is visible once, no participant hears both outcomes, all answers about one
//! transaction agree. Same seed, same trace.
//!
//! `cargo run -p ratified-network -- --seeds 300`; one seed again with its trace: `--trace 17`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test harness: a failure here is a failed test"
)]

pub mod answers;
pub mod chaos;
pub mod coordinator;
pub mod disk;
pub mod engine_job;
pub mod entropy;
pub mod ledger;
pub mod mistake;
pub mod net;
pub mod participant;
pub mod pending;
pub mod run;
pub mod sink;
pub mod split_job;
pub mod world;
