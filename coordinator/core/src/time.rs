//! Time, which is always an argument.

use ratified_protocol::WallTime;
use serde::{Deserialize, Serialize};

/// The coordinator's own clock, in milliseconds: the greatest uptime on disk plus what has passed since the start.
/// Deadlines, retention and expiry run on it, so that jumps of the wall clock and downtime change nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uptime(u64);

impl Uptime {
    /// An uptime from its milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// The uptime in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The uptime this many milliseconds later.
    #[must_use]
    pub const fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds since `earlier`; 0 when that lies ahead.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// When a step is judged: at the arrival of its request, not at its place in the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// What everything is decided by.
    pub uptime: Uptime,
    /// Only ever shown to people.
    pub wall: WallTime,
}
