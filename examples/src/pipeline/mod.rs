//! The job: catalogue in, enriched rows and rejects out, exactly once.

mod drill;
mod error;
mod output;
mod source;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ratified::{
    ClientName, JobSinkBuilder, Point, TwoPhaseSink,
    job::{Job, JobReport},
    pending::FileStore,
    sinks::file::{FileSink, FileStep},
};

pub use self::{
    drill::{DrillReport, JobArgs, QuakesDrill, Verdict},
    error::PipelineError,
    output::{Output, OutputRow, Written},
};
use self::{output::output_row, source::CatalogueSource};
use crate::{
    coordinator::NearCoordinator,
    quakes::{Catalogue, CatalogueError, Position, Row, Tally},
};

/// The client of the coordinator unless another is named.
pub const CLIENT: &str = "earthquakes";

/// How a run of the job is set up.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// The catalogue.
    pub input: PathBuf,
    /// Where the visible files are.
    pub output: Output,
    /// Where the pending store is kept, and the store of an embedded coordinator.
    pub data_dir: PathBuf,
    /// The coordinator's URL; `None` runs one in this process.
    pub coordinator: Option<String>,
    /// The job's own name at the coordinator: it must stay the same for ever, and be nobody else's.
    pub client: ClientName,
    /// A checkpoint is taken after so many lines.
    pub checkpoint_records: u64,
}

/// Looks on while the job runs; for the drill.
pub trait Watch: Send + Sync + 'static {
    /// A transaction passes a point.
    fn point(&self, point: Point);

    /// The file sink is about to change the disk.
    fn step(&self, step: &FileStep<'_>);
}

/// Nobody looks on.
struct Nobody;

impl Watch for Nobody {
    fn point(&self, _: Point) {}
    fn step(&self, _: &FileStep<'_>) {}
}

impl Pipeline {
    /// Runs to the end of the catalogue. Run again it goes on behind the last commit, and does nothing at the end.
    ///
    /// # Errors
    /// See [`PipelineError`]; running it again is always safe.
    pub async fn run(&self) -> Result<JobReport<Position>, PipelineError> {
        self.run_with(|sink| sink, Arc::new(Nobody)).await
    }

    /// As [`Self::run`], with a wrapper around the sink and somebody who looks on.
    ///
    /// # Errors
    /// See [`PipelineError`]; running it again is always safe.
    pub async fn run_with<S>(
        &self,
        wrap: impl FnOnce(FileSink<OutputRow>) -> S,
        watch: Arc<dyn Watch>,
    ) -> Result<JobReport<Position>, PipelineError>
    where
        S: TwoPhaseSink<Record = OutputRow>,
    {
        let coordinator =
            NearCoordinator::start(self.coordinator.as_deref(), &self.data_dir.join("coordinator")).await?;
        let report = self.run_at(&coordinator, wrap, watch).await;
        coordinator.stop().await?;
        report
    }

    async fn run_at<S>(
        &self,
        coordinator: &NearCoordinator,
        wrap: impl FnOnce(FileSink<OutputRow>) -> S,
        watch: Arc<dyn Watch>,
    ) -> Result<JobReport<Position>, PipelineError>
    where
        S: TwoPhaseSink<Record = OutputRow>,
    {
        let steps = watch.clone();
        let sink = self.output.sink(move |step| steps.step(step))?;
        let builder = JobSinkBuilder::new(wrap(sink), coordinator.client()?)
            .pending(FileStore::new(self.data_dir.join("pending")))
            // Only while nothing is visible yet may the coordinator not know the job.
            .first_start(self.output.is_empty()?)
            .on_point(move |point| watch.point(point));
        let transform = |row: Row, rows: &mut Vec<OutputRow>| {
            rows.extend(output_row(row));
            Ok(())
        };
        let batch = usize::try_from(self.checkpoint_records).unwrap_or(usize::MAX).min(256);
        let job = Job::new(self.client.clone(), CatalogueSource::new(&self.input), transform, builder)
            .checkpoint_records(self.checkpoint_records)
            .batch_records(batch);
        Ok(job.run().await?)
    }
}

/// What the job must write, worked out without coordinator and sink.
///
/// # Errors
/// See [`CatalogueError`].
pub fn written_without_sink(input: &Path) -> Result<(Written, Tally), CatalogueError> {
    let mut catalogue = Catalogue::open(input)?;
    let mut written = Written::default();
    while let Some(row) = catalogue.next_row()? {
        match output_row(row) {
            Some(OutputRow::Event(text)) => written.events.extend(text.into_bytes()),
            Some(OutputRow::Reject(text)) => written.rejects.extend(text.into_bytes()),
            None => {}
        }
    }
    Ok((written, catalogue.position().tally))
}
