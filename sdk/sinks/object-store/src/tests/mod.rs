//! The sink on a store in memory and on a real disk; failures are put in through the step hook.

mod committing;
mod forgiving;
mod staging;

use std::{
    io,
    sync::{Arc, Mutex},
};

use futures_util::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};
use ratified::{Cause, CheckpointId, ClientName, Epoch, SinkError, Slot, TxnContext, TxnId, author::TargetName};
use tempfile::TempDir;

use super::*;
pub(super) use ratified::{Committed, SinkCommitter, SinkWriter};

pub(super) const CLIENT: &str = "shop.sink.3";
/// The crc32 of the client's name.
pub(super) const CLIENT_CRC: &str = "4c47fa26";

pub(super) fn target(name: &str) -> TargetName {
    name.parse().unwrap()
}

pub(super) fn client() -> ClientName {
    CLIENT.parse().unwrap()
}

pub(super) fn id(number: u8) -> TxnId {
    format!("0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e{number:02x}").parse().unwrap()
}

pub(super) fn txn(number: u8) -> TxnContext {
    let txn = TxnContext::new(client(), id(number), Epoch::FIRST);
    txn.with_slot(Slot::new(3)).with_checkpoint(Some(CheckpointId::new(1)))
}

/// The key of a file of a transaction, under the prefix of these tests.
pub(super) fn key(target: &str, number: u8, file: u32) -> String {
    format!("p/{target}/00003-{}-{CLIENT_CRC}-{file:05}.bin", id(number))
}

/// Texts, as they are; the first letter of one chooses its target.
pub(super) struct Raw;

struct RawEncoder;

impl Format<String> for Raw {
    fn extension(&self) -> &'static str {
        "bin"
    }
    fn content_type(&self) -> &'static str {
        "application/octet-stream"
    }
    fn encoder(&self) -> Result<Box<dyn Encoder<String>>, Cause> {
        Ok(Box::new(RawEncoder))
    }
}

impl Encoder<String> for RawEncoder {
    fn write(&mut self, record: String, out: &mut Vec<u8>) -> Result<(), Cause> {
        out.extend_from_slice(record.as_bytes());
        if record.contains("bad") { Err(Cause::new("a bad record")) } else { Ok(()) }
    }
    fn finish(self: Box<Self>, out: &mut Vec<u8>) -> Result<(), Cause> {
        out.push(b'.');
        Ok(())
    }
}

/// Which kind of store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Memory,
    Local,
}

/// A store for one test, and the steps taken in it.
pub(super) struct Room {
    pub(super) dir: TempDir,
    pub(super) memory: InMemory,
    pub(super) kind: Kind,
    steps: Arc<Mutex<Vec<String>>>,
    failing: Arc<Mutex<Option<(String, usize)>>>,
}

impl Room {
    pub(super) fn new(kind: Kind) -> Self {
        let (dir, memory) = (TempDir::new().unwrap(), InMemory::new());
        Self { dir, memory, kind, steps: Arc::default(), failing: Arc::default() }
    }

    pub(super) fn builder(&self) -> ObjectStoreSinkBuilder<String> {
        let builder = match self.kind {
            Kind::Memory => ObjectStoreSink::multipart(self.memory.clone(), target("o"), Raw),
            Kind::Local => ObjectStoreSink::local(self.dir.path(), target("o"), Raw),
        };
        let (steps, failing) = (self.steps.clone(), self.failing.clone());
        builder.prefix("p").route(|record: &String| target(&record[..1])).on_step(move |step| {
            let step = short(step);
            steps.lock().unwrap().push(step.clone());
            let mut failing = failing.lock().unwrap();
            match &mut *failing {
                Some((prefix, 0)) if step.starts_with(prefix.as_str()) => {
                    *failing = None;
                    Err(io::Error::other("put in"))
                }
                Some((prefix, left)) if step.starts_with(prefix.as_str()) => {
                    *left -= 1;
                    Ok(())
                }
                _ => Ok(()),
            }
        })
    }

    pub(super) fn sink(&self) -> ObjectStoreSink<String> {
        self.builder().build().unwrap()
    }

    /// The next step that begins like this fails, after `passed` others.
    pub(super) fn fail(&self, step: &str, passed: usize) {
        *self.failing.lock().unwrap() = Some((step.to_owned(), passed));
    }

    /// The steps since they were asked for last.
    pub(super) fn steps(&self) -> Vec<String> {
        std::mem::take(&mut *self.steps.lock().unwrap())
    }

    pub(super) fn store(&self) -> Box<dyn ObjectStore> {
        match self.kind {
            Kind::Memory => Box::new(self.memory.clone()),
            Kind::Local => Box::new(object_store::local::LocalFileSystem::new_with_prefix(self.dir.path()).unwrap()),
        }
    }

    /// The keys of all objects, sorted.
    pub(super) async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> =
            self.store().list(None).map_ok(|object| object.location.to_string()).try_collect().await.unwrap();
        keys.sort_unstable();
        keys
    }

    pub(super) async fn read(&self, key: &str) -> String {
        let content = self.store().get(&Path::from(key)).await.unwrap().bytes().await.unwrap();
        String::from_utf8(content.to_vec()).unwrap()
    }
}

fn short(step: &ObjectStep<'_>) -> String {
    let name = |key: &str| key.rsplit_once('-').map_or("", |(_, rest)| rest).to_owned();
    match step {
        ObjectStep::Create { key } => format!("create {}", name(key)),
        ObjectStep::PutMarker { key } => format!("marker {}", name(key)),
        ObjectStep::PutPart { key, part } => format!("part {} {part}", name(key)),
        ObjectStep::Seal { key } => format!("seal {}", name(key)),
        ObjectStep::Reveal { key, index } => format!("reveal {} {index}", name(key)),
        ObjectStep::Settle { .. } => "settle".to_owned(),
        ObjectStep::Discard { .. } => "discard".to_owned(),
        ObjectStep::RemoveMarker { .. } => "remove marker".to_owned(),
    }
}

/// Stages these records up to and with `pre_commit`.
pub(super) async fn stage(sink: &ObjectStoreSink<String>, number: u8, records: &[&str]) -> ObjectHandle {
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(number)).await.unwrap();
    writer.write(&txn(number), &mut handle, texts(records)).await.unwrap();
    writer.pre_commit(&txn(number), &mut handle).await.unwrap();
    handle
}

pub(super) fn texts(records: &[&str]) -> Vec<String> {
    records.iter().map(|&text| text.to_owned()).collect()
}

pub(super) async fn committer(sink: &ObjectStoreSink<String>) -> ObjectCommitter {
    sink.committer().await.unwrap()
}

pub(super) fn rejected(error: &SinkError) -> String {
    assert!(matches!(error, SinkError::Rejected(_)), "{error}");
    error.to_string()
}

#[test]
fn sinks_of_one_place_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let memory = || ObjectStoreSink::multipart(InMemory::new(), target("o"), Raw);
    let local = || ObjectStoreSink::local(dir.path(), target("o"), Raw);
    let place = |builder: ObjectStoreSinkBuilder<String>, prefix| builder.prefix(prefix).build().unwrap().places();
    assert_eq!(place(memory(), "p"), place(memory(), "p"));
    assert_ne!(place(memory(), "p"), place(memory(), "q"));
    assert_eq!(place(local(), "p"), [ratified::Place::directory(&dir.path().join("p"))]);
    assert_ne!(place(local(), "p"), place(memory(), "p"));
}
