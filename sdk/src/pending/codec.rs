//! The pending file, byte by byte. All numbers are little-endian.
//!
//! ```text
//! header   "RATIFPND"  version u8 = 2  durable u64  nameLength u8  name  crc32 of all before
//! record   length u32  !length u32  crc32 of length and body  body
//! body     durable u64  kind u8  content
//! content  2 BEGIN: id 16 bytes    3 HANDLE: id 16 bytes, handle    4 REMOVE: id 16 bytes
//!          5 STORE: the store as it was met, as text    6 BEGIN_AT_LEAST_ONCE: id 16 bytes
//! ```
//! Version 1 had `1 STORE: cluster 16 bytes, loads u64` instead; it is read, and written anew as version 2.
//!
//! `durable` is the length of the file that was known to be on disk when the header or record was written. It tells a
//! torn tail, which a crash may leave behind, from damage, which it cannot.

use ratified_protocol::{ClientName, StoreId, TxnId};
use uuid::Uuid;

use super::Change;
use crate::client::MetStore;

const MAGIC: &[u8; 8] = b"RATIFPND";
const VERSION: u8 = 2;
const OLDEST_VERSION: u8 = 1;
const RECORD_HEAD_BYTES: usize = 12;
/// Longest body of a record: a handle of 64 KiB and what goes with it.
const MAX_BODY_BYTES: usize = 64 * 1024 + 64;

/// Why bytes are not a pending file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Damage at this offset.
    Damaged(usize, &'static str),
    /// An unknown version.
    Version(u8),
    /// It is sound, and of this client.
    OtherClient(ClientName),
}

/// What was read from a pending file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) changes: Vec<Change>,
    /// Where the good part ends; what follows is a torn tail.
    pub(super) end: usize,
    /// Whether an older version wrote it: it must be written anew before anything is added.
    pub(super) is_old: bool,
}

/// A whole file that makes these changes, all of it durable before it is put in place.
pub(super) fn encode_file(client: &ClientName, changes: impl Iterator<Item = Change>) -> Vec<u8> {
    let mut records = Vec::new();
    let header_bytes = header(VERSION, client, 0).len();
    for change in changes {
        let durable = (header_bytes + records.len()) as u64;
        records.extend(encode_record(durable, &change));
    }
    let mut file = header(VERSION, client, (header_bytes + records.len()) as u64);
    file.extend(records);
    file
}

