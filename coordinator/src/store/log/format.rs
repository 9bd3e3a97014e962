//! The bytes of a segment: its header block and its batches. No file is touched here.
//!
//! All numbers are little endian. A segment begins with a block of 4,096 bytes, of which 72 are used:
//! `RSEG`, version (u32), cluster id (16), number of the first batch (u64), bytes of the segment (u64), chain at its start
//! (16), check (16). A batch begins at a multiple of 512 with 72 bytes: `RBAT`, version (u16), kind (u16: 0 changes, 1 the
//! end of the segment), length with this header (u64), number (u64), first batch of the oldest segment that is needed
//! (u64), number of changes (u32), zero (u32), check (16), chain (16); then each change: bytes of the key (u32), bytes of the
//! value (u32; all ones for a removal), key, value. A check is the keyed hash of everything before it and of the changes.

use uuid::Uuid;

use super::chain::{CHAIN_BYTES, Chain, Key};
use crate::store::{Batch, Change};

/// What a disk writes whole or not at all, in bytes: every batch begins at a multiple of it.
pub const SECTOR: usize = 512;
/// Bytes before the first batch of a segment.
pub const HEADER_BLOCK: usize = 4096;

const SEGMENT_MAGIC: &[u8; 4] = b"RSEG";
const SEGMENT_VERSION: u32 = 1;
const SEGMENT_CHECKED: usize = 56;
const BATCH_MAGIC: &[u8; 4] = b"RBAT";
const BATCH_VERSION: u16 = 1;
const BATCH_CHECKED: usize = 40;
/// Bytes before the changes of a batch.
const BATCH_HEADER: usize = BATCH_CHECKED + 2 * CHAIN_BYTES;
const CHANGE_HEADER: usize = 8;
const REMOVAL: u32 = u32::MAX;

/// What a segment says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Whose it is.
    pub cluster_id: Uuid,
    /// The number of the first batch that is or will be in it.
    pub first: u64,
    /// How long its file is, in bytes.
    pub bytes: u64,
    /// The chain behind the batch before.
    pub chain: Chain,
}

/// Why a header block is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderProblem {
    /// It says it belongs to another store.
    Foreign(Uuid),
    /// It is of a version that is not known.
    Version(u32),
    /// It is not what this store wrote.
    Damaged,
}

impl std::fmt::Display for HeaderProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign(of) => write!(f, "the segment belongs to store {of}"),
            Self::Version(version) => {
                write!(f, "version {version} of a segment is not known; written by a newer program?")
            }
            Self::Damaged => f.write_str("the header block is not what was written"),
        }
    }
}

/// The header block of a segment.
pub fn encode_header(key: &Key, header: &SegmentHeader) -> Vec<u8> {
    let mut block = Vec::with_capacity(HEADER_BLOCK);
    block.extend_from_slice(SEGMENT_MAGIC);
    block.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
    block.extend_from_slice(header.cluster_id.as_bytes());
    block.extend_from_slice(&header.first.to_le_bytes());
    block.extend_from_slice(&header.bytes.to_le_bytes());
    block.extend_from_slice(header.chain.as_bytes());
    let check = key.hash([&block]);
    block.extend_from_slice(check.as_bytes());
    block.resize(HEADER_BLOCK, 0);
    block
}

/// Reads the header block at the beginning of a segment of this store.
///
/// # Errors
/// See [`HeaderProblem`]; the caller must refuse the segment.
pub fn decode_header(key: &Key, cluster_id: Uuid, block: &[u8]) -> Result<SegmentHeader, HeaderProblem> {
    let mut cursor = Cursor { bytes: block };
    let read = (|| {
        let (magic, version) = (cursor.chunk::<4>()?, cursor.u32()?);
        let of = Uuid::from_bytes(cursor.chunk()?);
        let (first, bytes, chain) = (cursor.u64()?, cursor.u64()?, Chain::new(cursor.chunk()?));
        let checked = block.get(..SEGMENT_CHECKED)?;
        let is_ours = Chain::new(cursor.chunk()?) == key.hash([checked]);
        Some((magic, version, of, is_ours, SegmentHeader { cluster_id: of, first, bytes, chain }))
    })();
    match read {
        Some((magic, version, ..)) if &magic == SEGMENT_MAGIC && version != SEGMENT_VERSION => {
            Err(HeaderProblem::Version(version))
        }
        Some((magic, _, of, true, header)) if &magic == SEGMENT_MAGIC && of == cluster_id => Ok(header),
        Some((magic, _, of, ..)) if &magic == SEGMENT_MAGIC && of != cluster_id => Err(HeaderProblem::Foreign(of)),
        _ => Err(HeaderProblem::Damaged),
    }
}

/// What a batch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It changes the map.
    Changes,
    /// It ends a segment; its number is that of the first batch of the next one, and it is no link of the chain.
    EndOfSegment,
}

