//! What another process needs to finish a transaction of rows.

use ratified::author::Version;
use serde::{Deserialize, Serialize};

/// How a sink stages: see the [crate](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Staging {
    /// In a transaction of the database that is prepared, and committed by its name: `PREPARE TRANSACTION`.
    Prepared,
    /// In tables beside the targets, moved to them by one transaction of the database that also notes it in a ledger.
    Ledger,
}

/// How and by which sink a transaction was staged, and how many rows it has. Small: the data is found by client and id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostgresHandle {
    version: Version<1>,
    pub(super) sink: String,
    pub(super) staging: Staging,
    pub(super) rows: u64,
}

impl PostgresHandle {
    pub(super) fn new(sink: &str, staging: Staging) -> Self {
        Self { version: Version, sink: sink.to_owned(), staging, rows: 0 }
    }

    /// How it was staged.
    pub fn staging(&self) -> Staging {
        self.staging
    }

    /// How many rows it has; known from `pre_commit` on.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_read_back_and_other_versions_are_refused() {
        for (staging, code) in [(Staging::Prepared, "prepared"), (Staging::Ledger, "ledger")] {
            let handle = PostgresHandle { rows: 7, ..PostgresHandle::new("main", staging) };
            let json = serde_json::to_string(&handle).unwrap();
            assert_eq!(json, format!("{{\"version\":1,\"sink\":\"main\",\"staging\":\"{code}\",\"rows\":7}}"));
            assert_eq!(serde_json::from_str::<PostgresHandle>(&json).unwrap(), handle);
            for wrong in [json.replace(":1,", ":2,"), json.replace(code, "guessed")] {
                assert!(serde_json::from_str::<PostgresHandle>(&wrong).is_err(), "{wrong}");
            }
        }
    }
}
