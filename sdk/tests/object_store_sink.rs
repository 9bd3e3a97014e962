//! The sink of object stores keeps the contract of a two-phase sink, in memory and in a local directory, whatever its
//! setup.
#![cfg(all(feature = "testkit", feature = "object_store"))]
#![allow(clippy::unwrap_used, reason = "helpers of a test are tests")]

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use ratified::{
    sinks::{
        file::TargetName,
        object_store::{
            JsonLines, ObjectStep, ObjectStoreSink, ObjectStoreSinkBuilder, committed_objects,
            store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem, memory::InMemory},
        },
    },
    testkit::{BEHAVIOURS, HarnessError, Medium, SinkHarness, run_all},
};
use tempfile::TempDir;

const PREFIX: &str = "lake/raw";

/// One place of each kind; a test uses one of them.
struct Place {
    dir: TempDir,
    memory: InMemory,
    broken: Arc<AtomicBool>,
}

/// Which setup of the sink.
#[derive(Clone, Copy)]
enum Setup {
    Memory,
    Local,
    LocalSmallFiles,
    MemoryTwoTargets,
}

fn target(name: &str) -> TargetName {
    name.parse().unwrap()
}

impl Setup {
    fn builder(self, at: &Place) -> ObjectStoreSinkBuilder<u64> {
        let memory = || ObjectStoreSink::multipart(at.memory.clone(), target("numbers"), JsonLines::new());
        let local = || ObjectStoreSink::local(at.dir.path(), target("numbers"), JsonLines::new());
        match self {
            Self::Memory => memory(),
            Self::Local => local(),
            Self::LocalSmallFiles => local().file_bytes(100).max_files(128),
            Self::MemoryTwoTargets => {
                memory().route(|number| target(if *number < 1000 { "low" } else { "high" })).file_bytes(1000)
            }
        }
    }

    fn targets(self) -> &'static [&'static str] {
        match self {
            Self::MemoryTwoTargets => &["low", "high"],
            _ => &["numbers"],
        }
    }

    fn store(self, at: &Place) -> Box<dyn ObjectStore> {
        match self {
            Self::Memory | Self::MemoryTwoTargets => Box::new(at.memory.clone()),
            _ => Box::new(LocalFileSystem::new_with_prefix(at.dir.path()).unwrap()),
        }
    }
}

#[async_trait]
impl SinkHarness for Setup {
    type Sink = ObjectStoreSink<u64>;
    type Location = Place;

    async fn fresh(&self) -> Result<Place, HarnessError> {
        Ok(Place { dir: TempDir::new()?, memory: InMemory::new(), broken: Arc::default() })
    }

    async fn instance(&self, at: &Place) -> Result<ObjectStoreSink<u64>, HarnessError> {
        let broken = at.broken.clone();
        let full = move |step: &ObjectStep<'_>| match step {
            ObjectStep::PutPart { .. } if broken.load(Ordering::SeqCst) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        };
        Ok(self.builder(at).prefix(PREFIX).on_step(full).build()?)
    }

    fn record(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self, at: &Place) -> Result<Vec<u64>, HarnessError> {
        let mut numbers = Vec::new();
        let store = self.store(at);
        for name in self.targets() {
            for object in committed_objects(&store, PREFIX, &target(name)).await? {
                let content = store.get(&object.location).await?.bytes().await?;
                for line in std::str::from_utf8(&content)?.lines() {
                    numbers.push(line.parse()?);
                }
            }
        }
        Ok(numbers)
    }

    async fn break_medium(&self, at: &Place) -> Result<Medium, HarnessError> {
        at.broken.store(true, Ordering::SeqCst);
        Ok(Medium::Broken)
    }

    fn large_records(&self) -> u64 {
        2000
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_memory_passes_the_testkit() {
    let report = run_all(&Setup::Memory).await;
    report.assert();
    assert_eq!(report.held, BEHAVIOURS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_directory_passes_the_testkit() {
    let report = run_all(&Setup::Local).await;
    report.assert();
    assert_eq!(report.held, BEHAVIOURS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_files_per_transaction_pass_the_testkit() {
    run_all(&Setup::LocalSmallFiles).await.assert();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_files_of_several_targets_pass_the_testkit() {
    run_all(&Setup::MemoryTwoTargets).await.assert();
}
