//! The file sink keeps the contract of a two-phase sink, whatever its setup.
#![cfg(feature = "testkit")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use async_trait::async_trait;
use ratified::{
    sinks::file::{FileSink, FileStep, TargetName, read_target},
    testkit::HarnessError,
};
use support::contract::{Place, Room, Setup, passes_the_testkit};

#[derive(Clone, Copy)]
enum Files {
    Json,
    JsonUnbuffered,
    TwoTargets,
}

fn target(name: &str) -> TargetName {
    name.parse().unwrap()
}

#[async_trait]
impl Setup for Files {
    type Sink = FileSink<u64>;

    fn sink(&self, at: &Place, room: Room) -> FileSink<u64> {
        let builder = FileSink::json_lines(at.dir.path().join("out"), target("numbers"));
        let builder = match self {
            Self::Json => builder,
            Self::JsonUnbuffered => builder.buffer_bytes(1),
            Self::TwoTargets => {
                builder.buffer_bytes(100).route(|number| target(if *number < 1000 { "low" } else { "high" }))
            }
        };
        let full_disk = move |step: &FileStep<'_>| match step {
            FileStep::Write { .. } => room.check(),
            _ => Ok(()),
        };
        builder.on_step(full_disk).build().unwrap()
    }

    async fn visible(&self, at: &Place) -> Result<String, HarnessError> {
        let targets: &[&str] = if matches!(self, Self::TwoTargets) { &["low", "high"] } else { &["numbers"] };
        let mut content = Vec::new();
        for name in targets {
            content.extend(read_target(&at.dir.path().join("out"), &target(name))?);
        }
        Ok(String::from_utf8(content)?)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_sink_passes_the_testkit() {
    passes_the_testkit(Files::Json).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_sink_without_a_buffer_passes_the_testkit() {
    passes_the_testkit(Files::JsonUnbuffered).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_sink_with_several_files_per_transaction_passes_the_testkit() {
    passes_the_testkit(Files::TwoTargets).await;
}
