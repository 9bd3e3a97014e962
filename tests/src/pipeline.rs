//! A pipeline whose output can be checked to the record: numbers in, two files per transaction out.

mod composite;
mod engine;
mod objects;
mod participant;
mod postgres;
mod source;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ratified::{
    Cause, ClientName, ClientOptions, CoordinatorClient, JobSinkBuilder, Point, RetryDelays, SinkBuilder, SinkName,
    TwoPhaseSink,
    job::{Job, JobError, JobReport},
    pending::FileStore,
    sinks::file::{FileSink, FileStep, TargetName, read_target},
};
use serde::{Deserialize, Serialize};

pub use composite::{check_both, copy_of, run_composite};
pub use engine::{Engine, EngineError, run_engine};
pub use objects::{BUCKET, bucket, check_objects, run_objects_engine, run_objects_split, unfinished_uploads};
pub use participant::run_participant;
pub use postgres::{Rows, check_rows, make_tables, run_postgres};
pub use source::Numbers;

/// Is told the name of every place that is passed: a [`Point`], a step of the file sink, a step of the engine.
pub type Places = Arc<dyn Fn(&str) + Send + Sync>;

/// What is written for one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The number.
    pub n: u64,
}

/// A pipeline.
#[derive(Clone)]
pub struct Plan {
    /// Where the coordinator, or a proxy before it, is.
    pub url: String,
    /// The client's or the sink's name.
    pub name: String,
    /// Where everything of the pipeline lies: `out`, `pending`, `engine`.
    pub dir: PathBuf,
    /// Where the pending store lies, if not in `dir`: a successor on another host has its own.
    pub pending: PathBuf,
    /// How many numbers there are.
    pub records: u64,
    /// How many of them make a transaction.
    pub per_txn: u64,
    /// How long a transaction may stay open, in milliseconds; the SDK's default if nothing is said.
    pub timeout_ms: Option<u64>,
    /// Is told what is passed.
    pub places: Places,
}

impl Plan {
    /// A pipeline in this directory that is watched by nobody.
    pub fn new(url: impl Into<String>, dir: &Path) -> Self {
        Self {
            url: url.into(),
            name: "pipeline".to_owned(),
            dir: dir.to_owned(),
            pending: dir.join("pending"),
            records: 40,
            per_txn: 10,
            timeout_ms: None,
            places: Arc::new(|_| {}),
        }
    }

    /// Where the output is.
    pub fn out(&self) -> PathBuf {
        self.dir.join("out")
    }

    /// A client with short patience, so that a test meets its faults soon.
    fn client(&self) -> CoordinatorClient {
        let delays = RetryDelays { first: Duration::from_millis(2), longest: Duration::from_millis(50) };
        let options = ClientOptions::default()
            .request_timeout(Duration::from_millis(200))
            .call_deadline(Duration::from_secs(60))
            .delays(delays);
        CoordinatorClient::with_options(&self.url, options).unwrap()
    }

    /// The sink, set up to tell what it passes.
    ///
    /// # Panics
    /// When the plan is nonsense.
    pub fn builder<D: Default>(&self) -> SinkBuilder<FileSink<Row>, D> {
        self.builder_of(self.files(&self.out(), ""))
    }

    /// Two files per transaction in a directory. The steps it takes are told with this prefix.
    fn files(&self, root: &Path, prefix: &'static str) -> FileSink<Row> {
        let (even, odd) = targets();
        let watch = self.places.clone();
        FileSink::json_lines(root, even.clone())
            .route(move |row: &Row| if row.n.is_multiple_of(2) { even.clone() } else { odd.clone() })
            .on_step(move |step| {
                watch(&format!("{prefix}{}", name_of_step(step)));
                Ok(())
            })
            .build()
            .unwrap()
    }

    fn builder_of<S: TwoPhaseSink, D: Default>(&self, sink: S) -> SinkBuilder<S, D> {
        let places = self.places.clone();
        let mut builder = SinkBuilder::new(sink, self.client());
        if let Some(ms) = self.timeout_ms {
            builder = builder.transaction_timeout(ms.try_into().unwrap());
        }
        builder.pending(FileStore::new(&self.pending)).first_start(true).on_point(move |point| places(name_of(point)))
    }

    /// The client's name.
    ///
    /// # Panics
    /// When it is none.
    pub fn client_name(&self) -> ClientName {
        self.name.parse().unwrap()
    }

    /// The sink's name.
    ///
    /// # Panics
    /// When it is none.
    pub fn sink_name(&self) -> SinkName {
        self.name.parse().unwrap()
    }
}

