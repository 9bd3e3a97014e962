//! The named moments at which the drill kills.

use std::{fmt, str::FromStr};

use ratified::{Point, sinks::file::FileStep};

/// A place in the life of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum KillPoint {
    /// Coordinator and sink have begun it.
    Begun,
    /// The sink has flushed; nothing is decided.
    PreCommitted,
    /// The commit is decided; the sink has not heard of it.
    Decided,
    /// One of its files is visible, the next one is not.
    BetweenRenames,
    /// Everything is visible; the coordinator has not heard of it.
    Applied,
    /// The coordinator knows; the pending store still lists it.
    Acked,
}

impl KillPoint {
    /// All of them, in the order in which a transaction passes them.
    pub(super) const ALL: [Self; 6] =
        [Self::Begun, Self::PreCommitted, Self::Decided, Self::BetweenRenames, Self::Applied, Self::Acked];

    /// The point that the runtime passes, if it is one of these.
    pub(super) fn from_point(point: Point) -> Option<Self> {
        match point {
            Point::Begun => Some(Self::Begun),
            Point::PreCommitted => Some(Self::PreCommitted),
            Point::Decided => Some(Self::Decided),
            Point::Applied => Some(Self::Applied),
            Point::Acked => Some(Self::Acked),
            _ => None,
        }
    }

    /// The point that the file sink passes, if it is one of these.
    pub(super) fn from_step(step: &FileStep<'_>) -> Option<Self> {
        matches!(step, FileStep::Rename { index: 1.., .. }).then_some(Self::BetweenRenames)
    }

    /// The point in words, for the table.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Begun => "after begin",
            Self::PreCommitted => "after pre_commit",
            Self::Decided => "decided, before sink.commit",
            Self::BetweenRenames => "between two renames of one commit",
            Self::Applied => "visible, before the ack",
            Self::Acked => "acked, before the pending entry is dropped",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::PreCommitted => "pre-committed",
            Self::Decided => "decided",
            Self::BetweenRenames => "between-renames",
            Self::Applied => "applied",
            Self::Acked => "acked",
        }
    }
}

impl fmt::Display for KillPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A word that names no point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoSuchPoint;

impl FromStr for KillPoint {
    type Err = NoSuchPoint;
    fn from_str(text: &str) -> Result<Self, NoSuchPoint> {
        Self::ALL.into_iter().find(|point| point.word() == text).ok_or(NoSuchPoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_read_back_from_its_word() {
        for point in KillPoint::ALL {
            assert_eq!(point.to_string().parse(), Ok(point));
        }
        assert_eq!("nowhere".parse::<KillPoint>(), Err(NoSuchPoint));
    }

    #[test]
    fn only_the_second_rename_of_a_commit_lies_between_two() {
        let at = |index| KillPoint::from_step(&FileStep::Rename { file: "f", index });
        assert_eq!([at(0), at(1), at(2)], [None, Some(KillPoint::BetweenRenames), Some(KillPoint::BetweenRenames)]);
    }
}
