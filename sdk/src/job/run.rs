//! A job while it runs.

use std::{collections::VecDeque, time::Duration};

use ratified_protocol::{ClientName, TxnId};
use tokio::time::Instant;

use super::{
    Ended, Job, JobError, JobReport, Read, Source, StopHandle, Transform, decode_position, encode_position,
    rejected::{Care, Recourse, Rejection, is_of_a_record},
};
use crate::{
    runtime::{JobSink, JobSinkBuilder, OpenReport, RuntimeError, metrics},
    sink::TwoPhaseSink,
};

#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) checkpoint_records: u64,
    pub(super) checkpoint_interval: Duration,
    pub(super) batch_records: usize,
    pub(super) idle_pause: Duration,
}

/// What is read and written between two commits.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    records_in: u64,
    records_out: u64,
    rejected: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.records_in += other.records_in;
        self.records_out += other.records_out;
        self.rejected += other.rejected;
    }
}

pub(super) struct Running<Src: Source, T, S: TwoPhaseSink> {
    source: Src,
    transform: T,
    recourse: Option<Recourse<Src::Record, S::Record>>,
    sink: JobSinkBuilder<S>,
    client: ClientName,
    /// `None` only while it is opened again.
    runtime: Option<JobSink<S>>,
    care: Care,
    emitted: Vec<S::Record>,
    unacknowledged: VecDeque<(TxnId, Src::Position)>,
    interval: Tally,
    total: Tally,
    commits: u64,
    replays: u64,
    committed_at: Instant,
}

