//! Opening: raise the epoch, check, fence the sink, finish. In this order, so that nothing an older owner does can come
//! between, and nothing is ended before it is known that the job may go on from where it wants to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ratified_protocol::{ClientItem, ClientName, Incarnation, LastCommitted, OpenRequest, Txn, TxnId, TxnState};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    builder::{Settings, SinkBuilder},
    decide::{Findings, Found, Labelled, OwnedClient, Rules, check_restore, check_sink, plan},
    env::{Env, Status, sink_call},
    error::RuntimeError,
    finish::{Finished, Known},
    interval::{Drive, Intervals, Owned},
    policy::{Lost, LostPolicy, SinkName},
    snapshot::SnapshotElement,
};
use crate::{
    client::{ClientQuery, TxnQuery},
    error::{ClientError, SinkError},
    ids::IdSource,
    pending::PendingStore,
    retry::Limit,
    sink::{SinkCommitter, Slot, TwoPhaseSink, TxnContext},
};

/// Most unfinished transactions in one answer to `open`; the rest is listed.
const MAX_UNFINISHED_TOLD: usize = 1000;
const PAGE: u32 = 1000;
/// The label that keeps an engine's run.
pub(super) const RUN_LABEL: &str = "run";

/// What `open` found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// The clients this worker took over, its own first.
    pub clients: Vec<ClientName>,
    /// Transactions committed, whether now or before.
    pub committed: u64,
    /// How many of them the sink had committed before.
    pub already_committed: u64,
    /// Transactions whose staged data was removed.
    pub aborted: u64,
    /// Prepared transactions that another worker's snapshots must name.
    pub left_alone: Vec<(ClientName, TxnId)>,
    /// Lost transactions given up by policy.
    pub skipped: Vec<(ClientName, TxnId, Lost)>,
    /// Ids of the pending store that the coordinator does not know (any longer).
    pub dropped: Vec<(ClientName, TxnId)>,
    /// Data staged in the sink that nothing accounts for; it is left where it is.
    pub unaccounted: Vec<(ClientName, TxnId)>,
}

/// A client as `open` found it.
pub(super) struct Raised {
    pub(super) owned: Owned,
    pub(super) unfinished: Vec<Txn>,
    pub(super) last_committed: Option<LastCommitted>,
    /// The greatest id that the coordinator has met.
    pub(super) newest: Option<TxnId>,
    pub(super) floors: Vec<TxnId>,
}

/// Opening one sink.
pub(super) struct Opening<S: TwoPhaseSink> {
    pub(super) env: Arc<Env<S::Committer>>,
    pub(super) settings: Settings,
    pub(super) rules: Rules,
    pub(super) lost: BTreeMap<Lost, LostPolicy>,
    pub(super) limit: Limit,
    pub(super) report: OpenReport,
    /// What `finish` still has to do.
    pub(super) left: BTreeSet<(ClientName, TxnId)>,
    /// What other workers' snapshots may name.
    pub(super) left_alone: Vec<TxnContext>,
    sink: Arc<S>,
    pending: Arc<dyn PendingStore>,
    incarnation: Incarnation,
}

impl<S: TwoPhaseSink> Opening<S> {
    pub(super) async fn start<D>(builder: SinkBuilder<S, D>, rules: Rules) -> Result<Self, RuntimeError> {
        let SinkBuilder { sink, coordinator, pending, settings, .. } = builder;
        let end = Instant::now() + settings.open_deadline;
        let limit = Limit::Until(end);
        let delays = coordinator.delays();
        let committer = sink_call("sink.committer", delays, limit, || sink.committer()).await?;
        let coordinator = coordinator.with_own_store();
        let observer = settings.observer.clone();
        let env = Arc::new(Env {
            coordinator,
            committer,
            status: Status::default(),
            observer,
            owner: settings.owner.clone(),
        });
        let incarnation = Incarnation::new(Uuid::new_v4());
        let (report, left, left_alone, lost) = Default::default();
        Ok(Self { env, settings, rules, lost, limit, report, left, left_alone, sink, pending, incarnation })
    }

    /// Every client of the sink that is not forgotten.
    pub(super) async fn clients_of(&self, name: &SinkName) -> Result<Vec<(Slot, ClientItem)>, RuntimeError> {
        let mut query = ClientQuery { sink: Some(name.to_string()), page_size: Some(PAGE), ..ClientQuery::default() };
        let mut clients = Vec::new();
        loop {
            let page = self.env.limited(self.limit).clients(&query).await?;
            let of_sink = |item: ClientItem| Some((name.slot_of(&item.client_name)?, item));
            clients.extend(page.items.into_iter().filter(|item| !item.forgotten).filter_map(of_sink));
            query.page_token = page.next_page_token;
            if query.page_token.is_none() {
                return Ok(clients);
            }
        }
    }

    /// Raises the epoch of a client: whoever held it before is fenced from here on.
    pub(super) async fn raise(&self, client: ClientName, slot: Slot, may_create: bool) -> Result<Raised, RuntimeError> {
        let log = self.pending.open(&client).await?;
        let pending = log.contents();
        if let Some(store) = &pending.store {
            self.env.coordinator.expect_store(store)?;
        }
        let owner = Some(self.settings.owner.clone());
        let generation = self.settings.generation;
        let request = OpenRequest { incarnation: self.incarnation, owner, create: may_create, generation };
        let coordinator = self.env.limited(self.limit);
        let opened = coordinator.open(&client, &request).await;
        let opened = opened.map_err(|e| RuntimeError::about_client(&client, e))?;
        if let Some(met) = coordinator.known_store() {
            log.note_store(met).await?;
        }
        let unfinished = if opened.unfinished.len() < MAX_UNFINISHED_TOLD {
            opened.unfinished
        } else {
            self.list(TxnQuery { client: Some(client.clone()), ..TxnQuery::default() }).await?
        };
        let newest = opened.newest_txn_id.max(opened.evicted_through);
        let floors = newest.into_iter().chain(pending.entries.into_keys()).collect();
        let owned = Owned { client, slot, epoch: opened.epoch, log };
        Ok(Raised { owned, unfinished, last_committed: opened.last_committed, newest, floors })
    }

