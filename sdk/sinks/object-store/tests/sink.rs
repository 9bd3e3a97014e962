//! The sink of object stores keeps the contract of a two-phase sink, in memory and in a local directory, whatever its
//! setup.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use async_trait::async_trait;
use ratified::{sinks::file::TargetName, testkit::HarnessError};
use ratified_object_store::{
    JsonLines, ObjectStep, ObjectStoreSink, committed_objects,
    store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem, memory::InMemory},
};
use support::contract::{Place, Room, Setup, passes_the_testkit};

enum Objects {
    /// One store; each place is a prefix of its own.
    Memory(InMemory),
    MemoryTwoTargets(InMemory),
    Local,
    LocalSmallFiles,
}

fn target(name: &str) -> TargetName {
    name.parse().unwrap()
}

fn prefix(at: &Place) -> String {
    format!("lake/{}", at.number)
}

#[async_trait]
impl Setup for Objects {
    type Sink = ObjectStoreSink<u64>;

    fn sink(&self, at: &Place, room: Room) -> ObjectStoreSink<u64> {
        let memory = |store: &InMemory| ObjectStoreSink::multipart(store.clone(), target("numbers"), JsonLines::new());
        let local = || ObjectStoreSink::local(at.dir.path(), target("numbers"), JsonLines::new());
        let builder = match self {
            Self::Memory(store) => memory(store),
            Self::MemoryTwoTargets(store) => {
                let halves = |number: &u64| target(if *number < 1000 { "low" } else { "high" });
                memory(store).route(halves).file_bytes(1000)
            }
            Self::Local => local(),
            Self::LocalSmallFiles => local().file_bytes(100).max_files(128),
        };
        let full = move |step: &ObjectStep<'_>| match step {
            ObjectStep::PutPart { .. } => room.check(),
            _ => Ok(()),
        };
        builder.prefix(&prefix(at)).on_step(full).build().unwrap()
    }

    async fn visible(&self, at: &Place) -> Result<String, HarnessError> {
        let store: Box<dyn ObjectStore> = match self {
            Self::Memory(store) | Self::MemoryTwoTargets(store) => Box::new(store.clone()),
            _ => Box::new(LocalFileSystem::new_with_prefix(at.dir.path())?),
        };
        let targets: &[&str] = if matches!(self, Self::MemoryTwoTargets(_)) { &["low", "high"] } else { &["numbers"] };
        let mut content = Vec::new();
        for name in targets {
            for object in committed_objects(&store, &prefix(at), &target(name)).await? {
                content.extend(store.get(&object.location).await?.bytes().await?);
            }
        }
        Ok(String::from_utf8(content)?)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_memory_passes_the_testkit() {
    passes_the_testkit(Objects::Memory(InMemory::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_directory_passes_the_testkit() {
    passes_the_testkit(Objects::Local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_files_per_transaction_pass_the_testkit() {
    passes_the_testkit(Objects::LocalSmallFiles).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_files_of_several_targets_pass_the_testkit() {
    passes_the_testkit(Objects::MemoryTwoTargets(InMemory::new())).await;
}
