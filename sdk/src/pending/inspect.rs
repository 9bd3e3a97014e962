//! The pending file as bytes, for fuzzers; outside the documented API.

use ratified_protocol::ClientName;

use super::{
    PendingContents,
    codec::{decode_file, encode_file},
};

/// What was read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// What it remembers.
    pub contents: PendingContents,
    /// Where the good part ends.
    pub end: usize,
    /// The same changes as a file written anew.
    pub rewritten: Vec<u8>,
}

/// Reads a file that must be this client's.
///
/// # Errors
/// It is damaged, of another client, or of an unknown version.
pub fn read(bytes: &[u8], client: &ClientName) -> Result<Reading, String> {
    let read = decode_file(bytes, client).map_err(|refusal| format!("{refusal:?}"))?;
    let rewritten = encode_file(client, read.changes.iter().cloned());
    let mut contents = PendingContents::default();
    read.changes.into_iter().for_each(|change| contents.apply(change));
    Ok(Reading { contents, end: read.end, rewritten })
}

/// A file with these contents.
pub fn write(client: &ClientName, contents: &PendingContents) -> Vec<u8> {
    encode_file(client, contents.as_changes())
}
