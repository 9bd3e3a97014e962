//! The resource the jobs write to. It loses nothing; what counts is what becomes visible, and how often.

use std::collections::{BTreeMap, BTreeSet};

use ratified_protocol::{ClientName, TxnId};

use crate::oracle::TxnKey;

/// One source record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The job.
    pub job: u64,
    /// The partition of its source.
    pub partition: u64,
    /// The place in it.
    pub index: u64,
}

/// How a commit went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// It became visible now.
    Now,
    /// It was visible already; the marker is the proof.
    Already,
}

/// Staged and visible rows, by transaction.
#[derive(Debug, Default)]
pub struct Sink {
    staged: BTreeMap<TxnKey, Vec<Row>>,
    markers: BTreeSet<TxnKey>,
    visible: BTreeMap<Row, u64>,
}

impl Sink {
    /// Stages rows, invisible.
    pub fn write(&mut self, key: &TxnKey, rows: &[Row]) {
        self.staged.entry(key.clone()).or_default().extend_from_slice(rows);
    }

    /// Makes a transaction visible.
    ///
    /// # Errors
    /// Neither staged nor visible: lost by the sink.
    pub fn commit(&mut self, key: &TxnKey) -> Result<Committed, String> {
        if self.markers.contains(key) {
            return Ok(Committed::Already);
        }
        let rows = self.staged.remove(key).ok_or_else(|| format!("{key:?} is not staged"))?;
        self.markers.insert(key.clone());
        for row in rows {
            *self.visible.entry(row).or_default() += 1;
        }
        Ok(Committed::Now)
    }

    /// Removes what is staged under a transaction.
    ///
    /// # Errors
    /// It is visible.
    pub fn abort(&mut self, key: &TxnKey) -> Result<(), String> {
        if self.markers.contains(key) {
            return Err(format!("a visible transaction is aborted: {key:?}"));
        }
        self.staged.remove(key);
        Ok(())
    }

    /// What is staged and not visible under a client.
    pub fn staged(&self, client: &ClientName) -> Vec<TxnId> {
        self.staged.keys().filter(|(name, _)| name == client).map(|(_, id)| *id).collect()
    }

    /// A row that is visible more than once.
    pub fn twice(&self) -> Option<Row> {
        self.visible.iter().find(|(_, times)| **times > 1).map(|(row, _)| *row)
    }

    /// How often a row is visible.
    pub fn times(&self, row: Row) -> u64 {
        self.visible.get(&row).copied().unwrap_or_default()
    }
}
