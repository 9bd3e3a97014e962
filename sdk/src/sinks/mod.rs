//! Sinks that come with the SDK.

pub mod composite;
pub mod file;
#[cfg(feature = "object_store")]
pub mod object_store;
#[cfg(feature = "postgres")]
pub mod postgres;
