//! What another process needs to finish a transaction of objects.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::names::ObjectKey;
use ratified::{SinkError, author::Version};

/// Greatest handle, encoded. The rest of the 64 KiB of a transaction is for the source's position.
pub const MAX_HANDLE_BYTES: usize = 48 * 1024;

/// The objects of one transaction. Filled at `pre_commit`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObjectHandle {
    version: Version<1>,
    pub(super) files: Vec<ObjectFile>,
}

impl ObjectHandle {
    /// The keys of the objects, in the order in which they become visible.
    pub fn keys(&self) -> Vec<String> {
        self.files.iter().map(|file| file.key.to_string()).collect()
    }

    /// How many bytes the objects hold together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// A handle of these files, if it fits a transaction's payload.
    pub(super) fn fitting(files: Vec<ObjectFile>) -> Result<Self, SinkError> {
        let count = files.len();
        let handle = Self { version: Version, files };
        let bytes = serde_json::to_vec(&handle).map_err(SinkError::rejected)?.len();
        if bytes <= MAX_HANDLE_BYTES {
            return Ok(handle);
        }
        Err(SinkError::rejected(format!(
            "the parts of {count} files need a handle of {bytes} bytes, more than {MAX_HANDLE_BYTES}: raise part_bytes \
             or file_bytes, or take checkpoints more often"
        )))
    }
}

/// One object, as it was staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObjectFile {
    pub(super) key: ObjectKey,
    pub(super) bytes: u64,
    #[serde(flatten)]
    pub(super) staged: Staged,
}

/// How it was staged, and what proves that an object is it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Staged {
    /// As the parts of an upload.
    Upload {
        /// The store's name of the upload.
        id: String,
        /// Written to the object's metadata, and to no other object's.
        mark: Uuid,
        /// The tag of each part, in order.
        parts: Vec<String>,
    },
    /// As a file to be renamed.
    File {
        /// The checksum of its content.
        crc32: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "p/orders/00003-0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f-1b2c3d4e-00000.jsonl";

    fn file(parts: usize) -> ObjectFile {
        let staged = Staged::Upload {
            id: "2~upload".to_owned(),
            mark: Uuid::from_u128(1),
            parts: vec!["\"d41d8cd98f00b204e9800998ecf8427e\"".to_owned(); parts],
        };
        ObjectFile { key: KEY.to_owned().try_into().unwrap(), bytes: 3, staged }
    }

    #[test]
    fn a_handle_is_read_back() {
        let local = ObjectFile { staged: Staged::File { crc32: 7 }, ..file(0) };
        let handle = ObjectHandle { version: Version, files: vec![file(2), local] };
        let json = serde_json::to_string(&handle).unwrap();
        assert!(
            json.starts_with(&format!("{{\"version\":1,\"files\":[{{\"key\":\"{KEY}\",\"bytes\":3,\"upload\":")),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<ObjectHandle>(&json).unwrap(), handle);
    }

    #[test]
    fn an_unknown_version_or_a_reserved_key_is_refused() {
        let json = serde_json::to_string(&ObjectHandle { version: Version, files: vec![file(1)] }).unwrap();
        for wrong in [json.replace("\"version\":1", "\"version\":2"), json.replace("/orders/", "/_ratified/")] {
            assert!(serde_json::from_str::<ObjectHandle>(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_handle_is_taken_up_to_its_bound_and_refused_behind_it() {
        let bytes =
            |parts| serde_json::to_vec(&ObjectHandle { version: Version, files: vec![file(parts)] }).unwrap().len();
        let most = (1..).find(|parts| bytes(parts + 1) > MAX_HANDLE_BYTES).unwrap();
        assert!(ObjectHandle::fitting(vec![file(most)]).is_ok());
        let refused = ObjectHandle::fitting(vec![file(most + 1)]).unwrap_err().to_string();
        let told = format!(
            "the sink refused: the parts of 1 files need a handle of {} bytes, more than 49152: raise part_bytes or file_bytes, or take checkpoints more often",
            bytes(most + 1)
        );
        assert_eq!(refused, told);
        // 1,200 parts of the default 8 MiB are 9.4 GiB per transaction.
        assert!(most > 1200, "{most}");
    }
}
