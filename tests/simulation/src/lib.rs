//! Tries to make the coordinator give a wrong answer.
//!
//! Two rings around the same core. The seeded simulator ([`run`]) drives the real engine and the real pipeline of
//! group commit on a disk, a clock and a network that fail, with clients that follow the SDK's rules, zombies of them,
//! operators, and strangers that follow none; an [`oracle`] outside checks every change, every batch and every answer.
//!
//! Same seed, same run: a failing seed is kept in `seeds.txt` and run first from then on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test harness: a failure here is a failed test"
)]

pub mod actors;
pub mod disk;
pub mod exhaustive;
pub mod fault;
pub mod kernel;
pub mod mix;
pub mod node;
pub mod oracle;
pub mod paths;
pub mod probes;
pub mod rng;
pub mod run;
pub mod sink;
pub mod switchboard;
pub mod world;
