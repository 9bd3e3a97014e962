//! Names of targets and of their files: parsed once, formatted in one place.

use std::{fmt, str::FromStr, sync::Arc};

use ratified_protocol::{ClientName, TxnId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::sink::{Slot, TxnContext};

/// Longest name of a target, in characters. With slot, id, client and extension a file name stays below the 255 bytes
/// that file systems allow.
pub const MAX_TARGET_CHARS: usize = 128;
/// Longest extension, in characters.
const MAX_EXTENSION_CHARS: usize = 16;
const TXN_ID_CHARS: usize = 36;

/// Why a file sink cannot be built as asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileSinkError {
    /// The caller must rename the target.
    #[error("a target must be 1..=128 characters of A-Z a-z 0-9 . _ : @ ~ - and start with a letter or digit")]
    Target,
    /// The caller must choose another extension.
    #[error("an extension must be 1..=16 letters and digits")]
    Extension,
    /// The caller must choose a value within the bounds.
    #[error("{key} must be 1..={max}")]
    OutOfBounds {
        /// Which setting.
        key: &'static str,
        /// Its greatest value.
        max: usize,
    },
}

/// What the files of one output are named after: their common stem. 1..=128 characters of `A-Z a-z 0-9 . _ : @ ~ -`, the
/// first a letter or digit. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetName(Arc<str>);

impl TargetName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TargetName {
    type Err = FileSinkError;
    fn from_str(text: &str) -> Result<Self, FileSinkError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || b"._:@~-".contains(&b);
        let starts_well = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        let taken = starts_well && text.len() <= MAX_TARGET_CHARS && text.bytes().all(legal);
        if taken { Ok(Self(Arc::from(text))) } else { Err(FileSinkError::Target) }
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The part of a file name after its last dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sinks) struct Extension(Arc<str>);

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Extension {
    type Err = FileSinkError;
    fn from_str(text: &str) -> Result<Self, FileSinkError> {
        let taken = (1..=MAX_EXTENSION_CHARS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if taken { Ok(Self(Arc::from(text))) } else { Err(FileSinkError::Extension) }
    }
}

/// The name of one file, the same staged and visible: `<target>-<slot>-<txnId>-<crc32 of the client>.<extension>`.
///
/// Only client and id together name a transaction, and a client's name may be too long for a file name; so its checksum
/// stands for it. Two clients that share checksum, slot, id and target would meet in a refused commit, not in lost data.
/// The order is that of the output.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct PartName {
    pub(super) slot: Slot,
    pub(super) txn_id: TxnId,
    client: u32,
    pub(super) target: TargetName,
    extension: Extension,
}

impl PartName {
    pub(super) fn new(txn: &TxnContext, target: TargetName, extension: Extension) -> Self {
        Self { slot: txn.slot, txn_id: txn.txn_id, client: checksum(&txn.client), target, extension }
    }

    pub(super) fn belongs_to(&self, txn: &TxnContext) -> bool {
        self.txn_id == txn.txn_id && self.client == checksum(&txn.client)
    }

    fn parse(text: &str) -> Option<Self> {
        // From the right, where every piece has a known form; a target may hold dashes and dots.
        let (stem, extension) = text.rsplit_once('.')?;
        let (stem, client) = stem.rsplit_once('-')?;
        let (stem, txn_id) = stem.split_at_checked(stem.len().checked_sub(TXN_ID_CHARS)?)?;
        let (target, slot) = stem.strip_suffix('-')?.rsplit_once('-')?;
        let name = Self {
            slot: Slot::new(slot.parse().ok()?),
            txn_id: txn_id.parse().ok()?,
            client: u32::from_str_radix(client, 16).ok()?,
            target: target.parse().ok()?,
            extension: extension.parse().ok()?,
        };
        // One name has one spelling.
        (name.to_string() == text).then_some(name)
    }
}

/// Stands for a client in a name.
pub(in crate::sinks) fn checksum(client: &ClientName) -> u32 {
    crc32fast::hash(client.as_str().as_bytes())
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, txn_id, client, target, extension } = self;
        write!(f, "{target}-{slot:05}-{txn_id}-{client:08x}.{extension}")
    }
}

