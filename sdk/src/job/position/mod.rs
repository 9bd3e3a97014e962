//! Positions as they are stored: with the transaction that they belong to, at the coordinator.
//!
//! ```text
//! position  version u8 = 2  value
//! value     tag u8, then what the tag says; a sequence or map ends with a tag of its own
//! ```
//!
//! The encoding describes itself, so that positions may gain fields, and is exact, so that what is read is what was
//! written: floating-point numbers are kept as their bits, `Some(None)` is not `None`, and a key of a map is any value.

mod read;
mod tag;
mod write;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

/// The version byte in front of a stored position.
const VERSION: u8 = 2;
/// Most bytes of a position's text in an error.
const MAX_TOLD_BYTES: usize = 1000;

/// Why a position cannot be stored, or not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PositionError {
    /// It cannot be written. The caller must mend its type; nothing was decided.
    #[error("the position {position} cannot be stored: {why}")]
    Unwritable {
        /// The position.
        position: String,
        /// What is wrong.
        why: String,
    },
    /// A restarted job could not read it. The caller must mend its type; nothing was decided.
    #[error("the position {position} could not be read again by a restarted job: {why}")]
    Unreadable {
        /// The position.
        position: String,
        /// What is wrong.
        why: String,
    },
    /// A restarted job would read another one: a field is skipped, a value changed on its way, or one is not equal to
    /// itself, as NaN. The caller must mend its type or value; nothing was decided.
    #[error("the position {position} would be read by a restarted job as {read}, which is not the same")]
    Changed {
        /// The position.
        position: String,
        /// What would be read.
        read: String,
    },
    /// What is stored cannot be read by this version of the job. The caller must start the version that wrote it, or teach
    /// this one its positions.
    #[error("the stored position cannot be read by this version of the job: {why}")]
    Stored {
        /// What is wrong.
        why: String,
    },
}

/// A position as it is stored, after it was read back and compared: what a restarted job would not read as the same is an
/// error here, before anything is decided. [`Job`](super::Job) does this by itself; it is there for programs that drive a
/// [`JobSink`](crate::JobSink) or keep positions in checkpoints of their own.
///
/// # Errors
/// See [`PositionError`].
pub fn encode_position<P>(position: &P) -> Result<Vec<u8>, PositionError>
where
    P: Serialize + DeserializeOwned + PartialEq + fmt::Debug,
{
    let mut bytes = vec![VERSION];
    write::append(&mut bytes, position)
        .map_err(|error| PositionError::Unwritable { position: told(position), why: error.to_string() })?;
    let read: P = decode(&bytes).map_err(|why| PositionError::Unreadable { position: told(position), why })?;
    if read == *position {
        Ok(bytes)
    } else {
        Err(PositionError::Changed { position: told(position), read: told(&read) })
    }
}

/// A position from what [`encode_position`] made of it.
///
/// # Errors
/// [`PositionError::Stored`]
pub fn decode_position<P: DeserializeOwned>(bytes: &[u8]) -> Result<P, PositionError> {
    decode(bytes).map_err(|why| PositionError::Stored { why })
}

fn decode<P: DeserializeOwned>(bytes: &[u8]) -> Result<P, String> {
    match bytes.split_first() {
        Some((&VERSION, value)) => read::whole(value).map_err(|error| error.to_string()),
        Some((version, _)) => Err(format!("version {version} is unknown")),
        None => Err("it is empty".to_owned()),
    }
}

fn told(position: &impl fmt::Debug) -> String {
    let mut text = format!("{position:?}");
    if text.len() > MAX_TOLD_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TOLD_BYTES));
        text.push_str("...");
    }
    text
}
