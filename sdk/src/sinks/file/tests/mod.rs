//! The file sink on a real disk; failures are put in through the step hook.

mod committing;
mod staging;
mod strangers;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use ratified_protocol::{CheckpointId, ClientName, Epoch, TxnId};
use tempfile::TempDir;

use super::*;
pub(super) use crate::sink::{Committed, SinkCommitter, SinkWriter};
use crate::{
    error::{Certainty, SinkError},
    sink::{Slot, TxnContext},
};

pub(super) const CLIENT: &str = "shop.sink.3";

pub(super) fn target(name: &str) -> TargetName {
    name.parse().unwrap()
}

pub(super) fn id(number: u8) -> TxnId {
    format!("0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e{number:02x}").parse().unwrap()
}

pub(super) fn txn(number: u8) -> TxnContext {
    let txn = TxnContext::new(CLIENT.parse().unwrap(), id(number), Epoch::FIRST);
    txn.with_slot(Slot::new(3)).with_checkpoint(Some(CheckpointId::new(1)))
}

/// A directory for one test, and the steps taken in it.
pub(super) struct Room {
    dir: TempDir,
    steps: Arc<Mutex<Vec<String>>>,
}

/// A step that fails, the n-th time it is met.
pub(super) type Failing = (&'static str, usize, io::ErrorKind);

impl Room {
    pub(super) fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), steps: Arc::default() }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    pub(super) fn staging(&self) -> PathBuf {
        self.root().join(".staged").join(CLIENT)
    }

    /// Raw bytes; the first one of a record chooses its target: `o` or `r`.
    pub(super) fn builder(&self) -> FileSinkBuilder<&'static str> {
        FileSink::raw(self.root(), target("o")).route(|record: &&str| target(&record[..1]))
    }

    /// A sink whose steps are noted, and which fails where it is told to.
    pub(super) fn watched(&self, failing: &[Failing]) -> FileSinkBuilder<&'static str> {
        let (steps, root) = (self.steps.clone(), self.dir.path().to_owned());
        let mut failing: Vec<Failing> = failing.to_vec();
        let fail = Mutex::new(move |step: &str| {
            let met = failing.iter_mut().find(|(prefix, _, _)| step.starts_with(prefix));
            let Some((_, countdown, kind)) = met else { return Ok(()) };
            let now = *countdown == 0;
            *countdown = countdown.wrapping_sub(1);
            if now { Err(io::Error::from(*kind)) } else { Ok(()) }
        });
        self.builder().on_step(move |step| {
            let step = short(step, &root);
            steps.lock().unwrap().push(step.clone());
            (fail.lock().unwrap())(&step)
        })
    }

    pub(super) fn steps(&self) -> Vec<String> {
        std::mem::take(&mut *self.steps.lock().unwrap())
    }

    pub(super) fn read(&self, name: &str) -> String {
        String::from_utf8(read_target(&self.root(), &target(name)).unwrap()).unwrap()
    }

    /// The names in the directory that are seen without looking for hidden ones.
    pub(super) fn visible(&self) -> Vec<String> {
        names(&self.root()).into_iter().filter(|name| !name.starts_with('.')).collect()
    }

    pub(super) fn staged(&self) -> Vec<String> {
        names(&self.staging())
    }
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

fn short(step: &FileStep<'_>, root: &Path) -> String {
    let target = |file: &str| file[..1].to_owned();
    match step {
        FileStep::Write { file } => format!("write {}", target(file)),
        FileStep::SyncFile { file } => format!("sync {}", target(file)),
        FileStep::SyncDirectory { path } => {
            format!("sync /{}", path.strip_prefix(root).map_or("..".into(), |path| path.to_string_lossy()))
        }
        FileStep::Rename { file, index } => format!("rename {} {index}", target(file)),
        FileStep::Remove { file } => format!("remove {}", target(file)),
    }
}

/// Begins, writes and prepares.
pub(super) async fn stage(
    sink: &FileSink<&'static str>,
    txn: &TxnContext,
    records: &[&'static str],
) -> Result<FileHandle, SinkError> {
    let mut writer = sink.writer().await?;
    let mut handle = writer.begin(txn).await?;
    writer.write(txn, &mut handle, records.to_vec()).await?;
    writer.pre_commit(txn, &mut handle).await?;
    Ok(handle)
}

pub(super) async fn commit(
    sink: &FileSink<&'static str>,
    txn: &TxnContext,
    handle: &FileHandle,
) -> Result<Committed, SinkError> {
    sink.committer().await?.commit(txn, handle).await
}

pub(super) async fn listed(sink: &FileSink<&'static str>, client: &str) -> Vec<TxnId> {
    let client: ClientName = client.parse().unwrap();
    sink.committer().await.unwrap().list_staged(&client).await.unwrap()
}

/// The refusal's text.
pub(super) fn refusal<T: std::fmt::Debug>(result: Result<T, SinkError>) -> String {
    match result {
        Err(SinkError::Rejected(cause)) => cause.to_string(),
        other => panic!("not rejected: {other:?}"),
    }
}

/// How certain a failure that may pass is.
pub(super) fn certainty<T: std::fmt::Debug>(result: Result<T, SinkError>) -> Certainty {
    match result {
        Err(SinkError::Retry { certainty, .. }) => certainty,
        other => panic!("not to be retried: {other:?}"),
    }
}
