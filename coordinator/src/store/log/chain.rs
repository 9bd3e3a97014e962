//! What ties every batch to its place: a keyed hash of all that came before it in this store.
//!
//! SipHash-2-4 with 128 bits is a keyed function made for telling forgeries by whoever lacks the key, which is secret and
//! as long as the store's. It takes about a nanosecond per byte, without a table or a build of its own.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use uuid::Uuid;

/// Bytes of a key, and of what it gives.
pub const CHAIN_BYTES: usize = 16;

/// The secret of a store. Who does not know it cannot make bytes that the store takes for its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; CHAIN_BYTES]);

/// The keyed hash of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chain([u8; CHAIN_BYTES]);

impl Key {
    /// A key that was stored.
    pub const fn new(bytes: [u8; CHAIN_BYTES]) -> Self {
        Self(bytes)
    }

    /// Draws one.
    pub fn at_random() -> Self {
        // A version and a variant are fixed in each identifier; hashed with another one, all bits are drawn.
        let drawn = Self(Uuid::new_v4().into_bytes());
        Self(drawn.hash([Uuid::new_v4().as_bytes()]).0)
    }

    /// The bytes to be stored; they are for nobody else.
    pub const fn as_bytes(&self) -> &[u8; CHAIN_BYTES] {
        &self.0
    }

    /// The keyed hash of these parts one behind the other.
    pub fn hash<'a, T: AsRef<[u8]> + ?Sized + 'a>(&self, parts: impl IntoIterator<Item = &'a T>) -> Chain {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        parts.into_iter().for_each(|part| hasher.write(part.as_ref()));
        Chain(hasher.finish128().as_bytes())
    }

    /// The chain behind a batch with this check.
    pub fn chain(&self, before: Chain, check: Chain) -> Chain {
        self.hash([&before.0, &check.0])
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(secret)")
    }
}

impl Chain {
    /// A hash that was stored.
    pub const fn new(bytes: [u8; CHAIN_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes to be stored.
    pub const fn as_bytes(&self) -> &[u8; CHAIN_BYTES] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_the_whole_under_the_key() {
        let key = Key::new(std::array::from_fn(|n| u8::try_from(n).unwrap()));
        let whole: Vec<u8> = (0..15).collect();
        // The last vector of the reference implementation that has this length.
        let expected = [0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9];
        assert_eq!(key.hash([&whole]).as_bytes(), &expected);
        assert_eq!(key.hash([&whole[..7], &whole[7..]]).as_bytes(), &expected);
        assert_ne!(Key::new([0; 16]).hash([&whole]).as_bytes(), &expected);
        assert_eq!(format!("{key:?}"), "Key(secret)");
    }

    #[test]
    fn no_two_keys_are_drawn_alike() {
        assert_ne!(Key::at_random(), Key::at_random());
    }
}
