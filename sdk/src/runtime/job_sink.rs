//! Driven by itself: no engine, no checkpoint store. The coordinator's one durable write decides a transaction and keeps
//! the source position with it.

use std::time::Duration;

use ratified_protocol::{
    BatchItem, BatchOp, BatchRequest, BeginRequest, CheckpointId, ClientName, CommitRequest, Labels, LastCommitted,
    TxnId,
};

use super::{
    builder::JobSinkBuilder,
    committer::Ending,
    decide::{Findings, Rules},
    error::RuntimeError,
    finish::Finished,
    interval::{Deciding, Drive, Intervals},
    metrics::PendingTimer,
    open::{OpenReport, Opening, Raised},
    payload::Envelope,
};
use crate::{
    error::ClientError,
    sink::{Slot, TwoPhaseSink, TxnContext},
};

/// How often `open` looks again because somebody committed what it was about to abort.
const MAX_LOOKS: u32 = 10;

/// A sink for one source split. The split is the client: rescaling moves whole splits.
///
/// Calls are not cancellation-safe: a call whose future was dropped stops the runtime, since nobody knows how far it came.
pub struct JobSink<S: TwoPhaseSink> {
    intervals: Intervals<S>,
    position: Option<Vec<u8>>,
    next_checkpoint: u64,
    report: OpenReport,
}

impl<S: TwoPhaseSink> JobSink<S> {
    pub(super) async fn open(builder: JobSinkBuilder<S>, client: ClientName) -> Result<Self, RuntimeError> {
        let mut opening = Opening::start(builder, Rules::LastCommit).await?;
        let mut looks = 0;
        let own = loop {
            looks += 1;
            match open_once(&mut opening, &client).await {
                Ok(Some(own)) => break own,
                Ok(None) if looks < MAX_LOOKS => {}
                Ok(None) => return Err(RuntimeError::Contended { client }),
                Err(error) => return Err(opening.explain(error)),
            }
        };
        let position = own.last_committed.as_ref().map(position_of).transpose()?;
        let last = own.last_committed.as_ref().and_then(|last| last.checkpoint_id);
        let next_checkpoint = last.map_or(1, |last| last.as_u64().saturating_add(1));
        let drive = Drive { deciding: Deciding::FromOpen, labels: Labels::default() };
        let (intervals, report) = opening.into_intervals(own, [], drive).await?;
        Ok(Self { intervals, position, next_checkpoint, report })
    }

    /// What `open` found and did.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// The position of the last commit: where the source must be read from. `None` at a first start.
    pub fn position(&self) -> Option<&[u8]> {
        self.position.as_deref()
    }

    /// Writes a record. Records are gathered; an error may surface at a later call. Waits while too many decided
    /// transactions are unfinished.
    ///
    /// # Errors
    /// Sticky: see [`RuntimeError`].
    pub async fn write(&mut self, record: S::Record) -> Result<(), RuntimeError> {
        self.intervals.enter()?;
        let result = self.intervals.write(record).await;
        self.intervals.leave(result).await
    }

    /// Commits what was written since the last commit, together with the position up to which the source was read. When
    /// it returns the commit is decided for ever; making it visible goes on in the background. If nothing was written
    /// the position is stored alone, by one call, and the sink is not asked. `None`: there was nothing to store either.
    ///
    /// # Errors
    /// Sticky: see [`RuntimeError`].
    pub async fn commit(&mut self, position: &[u8]) -> Result<Option<TxnId>, RuntimeError> {
        self.intervals.enter()?;
        let result = self.decide(position).await;
        self.intervals.leave(result).await
    }

    async fn decide(&mut self, position: &[u8]) -> Result<Option<TxnId>, RuntimeError> {
        let checkpoint = CheckpointId::new(self.next_checkpoint);
        let Some(sealed) = self.intervals.seal(Some(checkpoint)).await? else {
            return self.store_position(checkpoint, position).await;
        };
        let txn = sealed.txn;
        let envelope =
            Envelope { slot: txn.slot, handle: Some(sealed.encoded.clone()), position: Some(position.to_vec()) };
        let request = CommitRequest {
            epoch: Some(txn.epoch),
            checkpoint_id: Some(checkpoint),
            payload: Some(envelope.to_payload()?),
        };
        let decided = self.intervals.env.coordinator.commit(&txn.client, txn.txn_id, &request, None).await;
        decided.map_err(|e| RuntimeError::about_txn(&txn.client, txn.txn_id, e))?;
        self.intervals.sealed_is_safe();
        Ok(Some(self.decided(txn, Some(sealed.handle), sealed.encoded, position)))
    }

