//! Sinks that come with the SDK.

pub mod file;
