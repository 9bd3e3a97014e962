//! Keys of objects and markers: parsed once, formatted in one place.

use std::{fmt, sync::Arc};

use object_store::path::Path;
use ratified::{
    ClientName, Slot, TxnContext, TxnId,
    author::{Extension, TargetName, client_checksum},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The first part of every key that is not for readers. No target is named so: targets start with a letter or digit.
const RESERVED: &str = "_ratified";
/// Longest prefix, in bytes: keys stay well below the 1024 bytes that S3 allows.
pub(super) const MAX_PREFIX_BYTES: usize = 256;
const TXN_ID_CHARS: usize = 36;

/// Where a sink lies in its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    prefix: Arc<str>,
}

impl Layout {
    /// `None` for a prefix that is not made of legal, non-empty segments, or that is too long.
    pub(super) fn new(prefix: &str) -> Option<Self> {
        let path = Path::parse(prefix).ok().filter(|path| path.as_ref().len() <= MAX_PREFIX_BYTES)?;
        Some(Self { prefix: Arc::from(path.as_ref()) })
    }

    /// Everything that is staged.
    pub(super) fn staging(&self) -> Path {
        self.path(RESERVED)
    }

    /// What a client has staged: one folder per transaction.
    pub(super) fn client_folder(&self, client: &ClientName) -> Path {
        self.path(&format!("{RESERVED}/{client}"))
    }

    /// What a transaction has staged: one marker, or one staged file, per file.
    pub(super) fn txn_folder(&self, client: &ClientName, txn_id: TxnId) -> Path {
        self.path(&format!("{RESERVED}/{client}/{txn_id}"))
    }

    /// The marker, or the staged file, of one file.
    pub(super) fn staged(&self, client: &ClientName, txn_id: TxnId, number: FileNumber) -> Path {
        self.path(&format!("{RESERVED}/{client}/{txn_id}/{number}"))
    }

    /// Where the objects of a target are.
    pub(super) fn target_folder(&self, target: &TargetName) -> Path {
        self.path(target.as_str())
    }

    /// Names are taken as they are: every legal name is a legal segment.
    /// What all keys are under.
    pub(super) fn root(&self) -> Path {
        Path::parse(&self.prefix).unwrap_or_default()
    }

    fn path(&self, rest: &str) -> Path {
        let joined = if self.prefix.is_empty() { rest.to_owned() } else { format!("{}/{rest}", self.prefix) };
        Path::parse(&joined).unwrap_or_else(|_| Path::from(joined))
    }
}

/// Which of the files of its transaction, counted from 0 in the order in which they were begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileNumber(u32);

impl FileNumber {
    pub(super) const fn new(number: u32) -> Self {
        Self(number)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = Self(text.parse().ok()?);
        // One number has one spelling.
        (number.to_string() == text).then_some(number)
    }
}

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:05}", self.0)
    }
}

/// The key of one object: `<prefix>/<target>/<slot>-<txnId>-<crc32 of the client>-<number>.<extension>`.
///
/// Only client and id together name a transaction; the checksum stands for the client, whose name may be long. Two
/// clients that share checksum, slot, id and target would meet in a refused commit, not in lost data. The order within a
/// target is that of the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct ObjectKey {
    layout: Layout,
    target: TargetName,
    slot: Slot,
    txn_id: TxnId,
    client: u32,
    number: FileNumber,
    extension: Extension,
}

impl ObjectKey {
    pub(super) fn new(
        layout: &Layout,
        txn: &TxnContext,
        target: TargetName,
        number: FileNumber,
        extension: Extension,
    ) -> Self {
        let client = client_checksum(&txn.client);
        Self { layout: layout.clone(), target, slot: txn.slot, txn_id: txn.txn_id, client, number, extension }
    }

    pub(super) fn belongs_to(&self, txn: &TxnContext) -> bool {
        self.txn_id == txn.txn_id && self.client == client_checksum(&txn.client)
    }

    pub(super) fn is_of(&self, layout: &Layout, client: &ClientName) -> bool {
        self.layout == *layout && self.client == client_checksum(client)
    }

    pub(super) fn path(&self) -> Path {
        self.layout.path(&format!("{}/{}", self.target, self.name()))
    }

