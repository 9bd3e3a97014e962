//! Tries to make the coordinator give a wrong answer.
//!
//! Two kinds of tests of the same core. The seeded simulation ([`run`]) drives the real engine and the real pipeline of
//! group commit on a disk, a clock and a network that fail, with clients that follow the SDK's rules, zombies of them,
//! operators, and strangers that follow none; an [`oracle`] outside checks every change, every batch and every answer.
//!
//! [`model_checking`] takes the same core through every order of everything, for one and two transactions.
//! The [`switchboard`] proves that neither is blind: it seeds defects, and each must be found. Those of the core are no
//! part of it: they are listed in `defects.toml` and seeded in a [`copy`] of the workspace.
//!
//! ```text
//! cargo test -p ratified-simulation               kept seeds, 20,000 fresh ones, model checking, defects of the models
//! RATIFIED_SIM_SEEDS=200000 cargo test -p ratified-simulation --test seeded_simulation
//! cargo run -p ratified-simulation --bin simulate -- --trace 42                  one seed with its trace
//! cargo run -p ratified-simulation --bin seeded -- test --test engine_defects    every defect of the core is found
//! cargo run -p ratified-simulation --bin seeded -- run --bin switchboard         every defect as a table
//! cargo run -p ratified-simulation --bin seeded -- run --bin simulate -- --fault SharedN
//! ```
//!
//! Same seed, same run: a failing seed is kept in `seeds.txt` and run first from then on. The packages that a run
//! spends its time in are optimised in the development profile, rather than run as a release, so that assertions and
//! overflow checks stay on and the rest of the workspace is built once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test harness: a failure here is a failed test"
)]

pub mod actors;
pub mod copy;
pub mod defects;
pub mod disk;
pub mod engine_defect;
pub mod fault;
pub mod kernel;
pub mod mix;
pub mod model_checking;
pub mod node;
pub mod oracle;
pub mod paths;
pub mod probes;
pub mod rng;
pub mod run;
pub mod sink;
pub mod switchboard;
pub mod world;
