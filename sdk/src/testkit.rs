//! Behaviour checks for authors of sinks.
