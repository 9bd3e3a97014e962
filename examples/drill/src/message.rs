//! What parent and child say to each other, one line each.

use std::{fmt, net::SocketAddr, str::FromStr};

use ratified::Committed;

/// What the parent asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Stand still when the point of this name is passed for the n-th time from now on.
    Arm(String, u32),
    /// Go on.
    Go,
}

/// What a child tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The coordinator listens.
    Listening(SocketAddr),
    /// The job stands still at the point of this name.
    At(String),
    /// The job has carried out a commit that an earlier life left behind.
    Replayed(Committed),
    /// The job has reached the end; these are its own words about it.
    Done(String),
}

/// A line that neither side says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unheard;

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
            ["arm", point, nth] => Ok(Self::Arm(point.to_owned(), nth.parse().map_err(|_| Unheard)?)),
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
            Self::Done(words) => write!(f, "done {words}"),
        }
    }
}

impl FromStr for Event {
    type Err = Unheard;
    fn from_str(line: &str) -> Result<Self, Unheard> {
        if let Some(words) = line.strip_prefix("done ") {
            return Ok(Self::Done(words.to_owned()));
        }
        let words: Vec<_> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["listening", address] => Ok(Self::Listening(address.parse().map_err(|_| Unheard)?)),
            ["at", point] => Ok(Self::At(point.to_owned())),
            ["replayed", "now"] => Ok(Self::Replayed(Committed::Now)),
            ["replayed", "already"] => Ok(Self::Replayed(Committed::Already)),
            _ => Err(Unheard),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_says_the_other_hears() {
        for command in [Command::Arm("between-renames".to_owned(), 3), Command::Go] {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
        let events = [
            Event::Listening(SocketAddr::from(([127, 0, 0, 1], 7117))),
            Event::At("begun".to_owned()),
            Event::Replayed(Committed::Now),
            Event::Replayed(Committed::Already),
            Event::Done("10 5 3 2".to_owned()),
        ];
        for event in events {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
        assert_eq!("at home alone".parse::<Event>(), Err(Unheard));
        assert_eq!("arm begun".parse::<Command>(), Err(Unheard));
    }
}
