//! The job: source, transformation, sink, and how it is run.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use ratified::{
    Cause, ClientName, CoordinatorClient, JobSinkBuilder, TwoPhaseSink,
    job::{Job, JobReport, Read, Source, Transform},
    pending::FileStore,
    sinks::file::{FileSink, FileSinkBuilder, FileSinkError, TargetName},
};
use ratified_coordinator::{Config, Coordinator};

use crate::{Catalogue, Position, Row};

/// The rows of the result go to files of this name.
pub const EVENTS: &str = "events";
/// The refused lines go to files of this name.
pub const REJECTS: &str = "rejects";

/// The source: reads a catalogue from the position of the last commit on.
pub struct CatalogueSource {
    path: PathBuf,
    catalogue: Option<Catalogue>,
}

#[async_trait]
impl Source for CatalogueSource {
    type Record = Row;
    type Position = Position;

    async fn seek(&mut self, position: Option<&Position>) -> Result<(), Cause> {
        let catalogue = match position {
            Some(position) => Catalogue::resume(&self.path, position),
            None => Catalogue::open(&self.path),
        };
        self.catalogue = Some(catalogue.map_err(Cause::new)?);
        Ok(())
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<Row>, Cause> {
        let Some(catalogue) = &mut self.catalogue else { return Ok(Read::End) };
        let mut rows = Vec::with_capacity(max_records);
        while rows.len() < max_records
            && let Some(row) = catalogue.next_row().map_err(Cause::new)?
        {
            rows.push(row);
        }
        Ok(if rows.is_empty() { Read::End } else { Read::Records(rows) })
    }

    fn position(&self) -> Position {
        self.catalogue.as_ref().map(Catalogue::position).unwrap_or_default()
    }
}

/// One row for the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputRow {
    /// A row of the result.
    Event(String),
    /// A refused line.
    Reject(String),
}

impl AsRef<[u8]> for OutputRow {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Event(row) | Self::Reject(row) => row.as_bytes(),
        }
    }
}

/// The transformation: a line that is refused is written, too, and one that is left out is counted by the source.
///
/// # Errors
/// Never.
pub fn transform(row: Row, rows: &mut Vec<OutputRow>) -> Result<(), Cause> {
    match row {
        Row::Kept(event) => rows.push(OutputRow::Event(event.to_csv())),
        Row::Rejected(reject) => rows.push(OutputRow::Reject(reject.to_csv())),
        Row::Filtered => {}
    }
    Ok(())
}

/// The sink: two kinds of files in one directory, both in the same transaction.
///
/// # Errors
/// Never for the names of this job.
pub fn sink(output: &Path) -> Result<FileSinkBuilder<OutputRow>, FileSinkError> {
    let (events, rejects): (TargetName, TargetName) = (EVENTS.parse()?, REJECTS.parse()?);
    let default = events.clone();
    let route = move |row: &OutputRow| match row {
        OutputRow::Event(_) => events.clone(),
        OutputRow::Reject(_) => rejects.clone(),
    };
    Ok(FileSink::raw(output, default).route(route).extension("csv"))
}

/// The three of them together.
pub fn job<S: TwoPhaseSink<Record = OutputRow>>(
    client: ClientName,
    input: &Path,
    sink: JobSinkBuilder<S>,
) -> Job<CatalogueSource, impl Transform<Row, OutputRow>, S> {
    Job::new(client, CatalogueSource { path: input.to_owned(), catalogue: None }, transform, sink)
}

/// How the job is run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The catalogue.
    pub input: PathBuf,
    /// Where the visible files are.
    pub output: PathBuf,
    /// Where the pending store is kept, and the store of an embedded coordinator.
    pub data_dir: PathBuf,
    /// The coordinator's URL; `None` runs one in this process.
    pub coordinator: Option<String>,
    /// The job's own name at the coordinator: it must stay the same for ever, and be nobody else's.
    pub client: ClientName,
    /// Whether the coordinator may not know the job yet. Later that means that it has lost what it knew, and is an error.
    pub first_start: bool,
    /// A checkpoint is taken after so many lines.
    pub checkpoint_records: u64,
}

impl Run {
    /// Runs to the end of the catalogue. Run again it goes on behind the last commit, and does nothing at the end.
    ///
    /// # Errors
    /// The caller must mend what it names; running it again is always safe.
    pub async fn run(&self) -> Result<JobReport<Position>, Box<dyn Error>> {
        let Some(url) = &self.coordinator else {
            let coordinator = Coordinator::start(Config::local(self.data_dir.join("coordinator"))).await?;
            let report = self.run_at(&coordinator.base_url()).await;
            coordinator.shutdown().await?;
            return report;
        };
        self.run_at(url).await
    }

    async fn run_at(&self, coordinator: &str) -> Result<JobReport<Position>, Box<dyn Error>> {
        let sink = JobSinkBuilder::new(sink(&self.output)?.build()?, CoordinatorClient::new(coordinator)?)
            .pending(FileStore::new(self.data_dir.join("pending")))
            .first_start(self.first_start);
        let job = job(self.client.clone(), &self.input, sink).checkpoint_records(self.checkpoint_records);
        Ok(job.run().await?)
    }
}