    /// The marker, or the staged file, that goes with it.
    pub(super) fn staged(&self, client: &ClientName) -> Path {
        self.layout.staged(client, self.txn_id, self.number)
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    pub(super) fn txn_id(&self) -> TxnId {
        self.txn_id
    }

    pub(super) fn number(&self) -> FileNumber {
        self.number
    }

    fn name(&self) -> String {
        let Self { slot, txn_id, client, number, extension, .. } = self;
        format!("{:05}-{txn_id}-{client:08x}-{number}.{extension}", slot.as_u32())
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (folder, name) = text.rsplit_once('/')?;
        let (prefix, target) = folder.rsplit_once('/').unwrap_or(("", folder));
        let (stem, extension) = name.rsplit_once('.')?;
        let (stem, number) = stem.rsplit_once('-')?;
        let (stem, client) = stem.rsplit_once('-')?;
        let (slot, txn_id) = stem.split_at_checked(stem.len().checked_sub(TXN_ID_CHARS)?)?;
        let key = Self {
            layout: Layout::new(prefix)?,
            target: target.parse().ok()?,
            slot: Slot::new(slot.strip_suffix('-')?.parse().ok()?),
            txn_id: txn_id.parse().ok()?,
            client: u32::from_str_radix(client, 16).ok()?,
            number: FileNumber::parse(number)?,
            extension: extension.parse().ok()?,
        };
        // One key has one spelling.
        (key.to_string() == text).then_some(key)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().fmt(f)
    }
}

/// A text that is not the key of an object of this sink.
#[derive(Debug, Error)]
#[error("{0:?} is not the key of an object of this sink")]
pub(super) struct NotAKey(String);

impl TryFrom<String> for ObjectKey {
    type Error = NotAKey;
    fn try_from(text: String) -> Result<Self, NotAKey> {
        Self::parse(&text).ok_or(NotAKey(text))
    }
}

impl From<ObjectKey> for String {
    fn from(key: ObjectKey) -> String {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratified::Epoch;

    use super::*;

    const ID: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f";

    fn key(prefix: &str, client: &str, slot: u32, target: &str, number: u32) -> ObjectKey {
        let txn = TxnContext::new(client.parse().unwrap(), ID.parse().unwrap(), Epoch::FIRST);
        let txn = txn.with_slot(Slot::new(slot));
        let layout = Layout::new(prefix).unwrap();
        ObjectKey::new(&layout, &txn, target.parse().unwrap(), FileNumber::new(number), "jsonl".parse().unwrap())
    }

    #[test]
    fn an_object_is_named_after_target_slot_id_client_and_number() {
        let crc = crc32fast::hash(b"shop.sink.3");
        let named = key("lake/raw", "shop.sink.3", 3, "orders", 7);
        assert_eq!(named.to_string(), format!("lake/raw/orders/00003-{ID}-{crc:08x}-00007.jsonl"));
        assert_eq!(
            named.staged(&"shop.sink.3".parse().unwrap()).as_ref(),
            format!("lake/raw/_ratified/shop.sink.3/{ID}/00007")
        );
        assert_eq!(
            key("", "c", 0, "t", 0).to_string(),
            format!("t/00000-{ID}-{:08x}-00000.jsonl", crc32fast::hash(b"c"))
        );
    }

    #[test]
    fn prefixes_are_taken_up_to_their_bound() {
        let longest = "p".repeat(MAX_PREFIX_BYTES);
        for good in ["", "a", "a/b", "/a/", longest.as_str()] {
            assert!(Layout::new(good).is_some(), "{good:?}");
        }
        let too_long = "p".repeat(MAX_PREFIX_BYTES + 1);
        for wrong in ["a//b", "..", "a/../b", "a\0", too_long.as_str()] {
            assert_eq!(Layout::new(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_longest_key_fits_s3_and_a_file_system() {
        let target = "t".repeat(ratified::author::MAX_TARGET_CHARS);
        let key = key(&"p".repeat(MAX_PREFIX_BYTES), &"c".repeat(200), u32::MAX, &target, u32::MAX).to_string();
        assert!(key.len() <= 1024, "{}", key.len());
        assert!(key.split('/').skip(1).all(|segment| segment.len() <= 255), "{key}");
    }

    #[test]
    fn other_texts_are_no_keys() {
        let good = key("p", "c", 7, "orders", 1).to_string();
        assert!(ObjectKey::parse(&good).is_some());
        for wrong in [
            String::new(),
            "README.md".to_owned(),
            format!("/{good}"),
            format!("../{good}"),
            good.replace("/orders/", "/_ratified/"),
            good.replace("00007-", "7-"),
            good.replace("-00001.", "-1."),
            good.replace("2e3f", "2E3F"),
            good.replace(".jsonl", ""),
        ] {
            assert_eq!(ObjectKey::parse(&wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_legal_key_is_read_back(
            client in "[A-Za-z0-9][A-Za-z0-9._:@~-]{0,199}",
            target in "[A-Za-z0-9][A-Za-z0-9._:@~-]{0,127}",
            prefix in "([a-z~%#]{1,9}/){0,3}",
            slot: u32,
            number: u32,
        ) {
            let key = key(&prefix, &client, slot, &target, number);
            prop_assert_eq!(ObjectKey::parse(&key.to_string()), Some(key));
        }
    }
}
