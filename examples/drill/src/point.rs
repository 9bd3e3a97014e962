//! The named moments at which a drill kills.

use std::fmt;

use ratified::Point;

/// A place in the life of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KillPoint {
    /// What parent and child call it: one word, unlike all others of the drill.
    pub word: &'static str,
    /// The point in words, for the table.
    pub description: &'static str,
}

impl KillPoint {
    /// Coordinator and sink have begun it.
    pub const BEGUN: Self = Self::new("begun", "after begin");
    /// The sink has flushed; nothing is decided.
    pub const PRE_COMMITTED: Self = Self::new("pre-committed", "after pre_commit");
    /// The coordinator holds it; the checkpoint is not complete.
    pub const PREPARED: Self = Self::new("prepared", "prepared");
    /// The commit is decided; the sink has not heard of it.
    pub const DECIDED: Self = Self::new("decided", "decided, before sink.commit");
    /// Everything is visible; the coordinator has not heard of it.
    pub const APPLIED: Self = Self::new("applied", "visible, before the ack");
    /// The coordinator knows; the pending store still lists it.
    pub const ACKED: Self = Self::new("acked", "acked, before the pending entry is dropped");

    /// A point of a drill's own.
    pub const fn new(word: &'static str, description: &'static str) -> Self {
        Self { word, description }
    }

    /// The point that the runtime passes, if it is one of these.
    pub fn from_point(point: Point) -> Option<Self> {
        match point {
            Point::Begun => Some(Self::BEGUN),
            Point::PreCommitted => Some(Self::PRE_COMMITTED),
            Point::Prepared => Some(Self::PREPARED),
            Point::Decided => Some(Self::DECIDED),
            Point::Applied => Some(Self::APPLIED),
            Point::Acked => Some(Self::ACKED),
            _ => None,
        }
    }
}

impl fmt::Display for KillPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word)
    }
}
