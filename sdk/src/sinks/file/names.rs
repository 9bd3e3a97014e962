//! Names of files: parsed once, formatted in one place.

use std::fmt;

use ratified_protocol::{ClientName, TxnId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    author::{Extension, NameError, TargetName, client_checksum},
    sink::{Slot, TxnContext},
};

const TXN_ID_CHARS: usize = 36;

/// Why a file sink cannot be built as asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileSinkError {
    /// The caller must choose another name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The caller must choose a value within the bounds.
    #[error("{key} must be 1..={max}")]
    OutOfBounds {
        /// Which setting.
        key: &'static str,
        /// Its greatest value.
        max: usize,
    },
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
        Self { slot: txn.slot, txn_id: txn.txn_id, client: client_checksum(&txn.client), target, extension }
    }

    pub(super) fn belongs_to(&self, txn: &TxnContext) -> bool {
        self.txn_id == txn.txn_id && self.is_of(&txn.client)
    }

    pub(super) fn is_of(&self, client: &ClientName) -> bool {
        self.client == client_checksum(client)
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
    use crate::author::{MAX_EXTENSION_CHARS, MAX_TARGET_CHARS};

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
