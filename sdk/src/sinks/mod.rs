//! Sinks that come with the SDK. Those of systems with drivers are crates of their own: `ratified-postgres`,
//! `ratified-object-store`.

pub mod composite;
pub mod file;
