//! What strangers meet at the edge of a coordinator: foreign pages, floods, slow senders, and text that ends up in its log.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

mod browsers;
mod descriptors;
mod floods;
mod log;
mod process;
mod raw;
mod ready;
mod refusals;
mod stopping;

#[path = "../support/mod.rs"]
mod support;
