//! Names under which the coordinator is reached.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// Longest DNS name, in characters.
const MAX_CHARS: usize = 253;

/// It is not a DNS name; the caller must give one without scheme, port and path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be a DNS name such as ratifyd.example, without scheme and port")]
#[non_exhaustive]
pub struct ServerNameError;

/// A DNS name, lower case and without a dot at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerName(String);

impl ServerName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerName {
    type Err = ServerNameError;

    fn from_str(text: &str) -> Result<Self, ServerNameError> {
        let name = text.strip_suffix('.').unwrap_or(text);
        // Underscores are no host names by the book, and common inside of container networks.
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if name.len() <= MAX_CHARS && name.split('.').all(is_label) {
            Ok(Self(name.to_ascii_lowercase()))
        } else {
            Err(ServerNameError)
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
