//! Driven by an engine: it draws the barriers, stores the snapshots, and says which checkpoints are complete.

use std::collections::BTreeMap;

use ratified_protocol::{CheckpointId, ClientName, PrepareRequest, TxnId};

use tokio::time::Instant;

use super::{
    builder::{EngineDriven, EngineSinkBuilder},
    committer::Ending,
    error::RuntimeError,
    finish::{Finished, Unnamed},
    interval::{Deciding, Intervals, Sealed},
    metrics::PendingTimer,
    open::{OpenReport, Opening, Raised},
    payload::Envelope,
    policy::{Barrier, BarrierKind, Mode, Point, SinkName, Worker},
    snapshot::{Snapshot, SnapshotElement},
};
use crate::{
    retry::Limit,
    sink::{Slot, TwoPhaseSink},
};

/// How often `open` looks again because somebody committed what it was about to abort.
const MAX_LOOKS: u32 = 10;

/// A sink driven by an engine's checkpoints.
///
/// Calls are not cancellation-safe: a call whose future was dropped stops the runtime, since nobody knows how far it came.
/// Dropping the runtime ends nothing: what is prepared stays prepared.
pub struct EngineSink<S: TwoPhaseSink> {
    intervals: Intervals<S>,
    driver: EngineDriven,
    prepared: BTreeMap<TxnId, Ending<S::Handle>>,
    newest_barrier: Option<CheckpointId>,
    is_final: bool,
    report: OpenReport,
}

impl<S: TwoPhaseSink> EngineSink<S> {
    pub(super) async fn open(
        builder: EngineSinkBuilder<S>,
        name: &SinkName,
        restored: Option<CheckpointId>,
        snapshots: Vec<Snapshot>,
    ) -> Result<Self, RuntimeError> {
        let named = Snapshot::from_elements(snapshots.into_iter().flat_map(Snapshot::into_elements)).into_elements();
        if let Some(element) = named.iter().find(|element| restored.is_none_or(|r| element.checkpoint > r)) {
            return Err(RuntimeError::SnapshotNotRestored { snapshot: element.checkpoint, restored });
        }
        let driver = builder.driver.clone();
        let mut opening = Opening::start(builder, driver.clone()).await?;
        for element in &named {
            opening.env.coordinator.expect_store(element.store)?;
        }
        let mut looks = 0;
        let own = loop {
            looks += 1;
            match open_once(&mut opening, driver.worker, name, restored, &named).await {
                Ok(Some(own)) => break own,
                Ok(None) if looks < MAX_LOOKS => {}
                Ok(None) => {
                    return Err(RuntimeError::Contended { client: name.client(driver.worker.slot())? });
                }
                Err(error) => return Err(opening.explain(error)),
            }
        };
        let own_ids = named.iter().filter(|element| element.client == own.owned.client).map(|element| element.txn_id);
        let own_ids = own_ids.collect::<Vec<_>>();
        let deciding = match driver.mode {
            Mode::ExactlyOnce => Deciding::WhenPrepared,
            Mode::AtLeastOnce => Deciding::Never,
        };
        let (intervals, report) = opening.into_intervals(own, own_ids, deciding).await?;
        Ok(Self { intervals, driver, prepared: BTreeMap::new(), newest_barrier: restored, is_final: false, report })
    }

    /// What `open` found and did.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Writes a record. Records are gathered; an error may surface at a later call. Waits while too many completed
    /// transactions are unfinished.
    ///
    /// # Errors
    /// Sticky: see [`RuntimeError`].
    pub async fn write(&mut self, record: S::Record) -> Result<(), RuntimeError> {
        self.intervals.enter()?;
        let result = self.write_one(record).await;
        self.intervals.leave(result).await
    }

