//! The coordinator's log: header blocks and batches.

use ratified_coordinator::store::{
    Batch, Change,
    log::{
        chain::{Chain, Key},
        format::{
            HEADER_BLOCK, Kind, Place, SECTOR, SegmentHeader, decode_header, encode_batch, encode_end, encode_header,
            encoded_bytes, read_batch,
        },
    },
};
use uuid::Uuid;

const KEY: Key = Key::new([9; 16]);
const CLUSTER: Uuid = Uuid::from_bytes([7; 16]);

/// A header block, or a batch.
pub fn log(data: &[u8]) {
    if let Ok(header) = decode_header(&KEY, CLUSTER, data) {
        let again = encode_header(&KEY, &header);
        assert_eq!(again.len(), HEADER_BLOCK);
        assert_eq!(again[..72], data[..72], "one header, two blocks");
    }
    let Some(read) = read_batch(&KEY, data) else { return };
    assert_eq!(read.bytes % SECTOR, 0);
    let own = |(key, value): (&[u8], Option<&[u8]>)| Change { key: key.to_vec(), value: value.map(<[u8]>::to_vec) };
    let changes: Vec<_> = read.changes().map(own).collect();
    let batch = Batch { number: read.number, changes, rewritten_since: None };
    let place = Place { number: read.number, oldest: read.oldest, before: Chain::default() };
    let mut again = Vec::new();
    match read.kind {
        Kind::Changes => drop(encode_batch(&KEY, &place, &batch.changes, &mut again)),
        Kind::EndOfSegment => encode_end(&KEY, &place, &mut again),
    }
    assert_eq!(encoded_bytes(&batch), read.bytes);
    assert_eq!(read_batch(&KEY, &again).map(|again| again.check), Some(read.check), "one batch, two checks");
    assert_eq!(read_batch(&Key::new([8; 16]), data), None, "a batch of another store is taken");
}

/// A header block, a batch and an end.
pub fn log_seeds() -> Vec<Vec<u8>> {
    let header = SegmentHeader { cluster_id: CLUSTER, first: 17, bytes: 65_536, chain: Chain::new([3; 16]) };
    let place = Place { number: 17, oldest: 1, before: Chain::new([5; 16]) };
    let changes = [
        Change { key: b"key".to_vec(), value: Some(b"value".to_vec()) },
        Change { key: b"gone".to_vec(), value: None },
    ];
    let (mut batch, mut end) = (Vec::new(), Vec::new());
    encode_batch(&KEY, &place, &changes, &mut batch);
    encode_end(&KEY, &place, &mut end);
    vec![encode_header(&KEY, &header), batch, end]
}
