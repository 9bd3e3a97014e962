//! Opening: raise the epoch, check, fence the sink, finish. In this order, so that nothing an older owner does can come
//! between, and nothing is ended before it is known that the job may go on from where it wants to.

use std::{collections::BTreeSet, sync::Arc};

use ratified_protocol::{
    CheckpointId, ClientItem, ClientName, Incarnation, LastCommitted, OpenRequest, Txn, TxnId, TxnState,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    builder::{EngineDriven, Settings, SinkBuilder},
    env::{Env, Status, sink_call},
    error::RuntimeError,
    interval::{Deciding, Intervals, Owned},
    policy::{Lost, SinkName},
};
use crate::{
    client::{ClientQuery, TxnQuery},
    error::{ClientError, SinkError},
    ids::IdSource,
    pending::PendingStore,
    retry::Limit,
    sink::{SinkCommitter, Slot, TwoPhaseSink},
};

/// Most unfinished transactions in one answer to `open`; the rest is listed.
const MAX_UNFINISHED_TOLD: usize = 1000;
const PAGE: u32 = 1000;

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
    pub(super) floors: Vec<TxnId>,
}

/// Opening one sink.
pub(super) struct Opening<S: TwoPhaseSink> {
    pub(super) env: Arc<Env<S::Committer>>,
    pub(super) settings: Settings,
    pub(super) policies: EngineDriven,
    pub(super) limit: Limit,
    pub(super) report: OpenReport,
    /// What `finish` still has to do.
    pub(super) left: BTreeSet<(ClientName, TxnId)>,
    sink: S,
    pending: Arc<dyn PendingStore>,
    incarnation: Incarnation,
}

impl<S: TwoPhaseSink> Opening<S> {
    pub(super) async fn start<D>(builder: SinkBuilder<S, D>, policies: EngineDriven) -> Result<Self, RuntimeError> {
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
        let (report, left) = (OpenReport::default(), BTreeSet::new());
        Ok(Self { env, settings, policies, limit, report, left, sink, pending, incarnation })
    }

    /// Every client of the sink that is not forgotten.
    pub(super) async fn clients_of(&self, name: &SinkName) -> Result<Vec<(Slot, ClientItem)>, RuntimeError> {
        let mut query = ClientQuery { prefix: Some(name.prefix()), page_size: Some(PAGE), page_token: None };
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
        if let Some(store) = pending.store_id {
            self.env.coordinator.expect_store(store)?;
        }
        let owner = Some(self.settings.owner.clone());
        let request = OpenRequest { incarnation: self.incarnation, owner, create: may_create, generation: None };
        let coordinator = self.env.limited(self.limit);
        let opened = coordinator.open(&client, &request).await;
        let opened = opened.map_err(|e| RuntimeError::about_client(&client, e))?;
        if let Some(met) = coordinator.store_id() {
            log.note_store(met).await?;
        }
        let unfinished = if opened.unfinished.len() < MAX_UNFINISHED_TOLD {
            opened.unfinished
        } else {
            self.list_unfinished(&client).await?
        };
        let floors = opened.newest_txn_id.into_iter().chain(opened.evicted_through).chain(pending.entries.into_keys());
        let floors = floors.collect();
        let owned = Owned { client, slot, epoch: opened.epoch, log };
        Ok(Raised { owned, unfinished, last_committed: opened.last_committed, floors })
    }

    async fn list_unfinished(&self, client: &ClientName) -> Result<Vec<Txn>, RuntimeError> {
        let mut query = TxnQuery { client: Some(client.clone()), page_size: Some(PAGE), ..TxnQuery::default() };
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
    pub(super) async fn fence(&self, owned: &Owned) -> Result<(), RuntimeError> {
        let committer = &self.env.committer;
        self.env.sink_call("sink.fence", self.limit, || committer.fence(&owned.client, owned.epoch)).await
    }

    /// Refuses to restore a state that the sink is ahead of, before anything prepared is ended because of it.
    pub(super) fn check_rewind(
        &self,
        restored: Option<CheckpointId>,
        clients: &[(Slot, ClientItem)],
    ) -> Result<(), RuntimeError> {
        if self.policies.accept_rewind {
            return Ok(());
        }
        for (_, item) in clients {
            let committed = item.last_committed.as_ref().map(|last| last.checkpoint_id);
            let is_rewound = match restored {
                Some(restored) => committed.flatten().is_some_and(|committed| committed > restored),
                None => committed.is_some() || item.counts.get(&TxnState::Prepared).is_some_and(|count| *count > 0),
            };
            if is_rewound {
                let client = item.client_name.clone();
                return Err(RuntimeError::Rewound { restored, client, committed: committed.flatten() });
            }
        }
        Ok(())
    }

    /// The writing half, once everything is finished.
    pub(super) async fn into_intervals(
        self,
        raised: Raised,
        floors: impl IntoIterator<Item = TxnId>,
        deciding: Deciding,
    ) -> Result<(Intervals<S>, OpenReport), RuntimeError> {
        let writer = self.env.sink_call("sink.writer", self.limit, || self.sink.writer()).await?;
        let ids = IdSource::above(raised.floors.into_iter().chain(floors));
        Ok((Intervals::new(self.env, raised.owned, self.settings, deciding, writer, ids), self.report))
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