    /// Stores a position with which nothing was written: a transaction of nobody, begun and committed in one call.
    async fn store_position(
        &mut self,
        checkpoint: CheckpointId,
        position: &[u8],
    ) -> Result<Option<TxnId>, RuntimeError> {
        if self.position.as_deref() == Some(position) {
            return Ok(None);
        }
        let txn = self.intervals.draw()?.with_checkpoint(Some(checkpoint));
        let envelope = Envelope { slot: txn.slot, handle: None, position: Some(position.to_vec()) };
        let epoch = Some(txn.epoch);
        let begin = BeginRequest { epoch, ..BeginRequest::default() };
        let commit = CommitRequest { epoch, checkpoint_id: Some(checkpoint), payload: Some(envelope.to_payload()?) };
        let item = |op| BatchItem { txn_id: txn.txn_id, op };
        let batch = BatchRequest::new(&[item(BatchOp::Begin(begin)), item(BatchOp::Commit(commit))], true);
        let answer = self.intervals.env.coordinator.batch(&txn.client, &batch).await?;
        if let Some(problem) = answer.results.into_iter().find_map(|result| result.problem) {
            return Err(RuntimeError::about_txn(&txn.client, txn.txn_id, ClientError::Refused(Box::new(problem))));
        }
        Ok(Some(self.decided(txn, None, Vec::new(), position)))
    }

    /// Hands a decided transaction over to be finished, in its turn.
    fn decided(&mut self, txn: TxnContext, handle: Option<S::Handle>, encoded: Vec<u8>, position: &[u8]) -> TxnId {
        self.next_checkpoint = self.next_checkpoint.saturating_add(1);
        self.position = Some(position.to_vec());
        let txn_id = txn.txn_id;
        let ending = Ending { txn, handle, encoded, is_decided: true, timer: PendingTimer::start() };
        self.intervals.committer.enqueue([ending]);
        txn_id
    }

    /// The newest transaction that is visible and acknowledged: only now may the source be told that it was read.
    pub fn finished(&self) -> Option<TxnId> {
        self.intervals.env.status.now().finished
    }

    /// How many commits of this runtime found their data visible.
    pub fn already_committed(&self) -> u64 {
        self.intervals.env.status.now().already.saturating_sub(self.report.already_committed)
    }

    /// Waits until every commit is visible and acknowledged.
    ///
    /// # Errors
    /// The sticky error, if the runtime has stopped.
    pub async fn flush_commits(&self) -> Result<(), RuntimeError> {
        self.intervals.env.status.until_fewer_than(1).await
    }

    /// How many commits are decided and not visible and acknowledged.
    pub(crate) fn unfinished(&self) -> usize {
        self.intervals.env.status.now().ending
    }

    /// As [`Self::close`], without waiting for anybody.
    pub(crate) async fn close_at_once(mut self) -> Result<(), RuntimeError> {
        self.intervals.settings.close_deadline = Duration::ZERO;
        self.close().await
    }

    /// Ends the runtime: aborts the OPEN transaction and waits a while for commits under way.
    ///
    /// # Errors
    /// [`RuntimeError::Unflushed`] if records were written after the last commit: they are given up.
    pub async fn close(self) -> Result<(), RuntimeError> {
        self.intervals.close().await
    }
}

/// The position kept with the last commit. Without one the source cannot be resumed: never an empty start.
fn position_of(last: &LastCommitted) -> Result<Vec<u8>, RuntimeError> {
    let payload = last.payload.as_ref().map(Envelope::from_payload).transpose()?;
    let undecodable = || RuntimeError::Undecodable {
        what: "last commit",
        why: format!("{} carries no source position: it was not made by a job that checkpoints itself", last.txn_id),
    };
    payload.and_then(|envelope| envelope.position).ok_or_else(undecodable)
}

/// One look: `None` if a commit won against an abort, and everything must be looked at again.
async fn open_once<S: TwoPhaseSink>(
    opening: &mut Opening<S>,
    client: &ClientName,
) -> Result<Option<Raised>, RuntimeError> {
    let may_create = opening.settings.first_start;
    let mut raised = vec![opening.raise(client.clone(), Slot::new(0), may_create).await?];
    match opening.check_and_finish(&mut raised, &[], Findings::default()).await? {
        Finished::Done => Ok(Some(raised.swap_remove(0))),
        Finished::LookAgain => Ok(None),
    }
}