/// Where a batch stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub number: u64,
    /// The first batch of the oldest segment that is still needed once this batch is durable.
    pub oldest: u64,
    /// The chain behind the batch before.
    pub before: Chain,
}

/// How many bytes a batch takes in a segment.
pub fn encoded_bytes(batch: &Batch) -> usize {
    (BATCH_HEADER + batch.changes.len() * CHANGE_HEADER + batch.bytes()).next_multiple_of(SECTOR)
}

/// Writes a batch into `out`, which is emptied first; gives the chain behind it. The caller must keep a batch below 4 GiB.
pub fn encode_batch(key: &Key, place: &Place, changes: &[Change], out: &mut Vec<u8>) -> Chain {
    encode(key, Kind::Changes, place, changes, out)
}

/// Writes the end of a segment into `out`, which is emptied first; `place` has the number of the batch that follows.
pub fn encode_end(key: &Key, place: &Place, out: &mut Vec<u8>) {
    encode(key, Kind::EndOfSegment, place, &[], out);
}

fn encode(key: &Key, kind: Kind, place: &Place, changes: &[Change], out: &mut Vec<u8>) -> Chain {
    out.clear();
    out.extend_from_slice(&[0; BATCH_HEADER]);
    for Change { key, value } in changes {
        let value_bytes = value.as_ref().map_or(REMOVAL, |value| length(value));
        out.extend_from_slice(&length(key).to_le_bytes());
        out.extend_from_slice(&value_bytes.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    let mut head = Vec::with_capacity(BATCH_HEADER);
    head.extend_from_slice(BATCH_MAGIC);
    head.extend_from_slice(&BATCH_VERSION.to_le_bytes());
    head.extend_from_slice(&u16::from(kind == Kind::EndOfSegment).to_le_bytes());
    head.extend_from_slice(&(out.len() as u64).to_le_bytes());
    head.extend_from_slice(&place.number.to_le_bytes());
    head.extend_from_slice(&place.oldest.to_le_bytes());
    head.extend_from_slice(&u32::try_from(changes.len()).unwrap_or(u32::MAX).to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    let check = key.hash([head.as_slice(), out.get(BATCH_HEADER..).unwrap_or_default()]);
    let chain = key.chain(place.before, check);
    head.extend_from_slice(check.as_bytes());
    head.extend_from_slice(chain.as_bytes());
    out.iter_mut().zip(head).for_each(|(to, from)| *to = from);
    out.resize(out.len().next_multiple_of(SECTOR), 0);
    chain
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(REMOVAL - 1)
}

/// A batch as it was read: whole, and written with this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRead<'a> {
    /// What it is for.
    pub kind: Kind,
    /// Its number.
    pub number: u64,
    /// The first batch of the oldest segment that is still needed.
    pub oldest: u64,
    /// The keyed hash of the batch by itself.
    pub check: Chain,
    /// The chain behind it, as it says.
    pub chain: Chain,
    /// How many bytes it takes in the segment.
    pub bytes: usize,
    count: u32,
    body: &'a [u8],
}

impl<'a> BatchRead<'a> {
    /// What it changes: each key with its new value, `None` where it is removed.
    pub fn changes(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut cursor = Cursor { bytes: self.body };
        (0..self.count).map_while(move |_| cursor.change())
    }
}

/// The batch at the beginning of these bytes; `None`: there is none that is whole and of this store.
pub fn read_batch<'a>(key: &Key, bytes: &'a [u8]) -> Option<BatchRead<'a>> {
    let mut cursor = Cursor { bytes };
    if &cursor.chunk::<4>()? != BATCH_MAGIC || cursor.u16()? != BATCH_VERSION {
        return None;
    }
    let kind = match cursor.u16()? {
        0 => Kind::Changes,
        1 => Kind::EndOfSegment,
        _ => return None,
    };
    let length = usize::try_from(cursor.u64()?).ok()?;
    let (number, oldest, count) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
    cursor.u32()?;
    let (check, chain) = (Chain::new(cursor.chunk()?), Chain::new(cursor.chunk()?));
    let body = bytes.get(BATCH_HEADER..length)?;
    if key.hash([bytes.get(..BATCH_CHECKED)?, body]) != check {
        return None;
    }
    let bytes = length.checked_next_multiple_of(SECTOR)?;
    let read = BatchRead { kind, number, oldest, check, chain, bytes, count, body };
    let used = read.changes().map(|(key, value)| CHANGE_HEADER + key.len() + value.map_or(0, <[u8]>::len));
    (used.sum::<usize>() == body.len() && read.changes().count() == usize::try_from(count).ok()?).then_some(read)
}

struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    fn change(&mut self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let (key_bytes, value_bytes) = (self.u32()?, self.u32()?);
        let key = self.take(usize::try_from(key_bytes).ok()?)?;
        let value = match value_bytes {
            REMOVAL => None,
            bytes => Some(self.take(usize::try_from(bytes).ok()?)?),
        };
        Some((key, value))
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