    async fn list(&self, mut query: TxnQuery) -> Result<Vec<Txn>, RuntimeError> {
        query.page_size = Some(PAGE);
        let mut unfinished = Vec::new();
        loop {
            let page = self.env.limited(self.limit).txns(&query).await?;
            unfinished.extend(page.items);
            query.page_token = page.next_page_token;
            if query.page_token.is_none() {
                return Ok(unfinished);
            }
        }
    }

    /// Ends in the sink what older owners still hold open.
    async fn fence(&self, owned: &Owned) -> Result<(), RuntimeError> {
        let committer = &self.env.committer;
        self.env.sink_call("sink.fence", self.limit, || committer.fence(&owned.client, owned.epoch)).await
    }

    /// Everything PREPARED of a sink, with the runs that began it.
    pub(super) async fn prepared_of(&self, name: &SinkName) -> Result<Vec<Labelled>, RuntimeError> {
        let state = Some(TxnState::Prepared);
        let query = TxnQuery { state, client_prefix: Some(name.prefix()), ..TxnQuery::default() };
        let is_of_sink = |txn: &Txn| name.slot_of(&txn.client_name).is_some();
        let run_of = |txn: &Txn| txn.labels.as_ref()?.as_map().get(RUN_LABEL).cloned();
        let prepared = self.list(query).await?.into_iter().filter(is_of_sink);
        Ok(prepared.map(|txn| Labelled { run: run_of(&txn), client: txn.client_name }).collect())
    }

    /// What the sink holds of a client, beside what the coordinator does.
    async fn owned_client(&self, one: &Raised) -> Result<OwnedClient, RuntimeError> {
        let (committer, owned) = (&self.env.committer, &one.owned);
        let list = || committer.list_visible(&owned.client);
        let visible = self.env.sink_call("sink.list_visible", self.limit, list).await?;
        let never_began = self.settings.first_start && one.newest.is_none();
        let staged = if never_began { self.staged_by(owned).await? } else { Vec::new() };
        // What this version does not know the state of is left alone.
        let state = |txn: &Txn| Some((txn.txn_id, txn.state.known()?, txn.checkpoint_id));
        let unfinished = one.unfinished.iter().filter_map(state).collect();
        Ok(OwnedClient { client: owned.client.clone(), unfinished, newest: one.newest, visible, staged })
    }

    /// The second half of a look: checks, fences the sink, and finishes what is unfinished.
    pub(super) async fn check_and_finish(
        &mut self,
        raised: &mut [Raised],
        named: &[SnapshotElement],
        mut findings: Findings,
    ) -> Result<Finished, RuntimeError> {
        check_restore(&self.rules, &findings)?;
        for one in raised.iter_mut() {
            let owned = self.owned_client(one).await?;
            one.floors.extend(owned.visible.iter().flatten().chain(&owned.staged));
            findings.owned.push(owned);
        }
        if !self.settings.accept_unknown_data {
            check_sink(&self.rules, &findings, self.settings.first_start).map_err(|error| self.name_place(error))?;
        }
        let commands = plan(&self.rules, &findings)?;
        for one in raised.iter() {
            self.fence(&one.owned).await?;
        }
        self.report = OpenReport::default();
        self.report.clients = raised.iter().map(|one| one.owned.client.clone()).collect();
        self.left_alone.clear();
        let last = |one: &Found| Some((one.client.clone(), one.last_committed?));
        let last_committed = findings.clients.iter().filter_map(last).collect();
        self.finish(&Known { raised, named, last_committed }, commands).await
    }

    fn name_place(&self, error: RuntimeError) -> RuntimeError {
        let RuntimeError::SinkAhead { client, visible, staged, .. } = error else { return error };
        RuntimeError::SinkAhead { client, place: self.place(), this: self.settings.owner.to_string(), visible, staged }
    }

    /// Where the sink is.
    pub(super) fn place(&self) -> String {
        let places: Vec<_> = self.sink.places().iter().map(ToString::to_string).collect();
        if places.is_empty() { "a place that it does not tell".to_owned() } else { places.join(", ") }
    }

    /// The writing half, once everything is finished.
    pub(super) async fn into_intervals(
        self,
        raised: Raised,
        floors: impl IntoIterator<Item = TxnId>,
        drive: Drive,
    ) -> Result<(Intervals<S>, OpenReport), RuntimeError> {
        let writer = self.env.sink_call("sink.writer", self.limit, || self.sink.writer()).await?;
        let ids = IdSource::above(raised.floors.into_iter().chain(floors));
        Ok((Intervals::new(self.env, raised.owned, self.settings, drive, writer, ids), self.report))
    }

    /// An error of opening, with what is left if the deadline passed in the middle.
    pub(super) fn explain(&self, error: RuntimeError) -> RuntimeError {
        let is_late = matches!(
            error,
            RuntimeError::Coordinator(ClientError::Unanswered { .. })
                | RuntimeError::Sink { error: SinkError::Retry { .. }, .. }
        );
        if !is_late || self.left.is_empty() {
            return error;
        }
        RuntimeError::OpenIncomplete { left: self.left.iter().cloned().collect(), cause: Box::new(error) }
    }
}
