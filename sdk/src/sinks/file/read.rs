//! Reading what was committed, for tests, examples and small jobs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use ratified_protocol::TxnId;

use super::disk::read_parts;
use crate::{author::TargetName, sink::Slot};

/// A visible file of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilePart {
    /// Where it is.
    pub path: PathBuf,
    /// The worker that wrote it.
    pub slot: Slot,
    /// The transaction that wrote it.
    pub txn_id: TxnId,
}

/// The visible files of a target, by slot, then by transaction: the order of the output. Blocks. An absent directory
/// holds none.
///
/// # Errors
/// The directory cannot be read; the caller must mend what the error names.
pub fn parts(root: &Path, target: &TargetName) -> io::Result<Vec<FilePart>> {
    let of_target = read_parts(root)?.into_iter().filter(|name| name.target == *target);
    Ok(of_target
        .map(|name| FilePart { path: root.join(name.to_string()), slot: name.slot, txn_id: name.txn_id })
        .collect())
}

/// All that was committed to a target, in order. Blocks, and holds all of it in memory.
///
/// # Errors
/// A file cannot be read; the caller must mend what the error names.
pub fn read_target(root: &Path, target: &TargetName) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    for part in parts(root, target)? {
        content.append(&mut fs::read(part.path)?);
    }
    Ok(content)
}
