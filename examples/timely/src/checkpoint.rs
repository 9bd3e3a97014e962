//! Checkpoints on disk: each worker's part, and which checkpoint is complete.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use ratified::{CheckpointId, Snapshot};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{FlowError, failed, totals::Totals};

/// What one worker stores for an epoch.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    /// The sink's snapshot.
    pub(super) snapshot: Vec<u8>,
    pub(super) totals: Totals,
}

/// Which checkpoint is complete, and of how many parts it is.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Completed {
    epoch: u64,
    parts: usize,
}

/// What a start goes on from.
#[derive(Debug, Default)]
pub(super) struct Restored {
    /// The last completed epoch; 0 if there is none.
    pub(super) epoch: u64,
    /// What all workers knew.
    pub(super) totals: Totals,
    /// Every worker's snapshot.
    snapshots: Vec<Snapshot>,
}

impl Restored {
    pub(super) fn checkpoint(&self) -> CheckpointId {
        CheckpointId::new(self.epoch)
    }

    /// The snapshots that a worker takes over: each one's by exactly one, however many there were.
    pub(super) fn snapshots_of(&self, index: u32, workers: u32) -> Vec<Snapshot> {
        let is_own = |(old, _): &(usize, &Snapshot)| *old as u64 % u64::from(workers.max(1)) == u64::from(index);
        self.snapshots.iter().enumerate().filter(is_own).map(|(_, snapshot)| snapshot.clone()).collect()
    }
}

/// The directory of the checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    dir: PathBuf,
}

impl Checkpoints {
    /// Opens the directory, and makes it if it is not there.
    ///
    /// # Errors
    /// [`FlowError::Io`].
    pub fn open(dir: &Path) -> Result<Self, FlowError> {
        fs::create_dir_all(dir).map_err(failed(dir))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// The last completed epoch; 0 if there is none.
    ///
    /// # Errors
    /// [`FlowError::Io`].
    pub fn completed_epoch(&self) -> Result<u64, FlowError> {
        Ok(self.load::<Completed>("completed")?.unwrap_or_default().epoch)
    }

    pub(super) fn restore(&self) -> Result<Restored, FlowError> {
        let Completed { epoch, parts } = self.load("completed")?.unwrap_or_default();
        let mut restored = Restored { epoch, ..Restored::default() };
        for index in 0..parts {
            let name = part_name(epoch, index);
            let missing = || failed(&self.dir.join(&name))(io::ErrorKind::NotFound.into());
            let part: Part = self.load(&name)?.ok_or_else(missing)?;
            restored.snapshots.push(Snapshot::from_bytes(&part.snapshot)?);
            restored.totals.extend(part.totals);
        }
        Ok(restored)
    }

    /// Durable when it returns.
    pub(super) fn store_part(&self, epoch: u64, index: usize, part: &Part) -> Result<(), FlowError> {
        self.store(&part_name(epoch, index), part)
    }

    /// Declares that all parts of an epoch are there. Durable when it returns.
    pub(super) fn complete(&self, epoch: u64, parts: usize) -> Result<(), FlowError> {
        let before: Completed = self.load("completed")?.unwrap_or_default();
        self.store("completed", &Completed { epoch, parts })?;
        for index in 0..before.parts {
            // Best effort: what is left is replaced or ignored.
            let _ = fs::remove_file(self.dir.join(part_name(before.epoch, index)));
        }
        Ok(())
    }

    fn load<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, FlowError> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => {
                let parsed = serde_json::from_slice(&bytes.map_err(failed(&path))?);
                parsed.map(Some).map_err(|error| failed(&path)(error.into()))
            }
        }
    }

    fn store<T: Serialize>(&self, name: &str, value: &T) -> Result<(), FlowError> {
        let (path, unfinished) = (self.dir.join(name), self.dir.join(format!("{name}.unfinished")));
        let write = || -> io::Result<()> {
            let file = File::create(&unfinished)?;
            serde_json::to_writer(&file, value)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(failed(&path))
    }
}

fn part_name(epoch: u64, index: usize) -> String {
    format!("{epoch}-{index}")
}
