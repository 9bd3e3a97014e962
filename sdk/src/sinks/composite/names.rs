//! Names of members, and what is refused when a composite is put together.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::sink::Place;

/// Most members of one composite.
pub const MAX_MEMBERS: usize = 16;
/// Longest name of a member, in characters.
pub const MAX_NAME_CHARS: usize = 32;

/// Why a composite cannot be built as asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompositeError {
    /// The caller must rename the member.
    #[error("a member's name must be 1..=32 characters of A-Z a-z 0-9 _ -, not {name:?}")]
    Name {
        /// The name as it was given, up to its first 64 characters.
        name: String,
    },
    /// The caller must give each member a name of its own.
    #[error("two members are named {name}")]
    Twice {
        /// The name.
        name: MemberName,
    },
    /// The caller must give each member a place of its own: they would take each other's data for their own.
    #[error("{first} and {second} are both in {place}: give each member a place of its own")]
    SamePlace {
        /// A member.
        first: MemberName,
        /// Another one.
        second: MemberName,
        /// Where they meet.
        place: Place,
    },
    /// The caller must add members, or fewer of them.
    #[error("a composite has 1..={MAX_MEMBERS} members, not {count}")]
    Count {
        /// How many there are.
        count: usize,
    },
}

/// What a member is called: 1..=32 characters of `A-Z a-z 0-9 _ -`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemberName(Arc<str>);

impl MemberName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MemberName {
    type Err = CompositeError;
    fn from_str(text: &str) -> Result<Self, CompositeError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
        if (1..=MAX_NAME_CHARS).contains(&text.len()) && text.bytes().all(legal) {
            return Ok(Self(Arc::from(text)));
        }
        Err(CompositeError::Name { name: text.chars().take(64).collect() })
    }
}

impl TryFrom<String> for MemberName {
    type Error = CompositeError;
    fn try_from(text: String) -> Result<Self, CompositeError> {
        text.parse()
    }
}

impl From<MemberName> for String {
    fn from(name: MemberName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_up_to_its_bounds() {
        let longest = "n".repeat(MAX_NAME_CHARS);
        for (name, taken) in [("", false), ("a", true), (&longest, true), ("A-z_9", true), ("a.b", false), ("ä", false)]
        {
            assert_eq!(name.parse::<MemberName>().is_ok(), taken, "{name:?}");
        }
        assert!("n".repeat(MAX_NAME_CHARS + 1).parse::<MemberName>().is_err());
    }
}