/// Runs the pipeline as a job that checkpoints itself.
///
/// # Errors
/// What the job says.
pub async fn run_split(plan: &Plan) -> Result<JobReport<u64>, JobError> {
    run_job(plan, plan.builder()).await
}

async fn run_job<S>(plan: &Plan, sink: JobSinkBuilder<S>) -> Result<JobReport<u64>, JobError>
where
    S: TwoPhaseSink<Record = Row>,
{
    let transform = |n: u64, emit: &mut Vec<Row>| {
        emit.push(Row { n });
        Ok::<_, Cause>(())
    };
    let batch = usize::try_from(plan.per_txn).unwrap_or(usize::MAX);
    Job::new(plan.client_name(), Numbers::below(plan.records), transform, sink)
        .checkpoint_records(plan.per_txn)
        .batch_records(batch)
        .run()
        .await
}

/// The places at which the life of a transaction can be cut, in the order they are first passed.
pub fn name_of(point: Point) -> &'static str {
    match point {
        Point::Begun => "begun",
        Point::PreCommitted => "pre_committed",
        Point::Prepared => "prepared",
        Point::Decided => "decided",
        Point::Applied => "applied",
        Point::Acked => "acked",
        _ => "another point",
    }
}

fn name_of_step(step: &FileStep<'_>) -> String {
    match step {
        FileStep::Write { .. } => "write".to_owned(),
        FileStep::SyncFile { .. } => "sync_file".to_owned(),
        FileStep::SyncDirectory { .. } => "sync_directory".to_owned(),
        FileStep::Rename { index, .. } => format!("rename_{index}"),
        FileStep::Remove { .. } => "remove".to_owned(),
        _ => "another step".to_owned(),
    }
}

fn targets() -> (TargetName, TargetName) {
    ("even".parse().unwrap(), "odd".parse().unwrap())
}

/// What is visible, in the order of the output: the even and the odd numbers.
///
/// # Errors
/// The output cannot be read, or holds something that was never written.
pub fn visible(out: &Path) -> io::Result<[Vec<u64>; 2]> {
    let (even, odd) = targets();
    let read = |target| -> io::Result<Vec<u64>> {
        let text = String::from_utf8(read_target(out, target)?).map_err(io::Error::other)?;
        let rows = text.lines().map(|line| serde_json::from_str::<Row>(line).map(|row| row.n));
        rows.collect::<Result<_, _>>().map_err(io::Error::other)
    };
    Ok([read(&even)?, read(&odd)?])
}

/// What is wrong with an output that should hold every number below `records` once, in order, and nothing staged.
pub fn check_exactly_once(out: &Path, records: u64) -> Result<(), String> {
    let visible = visible(out).map_err(|e| e.to_string())?;
    for (parity, numbers) in (0..).zip(visible) {
        let expected: Vec<_> = (0..records).filter(|n| n % 2 == parity).collect();
        if numbers != expected {
            return Err(format!("visible is {numbers:?}, not {expected:?}"));
        }
    }
    match staged(&out.join(".staged")) {
        Ok(staged) if staged.is_empty() => Ok(()),
        Ok(staged) => Err(format!("still staged: {staged:?}")),
        Err(e) => Err(e.to_string()),
    }
}

fn staged(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            files.append(&mut staged(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_a_doubled_and_a_staged_record_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let part = |target: &str, n: u64| {
            let id = format!("0190f2c4-7a61-7000-8000-{n:012x}");
            dir.path().join(format!("{target}-00000-{id}-00000000.jsonl"))
        };
        fs::write(part("even", 1), "{\"n\":0}\n{\"n\":2}\n").unwrap();
        assert!(check_exactly_once(dir.path(), 4).unwrap_err().contains("[1, 3]"));
        fs::write(part("odd", 1), "{\"n\":1}\n{\"n\":3}\n").unwrap();
        assert_eq!(check_exactly_once(dir.path(), 4), Ok(()));
        assert!(check_exactly_once(dir.path(), 5).is_err());
        fs::write(part("odd", 2), "{\"n\":3}\n").unwrap();
        assert!(check_exactly_once(dir.path(), 4).is_err());
        fs::remove_file(part("odd", 2)).unwrap();
        fs::create_dir_all(dir.path().join(".staged/c")).unwrap();
        fs::write(dir.path().join(".staged/c/x"), "").unwrap();
        assert!(check_exactly_once(dir.path(), 4).unwrap_err().contains("staged"));
    }
}
