//! A job while it runs.

use std::{collections::VecDeque, time::Duration};

use ratified_protocol::TxnId;
use tokio::time::Instant;

use super::{Ended, JobError, JobReport, Read, Source, StopHandle, Transform, encode_position};
use crate::{runtime::JobSink, sink::TwoPhaseSink};

#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) checkpoint_records: u64,
    pub(super) checkpoint_interval: Duration,
    pub(super) batch_records: usize,
    pub(super) idle_pause: Duration,
}

pub(super) struct Running<Src: Source, T, S: TwoPhaseSink> {
    source: Src,
    transform: T,
    runtime: JobSink<S>,
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
    pub(super) fn new(source: Src, transform: T, runtime: JobSink<S>) -> Self {
        Self {
            source,
            transform,
            runtime,
            emitted: Vec::new(),
            unacknowledged: VecDeque::new(),
            records_in: 0,
            records_out: 0,
            commits: 0,
            records_since: 0,
            committed_at: Instant::now(),
        }
    }

    /// Reads to the end or until it is stopped; everything read is then visible.
    pub(super) async fn run(
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

    /// Gives up what was not committed: it is read again.
    pub(super) async fn abandon(self) {
        if let Err(unflushed) = self.runtime.close().await {
            tracing::warn!(%unflushed, "records were given up; they are read again");
        }
    }

    /// Ends it well.
    pub(super) async fn finish(
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
