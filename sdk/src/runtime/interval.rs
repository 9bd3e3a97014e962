//! The records between two barriers: begun at the first one, staged in batches, flushed at the barrier.

use std::sync::Arc;

use ratified_protocol::{
    BeginRequest, CheckpointId, ClientName, Epoch, Labels, MAX_PAYLOAD_BYTES, Outcome, ParticipantSet, TxnId,
};
use tokio::time::Instant;

use super::{
    builder::Settings, committer::Committer, env::Env, error::RuntimeError, keep_alive::KeepAlive, metrics,
    payload::encode_handle, policy::Point,
};
use crate::{
    client::MetStore,
    error::{Certainty, SinkError},
    ids::IdSource,
    pending::PendingLog,
    retry::{Limit, Retrier},
    sink::{SinkWriter, Slot, TwoPhaseSink, TxnContext},
};

/// A client this runtime has opened.
#[derive(Clone)]
pub(crate) struct Owned {
    pub(crate) client: ClientName,
    pub(crate) slot: Slot,
    pub(crate) epoch: Epoch,
    pub(crate) log: Arc<dyn PendingLog>,
}

impl Owned {
    pub(crate) fn context(&self, id: TxnId) -> TxnContext {
        TxnContext::new(self.client.clone(), id, self.epoch).with_slot(self.slot)
    }
}

/// How the transactions of a driver are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deciding {
    /// By the engine, once they are prepared.
    WhenPrepared,
    /// By the job, straight from OPEN.
    FromOpen,
    /// Not at all: the coordinator never hears of them.
    Never,
}

/// How the driver's transactions look to the coordinator.
pub(crate) struct Drive {
    pub(crate) deciding: Deciding,
    pub(crate) labels: Labels,
}

/// The writing half of a runtime, common to both ways to drive it.
pub(crate) struct Intervals<S: TwoPhaseSink> {
    pub(crate) env: Arc<Env<S::Committer>>,
    pub(crate) owned: Owned,
    pub(crate) settings: Settings,
    drive: Drive,
    pub(crate) committer: Committer<S::Handle>,
    writer: Option<S::Writer>,
    keep_alive: KeepAlive,
    ids: IdSource,
    noted_store: Option<MetStore>,
    open: Option<OpenTxn<S::Handle>>,
    buffer: Vec<S::Record>,
    records: u64,
    counted_bytes: u64,
    is_busy: bool,
}

struct OpenTxn<H> {
    txn: TxnContext,
    handle: H,
}

/// A flushed transaction: its data survives a crash.
pub(crate) struct Sealed<H> {
    pub(crate) txn: TxnContext,
    pub(crate) handle: H,
    pub(crate) encoded: Vec<u8>,
}

impl<S: TwoPhaseSink> Intervals<S> {
    pub(crate) fn new(
        env: Arc<Env<S::Committer>>,
        owned: Owned,
        settings: Settings,
        drive: Drive,
        writer: S::Writer,
        ids: IdSource,
    ) -> Self {
        let committer = Committer::start(env.clone(), owned.log.clone());
        let keep_alive = KeepAlive::start(env.clone(), owned.client.clone(), owned.epoch, settings.timeout);
        let noted_store = owned.log.contents().store;
        Self {
            env,
            owned,
            settings,
            drive,
            committer,
            writer: Some(writer),
            keep_alive,
            ids,
            noted_store,
            open: None,
            buffer: Vec::new(),
            records: 0,
            counted_bytes: 0,
            is_busy: false,
        }
    }

    /// Starts a call: refuses if the runtime has stopped, also by a call whose future was dropped.
    pub(crate) fn enter(&mut self) -> Result<(), RuntimeError> {
        self.env.status.check()?;
        if std::mem::replace(&mut self.is_busy, true) {
            self.env.status.fail(RuntimeError::Interrupted);
        }
        self.env.status.check()
    }