    async fn write_one(&mut self, record: S::Record) -> Result<(), RuntimeError> {
        if self.is_final {
            return Err(RuntimeError::AfterFinal);
        }
        if self.prepared.len() >= self.driver.max_prepared {
            return Err(RuntimeError::TooManyPrepared { prepared: self.prepared.len() });
        }
        self.intervals.write(record).await
    }

    /// Flushes what was written since the last barrier and prepares it. The snapshot must be stored in the checkpoint; it
    /// names every transaction that is not finished to the end. Never waits for commits.
    ///
    /// # Errors
    /// Sticky: see [`RuntimeError`]. The checkpoint must be declined.
    pub async fn pre_commit(&mut self, barrier: Barrier) -> Result<Snapshot, RuntimeError> {
        self.intervals.enter()?;
        let result = self.prepare(barrier).await;
        self.intervals.leave(result).await
    }

    async fn prepare(&mut self, barrier: Barrier) -> Result<Snapshot, RuntimeError> {
        if let Some(last) = self.newest_barrier.filter(|last| barrier.checkpoint <= *last) {
            return Err(RuntimeError::BarrierOutOfOrder { last, given: barrier.checkpoint });
        }
        if self.is_final {
            return Err(RuntimeError::AfterFinal);
        }
        if let Some(sealed) = self.intervals.seal(Some(barrier.checkpoint)).await? {
            match self.driver.mode {
                Mode::ExactlyOnce => self.prepare_sealed(sealed, barrier.checkpoint).await?,
                Mode::AtLeastOnce => {
                    // Visible before the checkpoint is complete: that is what this mode gives up.
                    let limit = Limit::Until(Instant::now() + self.intervals.settings.open_deadline);
                    let _ = self.intervals.env.sink_commit(limit, &sealed.txn, &sealed.handle).await?;
                    self.intervals.sealed_is_safe();
                }
            }
        }
        self.newest_barrier = Some(barrier.checkpoint);
        self.is_final = barrier.kind == BarrierKind::Final;
        self.snapshot()
    }

    async fn prepare_sealed(
        &mut self,
        sealed: Sealed<S::Handle>,
        checkpoint: CheckpointId,
    ) -> Result<(), RuntimeError> {
        let Sealed { txn, handle, encoded } = sealed;
        let envelope = Envelope { slot: txn.slot, handle: encoded, position: None };
        let request = PrepareRequest {
            epoch: Some(txn.epoch),
            checkpoint_id: Some(checkpoint),
            payload: Some(envelope.to_payload()?),
            prepared_timeout_ms: None,
        };
        let env = &self.intervals.env;
        let prepared = env.coordinator.prepare(&txn.client, txn.txn_id, &request).await;
        prepared.map_err(|e| RuntimeError::about_txn(&txn.client, txn.txn_id, e))?;
        self.intervals.sealed_is_safe();
        self.intervals.env.observer.pass(Point::Prepared);
        let encoded = envelope.handle;
        let ending = Ending { txn, handle, encoded, is_decided: false, timer: PendingTimer::start() };
        self.prepared.insert(ending.txn.txn_id, ending);
        Ok(())
    }

    fn snapshot(&self) -> Result<Snapshot, RuntimeError> {
        let ending = self.intervals.committer.unfinished();
        let unfinished = ending.iter().map(|ending| &**ending).chain(self.prepared.values());
        let store = self.intervals.env.coordinator.store_id();
        let element = |ending: &Ending<S::Handle>| {
            Some(SnapshotElement {
                store: store?,
                client: ending.txn.client.clone(),
                slot: ending.txn.slot,
                txn_id: ending.txn.txn_id,
                epoch: ending.txn.epoch,
                checkpoint: ending.txn.checkpoint?,
                handle: ending.encoded.clone(),
            })
        };
        // What was prepared has a checkpoint, and the store that said so is known.
        let elements: Option<Vec<_>> = unfinished.map(element).collect();
        let undecodable =
            || RuntimeError::Undecodable { what: "snapshot", why: "a transaction without checkpoint".into() };
        elements.map(Snapshot::from_elements).ok_or_else(undecodable)
    }

