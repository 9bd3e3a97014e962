//! A job that checkpoints itself: source, transformation, sink, and nothing else to run.
//!
//! Records are read in bounded batches, transformed, and written to the sink. At each checkpoint one durable write of the
//! coordinator decides the transaction and keeps the source's position with it; a restarted job goes on from there.

mod channel;
mod file;
mod position;
mod rejected;
mod run;
mod source;

use std::{sync::Arc, time::Duration};

use ratified_protocol::ClientName;
use thiserror::Error;
use tokio::sync::watch;

pub use channel::{ChannelError, ChannelSender, ChannelSource, channel};
#[cfg(feature = "csv")]
pub use file::csv::{BadRow, CsvSource, DEFAULT_MAX_RECORD_BYTES, DEFAULT_MAX_RECORD_LINES, Row, RowFault};
pub use file::{
    BadLine, DEFAULT_MAX_LINE_BYTES, FilePosition, FileSourceError, Line, LineFault, LineReader, LineSource,
    MAX_BAD_BYTES, RawLine,
};
pub use position::{PositionError, decode_position, encode_position};
pub use rejected::Rejection;
pub use source::{MemorySource, Read, Source};

use self::{
    rejected::Recourse,
    run::{Limits, Running},
};
use crate::{
    error::Cause,
    runtime::{JobSinkBuilder, OpenReport, RuntimeError},
    sink::TwoPhaseSink,
};

/// What is done with a record: any number of records for the sink, of any of the kinds it takes. A record that is
/// rejected is best emitted as one of these kinds too: then it is kept exactly once like all others.
pub trait Transform<I, O>: Send + 'static {
    /// Turns one record into records for the sink.
    ///
    /// # Errors
    /// Any ends the job.
    fn apply(&mut self, record: I, emit: &mut Vec<O>) -> Result<(), Cause>;
}

impl<I, O, F> Transform<I, O> for F
where
    F: FnMut(I, &mut Vec<O>) -> Result<(), Cause> + Send + 'static,
{
    fn apply(&mut self, record: I, emit: &mut Vec<O>) -> Result<(), Cause> {
        self(record, emit)
    }
}

/// Why a job ended without reaching its end. Running it again goes on from the last commit.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum JobError {
    /// The source failed.
    #[error("the source failed: {0}")]
    Source(Cause),
    /// The transformation failed. The caller must mend it, or let it reject the record instead.
    #[error("the transformation failed: {0}")]
    Transform(Cause),
    /// The source's position cannot be stored, or the stored one not be read.
    #[error(transparent)]
    Position(#[from] PositionError),
    /// The sink rejects a record, and the job has no recourse, or what it put in its place is rejected as well. The caller
    /// must mend the record's transformation or the sink, or set one ([`Job::on_rejected`]).
    #[error("the sink rejects the record before position {}: {}", .0.behind, .0.error)]
    Rejected(Rejection),
    /// The job was stopped, and the sink or the coordinator did not answer before the sink's `close_deadline`. Running the
    /// job again finishes what is decided and reads the rest again: nothing is lost or doubled.
    #[error("stopped with {unfinished} commits not yet visible and {records} records not committed")]
    StopIncomplete {
        /// Commits that are decided and not visible or not acknowledged.
        unfinished: usize,
        /// Records read and not committed.
        records: u64,
    },
    /// The sink's runtime stopped.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Why a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The source has no more.
    EndOfInput,
    /// It was asked to stop.
    Stopped,
}

/// What a run of a job did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobReport<P> {
    /// Where it went on from; `None`: the beginning.
    pub resumed_from: Option<P>,
    /// Where the source stands; everything before is visible in the sink.
    pub position: P,
    /// Records read by this run.
    pub records_in: u64,
    /// Records written to the sink by this run.
    pub records_out: u64,
    /// Records that the sink rejected, and for which the job's recourse wrote something else or nothing.
    pub rejected: u64,
    /// Transactions committed by this run that wrote something, not counting those of earlier runs it finished.
    pub commits: u64,
    /// Commits that found their data visible, those of earlier runs included.
    pub replays: u64,
    /// What opening the sink found and did.
    pub opened: OpenReport,
    /// Why it ended.
    pub ended: Ended,
}

