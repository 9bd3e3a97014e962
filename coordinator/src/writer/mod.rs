//! The single writer: it owns the engine and the order of everything.
//!
//! Requests are gathered, stepped at their arrival, written as one atomic batch and synced by a thread of its own; what
//! a step has to say leaves once the sync is through. The rules are in [`Pipeline`] and [`Sweeps`], which know neither
//! threads nor clocks, so that a simulation drives the same code.

mod inbox;
mod load;
mod pipeline;
mod rewriting;
mod sweeps;
mod thread;

pub use inbox::{Arrival, Inbox, Refused, Turn};
pub use load::{Drawn, LoadError, Loaded, load};
pub use pipeline::{Pipeline, Release, Room};
pub use sweeps::Sweeps;
pub(crate) use thread::{Ended, Writer};
