//! The engine's version files: which tables make up a keyspace.
//!
//! `current` names the version file in force, `v<number>`, and its checksum (u64 number, u128 XXH3, u8 0 = XXH3; little
//! endian). The engine writes the checksum and never looks at it (lsm-tree 3.1): one flipped bit in `current` brings back
//! an older set of tables, one in a version file makes it abort.

use std::{fs, path::Path};

use xxhash_rust::xxh3::xxh3_128;

use super::{StoreError, journal::file_error};

const NUMBER: usize = 8;
const CHECKSUM: usize = 16;
const XXH3: u8 = 0;

/// Refuses a keyspace whose version in force is not the one that was written. A keyspace without `current` is none of
/// its business.
pub(super) fn check(keyspace: &Path) -> Result<(), StoreError> {
    let current = keyspace.join("current");
    if !current.exists() {
        return Ok(());
    }
    let damaged = |path: &Path, problem: &str| StoreError::damaged(path.display().to_string(), problem);
    let bytes = fs::read(&current).map_err(file_error("read", &current))?;
    let Some((number, expected)) = decode(&bytes) else {
        return Err(damaged(&current, "it is not a version's number and checksum"));
    };
    let version = keyspace.join(format!("v{number}"));
    if !version.exists() {
        return Err(damaged(&version, "it is in force by `current`, and not there"));
    }
    let content = fs::read(&version).map_err(file_error("read", &version))?;
    if xxh3_128(&content) == expected {
        return Ok(());
    }
    Err(damaged(&version, "its checksum is not the one in `current`: one of the two files is damaged"))
}

fn decode(bytes: &[u8]) -> Option<(u64, u128)> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER>()?;
    let (checksum, rest) = rest.split_first_chunk::<CHECKSUM>()?;
    (rest == [XXH3]).then(|| (u64::from_le_bytes(*number), u128::from_le_bytes(*checksum)))
}