/// Asks a running job to stop: it commits what it has read and ends, at the latest after the sink's `close_deadline`.
#[derive(Debug, Clone)]
pub struct StopHandle(Arc<watch::Sender<bool>>);

impl StopHandle {
    /// Asks the job to stop. Repetitions change nothing.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Returns so long after the job was asked to stop.
    async fn overdue(&self, patience: Duration) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|is_stopped| *is_stopped).await;
        tokio::time::sleep(patience).await;
    }

    fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }
}

/// A job: set it up, then [`run`](Self::run) it.
pub struct Job<Src: Source, T, S: TwoPhaseSink> {
    source: Src,
    transform: T,
    recourse: Option<Recourse<Src::Record, S::Record>>,
    sink: JobSinkBuilder<S>,
    client: ClientName,
    limits: Limits,
    stop: StopHandle,
}

impl<Src, T, S> Job<Src, T, S>
where
    Src: Source,
    S: TwoPhaseSink,
    T: Transform<Src::Record, S::Record>,
{
    /// A job under this client name, which must be the job's (and its split's) alone, for ever.
    pub fn new(client: ClientName, source: Src, transform: T, sink: JobSinkBuilder<S>) -> Self {
        Self {
            source,
            transform,
            recourse: None,
            sink,
            client,
            limits: Limits {
                checkpoint_records: 10_000,
                checkpoint_interval: Duration::from_secs(10),
                batch_records: 512,
                idle_pause: Duration::from_millis(50),
            },
            stop: StopHandle(Arc::new(watch::Sender::new(false))),
        }
    }

    /// A checkpoint is taken after so many records, to the next batch; by default 10000, at least 1.
    #[must_use]
    pub fn checkpoint_records(mut self, count: u64) -> Self {
        self.limits.checkpoint_records = count.max(1);
        self
    }

    /// A checkpoint is taken after this long, if anything was read; by default ten seconds.
    #[must_use]
    pub fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.limits.checkpoint_interval = interval;
        self
    }

    /// How many records are asked of the source at a time; by default 512, at least 1.
    #[must_use]
    pub fn batch_records(mut self, count: usize) -> Self {
        self.limits.batch_records = count.max(1);
        self
    }

    /// How long to wait before an idle source is asked again; by default 50 ms.
    #[must_use]
    pub fn idle_pause(mut self, pause: Duration) -> Self {
        self.limits.idle_pause = pause;
        self
    }

    /// What to do with a record that the sink rejects; by default the job ends with [`JobError::Rejected`], which says
    /// where it is. It is given the record and the reason, and emits what is written instead: a record of another kind,
    /// for a target that keeps what was rejected, or nothing, if it may be dropped. An error of it ends the job, and so
    /// does a rejection of what it emits.
    ///
    /// A sink refuses a batch or a whole transaction. To find the record the job goes back to its last commit and commits
    /// one record at a time until it has passed the place, so the transformation sees some records again, as after a
    /// restart; a source that cannot go back ends the job with the sink's error.
    #[must_use]
    pub fn on_rejected<F>(mut self, recourse: F) -> Self
    where
        F: FnMut(Src::Record, &Rejection, &mut Vec<S::Record>) -> Result<(), Cause> + Send + 'static,
    {
        self.recourse = Some(Box::new(recourse));
        self
    }

    /// A handle that stops the job gracefully.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Runs to the end of the input, or until it is stopped: everything that was read is then visible in the sink.
    ///
    /// # Errors
    /// See [`JobError`]. What was not committed is removed; running the job again goes on from the last commit.
    pub async fn run(self) -> Result<JobReport<Src::Position>, JobError> {
        let runtime = self.sink.clone().open(self.client.clone()).await?;
        let opened = runtime.report().clone();
        let resumed_from = runtime.position().map(decode_position).transpose()?;
        let (limits, stop, patience) = (self.limits.clone(), self.stop.clone(), self.sink.settings.close_deadline);
        let mut running = Running::new(self, runtime);
        let ended = tokio::select! {
            biased;
            ended = running.run(resumed_from.as_ref(), &limits, &stop) => Some(ended),
            () = stop.overdue(patience) => None,
        };
        match ended {
            Some(Ok(ended)) => running.finish(resumed_from, opened, ended).await,
            Some(Err(error)) => {
                running.abandon().await;
                Err(error)
            }
            None => Err(running.break_off().await),
        }
    }
}