    /// Ends a call; an error stays.
    pub(crate) async fn leave<T>(&mut self, result: Result<T, RuntimeError>) -> Result<T, RuntimeError> {
        let result = match result {
            Ok(value) => Ok(value),
            Err(error) => {
                let error = match (&error, &self.open) {
                    (RuntimeError::Sink { .. }, Some(open)) => self.env.unless_fenced(&open.txn, error).await,
                    _ => error,
                };
                self.env.status.fail(self.env.name_owners(error).await);
                // What stopped the runtime first is what every call tells.
                self.env.status.check().and_then(|()| Err(RuntimeError::Interrupted))
            }
        };
        self.is_busy = false;
        result
    }

    pub(crate) async fn write(&mut self, record: S::Record) -> Result<(), RuntimeError> {
        if self.open.is_none() {
            self.env.status.until_fewer_than(self.settings.max_pending).await?;
            self.begin().await?;
        }
        self.buffer.push(record);
        self.records = self.records.saturating_add(1);
        if self.buffer.len() >= self.settings.batch_records {
            self.env.status.until_fewer_than(self.settings.max_pending).await?;
            self.flush().await?;
        }
        Ok(())
    }

    /// Makes the id known outwards: own disk, coordinator, sink.
    async fn begin(&mut self) -> Result<(), RuntimeError> {
        let txn = self.draw()?;
        match self.drive.deciding {
            // What is staged behind this and not yet visible is found by it, and nobody else knows of it.
            Deciding::Never => self.owned.log.begin_at_least_once(txn.txn_id).await?,
            Deciding::WhenPrepared | Deciding::FromOpen => self.begin_at_the_coordinator(&txn).await?,
        }
        let handle = self.begin_at_the_sink(&txn).await?;
        if self.drive.deciding != Deciding::Never {
            let encoded = encode_handle(&handle)?;
            if encoded.len() > MAX_PAYLOAD_BYTES {
                return Err(RuntimeError::PayloadTooLarge { bytes: encoded.len() });
            }
            self.owned.log.attach(txn.txn_id, encoded).await?;
        }
        self.open = Some(OpenTxn { txn, handle });
        self.env.observer.pass(Point::Begun);
        Ok(())
    }

    async fn begin_at_the_coordinator(&mut self, txn: &TxnContext) -> Result<(), RuntimeError> {
        let met = self.env.coordinator.known_store();
        if met != self.noted_store
            && let Some(store) = met.clone()
        {
            self.owned.log.note_store(store).await?;
            self.noted_store = met;
        }
        self.owned.log.begin(txn.txn_id).await?;
        let request = BeginRequest {
            epoch: Some(txn.epoch),
            timeout_ms: self.settings.timeout,
            require_prepare: self.drive.deciding == Deciding::WhenPrepared,
            participants: ParticipantSet::try_from(vec![(&txn.client).into()]).unwrap_or_default(),
            labels: self.drive.labels.clone(),
        };
        let begun = self.env.coordinator.begin(&txn.client, txn.txn_id, &request).await;
        begun.map_err(|e| RuntimeError::about_txn(&txn.client, txn.txn_id, e))?;
        self.keep_alive.set(Some(txn.txn_id));
        Ok(())
    }

    async fn begin_at_the_sink(&mut self, txn: &TxnContext) -> Result<S::Handle, RuntimeError> {
        let mut retrier = self.step_retrier("sink.begin");
        let writer = writer_of(&mut self.writer)?;
        loop {
            match writer.begin(txn).await {
                Ok(handle) => return Ok(handle),
                Err(error) => pause_if_determinate("sink.begin", &mut retrier, error).await?,
            }
        }
    }

