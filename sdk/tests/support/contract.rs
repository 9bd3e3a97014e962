//! The testkit over a sink of numbers, in a place that can be made to take no more.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use ratified::{
    TwoPhaseSink,
    testkit::{BEHAVIOURS, HarnessError, Medium, SinkHarness, run_all},
};
use tempfile::TempDir;

/// A place of its own: a directory, or a number to name one by.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
    pub(crate) number: u64,
    broken: Arc<AtomicBool>,
}

/// Asked before something is written.
#[derive(Clone)]
pub(crate) struct Room(Arc<AtomicBool>);

impl Room {
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

/// Which sink, and how it is set up.
#[async_trait]
pub(crate) trait Setup: Send + Sync {
    type Sink: TwoPhaseSink<Record = u64>;

    fn sink(&self, at: &Place, room: Room) -> Self::Sink;

    /// What a reader sees, a number per line.
    async fn visible(&self, at: &Place) -> Result<String, HarnessError>;

    /// More than fit the sink's buffers.
    fn large_records(&self) -> u64 {
        2000
    }
}

struct Numbers<S>(S);

#[async_trait]
impl<S: Setup> SinkHarness for Numbers<S> {
    type Sink = S::Sink;
    type Location = Place;

    async fn fresh(&self) -> Result<Place, HarnessError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Place { dir: TempDir::new()?, number: NEXT.fetch_add(1, Ordering::SeqCst), broken: Arc::default() })
    }

    async fn instance(&self, at: &Place) -> Result<S::Sink, HarnessError> {
        Ok(self.0.sink(at, Room(at.broken.clone())))
    }

    fn record(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self, at: &Place) -> Result<Vec<u64>, HarnessError> {
        self.0.visible(at).await?.lines().map(|line| Ok(line.parse()?)).collect()
    }

    async fn break_medium(&self, at: &Place) -> Result<Medium, HarnessError> {
        at.broken.store(true, Ordering::SeqCst);
        Ok(Medium::Broken)
    }

    fn large_records(&self) -> u64 {
        self.0.large_records()
    }
}

/// Every behaviour is there, and checked.
pub(crate) async fn passes_the_testkit(setup: impl Setup) {
    let report = run_all(&Numbers(setup)).await;
    report.assert();
    assert_eq!(report.held, BEHAVIOURS);
}
