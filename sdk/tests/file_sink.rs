//! The file sink keeps the contract of a two-phase sink, whatever its setup.
#![cfg(feature = "testkit")]
#![allow(clippy::unwrap_used, reason = "helpers of a test are tests")]

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use ratified::{
    sinks::file::{FileSink, FileSinkBuilder, FileStep, TargetName, read_target},
    testkit::{BEHAVIOURS, HarnessError, Medium, SinkHarness, run_all},
};
use tempfile::TempDir;

struct Place {
    dir: TempDir,
    broken: Arc<AtomicBool>,
}

/// Which setup of the sink.
#[derive(Clone, Copy)]
enum Setup {
    Json,
    JsonUnbuffered,
    TwoTargets,
}

fn target(name: &str) -> TargetName {
    name.parse().unwrap()
}

impl Setup {
    fn builder(self, root: PathBuf) -> FileSinkBuilder<u64> {
        let builder = FileSink::json_lines(root, target("numbers"));
        match self {
            Self::Json => builder,
            Self::JsonUnbuffered => builder.buffer_bytes(1),
            Self::TwoTargets => {
                builder.buffer_bytes(100).route(|number| target(if *number < 1000 { "low" } else { "high" }))
            }
        }
    }

    fn targets(self) -> &'static [&'static str] {
        match self {
            Self::TwoTargets => &["low", "high"],
            _ => &["numbers"],
        }
    }
}

#[async_trait]
impl SinkHarness for Setup {
    type Sink = FileSink<u64>;
    type Location = Place;

    async fn fresh(&self) -> Result<Place, HarnessError> {
        Ok(Place { dir: TempDir::new()?, broken: Arc::default() })
    }

    async fn instance(&self, at: &Place) -> Result<FileSink<u64>, HarnessError> {
        let broken = at.broken.clone();
        let full_disk = move |step: &FileStep<'_>| match step {
            FileStep::Write { .. } if broken.load(Ordering::SeqCst) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        };
        Ok(self.builder(at.dir.path().join("out")).on_step(full_disk).build()?)
    }

    fn record(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self, at: &Place) -> Result<Vec<u64>, HarnessError> {
        let mut numbers = Vec::new();
        for name in self.targets() {
            let content = read_target(&at.dir.path().join("out"), &target(name))?;
            for line in String::from_utf8(content)?.lines() {
                numbers.push(line.parse()?);
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
async fn the_file_sink_passes_the_testkit() {
    let report = run_all(&Setup::Json).await;
    report.assert();
    assert_eq!(report.held, BEHAVIOURS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_sink_without_a_buffer_passes_the_testkit() {
    run_all(&Setup::JsonUnbuffered).await.assert();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_sink_with_several_files_per_transaction_passes_the_testkit() {
    run_all(&Setup::TwoTargets).await.assert();
}
