//! What another process needs to finish a transaction of files.

use serde::{Deserialize, Serialize};

use super::names::PartName;
use crate::author::Version;

/// The files of one transaction, each with its length and checksum. Filled at `pre_commit`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileHandle {
    version: Version<1>,
    pub(super) parts: Vec<Part>,
}

impl FileHandle {
    #[cfg(test)]
    fn of(parts: Vec<Part>) -> Self {
        Self { version: Version, parts }
    }

    /// The names of the files, in the order in which they become visible.
    pub fn file_names(&self) -> Vec<String> {
        self.parts.iter().map(|part| part.file.to_string()).collect()
    }

    /// How many bytes the files hold together.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

/// One file, as it was when it was synced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) file: PartName,
    pub(super) bytes: u64,
    pub(super) crc32: u32,
}

#[cfg(test)]
mod tests {
    use ratified_protocol::Epoch;

    use super::*;
    use crate::{
        author::MAX_TARGET_CHARS,
        sink::{Slot, TxnContext},
        sinks::file::MAX_TARGETS,
    };

    const ID: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f";

    fn part(target: &str) -> Part {
        let txn = TxnContext::new("c".parse().unwrap(), ID.parse().unwrap(), Epoch::FIRST);
        let file = PartName::new(
            &txn.with_slot(Slot::new(u32::MAX)),
            target.parse().unwrap(),
            "x".repeat(16).parse().unwrap(),
        );
        Part { file, bytes: u64::MAX, crc32: u32::MAX }
    }

    #[test]
    fn a_handle_is_read_back() {
        let handle = FileHandle::of(vec![part("orders"), part("rejects")]);
        let json = serde_json::to_string(&handle).unwrap();
        assert!(json.starts_with("{\"version\":1,\"parts\":[{\"file\":\"orders-"), "{json}");
        assert_eq!(serde_json::from_str::<FileHandle>(&json).unwrap(), handle);
    }

    #[test]
    fn an_unknown_version_or_a_name_with_a_path_is_refused() {
        let json = serde_json::to_string(&FileHandle::of(vec![part("orders")])).unwrap();
        for wrong in [json.replace("\"version\":1", "\"version\":2"), json.replace("orders-", "../orders-")] {
            assert!(serde_json::from_str::<FileHandle>(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_largest_handle_leaves_room_in_the_payload() {
        let target = |n: usize| format!("{n:0MAX_TARGET_CHARS$}");
        let parts = (0..MAX_TARGETS).map(|n| part(&target(n))).collect();
        let bytes = serde_json::to_vec(&FileHandle::of(parts)).unwrap().len();
        assert!(bytes <= 48 * 1024, "{bytes}");
    }
}
