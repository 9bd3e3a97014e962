//! The state that all handlers share: whether the coordinator may be asked yet, and where.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::Router;
use ratified_core::{Gauges, LoadHistory, Stats};
use ratified_protocol::{Code, Problem, StoreId};
use tokio::sync::watch;

use super::{body::Budget, known::Signature};
use crate::{
    config::{Config, ServerName},
    metrics::Metrics,
    writer::Inbox,
};

/// The bounds of requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestLimits {
    pub(super) max_body_bytes: usize,
    pub(super) max_batch_body_bytes: usize,
    pub(super) max_discard_bytes: usize,
    discard_timeout_ms: u64,
    read_timeout_ms: u64,
    write_timeout_ms: u64,
    writer_timeout_ms: u64,
}

impl RequestLimits {
    pub(super) fn read_timeout(&self) -> Duration {
        Duration::from_millis(self.read_timeout_ms)
    }

    pub(super) fn write_timeout(&self) -> Duration {
        Duration::from_millis(self.write_timeout_ms)
    }

    pub(super) fn discard_timeout(&self) -> Duration {
        Duration::from_millis(self.discard_timeout_ms)
    }
}

/// What there is once the load is done.
#[derive(Debug)]
struct Serving {
    inbox: Arc<Inbox>,
    history: LoadHistory,
    signature: Option<Signature>,
}

#[derive(Debug)]
struct Shared {
    serving: OnceLock<Serving>,
    closed: watch::Sender<Option<Code>>,
    server_names: Vec<ServerName>,
    limits: RequestLimits,
    budget: Budget,
    metrics: Arc<Metrics>,
}

/// The HTTP side of a coordinator: answers `COORDINATOR_LOADING` until it is given an inbox. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Frontend(Arc<Shared>);

impl Frontend {
    /// A frontend that is loading.
    pub fn new(config: &Config) -> Self {
        Self::with_metrics(config, Arc::new(Metrics::new()))
    }

    pub(crate) fn with_metrics(config: &Config, metrics: Arc<Metrics>) -> Self {
        let limits = RequestLimits {
            max_body_bytes: config.max_body_bytes,
            max_batch_body_bytes: config.max_batch_body_bytes,
            max_discard_bytes: config.max_discard_bytes,
            discard_timeout_ms: config.discard_timeout_ms,
            read_timeout_ms: config.read_timeout_ms,
            write_timeout_ms: config.write_timeout_ms,
            writer_timeout_ms: config.writer_timeout_ms,
        };
        let budget = Budget::new(config.max_reading_bytes, config.reading_bytes_per_address());
        Self(Arc::new(Shared {
            serving: OnceLock::new(),
            closed: watch::Sender::new(None),
            server_names: config.server_names.clone(),
            limits,
            budget,
            metrics,
        }))
    }

    /// The load is done: requests go to this inbox from now on. Only the first call counts.
    pub fn open(&self, inbox: Arc<Inbox>, history: LoadHistory) {
        let signature = Signature::of(&history);
        let _ = self.0.serving.set(Serving { inbox, history, signature });
        // Closing looks for an inbox after it has left its code, so that one of the two always sees the other.
        let closed = *self.0.closed.borrow();
        if let Some(code) = closed {
            self.close(code);
        }
    }

    /// Nothing more is served; this code says why. Only the first call counts.
    pub fn close(&self, code: Code) {
        self.0.closed.send_if_modified(|closed| {
            let is_first = closed.is_none();
            closed.get_or_insert(code);
            is_first
        });
        if let Some(serving) = self.0.serving.get() {
            serving.inbox.close(code);
        }
    }

    /// The router; to be served on any listener.
    pub fn router(&self) -> Router {
        super::router(self)
    }

    /// Which store answers, once it is loaded.
    pub fn store_id(&self) -> Option<StoreId> {
        self.0.serving.get().map(|serving| serving.history.store_id())
    }

    /// The same, as every answer says it.
    pub(super) fn signature(&self) -> Option<&Signature> {
        self.0.serving.get().and_then(|serving| serving.signature.as_ref())
    }

    /// The loads of the store, once it is loaded.
    pub(super) fn history(&self) -> Option<&LoadHistory> {
        self.0.serving.get().map(|serving| &serving.history)
    }

    /// Whether nothing more is served.
    pub(super) fn is_closed(&self) -> bool {
        self.0.closed.borrow().is_some()
    }

    /// Waits until nothing more is served: what requests are answered with then.
    pub(super) async fn closed(&self) -> Problem {
        let mut closed = self.0.closed.subscribe();
        let code = closed.wait_for(Option::is_some).await.ok().and_then(|code| *code);
        super::closed(code.unwrap_or(Code::ShuttingDown))
    }

    pub(super) fn server_names(&self) -> &[ServerName] {
        &self.0.server_names
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(super) fn limits(&self) -> &RequestLimits {
        &self.0.limits
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.0.budget
    }

    pub(super) fn inbox(&self) -> Result<&Arc<Inbox>, Problem> {
        if let Some(code) = *self.0.closed.borrow() {
            return Err(super::closed(code));
        }
        let loading = || Problem::new(Code::CoordinatorLoading, "what is stored is still being read back");
        self.0.serving.get().map(|serving| &serving.inbox).ok_or_else(loading)
    }

    /// What the writer says about the engine, `None` if it has ended or does not come to it in time.
    async fn probe(&self, inbox: &Inbox) -> Option<(Stats, Gauges)> {
        let timeout = Duration::from_millis(self.0.limits.writer_timeout_ms);
        tokio::time::timeout(timeout, inbox.probe()).await.ok()?.ok()
    }

    /// Whether requests are carried out: loaded, not closed, and the writer runs.
    ///
    /// # Errors
    /// The code that requests are, or would be, answered with.
    pub(super) async fn ready(&self) -> Result<(), Problem> {
        let inbox = self.inbox()?;
        if self.probe(inbox).await.is_some() {
            return Ok(());
        }
        self.inbox()?;
        Err(Problem::new(Code::StorageUnavailable, "the writer is gone, or does not get on with its work"))
    }

    /// The numbers as they are now; those of the last time when the writer has ended or is stuck.
    pub(super) async fn render_metrics(&self) -> String {
        if let Some(Serving { inbox, .. }) = self.0.serving.get()
            && let Some((stats, gauges)) = self.probe(inbox).await
        {
            self.0.metrics.observe(&stats, &gauges, inbox.len());
        }
        self.0.metrics.render()
    }
}
