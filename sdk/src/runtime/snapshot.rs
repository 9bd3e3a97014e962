//! What an engine stores in its checkpoint for the sink.
//!
//! ```text
//! element   version u8 = 2  storeLength u32  store (as it was met, as text)  clientLength u32  client  slot u32
//!           id 16 bytes  epoch u64  checkpoint u64  handleLength u32  handle (JSON)  crc32 of all before
//! snapshot  version u8 = 1  count u32  (elementLength u32  element)*
//! ```
//! Version 1 of an element has `cluster 16 bytes  loads u64` for the store; it is read.

use std::collections::BTreeMap;

use ratified_protocol::{CheckpointId, ClientName, Epoch, StoreId, TxnId};
use uuid::Uuid;

use super::{
    bytes::{Reader, Writer},
    error::RuntimeError,
};
use crate::{client::MetStore, sink::Slot};

/// The transactions of a worker that are not finished to the end, at one barrier. Each element is valid alone, so that an
/// engine may split and merge snapshots when it rescales.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    elements: Vec<SnapshotElement>,
}

impl Snapshot {
    /// A snapshot of these elements; one that is named twice is kept once.
    pub fn from_elements(elements: impl IntoIterator<Item = SnapshotElement>) -> Self {
        let unique: BTreeMap<_, _> = elements.into_iter().map(|e| ((e.txn_id, e.client.clone()), e)).collect();
        Self { elements: unique.into_values().collect() }
    }

    /// Its elements, ascending by transaction id.
    pub fn elements(&self) -> &[SnapshotElement] {
        &self.elements
    }

    /// Its elements, ascending by transaction id.
    pub fn into_elements(self) -> Vec<SnapshotElement> {
        self.elements
    }

    /// As bytes, for the engine's checkpoint.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(1).u32(u32::try_from(self.elements.len()).unwrap_or(u32::MAX));
        for element in &self.elements {
            writer.counted(&element.to_bytes());
        }
        writer.finish()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`RuntimeError::Undecodable`] for damage and for versions of the future.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RuntimeError> {
        let mut reader = Reader::new("snapshot", bytes)?;
        let count = reader.u32()?;
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(SnapshotElement::from_bytes(reader.counted()?)?);
        }
        reader.end()?;
        Ok(Self::from_elements(elements))
    }
}

/// One unfinished transaction: all that any worker needs to finish it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotElement {
    pub(crate) store: MetStore,
    pub(crate) client: ClientName,
    pub(crate) slot: Slot,
    pub(crate) txn_id: TxnId,
    pub(crate) epoch: Epoch,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) handle: Vec<u8>,
}

impl SnapshotElement {
    /// Whose transaction it is.
    pub fn client(&self) -> &ClientName {
        &self.client
    }

    /// Which one.
    pub fn txn_id(&self) -> TxnId {
        self.txn_id
    }