    /// Hands the gathered records to the sink.
    pub(crate) async fn flush(&mut self) -> Result<(), RuntimeError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if self.buffer.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.buffer);
        let count = records.len() as u64;
        let writer = writer_of(&mut self.writer)?;
        let written = writer.write(&open.txn, &mut open.handle, records).await;
        written.map_err(|error| failed_send("sink.write", error))?;
        let bytes = writer.staged_bytes();
        metrics::written(count, bytes.saturating_sub(self.counted_bytes));
        self.counted_bytes = bytes;
        Ok(())
    }

    /// Flushes the OPEN transaction, so that it can be prepared or committed; `None` if there is none.
    pub(crate) async fn seal(
        &mut self,
        checkpoint: Option<CheckpointId>,
    ) -> Result<Option<Sealed<S::Handle>>, RuntimeError> {
        self.flush().await?;
        let mut retrier = self.step_retrier("sink.pre_commit");
        let Some(open) = &mut self.open else { return Ok(None) };
        let txn = open.txn.clone().with_checkpoint(checkpoint);
        let writer = writer_of(&mut self.writer)?;
        while let Err(error) = writer.pre_commit(&txn, &mut open.handle).await {
            pause_if_determinate("sink.pre_commit", &mut retrier, error).await?;
        }
        self.env.observer.pass(Point::PreCommitted);
        let encoded = encode_handle(&open.handle)?;
        Ok(Some(Sealed { txn, handle: open.handle.clone(), encoded }))
    }

    /// Notes that the sealed transaction has left the OPEN state.
    pub(crate) fn sealed_is_safe(&mut self) {
        self.keep_alive.set(None);
        self.open = None;
        self.records = 0;
    }

    /// The next transaction of this client: for one that the sink does not hear of.
    pub(crate) fn draw(&mut self) -> Result<TxnContext, RuntimeError> {
        Ok(self.owned.context(self.ids.draw()?))
    }

    /// Ends the OPEN transaction, never a prepared one. Tells how many records no barrier covers.
    pub(crate) async fn close(mut self) -> Result<(), RuntimeError> {
        let end = Instant::now() + self.settings.close_deadline;
        self.keep_alive.set(None);
        let open = self.open.take();
        // Whatever the writer holds open must not be in the way of removing what it staged.
        self.writer = None;
        if let Some(open) = open {
            self.abort_open(open, Limit::Until(end)).await;
        }
        let drained = tokio::time::timeout_at(end, self.env.status.until_fewer_than(1)).await;
        let left = self.committer.unfinished();
        if self.records > 0 {
            return Err(RuntimeError::Unflushed { records: self.records });
        }
        // What is prepared or decided waits for the next `open`; that is not an error of closing.
        if drained.is_err() || !left.is_empty() {
            tracing::warn!(left = left.len(), "closed before every commit was finished");
        }
        Ok(())
    }

    async fn abort_open(&self, open: OpenTxn<S::Handle>, limit: Limit) {
        let result = async {
            if self.drive.deciding != Deciding::Never && self.env.decide_abort(limit, &open.txn).await?.is_none() {
                // A commit of it was under way and won: the next `open` finds it and finishes it.
                return Ok(());
            }
            self.env.sink_abort(limit, &open.txn, Some(&open.handle)).await?;
            if self.drive.deciding != Deciding::Never {
                self.env.ack(limit, &open.txn, Outcome::Aborted).await?;
            }
            Ok::<_, RuntimeError>(self.owned.log.remove(open.txn.txn_id).await?)
        };
        if let Err(error) = result.await {
            // The next `open`, or its deadline, ends it.
            tracing::warn!(txn_id = %open.txn.txn_id, %error, "the open transaction could not be aborted");
        }
    }

    fn step_retrier(&self, call: &'static str) -> Retrier {
        let end = Instant::now() + self.settings.open_deadline;
        Retrier::new(call, self.env.coordinator.delays(), Limit::Until(end))
    }
}

/// The writer is gone only once `close` has begun.
fn writer_of<W>(writer: &mut Option<W>) -> Result<&mut W, RuntimeError> {
    writer.as_mut().ok_or(RuntimeError::Interrupted)
}

/// Waits for another attempt if the failure is known to have changed nothing; any other ends the writer.
async fn pause_if_determinate(call: &'static str, retrier: &mut Retrier, error: SinkError) -> Result<(), RuntimeError> {
    match error {
        SinkError::Retry { after, certainty: Certainty::Determinate, cause } => {
            let paused = retrier.pause::<SinkError>(after, cause).await;
            paused.map_err(|ended| failed_send(call, ended.into_sink_error()))
        }
        error => Err(failed_send(call, error)),
    }
}

fn failed_send(call: &'static str, error: SinkError) -> RuntimeError {
    metrics::send_error();
    RuntimeError::Sink { call, error }
}
