//! What strangers meet at the edge of a coordinator: foreign pages, floods, slow senders, and text that ends up in its log.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

mod browsers;
mod log;
mod process;
mod raw;
mod ready;

#[path = "../support/mod.rs"]
mod support;
