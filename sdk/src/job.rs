//! A job that checkpoints itself: source, transformation, sink, and nothing else to run.
//!
//! Records are read in bounded batches, transformed, and written to the sink. At each checkpoint one durable write of the
//! coordinator decides the transaction and keeps the source's position with it; a restarted job goes on from there.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_trait::async_trait;
use ratified_protocol::{ClientName, TxnId};
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::{sync::watch, time::Instant};

use crate::{
    error::Cause,
    runtime::{OpenReport, RuntimeError, SinkBuilder, SplitRuntime},
    sink::TwoPhaseSink,
};

/// The version byte in front of a stored position.
const POSITION_VERSION: u8 = 1;

/// What one read of a source brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<R> {
    /// Records, at most as many as were asked for.
    Records(Vec<R>),
    /// Nothing for now; there may be more later.
    Idle,
    /// Nothing, and there never will be.
    End,
}

/// A source that can be read again from a position.
#[async_trait]
pub trait Source: Send + 'static {
    /// What is read.
    type Record: Send + 'static;
    /// A place between two records; small, since it travels with every commit.
    type Position: Serialize + DeserializeOwned + Clone + Send + Sync + 'static;

    /// Goes to a position; `None` is the beginning.
    ///
    /// # Errors
    /// Any ends the job.
    async fn seek(&mut self, position: Option<&Self::Position>) -> Result<(), Cause>;

    /// The next records, at most `max_records`. Must not wait long: [`Read::Idle`] lets the job take its checkpoint.
    ///
    /// # Errors
    /// Any ends the job; a restart reads again from the last commit.
    async fn read(&mut self, max_records: usize) -> Result<Read<Self::Record>, Cause>;

    /// The position behind the last record that was read.
    fn position(&self) -> Self::Position;

    /// Everything before this position is visible in the sink: the source may forget it. Default: nothing.
    ///
    /// # Errors
    /// Any ends the job.
    async fn acknowledge(&mut self, position: &Self::Position) -> Result<(), Cause> {
        let _ = position;
        Ok(())
    }
}

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
    /// The stored position cannot be read by this version of the job.
    #[error("the stored position cannot be read: {0}")]
    Position(Cause),
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
    /// Transactions committed by this run, not counting those of earlier runs it finished.
    pub commits: u64,
    /// Commits that found their data visible, those of earlier runs included.
    pub replays: u64,
    /// What opening the sink found and did.
    pub opened: OpenReport,
    /// Why it ended.
    pub ended: Ended,
}

/// Asks a running job to stop: it commits what it has read and ends.
#[derive(Debug, Clone)]
pub struct StopHandle(Arc<watch::Sender<bool>>);

impl StopHandle {
    /// Asks the job to stop. Repetitions change nothing.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }
}

/// A job: set it up, then [`run`](Self::run) it.
pub struct Job<Src, T, S> {
    source: Src,
    transform: T,
    sink: SinkBuilder<S>,
    client: ClientName,
    checkpoint_records: u64,
    checkpoint_interval: Duration,
    batch_records: usize,
    idle_pause: Duration,
    stop: StopHandle,
}

impl<Src, T, S> Job<Src, T, S>
where
    Src: Source,
    S: TwoPhaseSink,
    T: Transform<Src::Record, S::Record>,
{
    /// A job under this client name, which must be the job's (and its split's) alone, for ever.
    pub fn new(client: ClientName, source: Src, transform: T, sink: SinkBuilder<S>) -> Self {
        Self {
            source,
            transform,
            sink,
            client,
            checkpoint_records: 10_000,
            checkpoint_interval: Duration::from_secs(10),
            batch_records: 512,
            idle_pause: Duration::from_millis(50),
            stop: StopHandle(Arc::new(watch::Sender::new(false))),
        }
    }

    /// A checkpoint is taken after so many records, to the next batch; by default 10000, at least 1.
    #[must_use]
    pub fn checkpoint_records(mut self, count: u64) -> Self {
        self.checkpoint_records = count.max(1);
        self
    }

    /// A checkpoint is taken after this long, if anything was read; by default ten seconds.
    #[must_use]
    pub fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.checkpoint_interval = interval;
        self
    }

    /// How many records are asked of the source at a time; by default 512, at least 1.
    #[must_use]
    pub fn batch_records(mut self, count: usize) -> Self {
        self.batch_records = count.max(1);
        self
    }

    /// How long to wait before an idle source is asked again; by default 50 ms.
    #[must_use]
    pub fn idle_pause(mut self, pause: Duration) -> Self {
        self.idle_pause = pause;
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
        let runtime = self.sink.open_split(self.client).await?;
        let resumed_from = runtime.position().map(decode_position).transpose()?;
        let mut running = Running {
            source: self.source,
            transform: self.transform,
            runtime,
            emitted: Vec::new(),
            unacknowledged: VecDeque::new(),
            records_in: 0,
            records_out: 0,
            commits: 0,
            records_since: 0,
            committed_at: Instant::now(),
        };
        let limits = Limits {
            checkpoint_records: self.checkpoint_records,
            checkpoint_interval: self.checkpoint_interval,
            batch_records: self.batch_records,
            idle_pause: self.idle_pause,
        };
        match running.run(resumed_from.as_ref(), &limits, &self.stop).await {
            Ok(ended) => running.finish(resumed_from, ended).await,
            Err(error) => {
                if let Err(unflushed) = running.runtime.close().await {
                    tracing::warn!(%unflushed, "records were given up; they are read again");
                }
                Err(error)
            }
        }
    }
}

