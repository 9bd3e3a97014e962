//! `STORE`: what makes a directory a store, and which one. Written once.

use uuid::Uuid;

use super::chain::Key;

/// The format of the directory as a whole.
pub(super) const FORMAT: u32 = 1;
/// The number of the first batch of a store.
pub(super) const FIRST_BATCH: u64 = 1;

const MAGIC: &[u8; 4] = b"RSTO";
const LENGTH: usize = 44;

/// What `STORE` says: `RSTO`, format (u32), cluster id (16), key (16), CRC-32 of all before; numbers little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    /// The name of the store.
    pub(super) cluster_id: Uuid,
    /// Its secret.
    pub(super) key: Key,
}

impl Identity {
    /// Draws the identity of a new store.
    pub(super) fn at_random() -> Self {
        Self { cluster_id: Uuid::new_v4(), key: Key::at_random() }
    }

    /// The content of the file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(self.cluster_id.as_bytes());
        bytes.extend_from_slice(self.key.as_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong with it, for people; the caller must refuse the directory.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let damaged = || "it is not what was written".to_owned();
        let (magic, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
        let (format, rest) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
        let format = u32::from_le_bytes(*format);
        if magic == MAGIC && format > FORMAT {
            return Err(format!("format {format}, this program reads {FORMAT}; written by a newer one?"));
        }
        let (cluster_id, rest) = rest.split_first_chunk::<16>().ok_or_else(damaged)?;
        let (key, checksum) = rest.split_first_chunk::<16>().ok_or_else(damaged)?;
        let head = bytes.get(..LENGTH - 4).unwrap_or_default();
        let is_whole = checksum == crc32fast::hash(head).to_le_bytes() && magic == MAGIC && format == FORMAT;
        let identity = Self { cluster_id: Uuid::from_bytes(*cluster_id), key: Key::new(*key) };
        is_whole.then_some(identity).ok_or_else(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_in_forty_four_checked_bytes() {
        let identity = Identity { cluster_id: Uuid::from_bytes([7; 16]), key: Key::new([9; 16]) };
        let bytes = identity.encode();
        let golden = [&b"RSTO\x01\0\0\0"[..], &[7; 16], &[9; 16], &[0xd0, 0xd0, 0xd0, 0xd0]].concat();
        assert_eq!(bytes[..40], golden[..40]);
        assert_eq!(bytes[40..], crc32fast::hash(&golden[..40]).to_le_bytes());
        assert_eq!(Identity::decode(&bytes), Ok(identity));
        for at in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[at / 8] ^= 1 << (at % 8);
            assert!(Identity::decode(&wrong).is_err(), "bit {at}");
        }
        assert!(Identity::decode(&bytes[..43]).is_err());
        assert!(Identity::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_newer_format_is_named() {
        let mut bytes = Identity::at_random().encode();
        bytes[4] = 2;
        let text = "format 2, this program reads 1; written by a newer one?";
        assert_eq!(Identity::decode(&bytes), Err(text.to_owned()));
    }
}
