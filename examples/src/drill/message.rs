//! What parent and child say to each other, one line each.

use std::{fmt, net::SocketAddr, str::FromStr};

use ratified::Committed;

use super::point::KillPoint;
use crate::quakes::Tally;

/// What the parent asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// Stand still when this point is passed for the n-th time from now on.
    Arm(KillPoint, u32),
    /// Go on.
    Go,
}

/// What a child tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// The coordinator listens.
    Listening(SocketAddr),
    /// The job stands still at a point.
    At(KillPoint),
    /// The job has carried out a commit that an earlier life left behind.
    Replayed(Committed),
    /// The job has reached the end.
    Done(Tally),
}

/// A line that neither side says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unheard;

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arm(point, nth) => write!(f, "arm {point} {nth}"),
            Self::Go => f.write_str("go"),
        }
    }
}

impl FromStr for Command {
    type Err = Unheard;
    fn from_str(line: &str) -> Result<Self, Unheard> {
        let words: Vec<_> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["arm", point, nth] => {
                Ok(Self::Arm(point.parse().map_err(|_| Unheard)?, nth.parse().map_err(|_| Unheard)?))
            }
            ["go"] => Ok(Self::Go),
            _ => Err(Unheard),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listening(address) => write!(f, "listening {address}"),
            Self::At(point) => write!(f, "at {point}"),
            Self::Replayed(Committed::Now) => f.write_str("replayed now"),
            Self::Replayed(Committed::Already) => f.write_str("replayed already"),
            Self::Done(t) => write!(f, "done {} {} {} {}", t.lines, t.kept, t.filtered, t.rejected),
        }
    }
}

impl FromStr for Event {
    type Err = Unheard;
    fn from_str(line: &str) -> Result<Self, Unheard> {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |word: &str| word.parse().map_err(|_| Unheard);
        match *words.as_slice() {
            ["listening", address] => Ok(Self::Listening(address.parse().map_err(|_| Unheard)?)),
            ["at", point] => Ok(Self::At(point.parse().map_err(|_| Unheard)?)),
            ["replayed", "now"] => Ok(Self::Replayed(Committed::Now)),
            ["replayed", "already"] => Ok(Self::Replayed(Committed::Already)),
            ["done", lines, kept, filtered, rejected] => Ok(Self::Done(Tally {
                lines: number(lines)?,
                kept: number(kept)?,
                filtered: number(filtered)?,
                rejected: number(rejected)?,
            })),
            _ => Err(Unheard),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_says_the_other_hears() {
        for command in [Command::Arm(KillPoint::BetweenRenames, 3), Command::Go] {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
        let tally = Tally { lines: 10, kept: 5, filtered: 3, rejected: 2 };
        let events = [
            Event::Listening(SocketAddr::from(([127, 0, 0, 1], 7117))),
            Event::At(KillPoint::Begun),
            Event::Replayed(Committed::Now),
            Event::Replayed(Committed::Already),
            Event::Done(tally),
        ];
        for event in events {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
        assert_eq!("at home".parse::<Event>(), Err(Unheard));
        assert_eq!("arm begun".parse::<Command>(), Err(Unheard));
    }
}