impl<Src, T, S> Running<Src, T, S>
where
    Src: Source,
    S: TwoPhaseSink,
    T: Transform<Src::Record, S::Record>,
{
    pub(super) fn new(job: Job<Src, T, S>, runtime: JobSink<S>) -> Self {
        Self {
            source: job.source,
            transform: job.transform,
            recourse: job.recourse,
            sink: job.sink,
            client: job.client,
            replays: runtime.report().already_committed,
            runtime: Some(runtime),
            care: Care::Gathering,
            emitted: Vec::new(),
            unacknowledged: VecDeque::new(),
            interval: Tally::default(),
            total: Tally::default(),
            commits: 0,
            committed_at: Instant::now(),
        }
    }

    fn runtime(&mut self) -> Result<&mut JobSink<S>, JobError> {
        self.runtime.as_mut().ok_or(JobError::Runtime(RuntimeError::Interrupted))
    }

    /// Reads to the end or until it is stopped; everything read is then visible.
    pub(super) async fn run(
        &mut self,
        from: Option<&Src::Position>,
        limits: &Limits,
        stop: &StopHandle,
    ) -> Result<Ended, JobError> {
        self.source.seek(from).await.map_err(JobError::Source)?;
        loop {
            match self.read_on(limits, stop).await {
                Err(error) => self.look_for_what_is_rejected(error).await?,
                Ok(ended) => return Ok(ended),
            }
        }
    }

    async fn read_on(&mut self, limits: &Limits, stop: &StopHandle) -> Result<Ended, JobError> {
        let ended = loop {
            if stop.is_stopped() {
                break Ended::Stopped;
            }
            let is_alone = !matches!(self.care, Care::Gathering);
            let batch_records = if is_alone { 1 } else { limits.batch_records };
            match self.source.read(batch_records).await.map_err(JobError::Source)? {
                Read::Records(records) => self.process(records).await?,
                Read::Idle => tokio::time::sleep(limits.idle_pause).await,
                Read::End => break Ended::EndOfInput,
            }
            let is_due = is_alone
                || self.interval.records_in >= limits.checkpoint_records
                || self.committed_at.elapsed() >= limits.checkpoint_interval;
            if is_due {
                self.checkpoint().await?;
            }
            self.acknowledge().await?;
        };
        self.checkpoint().await?;
        self.runtime()?.flush_commits().await?;
        self.acknowledge().await?;
        Ok(ended)
    }

    async fn process(&mut self, records: Vec<Src::Record>) -> Result<(), JobError> {
        for record in records {
            self.interval.records_in += 1;
            match (&self.care, &mut self.recourse) {
                (Care::Found { rejection, .. }, Some(recourse)) => {
                    self.interval.rejected += 1;
                    recourse(record, rejection, &mut self.emitted).map_err(JobError::Transform)?;
                }
                _ => self.transform.apply(record, &mut self.emitted).map_err(JobError::Transform)?,
            }
            for emitted in std::mem::take(&mut self.emitted) {
                self.interval.records_out += 1;
                self.runtime()?.write(emitted).await?;
            }
        }
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<(), JobError> {
        self.committed_at = Instant::now();
        if self.interval.records_in == 0 {
            return Ok(());
        }
        let position = self.source.position();
        let encoded = encode_position(&position)?;
        let committed = self.runtime()?.commit(&encoded).await?;
        let interval = std::mem::take(&mut self.interval);
        self.total.add(interval);
        self.care.passed(interval.records_in);
        for _ in 0..interval.rejected {
            metrics::rejected();
        }
        if let Some(txn_id) = committed {
            self.commits += u64::from(interval.records_out > 0);
            self.unacknowledged.push_back((txn_id, position));
        }
        Ok(())
    }

    /// Tells the source what is visible in the sink, never earlier.
    async fn acknowledge(&mut self) -> Result<(), JobError> {
        let finished = self.runtime()?.finished();
        let mut newest = None;
        while let Some((txn_id, position)) = self.unacknowledged.pop_front() {
            if finished.is_none_or(|finished| txn_id > finished) {
                self.unacknowledged.push_front((txn_id, position));
                break;
            }
            newest = Some(position);
        }
        self.tell(newest).await
    }

    async fn tell(&mut self, newest: Option<Src::Position>) -> Result<(), JobError> {
        match newest {
            Some(position) => self.source.acknowledge(&position).await.map_err(JobError::Source),
            None => Ok(()),
        }
    }

    /// After a rejection of the sink: opens it again, and goes back to the last commit.
    async fn look_for_what_is_rejected(&mut self, error: JobError) -> Result<(), JobError> {
        let JobError::Runtime(failed) = &error else { return Err(error) };
        if !is_of_a_record(failed) {
            return Err(error);
        }
        let behind = format!("{:?}", self.source.position());
        let rejection = Rejection { behind, error: failed.clone() };
        let has_recourse = self.recourse.is_some();
        self.care = std::mem::take(&mut self.care).after(rejection, self.interval.records_in, has_recourse)?;
        (self.interval, self.emitted) = Default::default();
        if let Some(old) = self.runtime.take() {
            self.replays += old.already_committed();
            if let Err(unflushed) = old.close().await {
                tracing::warn!(%unflushed, %error, "the sink rejects a record; it is looked for");
            }
        }
        let reopened = self.sink.clone().open(self.client.clone()).await?;
        self.replays += reopened.report().already_committed;
        let from = reopened.position().map(decode_position).transpose()?;
        self.runtime = Some(reopened);
        // Opening has finished every commit there was.
        let newest = self.unacknowledged.drain(..).next_back().map(|(_, position)| position);
        self.tell(newest).await?;
        // What a source cannot give again cannot be looked for.
        self.source.seek(from.as_ref()).await.map_err(|_| error)
    }

    /// Gives up what was not committed: it is read again.
    pub(super) async fn abandon(self) {
        let Some(runtime) = self.runtime else { return };
        if let Err(unflushed) = runtime.close().await {
            tracing::warn!(%unflushed, "records were given up; they are read again");
        }
    }

    /// Ends it although what was read is not visible: the next run finishes what is decided and reads the rest again.
    pub(super) async fn break_off(self) -> JobError {
        let (unfinished, records) = (self.runtime.as_ref().map_or(0, JobSink::unfinished), self.interval.records_in);
        if let Some(runtime) = self.runtime
            && let Err(error) = runtime.close_at_once().await
        {
            tracing::warn!(%error, "stopped before all was committed");
        }
        JobError::StopIncomplete { unfinished, records }
    }

    /// Ends it well.
    pub(super) async fn finish(
        mut self,
        resumed_from: Option<Src::Position>,
        opened: OpenReport,
        ended: Ended,
    ) -> Result<JobReport<Src::Position>, JobError> {
        if let Some(runtime) = self.runtime.take() {
            self.replays += runtime.already_committed();
            runtime.close().await?;
        }
        Ok(JobReport {
            resumed_from,
            position: self.source.position(),
            records_in: self.total.records_in,
            records_out: self.total.records_out,
            rejected: self.total.rejected,
            commits: self.commits,
            replays: self.replays,
            opened,
            ended,
        })
    }
}
