//! The examples, run as a user runs them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of it is test code, also what the tests share"
)]

mod common;
mod earthquakes;
mod orders;
mod stories;