struct Limits {
    checkpoint_records: u64,
    checkpoint_interval: Duration,
    batch_records: usize,
    idle_pause: Duration,
}

struct Running<Src: Source, T, S: TwoPhaseSink> {
    source: Src,
    transform: T,
    runtime: SplitRuntime<S>,
    emitted: Vec<S::Record>,
    unacknowledged: VecDeque<(TxnId, Src::Position)>,
    records_in: u64,
    records_out: u64,
    commits: u64,
    records_since: u64,
    committed_at: Instant,
}

impl<Src, T, S> Running<Src, T, S>
where
    Src: Source,
    S: TwoPhaseSink,
    T: Transform<Src::Record, S::Record>,
{
    async fn run(
        &mut self,
        from: Option<&Src::Position>,
        limits: &Limits,
        stop: &StopHandle,
    ) -> Result<Ended, JobError> {
        self.source.seek(from).await.map_err(JobError::Source)?;
        let ended = loop {
            if stop.is_stopped() {
                break Ended::Stopped;
            }
            match self.source.read(limits.batch_records).await.map_err(JobError::Source)? {
                Read::Records(records) => self.process(records).await?,
                Read::Idle => tokio::time::sleep(limits.idle_pause).await,
                Read::End => break Ended::EndOfInput,
            }
            let is_due = self.records_since >= limits.checkpoint_records
                || self.committed_at.elapsed() >= limits.checkpoint_interval;
            if is_due {
                self.checkpoint().await?;
            }
            self.acknowledge().await?;
        };
        self.checkpoint().await?;
        self.runtime.flush_commits().await?;
        self.acknowledge().await?;
        Ok(ended)
    }

    async fn process(&mut self, records: Vec<Src::Record>) -> Result<(), JobError> {
        for record in records {
            self.records_in += 1;
            self.records_since += 1;
            self.transform.apply(record, &mut self.emitted).map_err(JobError::Transform)?;
            for emitted in self.emitted.drain(..) {
                self.records_out += 1;
                self.runtime.write(emitted).await?;
            }
        }
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<(), JobError> {
        self.committed_at = Instant::now();
        if std::mem::take(&mut self.records_since) == 0 {
            return Ok(());
        }
        let position = self.source.position();
        if let Some(txn_id) = self.runtime.commit(&encode_position(&position)?).await? {
            self.commits += 1;
            self.unacknowledged.push_back((txn_id, position));
        }
        Ok(())
    }

    /// Tells the source what is visible in the sink, never earlier.
    async fn acknowledge(&mut self) -> Result<(), JobError> {
        let finished = self.runtime.finished();
        let mut newest = None;
        while let Some((txn_id, position)) = self.unacknowledged.pop_front() {
            if finished.is_none_or(|finished| txn_id > finished) {
                self.unacknowledged.push_front((txn_id, position));
                break;
            }
            newest = Some(position);
        }
        match newest {
            Some(position) => self.source.acknowledge(&position).await.map_err(JobError::Source),
            None => Ok(()),
        }
    }

    async fn finish(
        self,
        resumed_from: Option<Src::Position>,
        ended: Ended,
    ) -> Result<JobReport<Src::Position>, JobError> {
        let opened = self.runtime.report().clone();
        let replays = opened.already_committed + self.runtime.already_committed();
        self.runtime.close().await?;
        Ok(JobReport {
            resumed_from,
            position: self.source.position(),
            records_in: self.records_in,
            records_out: self.records_out,
            commits: self.commits,
            replays,
            opened,
            ended,
        })
    }
}

fn encode_position<P: Serialize>(position: &P) -> Result<Vec<u8>, JobError> {
    let mut bytes = vec![POSITION_VERSION];
    serde_json::to_writer(&mut bytes, position).map_err(|e| JobError::Position(Cause::new(e)))?;
    Ok(bytes)
}

fn decode_position<P: DeserializeOwned>(bytes: &[u8]) -> Result<P, JobError> {
    match bytes.split_first() {
        Some((&POSITION_VERSION, json)) => serde_json::from_slice(json).map_err(|e| JobError::Position(Cause::new(e))),
        Some((version, _)) => Err(JobError::Position(Cause::new(format!("version {version} is unknown")))),
        None => Err(JobError::Position(Cause::new("it is empty"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_a_version_and_json() {
        assert_eq!(encode_position(&(3, "x")).unwrap(), b"\x01[3,\"x\"]");
        assert_eq!(decode_position::<(u8, String)>(b"\x01[3,\"x\"]").unwrap(), (3, "x".to_owned()));
    }

    #[test]
    fn a_position_of_another_version_is_refused() {
        for (bytes, why) in [(&b"\x02[3]"[..], "version 2"), (b"", "empty"), (b"\x01nonsense", "expected ident")] {
            assert!(decode_position::<Vec<u8>>(bytes).unwrap_err().to_string().contains(why));
        }
    }
}
