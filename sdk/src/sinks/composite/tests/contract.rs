//! A composite keeps the contract of a two-phase sink, whatever it is made of.

use std::{
    collections::BinaryHeap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use tempfile::TempDir;

use crate::{
    sinks::{
        composite::Composite,
        file::{FileSink, FileStep, read_target},
    },
    testkit::{BEHAVIOURS, HarnessError, Medium, SinkHarness, run_all, tests::memory},
};

/// Which members.
enum Made {
    /// Everything goes to two directories.
    TwoFiles,
    /// Everything goes to memory and to a directory.
    MemoryAndFile,
    /// Each record goes to one of two directories.
    Parted,
}

struct Place {
    dir: TempDir,
    /// The second directory's disk is full.
    full: Arc<AtomicBool>,
    memory: <memory::Harness as SinkHarness>::Location,
}

impl Place {
    fn root(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str) -> Result<FileSink<u64>, HarnessError> {
        let full = (name == "second").then(|| self.full.clone());
        let on_step = move |step: &FileStep<'_>| match (step, &full) {
            (FileStep::Write { .. }, Some(full)) if full.load(Ordering::SeqCst) => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        };
        Ok(FileSink::json_lines(self.root(name), "numbers".parse()?).buffer_bytes(100).on_step(on_step).build()?)
    }
}

const MEMORY: memory::Harness = memory::Harness { fault: None, is_able: true };

fn read(root: &Path) -> Result<Vec<u64>, HarnessError> {
    let text = String::from_utf8(read_target(root, &"numbers".parse()?)?)?;
    Ok(text.lines().map(str::parse).collect::<Result<_, _>>()?)
}

fn all(number: &u64, out: &mut Vec<u64>) {
    out.push(*number);
}

#[async_trait]
impl SinkHarness for Made {
    type Sink = Composite<u64>;
    type Location = Place;

    async fn fresh(&self) -> Result<Place, HarnessError> {
        Ok(Place { dir: TempDir::new()?, full: Arc::default(), memory: MEMORY.fresh().await? })
    }

    async fn instance(&self, at: &Place) -> Result<Composite<u64>, HarnessError> {
        let builder = Composite::builder();
        let builder = match self {
            Self::TwoFiles => builder.member("first", at.file("first")?, all),
            Self::MemoryAndFile => builder.member("memory", MEMORY.instance(&at.memory).await?, all),
            Self::Parted => {
                let high = |n: &u64, out: &mut Vec<u64>| out.extend(Some(*n).filter(|n| *n >= 1000));
                let low = |n: &u64, out: &mut Vec<u64>| out.extend(Some(*n).filter(|n| *n < 1000));
                return Ok(builder
                    .member("low", at.file("low")?, low)
                    .member("high", at.file("second")?, high)
                    .build()?);
            }
        };
        Ok(builder.member("second", at.file("second")?, all).build()?)
    }

    fn record(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self, at: &Place) -> Result<Vec<u64>, HarnessError> {
        let second = read(&at.root("second"))?;
        let first = match self {
            Self::TwoFiles => read(&at.root("first"))?,
            Self::MemoryAndFile => MEMORY.visible(&at.memory).await?,
            Self::Parted => return Ok([read(&at.root("low"))?, second].concat()),
        };
        // In which order two clients are read is each member's own.
        let sorted = |numbers: &[u64]| numbers.iter().copied().collect::<BinaryHeap<_>>().into_sorted_vec();
        let is_same = first == second || (matches!(self, Self::MemoryAndFile) && sorted(&first) == sorted(&second));
        if is_same { Ok(second) } else { Err(format!("{first:?} in one, {second:?} in the other").into()) }
    }

    async fn break_medium(&self, at: &Place) -> Result<Medium, HarnessError> {
        at.full.store(true, Ordering::SeqCst);
        // A small number goes to the directory that still works.
        Ok(if matches!(self, Self::Parted) { Medium::Unbreakable } else { Medium::Broken })
    }

    fn large_records(&self) -> u64 {
        2000
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_composite_of_two_directories_passes_the_testkit() {
    let report = run_all(&Made::TwoFiles).await;
    report.assert();
    assert_eq!(report.held, BEHAVIOURS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_composite_of_memory_and_a_directory_passes_the_testkit() {
    let report = run_all(&Made::MemoryAndFile).await;
    report.assert();
    assert_eq!(report.held, BEHAVIOURS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_composite_that_parts_its_records_passes_the_testkit() {
    let report = run_all(&Made::Parted).await;
    report.assert();
    assert_eq!(report.skipped, ["write_error_surfaces_at_pre_commit"]);
}
