//! What the example jobs are made of; the jobs themselves are the binaries.

pub mod cli;
pub mod coordinator;
pub mod drill;
pub mod mini_flink;
pub mod orders;
pub mod pipeline;
pub mod progress;
pub mod quakes;
pub mod timely_sink;

/// Keeps the code in the README compiling and running.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
