//! The rules of the protocol, shown on the engine alone: time is an argument, the disk is a map.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod batch;
mod before_decision;
mod catalogue;
mod clients;
mod counters;
mod decisions_made;
mod durability;
mod effects;
mod listing;
mod order;
mod outcome_table;
mod paged;
mod participants;
mod preserver;
mod property;
mod recovery;
mod rewriting;
mod support;
mod sweeps;
