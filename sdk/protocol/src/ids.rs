//! Identifiers. Each is parsed once at the edge and carried as its own type from there on.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;
use uuid::{Uuid, Variant};

/// Longest client or participant name, in characters (all ASCII).
pub const MAX_NAME_CHARS: usize = 200;

/// Why a piece of text is not the identifier it was meant to be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IdError {
    /// A name is not of the form the protocol allows; the caller must rename.
    #[error("must be 1..=200 characters of A-Z a-z 0-9 . _ : @ ~ - and start with a letter or digit")]
    Name,
    /// A transaction id is not a UUIDv7 in lower-case hyphenated form; the caller must draw another.
    #[error("must be a UUIDv7 in lower-case hyphenated form")]
    TxnId,
    /// A store id is not of the form the protocol gives it.
    #[error("must be <clusterId>.<loads>, or <clusterId>.<p>:<loads> with a pair per partition, ascending")]
    StoreId,
    /// The nonce of a load is not of the form it is given out in.
    #[error("must be 32 lower-case hexadecimal digits")]
    LoadNonce,
    /// A known store is not one load of a store and its nonce.
    #[error("must be <clusterId>.<loads>.<nonce>, or <clusterId>.<p>:<loads>.<nonce>")]
    KnownStore,
}

fn parse_name(text: &str) -> Result<Arc<str>, IdError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"._:@~-".contains(&b);
    let starts_well = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if starts_well && text.len() <= MAX_NAME_CHARS && text.bytes().all(legal) {
        Ok(Arc::from(text))
    } else {
        Err(IdError::Name)
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        // Ordered like its text, so that a range of names can be asked for by prefix.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse_name(text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name_type! {
    /// The stable name of a job's sink: the same across restarts, hosts and job ids (PIP-255 `clientName`).
    ClientName
}

name_type! {
    /// A resource that applies outcomes and acknowledges them. The SDK's own sink is one, named as its client.
    ParticipantName
}

impl From<&ClientName> for ParticipantName {
    fn from(client: &ClientName) -> Self {
        Self(client.0.clone())
    }
}

/// A transaction id: a UUIDv7 drawn by the client and persisted by it before the first call, so that `begin` is
/// idempotent. Ids are compared as bytes; the time inside is never read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(Uuid);

impl TxnId {
    /// The sixteen bytes by which ids are ordered.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id in these sixteen bytes. Fails with [`IdError::TxnId`] if they are not a UUIDv7.
    pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, IdError> {
        Self::try_from(Uuid::from_bytes(bytes))
    }

    /// The id as a UUID.
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }
}

impl TryFrom<Uuid> for TxnId {
    type Error = IdError;
    fn try_from(uuid: Uuid) -> Result<Self, IdError> {
        let is_v7 = uuid.get_version_num() == 7 && uuid.get_variant() == Variant::RFC4122;
        if is_v7 { Ok(Self(uuid)) } else { Err(IdError::TxnId) }
    }
}

impl FromStr for TxnId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let uuid = Uuid::try_parse(text).map_err(|_| IdError::TxnId)?;
        // `try_parse` also takes braces, URNs, capitals and bare hex; one id must have one spelling.
        if uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) != text {
            return Err(IdError::TxnId);
        }
        Self::try_from(uuid)
    }
}

// Text on the wire, sixteen bytes on disk.
impl Serialize for TxnId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.as_bytes().serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for TxnId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse()
        } else {
            Self::from_bytes(<[u8; 16]>::deserialize(deserializer)?)
        };
        id.map_err(de::Error::custom)
    }
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), f)
    }
}

impl fmt::Debug for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of a client's owner: starts at 1, is raised by every new `open`, never reused, never wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch that the first `open` of a client is given.
    pub const FIRST: Self = Self(1);

    /// An epoch from its number. Zero is an epoch nobody ever owned: smaller than every real one.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The epoch as a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The epoch after this one, or `None` when the numbers are used up.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a checkpoint of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CheckpointId(u64);

impl CheckpointId {
    /// A checkpoint from its number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The checkpoint as a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fencing number of an engine: attempt, group generation, transition of a lease. Of two owners the one with the
/// greater number is the newer; an engine without such a number gives none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(u64);

impl Generation {
    /// A generation from its number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The generation as a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One `open` of one runtime; a process may have many. Reused only to retry that one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(Uuid);

impl Incarnation {
    /// An incarnation from a UUID that the caller must have drawn at random.
    pub const fn new(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The incarnation as a UUID.
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_protocol_form_are_taken() {
        let longest = "a".repeat(200);
        for name in ["a", "0", "orders-job.sink.3", "A._:@~-z", longest.as_str()] {
            assert_eq!(name.parse::<ClientName>().map(|n| n.to_string()), Ok(name.to_owned()));
            assert_eq!(name.parse::<ParticipantName>().map(|n| n.to_string()), Ok(name.to_owned()));
        }
    }

    #[test]
    fn names_of_any_other_form_are_refused() {
        let too_long = "a".repeat(201);
        for name in ["", ".a", "-a", "a/b", "a b", "a%2Fb", "ä", "a\n", too_long.as_str()] {
            assert_eq!(name.parse::<ClientName>(), Err(IdError::Name), "{name:?}");
        }
    }

    #[test]
    fn a_txn_id_has_one_spelling() {
        let id = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f";
        assert_eq!(id.parse::<TxnId>().map(|i| i.to_string()), Ok(id.to_owned()));
        for wrong in [
            "0190F2C4-7A61-7C3E-9D0A-0D0F6B1C2E3F",
            "0190f2c47a617c3e9d0a0d0f6b1c2e3f",
            "{0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f}",
            "urn:uuid:0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f",
            "0190f2c4-7a61-4c3e-9d0a-0d0f6b1c2e3f",
            "0190f2c4-7a61-7c3e-1d0a-0d0f6b1c2e3f",
            "",
        ] {
            assert_eq!(wrong.parse::<TxnId>(), Err(IdError::TxnId), "{wrong}");
        }
    }

    #[test]
    fn epochs_never_wrap() {
        assert_eq!(Epoch::FIRST.next(), Some(Epoch::new(2)));
        assert_eq!(Epoch::new(u64::MAX).next(), None);
    }
}