fn header(version: u8, client: &ClientName, durable: u64) -> Vec<u8> {
    let name = client.as_str().as_bytes();
    let mut bytes = MAGIC.to_vec();
    bytes.push(version);
    bytes.extend(durable.to_le_bytes());
    // A client name has at most 200 bytes.
    bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    bytes.extend(name);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// One record, written when the file was durable up to `durable`.
pub(super) fn encode_record(durable: u64, change: &Change) -> Vec<u8> {
    let mut body = durable.to_le_bytes().to_vec();
    match change {
        Change::Store(store) => {
            body.push(5);
            body.extend(store.to_string().into_bytes());
        }
        Change::Begin(id) => tagged(&mut body, 2, *id),
        Change::BeginAtLeastOnce(id) => tagged(&mut body, 6, *id),
        Change::Handle(id, handle) => {
            tagged(&mut body, 3, *id);
            body.extend(handle);
        }
        Change::Remove(id) => tagged(&mut body, 4, *id),
    }
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut record = length.to_le_bytes().to_vec();
    record.extend((!length).to_le_bytes());
    record.extend(checksum(length, &body).to_le_bytes());
    record.extend(body);
    record
}

fn tagged(body: &mut Vec<u8>, kind: u8, id: TxnId) {
    body.push(kind);
    body.extend(id.as_bytes());
}

fn checksum(length: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// Reads a file that must be this client's.
pub(super) fn decode_file(bytes: &[u8], client: &ClientName) -> Result<Read, Refusal> {
    let (version, durable, mut offset) = decode_header(bytes, client)?;
    let is_old = version < VERSION;
    let mut changes = Vec::new();
    while offset < bytes.len() {
        let Some((body, end)) = record_at(bytes, offset) else {
            return torn_tail_or_damage(bytes, durable, offset, Read { changes, end: offset, is_old });
        };
        changes.push(decode_body(body).ok_or(Refusal::Damaged(offset, "a record of unknown content"))?);
        offset = end;
    }
    if (offset as u64) < durable {
        return Err(Refusal::Damaged(offset, "the file is shorter than it was"));
    }
    Ok(Read { changes, end: offset, is_old })
}

fn decode_header(bytes: &[u8], client: &ClientName) -> Result<(u8, u64, usize), Refusal> {
    let damaged = Refusal::Damaged(0, "not the head of a pending file");
    let version_at = MAGIC.len();
    let version = match (bytes.get(..version_at), bytes.get(version_at)) {
        (Some(magic), Some(version)) if magic == MAGIC => *version,
        _ => return Err(damaged),
    };
    if !(OLDEST_VERSION..=VERSION).contains(&version) {
        return Err(Refusal::Version(version));
    }
    let durable = number(bytes, version_at + 1);
    let expected = header(version, client, durable.unwrap_or_default());
    if bytes.get(..expected.len()) == Some(&expected) {
        return Ok((version, durable.unwrap_or_default(), expected.len()));
    }
    let owner = named_in_header(bytes, version_at + 1 + 8);
    let is_sound = |owner: &ClientName| {
        let theirs = header(version, owner, durable.unwrap_or_default());
        bytes.get(..theirs.len()) == Some(&theirs)
    };
    match owner.filter(is_sound) {
        Some(owner) => Err(Refusal::OtherClient(owner)),
        None => Err(Refusal::Damaged(version_at + 1, "the head is damaged")),
    }
}

fn named_in_header(bytes: &[u8], at: usize) -> Option<ClientName> {
    let length = usize::from(*bytes.get(at)?);
    std::str::from_utf8(bytes.get(at + 1..at + 1 + length)?).ok()?.parse().ok()
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The body of the sound record at this offset, and where it ends.
fn record_at(bytes: &[u8], offset: usize) -> Option<(&[u8], usize)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let length = word(offset)?;
    let start = offset + RECORD_HEAD_BYTES;
    let end = start + length as usize;
    if word(offset + 4)? != !length || length as usize > MAX_BODY_BYTES {
        return None;
    }
    let body = bytes.get(start..end)?;
    (word(offset + 8)? == checksum(length, body)).then_some((body, end))
}

fn decode_body(body: &[u8]) -> Option<Change> {
    let content = body.get(9..)?;
    let id = || TxnId::from_bytes(content.get(..16)?.try_into().ok()?).ok();
    let is_bare = content.len() == 16;
    match body.get(8)? {
        1 if content.len() == 24 => {
            let cluster_id = Uuid::from_bytes(content.get(..16)?.try_into().ok()?);
            Some(Change::Store(StoreId::new(cluster_id, number(content, 16)?).into()))
        }
        5 => Some(Change::Store(std::str::from_utf8(content).ok()?.parse::<MetStore>().ok()?)),
        2 if is_bare => Some(Change::Begin(id()?)),
        3 => Some(Change::Handle(id()?, content.get(16..)?.to_vec())),
        4 if is_bare => Some(Change::Remove(id()?)),
        6 if is_bare => Some(Change::BeginAtLeastOnce(id()?)),
        _ => None,
    }
}

/// A bad record is a torn tail only if nothing says that it had been durable.
fn torn_tail_or_damage(bytes: &[u8], durable: u64, offset: usize, good: Read) -> Result<Read, Refusal> {
    let was_durable = |claimed: u64| claimed > offset as u64;
    let later = || (offset + 1..bytes.len()).filter_map(|at| number(record_at(bytes, at)?.0, 0));
    if was_durable(durable) || later().any(was_durable) {
        return Err(Refusal::Damaged(offset, "a record that was durable"));
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> ClientName {
        "job.0".parse().unwrap()
    }

    fn id(last: u8) -> TxnId {
        TxnId::from_bytes([1, 2, 3, 4, 5, 6, 0x70, 8, 0x90, 10, 11, 12, 13, 14, 15, last]).unwrap()
    }

    fn store() -> MetStore {
        "09090909-0909-0909-0909-090909090909.3.6ba7b8109dad41d180b400c04fd430c8".parse().unwrap()
    }

    fn changes() -> Vec<Change> {
        vec![
            Change::Store(store()),
            Change::Begin(id(1)),
            Change::Handle(id(1), b"here".to_vec()),
            Change::Remove(id(1)),
            Change::Begin(id(2)),
            Change::BeginAtLeastOnce(id(3)),
        ]
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn the_format_is_these_bytes() {
        let file = encode_file(&client(), [Change::Store(store()), Change::Begin(id(1))].into_iter());
        assert_eq!(hex(&file[..27]), GOLDEN_HEAD);
        let store_end = 27 + 92;
        assert_eq!(hex(&file[27..48]), "50000000afffffffeb99e3731b0000000000000005");
        assert_eq!(file[48..store_end], *store().to_string().as_bytes());
        assert_eq!(hex(&file[store_end..]), GOLDEN_BEGIN);
        assert_eq!(hex(&encode_record(7, &Change::Handle(id(1), b"here".to_vec()))), GOLDEN_HANDLE);
        assert_eq!(hex(&encode_record(7, &Change::Remove(id(1)))), GOLDEN_REMOVE);
    }

    const GOLDEN_HEAD: &str = "5241544946504e44029c00000000000000056a6f622e303819b265";
    const GOLDEN_BEGIN: &str = "19000000e6ffffffec1022a27700000000000000020102030405067008900a0b0c0d0e0f01";
    /// A whole file of version 1: a store and an id.
    const OLD: &str = concat!(
        "5241544946504e44016d00000000000000056a6f622e3090cedc80",
        "21000000deffffff54d417f21b0000000000000001090909090909090909090909090909090300000000000000",
        "19000000e6ffffff411640a84800000000000000020102030405067008900a0b0c0d0e0f01"
    );

    #[test]
    fn a_file_of_version_1_is_read() {
        let file: Vec<u8> =
            (0..OLD.len()).step_by(2).map(|at| u8::from_str_radix(&OLD[at..at + 2], 16).unwrap()).collect();
        let store: MetStore = "09090909-0909-0909-0909-090909090909.3".parse().unwrap();
        let changes = vec![Change::Store(store), Change::Begin(id(1))];
        assert_eq!(decode_file(&file, &client()), Ok(Read { changes, end: file.len(), is_old: true }));
    }

    const GOLDEN_HANDLE: &str = "1d000000e2ffffff473177cc0700000000000000030102030405067008900a0b0c0d0e0f0168657265";
    const GOLDEN_REMOVE: &str = "19000000e6ffffffaf5502560700000000000000040102030405067008900a0b0c0d0e0f01";

    #[test]
    fn what_was_written_is_read() {
        let file = encode_file(&client(), changes().into_iter());
        assert_eq!(decode_file(&file, &client()), Ok(Read { changes: changes(), end: file.len(), is_old: false }));
    }

    #[test]
    fn a_flipped_bit_in_what_was_durable_is_refused_wherever_it_is() {
        let file = encode_file(&client(), changes().into_iter());
        for at in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            let refused = decode_file(&damaged, &client()).unwrap_err();
            match refused {
                Refusal::Damaged(offset, _) => assert!(offset <= at / 8, "{offset} {at}"),
                Refusal::Version(_) => assert_eq!(at / 8, 8),
                Refusal::OtherClient(owner) => panic!("{owner}"),
            }
        }
    }

    #[test]
    fn a_short_file_is_refused_up_to_where_it_was_durable() {
        let mut file = encode_file(&client(), changes().into_iter());
        let durable = file.len();
        file.extend(encode_record(durable as u64, &Change::Begin(id(3))));
        for length in 0..file.len() {
            let read = decode_file(&file[..length], &client());
            if length < durable {
                assert!(matches!(read, Err(Refusal::Damaged(..))), "{length}");
            } else {
                assert_eq!(read, Ok(Read { changes: changes(), end: durable, is_old: false }), "{length}");
            }
        }
    }

    #[test]
    fn a_torn_tail_is_told_from_damage_by_what_follows() {
        let mut file = encode_file(&client(), changes().into_iter());
        let durable = file.len() as u64;
        let unsynced = file.len();
        file.extend(encode_record(durable, &Change::Remove(id(2))));
        let begun = file.len();
        file.extend(encode_record(durable, &Change::Begin(id(3))));
        let synced = file.len() as u64;

        let mut torn = file.clone();
        torn[unsynced + 20] ^= 1;
        assert_eq!(decode_file(&torn, &client()), Ok(Read { changes: changes(), end: unsynced, is_old: false }));

        file.extend(encode_record(synced, &Change::Begin(id(4))));
        for at in [unsynced + 20, begun + 20] {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert!(matches!(decode_file(&damaged, &client()), Err(Refusal::Damaged(..))), "{at}");
        }
    }

    #[test]
    fn an_unknown_version_and_another_client_are_refused() {
        let mut file = encode_file(&client(), changes().into_iter());
        let other = "job.1".parse().unwrap();
        assert_eq!(decode_file(&file, &other), Err(Refusal::OtherClient(client())));
        file[8] = 3;
        assert_eq!(decode_file(&file, &client()), Err(Refusal::Version(3)));
    }
}
