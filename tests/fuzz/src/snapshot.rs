//! What an engine keeps in its checkpoint.

use ratified::runtime::{Snapshot, SnapshotElement};

/// A snapshot, and one element of it without its checksum, so that changes get past that.
pub fn snapshot(data: &[u8]) {
    if let Ok(read) = Snapshot::from_bytes(data) {
        assert_eq!(data.first(), Some(&1), "a snapshot of another version is taken");
        assert_eq!(Snapshot::from_bytes(&read.to_bytes()).expect("what was written is read"), read);
    }
    let element = [data, &crc32fast::hash(data).to_le_bytes()].concat();
    if let Ok(read) = SnapshotElement::from_bytes(&element) {
        let written = read.to_bytes();
        assert_eq!(SnapshotElement::from_bytes(&written).expect("what was written is read"), read);
        // What is of version 1 is written in version 2.
        assert!(data.first() == Some(&1) || written == element, "two ways to write the same");
    }
}

/// An element without its checksum; a snapshot of one and of none.
pub fn snapshot_seeds() -> Vec<Vec<u8>> {
    let mut element = vec![1];
    element.extend([9; 16]);
    element.extend([3, 0, 0, 0, 0, 0, 0, 0]);
    element.extend(b"\x05\0\0\0job.0\x02\0\0\0");
    element.extend([1, 2, 3, 4, 5, 6, 0x70, 8, 0x90, 10, 11, 12, 13, 14, 15, 1]);
    element.extend(b"\x07\0\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0\x03\0\0\0\"h\"");
    let whole = [&element[..], &crc32fast::hash(&element).to_le_bytes()].concat();
    let read = SnapshotElement::from_bytes(&whole).expect("a valid element");
    vec![element, Snapshot::from_elements([read]).to_bytes(), Snapshot::default().to_bytes()]
}