    /// Commits, in the background and oldest first, every prepared transaction of this checkpoint and of those before it.
    /// Late, repeated and skipped notifications are fine.
    ///
    /// # Errors
    /// The sticky error, if the runtime has stopped. What is prepared is committed by the next `open`.
    pub fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<(), RuntimeError> {
        self.intervals.env.status.check()?;
        let is_covered = |ending: &Ending<S::Handle>| ending.txn.checkpoint.is_some_and(|own| own <= checkpoint);
        let (covered, later) = std::mem::take(&mut self.prepared).into_iter().partition(|(_, e)| is_covered(e));
        self.prepared = later;
        let covered: BTreeMap<_, _> = covered;
        self.intervals.committer.enqueue(covered.into_values());
        Ok(())
    }

    /// Notes that a checkpoint was given up. Ends nothing: the next completed one commits what it covers.
    ///
    /// # Errors
    /// The sticky error, if the runtime has stopped.
    pub fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), RuntimeError> {
        tracing::debug!(%checkpoint, "a checkpoint was aborted");
        self.intervals.env.status.check()
    }

    /// Waits until every completed checkpoint is committed to the end.
    ///
    /// # Errors
    /// The sticky error, if the runtime has stopped.
    pub async fn flush_commits(&self) -> Result<(), RuntimeError> {
        self.intervals.env.status.until_fewer_than(1).await
    }

    /// Ends the runtime: aborts the OPEN transaction, never a prepared one, and waits a while for commits under way.
    ///
    /// # Errors
    /// [`RuntimeError::Unflushed`] if records were written after the last barrier: they are given up.
    pub async fn close(self) -> Result<(), RuntimeError> {
        self.intervals.close().await
    }
}

/// One look: `None` if somebody committed what was to be aborted, and everything must be looked at again.
async fn open_once<S: TwoPhaseSink>(
    opening: &mut Opening<S>,
    worker: Worker,
    name: &SinkName,
    restored: Option<CheckpointId>,
    named: &[SnapshotElement],
) -> Result<Option<Raised>, RuntimeError> {
    let own = name.client(worker.slot())?;
    let known = opening.clients_of(name).await?;
    let has_siblings = known.iter().any(|(_, item)| item.client_name != own);
    let may_create = opening.settings.first_start || has_siblings;

    let mut raised = vec![opening.raise(own.clone(), worker.slot(), may_create).await?];
    let left_over = |(slot, item): &(Slot, _)| worker.owns(*slot) && client_of(item) != &own;
    for (slot, item) in known.iter().filter(|one| left_over(one)) {
        raised.push(opening.raise(client_of(item).clone(), *slot, false).await?);
    }
    // Listed again: with the epochs raised, nothing an older owner begins can be missed.
    let clients = opening.clients_of(name).await?;
    opening.check_rewind(restored, &clients)?;
    for one in &raised {
        opening.fence(&one.owned).await?;
    }
    let last_committed = clients
        .iter()
        .filter_map(|(_, item)| Some((item.client_name.clone(), item.last_committed.as_ref()?.txn_id)))
        .collect();
    let unnamed = |checkpoint: Option<CheckpointId>| match (checkpoint, restored) {
        (Some(prepared), Some(restored)) if prepared > restored => Unnamed::Abort,
        (_, Some(_)) => Unnamed::LeaveAlone,
        (_, None) => Unnamed::Abort,
    };
    opening.report = OpenReport::default();
    opening.report.clients = raised.iter().map(|one| one.owned.client.clone()).collect();
    match opening.finish(&raised, named, &last_committed, unnamed).await? {
        Finished::Done => Ok(Some(raised.swap_remove(0))),
        Finished::LookAgain => Ok(None),
    }
}

fn client_of(item: &ratified_protocol::ClientItem) -> &ClientName {
    &item.client_name
}
