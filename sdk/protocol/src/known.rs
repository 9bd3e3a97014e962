//! Which store a client has met: a store that was put back to an older copy must be noticed, by both sides.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{ids::IdError, store::StoreId};

/// The header on every answer of a loaded store that names it: see [`StoreId`].
pub const STORE_HEADER: &str = "ratified-store";
/// The header on every answer of a loaded store with the nonce of this load: see [`LoadNonce`].
pub const LOAD_HEADER: &str = "ratified-load";
/// The header of a request that says which store the caller has met: see [`KnownStore`].
pub const KNOWN_HEADER: &str = "ratified-known";

/// Drawn at random at each load of a store, as 32 lower-case hexadecimal digits on the wire. A copy that is put back
/// and loaded again has the same store id as the load it forgot, and another nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LoadNonce(Uuid);

impl LoadNonce {
    /// A nonce from a UUID that the caller must have drawn at random.
    pub const fn new(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The nonce as bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl FromStr for LoadNonce {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let is_spelled_so = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let uuid = is_spelled_so.then(|| Uuid::try_parse(text).ok()).flatten();
        uuid.map(Self).ok_or(IdError::LoadNonce)
    }
}

impl TryFrom<String> for LoadNonce {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<LoadNonce> for String {
    fn from(nonce: LoadNonce) -> String {
        nonce.to_string()
    }
}

impl fmt::Display for LoadNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.simple(), f)
    }
}

/// The store a client has met, and which load of it: `<storeId>.<nonce>`, the `Ratified-Known` header. A store that
/// does not have that load in its history is not the one the client knows, and answers 409 `STORE_CHANGED`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KnownStore {
    /// Which store, or which one partition of it, and how often it had been loaded.
    pub store: StoreId,
    /// The nonce of that load.
    pub nonce: LoadNonce,
}

impl FromStr for KnownStore {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let (store, nonce) = text.rsplit_once('.').ok_or(IdError::KnownStore)?;
        let parsed = (store.parse::<StoreId>(), nonce.parse());
        match parsed {
            // One nonce belongs to one load.
            (Ok(store), Ok(nonce)) if store.parts().count() == 1 => Ok(Self { store, nonce }),
            _ => Err(IdError::KnownStore),
        }
    }
}

impl TryFrom<String> for KnownStore {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<KnownStore> for String {
    fn from(known: KnownStore) -> String {
        known.to_string()
    }
}

impl fmt::Display for KnownStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.store, self.nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "6ba7b8109dad41d180b400c04fd430c8";

    #[test]
    fn a_nonce_has_one_spelling() {
        assert_eq!(NONCE.parse::<LoadNonce>().map(|n| n.to_string()), Ok(NONCE.to_owned()));
        for wrong in ["", "6BA7B8109DAD41D180B400C04FD430C8", "6ba7b810-9dad-41d1-80b4-00c04fd430c8", &NONCE[1..]] {
            assert_eq!(wrong.parse::<LoadNonce>(), Err(IdError::LoadNonce), "{wrong}");
        }
    }

    #[test]
    fn a_known_store_is_its_id_and_the_nonce_of_its_load() {
        const CLUSTER: &str = "0190f2c4-7a61-4c3e-9d0a-0d0f6b1c2e3f";
        for store in [format!("{CLUSTER}.12"), format!("{CLUSTER}.3:12")] {
            let text = format!("{store}.{NONCE}");
            let known: KnownStore = text.parse().unwrap();
            assert_eq!((known.store.to_string(), known.nonce.to_string()), (store, NONCE.to_owned()));
            assert_eq!(known.to_string(), text);
        }
        let two = format!("{CLUSTER}.0:1,3:12.{NONCE}");
        for wrong in ["", NONCE, &format!("{CLUSTER}.12"), &format!("x.12.{NONCE}"), &two] {
            assert_eq!(wrong.parse::<KnownStore>(), Err(IdError::KnownStore), "{wrong}");
        }
    }
}
