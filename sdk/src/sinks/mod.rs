//! Sinks that come with the SDK.
