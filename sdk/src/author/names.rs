//! Names of targets and of what is written to them.

use std::{fmt, str::FromStr, sync::Arc};

use ratified_protocol::ClientName;
use thiserror::Error;

/// Longest name of a target, in characters. With slot, id, client and extension a file name stays below the 255 bytes
/// that file systems allow.
pub const MAX_TARGET_CHARS: usize = 128;
/// Longest extension, in characters.
pub const MAX_EXTENSION_CHARS: usize = 16;

/// A name that cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// The caller must rename the target.
    #[error("a target must be 1..=128 characters of A-Z a-z 0-9 . _ : @ ~ - and start with a letter or digit")]
    Target,
    /// The caller must choose another extension.
    #[error("an extension must be 1..=16 letters and digits")]
    Extension,
}

/// What the files or objects of one output are named after. 1..=128 characters of `A-Z a-z 0-9 . _ : @ ~ -`, the
/// first a letter or digit. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetName(Arc<str>);

impl TargetName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TargetName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || b"._:@~-".contains(&b);
        let starts_well = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        let taken = starts_well && text.len() <= MAX_TARGET_CHARS && text.bytes().all(legal);
        if taken { Ok(Self(Arc::from(text))) } else { Err(NameError::Target) }
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The part of a file name after its last dot: 1..=16 letters and digits. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extension(Arc<str>);

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Extension {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let taken = (1..=MAX_EXTENSION_CHARS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if taken { Ok(Self(Arc::from(text))) } else { Err(NameError::Extension) }
    }
}

/// Stands for a client in a name, which its own name may be too long for: the CRC-32 of it.
pub fn client_checksum(client: &ClientName) -> u32 {
    crc32fast::hash(client.as_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_taken_up_to_their_bound() {
        let longest = "a".repeat(128);
        for good in ["a", "0", "A._:@~-z", "a-00001", longest.as_str()] {
            assert_eq!(good.parse::<TargetName>().map(|t| t.to_string()), Ok(good.to_owned()));
        }
        let too_long = "a".repeat(129);
        for wrong in ["", ".a", "-a", "a/b", "..", "a b", "ä", "a\0", too_long.as_str()] {
            assert_eq!(wrong.parse::<TargetName>(), Err(NameError::Target), "{wrong:?}");
        }
    }

    #[test]
    fn extensions_are_taken_up_to_their_bound() {
        assert!("x".repeat(16).parse::<Extension>().is_ok());
        for wrong in ["", "tar.gz", "a/b", &"x".repeat(17)] {
            assert_eq!(wrong.parse::<Extension>(), Err(NameError::Extension), "{wrong:?}");
        }
    }
}