    /// The checkpoint it was prepared for.
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(2).counted(self.store.to_string().as_bytes());
        writer.counted(self.client.as_str().as_bytes()).u32(self.slot.as_u32());
        writer.raw(self.txn_id.as_bytes()).u64(self.epoch.as_u64()).u64(self.checkpoint.as_u64());
        writer.counted(&self.handle).finish_with_checksum()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`RuntimeError::Undecodable`] for damage and for versions of the future.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RuntimeError> {
        let (version, mut reader) = Reader::with_checksum(2, "snapshot element", bytes)?;
        let store = match version {
            1 => StoreId::new(Uuid::from_bytes(reader.array()?), reader.u64()?).into(),
            _ => {
                let text = std::str::from_utf8(reader.counted()?).map_err(|e| reader.refuse(e))?;
                text.parse().map_err(|e| reader.refuse(e))?
            }
        };
        let client = std::str::from_utf8(reader.counted()?).map_err(|e| reader.refuse(e))?;
        let client = client.parse().map_err(|e| reader.refuse(e))?;
        let slot = Slot::new(reader.u32()?);
        let txn_id = TxnId::from_bytes(reader.array()?).map_err(|e| reader.refuse(e))?;
        let epoch = Epoch::new(reader.u64()?);
        let checkpoint = CheckpointId::new(reader.u64()?);
        let handle = reader.counted()?.to_vec();
        reader.end()?;
        Ok(Self { store, client, slot, txn_id, epoch, checkpoint, handle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: &str = "09090909-0909-0909-0909-090909090909.3.6ba7b8109dad41d180b400c04fd430c8";

    fn element(last: u8) -> SnapshotElement {
        SnapshotElement {
            store: STORE.parse().unwrap(),
            client: "job.0".parse().unwrap(),
            slot: Slot::new(2),
            txn_id: TxnId::from_bytes([1, 2, 3, 4, 5, 6, 0x70, 8, 0x90, 10, 11, 12, 13, 14, 15, last]).unwrap(),
            epoch: Epoch::new(7),
            checkpoint: CheckpointId::new(42),
            handle: b"\"h\"".to_vec(),
        }
    }

    #[test]
    fn the_format_is_these_bytes() {
        let mut expected = vec![2, 71, 0, 0, 0];
        expected.extend(STORE.as_bytes());
        expected.extend(b"\x05\0\0\0job.0\x02\0\0\0");
        expected.extend([1, 2, 3, 4, 5, 6, 0x70, 8, 0x90, 10, 11, 12, 13, 14, 15, 1]);
        expected.extend(b"\x07\0\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0\x03\0\0\0\"h\"");
        let bytes = element(1).to_bytes();
        let (body, checksum) = bytes.split_at(bytes.len() - 4);
        assert_eq!(body, expected);
        assert_eq!(checksum, crc32fast::hash(&expected).to_le_bytes());
        let snapshot = Snapshot::from_elements([element(1)]).to_bytes();
        assert_eq!(snapshot, [&b"\x01\x01\0\0\0\x84\0\0\0"[..], &bytes].concat());
    }

    #[test]
    fn an_element_of_version_1_is_read() {
        let mut bytes = vec![1];
        bytes.extend([9; 16]);
        bytes.extend([3, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"\x05\0\0\0job.0\x02\0\0\0");
        bytes.extend([1, 2, 3, 4, 5, 6, 0x70, 8, 0x90, 10, 11, 12, 13, 14, 15, 1]);
        bytes.extend(b"\x07\0\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0\x03\0\0\0\"h\"");
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        let store = StoreId::new(Uuid::from_bytes([9; 16]), 3).into();
        assert_eq!(SnapshotElement::from_bytes(&bytes).unwrap(), SnapshotElement { store, ..element(1) });
    }

    #[test]
    fn split_and_merged_it_is_the_same() {
        let whole = Snapshot::from_elements([element(2), element(1), element(2)]);
        assert_eq!(whole.elements(), [element(1), element(2)]);
        let again = Snapshot::from_bytes(&whole.to_bytes()).unwrap();
        assert_eq!(again, whole);
        let parts = whole.into_elements().into_iter().map(|e| SnapshotElement::from_bytes(&e.to_bytes()).unwrap());
        assert_eq!(Snapshot::from_elements(parts.rev()), again);
    }

    #[test]
    fn any_flipped_bit_or_cut_is_refused() {
        let bytes = element(1).to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(SnapshotElement::from_bytes(&damaged).is_err(), "{bit}");
        }
        for length in 0..bytes.len() {
            assert!(SnapshotElement::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_version_of_the_future_is_refused_by_its_number() {
        let mut bytes = element(1).to_bytes();
        bytes[0] = 9;
        assert!(SnapshotElement::from_bytes(&bytes).unwrap_err().to_string().contains("version 9 is unknown"));
        assert!(Snapshot::from_bytes(&[3, 0, 0, 0, 0]).unwrap_err().to_string().contains("version 3 is unknown"));
    }

    #[test]
    fn an_empty_snapshot_is_a_snapshot() {
        let empty = Snapshot::default();
        assert_eq!(empty.to_bytes(), [1, 0, 0, 0, 0]);
        assert_eq!(Snapshot::from_bytes(&empty.to_bytes()).unwrap(), empty);
    }
}