/// A text that is not the name of a part.
#[derive(Debug, Error)]
#[error("{0:?} is not the name of a file of this sink")]
pub(super) struct NotAPart(String);

impl TryFrom<String> for PartName {
    type Error = NotAPart;
    fn try_from(text: String) -> Result<Self, NotAPart> {
        Self::parse(&text).ok_or(NotAPart(text))
    }
}

impl From<PartName> for String {
    fn from(name: PartName) -> String {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratified_protocol::Epoch;

    use super::*;

    const ID: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f";

    fn part(client: &str, slot: u32, target: &str) -> PartName {
        let txn = TxnContext::new(client.parse().unwrap(), ID.parse().unwrap(), Epoch::FIRST);
        PartName::new(&txn.with_slot(Slot::new(slot)), target.parse().unwrap(), "jsonl".parse().unwrap())
    }

    #[test]
    fn a_file_is_named_after_target_slot_id_and_client() {
        assert_eq!(
            part("shop.sink.3", 3, "orders").to_string(),
            format!("orders-00003-{ID}-{:08x}.jsonl", crc32fast::hash(b"shop.sink.3"))
        );
    }

    #[test]
    fn targets_are_taken_up_to_their_bound() {
        let longest = "a".repeat(128);
        for good in ["a", "0", "A._:@~-z", "a-00001", longest.as_str()] {
            assert_eq!(good.parse::<TargetName>().map(|t| t.to_string()), Ok(good.to_owned()));
        }
        let too_long = "a".repeat(129);
        for wrong in ["", ".a", "-a", "a/b", "..", "a b", "ä", "a\0", too_long.as_str()] {
            assert_eq!(wrong.parse::<TargetName>(), Err(FileSinkError::Target), "{wrong:?}");
        }
    }

    #[test]
    fn extensions_are_taken_up_to_their_bound() {
        assert!("x".repeat(16).parse::<Extension>().is_ok());
        for wrong in ["", "tar.gz", "a/b", &"x".repeat(17)] {
            assert_eq!(wrong.parse::<Extension>(), Err(FileSinkError::Extension), "{wrong:?}");
        }
    }

    #[test]
    fn the_longest_name_fits_a_file_system() {
        let txn = TxnContext::new("c".repeat(200).parse().unwrap(), ID.parse().unwrap(), Epoch::FIRST)
            .with_slot(Slot::new(u32::MAX));
        let target = "t".repeat(MAX_TARGET_CHARS).parse().unwrap();
        let name = PartName::new(&txn, target, "x".repeat(MAX_EXTENSION_CHARS).parse().unwrap());
        assert!(name.to_string().len() <= 255, "{}", name.to_string().len());
        assert_eq!(PartName::parse(&name.to_string()), Some(name));
    }

    #[test]
    fn other_names_are_no_parts() {
        let good = part("c", 7, "orders").to_string();
        assert!(PartName::parse(&good).is_some());
        for wrong in [
            String::new(),
            "README.md".to_owned(),
            format!("../{good}"),
            format!(".{good}"),
            good.replace("-00007-", "-7-"),
            good.replace("-00007-", "-+0007-"),
            good.replace("orders-", "-"),
            good.replace("7c3e", "4c3e"),
            good.replace("2e3f", "2E3F"),
            good.replace(".jsonl", ""),
        ] {
            assert_eq!(PartName::parse(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parts_are_ordered_by_slot_and_id_also_past_the_padding() {
        assert!(part("c", 2, "z") < part("c", 10, "a"));
        assert!(part("c", 99_999, "a") < part("c", 100_000, "a"));
    }

    proptest! {
        #[test]
        fn every_legal_name_is_read_back(
            client in "[A-Za-z0-9][A-Za-z0-9._:@~-]{0,199}",
            target in "[A-Za-z0-9][A-Za-z0-9._:@~-]{0,127}",
            slot: u32,
        ) {
            let name = part(&client, slot, &target);
            prop_assert_eq!(PartName::parse(&name.to_string()), Some(name));
        }

        #[test]
        fn no_text_is_read_as_a_part_that_is_spelt_differently(text in "\\PC{0,80}") {
            if let Some(name) = PartName::parse(&text) {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
