use super::*;

const KEY: Key = Key::new([9; 16]);

fn changes() -> Vec<Change> {
    vec![
        Change { key: b"a".to_vec(), value: Some(b"one".to_vec()) },
        Change { key: b"gone".to_vec(), value: None },
        Change { key: b"empty".to_vec(), value: Some(Vec::new()) },
    ]
}

fn place() -> Place {
    Place { number: 0x0102, oldest: 0x0100, before: Chain::new([5; 16]) }
}

fn batch() -> Vec<u8> {
    let mut out = vec![1, 2, 3];
    encode_batch(&KEY, &place(), &changes(), &mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_header_block_of_version_1_has_these_bytes() {
    let header =
        SegmentHeader { cluster_id: Uuid::from_bytes([7; 16]), first: 17, bytes: 65_536, chain: Chain::new([3; 16]) };
    let block = encode_header(&KEY, &header);
    let expected = concat!(
        "52534547",
        "01000000",
        "07070707070707070707070707070707",
        "1100000000000000",
        "0000010000000000",
        "03030303030303030303030303030303",
        "fb85cab19d3661b03e38c5c38e2c7960",
    );
    assert_eq!(hex(&block[..72]), expected);
    assert_eq!(block.len(), 4096);
    assert!(block[72..].iter().all(|byte| *byte == 0));
    assert_eq!(decode_header(&KEY, header.cluster_id, &block), Ok(header));
}

#[test]
fn a_batch_of_version_1_has_these_bytes() {
    let batch = batch();
    let expected = concat!(
        "52424154",
        "0100",
        "0000",
        "6d00000000000000",
        "0201000000000000",
        "0001000000000000",
        "03000000",
        "00000000",
        "70b7015d0b3ae9e2762c3747b2ecc30b",
        "83bf8ca2da6928c9676fc41c913c06ee",
        "0100000003000000616f6e65",
        "04000000ffffffff676f6e65",
        "0500000000000000656d707479",
    );
    assert_eq!(hex(&batch[..109]), expected);
    assert_eq!(batch.len(), 512);
    assert!(batch[109..].iter().all(|byte| *byte == 0));
    let written = Batch { number: 0x0102, changes: changes(), rewritten_since: None };
    assert_eq!(encoded_bytes(&written), 512);
}

#[test]
fn the_end_of_a_segment_of_version_1_has_these_bytes() {
    let mut out = Vec::new();
    encode_end(&KEY, &place(), &mut out);
    let expected = concat!(
        "52424154",
        "0100",
        "0100",
        "4800000000000000",
        "0201000000000000",
        "0001000000000000",
        "00000000",
        "00000000",
        "2c6891dbc2858466264d28f8c61f07ba",
        "ee5a88897a578896a0de85b6f5d928ee",
    );
    assert_eq!(hex(&out[..72]), expected);
    let read = read_batch(&KEY, &out).unwrap();
    assert_eq!((read.kind, read.number, read.bytes), (Kind::EndOfSegment, 0x0102, 512));
}

#[test]
fn a_batch_is_read_back_as_it_was_written() {
    let bytes = batch();
    let read = read_batch(&KEY, &bytes).unwrap();
    assert_eq!((read.kind, read.number, read.oldest, read.bytes), (Kind::Changes, 0x0102, 0x0100, 512));
    assert_eq!(KEY.chain(Chain::new([5; 16]), read.check), read.chain);
    let back: Vec<_> =
        read.changes().map(|(key, value)| Change { key: key.to_vec(), value: value.map(<[u8]>::to_vec) }).collect();
    assert_eq!(back, changes());
}

#[test]
fn nothing_that_was_changed_by_a_bit_or_written_with_another_key_is_read() {
    let bytes = batch();
    // The chain says where a batch belongs; who reads it compares.
    for bit in (0..56 * 8).chain(72 * 8..109 * 8) {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(read_batch(&KEY, &wrong), None, "bit {bit}");
    }
    assert_eq!(read_batch(&Key::new([8; 16]), &bytes), None);
    assert_eq!(read_batch(&KEY, &bytes[..108]), None);
    assert_eq!(read_batch(&KEY, &[]), None);
}

#[test]
fn a_header_block_is_refused_with_what_is_wrong_with_it() {
    let of = Uuid::from_bytes([7; 16]);
    let header = SegmentHeader { cluster_id: of, first: 17, bytes: 65_536, chain: Chain::default() };
    let block = encode_header(&KEY, &header);
    for bit in 0..72 * 8 {
        let mut wrong = block.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_header(&KEY, of, &wrong).is_err(), "bit {bit}");
    }
    let other = Uuid::from_bytes([8; 16]);
    let foreign = decode_header(&KEY, other, &block).unwrap_err();
    assert_eq!(foreign.to_string(), "the segment belongs to store 07070707-0707-0707-0707-070707070707");
    let stolen = decode_header(&Key::new([1; 16]), of, &block).unwrap_err();
    assert_eq!(stolen.to_string(), "the header block is not what was written");
    let mut newer = block.clone();
    newer[4] = 2;
    let newer = decode_header(&KEY, of, &newer).unwrap_err();
    assert_eq!(newer.to_string(), "version 2 of a segment is not known; written by a newer program?");
    assert_eq!(decode_header(&KEY, of, &block[..71]), Err(HeaderProblem::Damaged));
}
