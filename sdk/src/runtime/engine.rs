//! Driven by an engine: it draws the barriers, stores the snapshots, and says which checkpoints are complete.

use std::collections::BTreeMap;

use ratified_protocol::{CheckpointId, ClientItem, PrepareRequest, TxnId, TxnState};
use tokio::time::Instant;

use super::{
    builder::{EngineDriven, EngineSinkBuilder},
    committer::Ending,
    decide::{Barriers, Findings, Found, Rules, Share},
    error::RuntimeError,
    finish::Finished,
    interval::{Deciding, Drive, Intervals, Sealed},
    metrics::PendingTimer,
    open::{OpenReport, Opening, RUN_LABEL, Raised},
    payload::Envelope,
    policy::{Barrier, Mode, Point, SinkName, Worker},
    snapshot::{Snapshot, SnapshotElement},
    unnamed::Unnamed,
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
    mode: Mode,
    barriers: Barriers,
    prepared: BTreeMap<TxnId, Ending<S::Handle>>,
    unnamed: Option<Unnamed>,
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
        let mut opening = Opening::start(builder, rules(&driver, restored, &named)).await?;
        // This mode writes what the coordinator never hears of, and some of it twice.
        opening.settings.accept_unknown_data |= driver.mode == Mode::AtLeastOnce;
        opening.lost = driver.lost.clone();
        for element in &named {
            opening.env.coordinator.expect_store(&element.store)?;
        }
        let mut looks = 0;
        let own = loop {
            looks += 1;
            match open_once(&mut opening, driver.worker, name, &named).await {
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
        let left_alone = std::mem::take(&mut opening.left_alone);
        let unnamed = Unnamed::watch(opening.env.clone(), driver.unnamed, restored, left_alone);
        let barriers = Barriers::restored(restored, driver.max_prepared);
        let (intervals, report) = opening.into_intervals(own, own_ids, drive(&driver)).await?;
        Ok(Self { intervals, mode: driver.mode, barriers, prepared: BTreeMap::new(), unnamed, report })
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
        self.barriers.may_write()?;
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
        self.barriers.may_draw(barrier)?;
        if let Some(sealed) = self.intervals.seal(Some(barrier.checkpoint)).await? {
            match self.mode {
                Mode::ExactlyOnce => self.prepare_sealed(sealed, barrier.checkpoint).await?,
                Mode::AtLeastOnce => {
                    // Visible before the checkpoint is complete: that is what this mode gives up.
                    let limit = Limit::Until(Instant::now() + self.intervals.settings.open_deadline);
                    let _ = self.intervals.env.sink_commit(limit, &sealed.txn, &sealed.handle).await?;
                    self.intervals.sealed_is_safe();
                    self.intervals.owned.log.remove(sealed.txn.txn_id).await?;
                }
            }
        }
        self.barriers.drawn(barrier);
        self.snapshot()
    }

    async fn prepare_sealed(
        &mut self,
        sealed: Sealed<S::Handle>,
        checkpoint: CheckpointId,
    ) -> Result<(), RuntimeError> {
        let Sealed { txn, handle, encoded } = sealed;
        let envelope = Envelope { slot: txn.slot, handle: Some(encoded.clone()), position: None };
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
        self.barriers.prepared(txn.txn_id, checkpoint);
        let handle = Some(handle);
        let ending = Ending { txn, handle, encoded, is_decided: false, timer: PendingTimer::start() };
        self.prepared.insert(ending.txn.txn_id, ending);
        Ok(())
    }

    fn snapshot(&self) -> Result<Snapshot, RuntimeError> {
        let ending = self.intervals.committer.unfinished();
        let unfinished = ending.iter().map(|ending| &**ending).chain(self.prepared.values());
        let store = self.intervals.env.coordinator.known_store();
        let element = |ending: &Ending<S::Handle>| {
            Some(SnapshotElement {
                store: store.clone()?,
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
        let covered = self.barriers.completed(checkpoint);
        let endings = covered.iter().filter_map(|id| self.prepared.remove(id));
        self.intervals.committer.enqueue(endings);
        if let Some(unnamed) = &mut self.unnamed {
            unnamed.completed();
        }
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
    named: &[SnapshotElement],
) -> Result<Option<Raised>, RuntimeError> {
    let own = name.client(worker.slot())?;
    let known = opening.clients_of(name).await?;
    let has_siblings = known.iter().any(|(_, item)| item.client_name != own);
    let may_create = opening.settings.first_start || has_siblings;

    let mut raised = vec![opening.raise(own.clone(), worker.slot(), may_create).await?];
    let left_over = |(slot, item): &(Slot, ClientItem)| worker.owns(*slot) && item.client_name != own;
    for (slot, item) in known.iter().filter(|one| left_over(one)) {
        raised.push(opening.raise(item.client_name.clone(), *slot, false).await?);
    }
    // Listed again: with the epochs raised, nothing an older owner begins can be missed.
    let clients = opening.clients_of(name).await?;
    let has_prepared = |item: &ClientItem| item.count(TxnState::Prepared) > 0;
    let from_nothing = matches!(opening.rules, Rules::Engine { restored: None, .. });
    let prepared = if from_nothing && clients.iter().any(|(_, item)| has_prepared(item)) {
        opening.prepared_of(name).await?
    } else {
        Vec::new()
    };
    let findings = Findings { clients: clients.iter().map(|(_, item)| found(item)).collect(), prepared, owned: vec![] };
    match opening.check_and_finish(&mut raised, named, findings).await? {
        Finished::Done => Ok(Some(raised.swap_remove(0))),
        Finished::LookAgain => Ok(None),
    }
}

fn found(item: &ClientItem) -> Found {
    Found {
        client: item.client_name.clone(),
        last_committed: item.last_committed.as_ref().map(|last| last.txn_id),
        committed: item.last_committed.as_ref().map(|last| last.checkpoint_id),
    }
}

fn rules(driver: &EngineDriven, restored: Option<CheckpointId>, named: &[SnapshotElement]) -> Rules {
    Rules::Engine {
        restored,
        named: named.iter().map(|element| (element.txn_id, element.client.clone())).collect(),
        share: if driver.worker.is_alone() { Share::Whole } else { Share::Part },
        unnamed: driver.unnamed,
        run: driver.run.as_ref().map(ToString::to_string),
        accept_rewind: driver.accept_rewind,
    }
}

fn drive(driver: &EngineDriven) -> Drive {
    let deciding = match driver.mode {
        Mode::ExactlyOnce => Deciding::WhenPrepared,
        Mode::AtLeastOnce => Deciding::Never,
    };
    let run = driver.run.iter().map(|run| (RUN_LABEL.to_owned(), run.to_string()));
    // One label, and as short as any text may be.
    Drive { deciding, labels: run.collect::<BTreeMap<_, _>>().try_into().unwrap_or_default() }
}
