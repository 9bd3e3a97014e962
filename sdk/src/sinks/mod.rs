//! Sinks that come with the SDK.

pub mod composite;
pub mod file;
