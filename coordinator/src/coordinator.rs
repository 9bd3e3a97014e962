//! A coordinator in this process: listener, load, writer, shutdown.

use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use ratified_protocol::{Code, StoreId};
use thiserror::Error;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use crate::{
    clock::{Clock, SystemClock},
    config::{Config, ConfigError},
    http::{Bounds, Frontend, serve_connections},
    metrics::Metrics,
    store::{EmbeddedOptions, EmbeddedStore, ErrorKind, Store, StoreError},
    writer::{self, Drawn, Ended, Inbox, LoadError, Room, Writer},
};

/// Starts coordinators. Several may run in one process, each with a store of its own: whatever becomes of one is told by
/// its [`Handle`] and ends no other, nor the process.
#[derive(Debug)]
#[non_exhaustive]
pub struct Coordinator;

/// Why a coordinator does not start. The caller must mend the cause; nothing was served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory cannot be taken.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The address cannot be listened on, or a thread cannot be started.
    #[error("{action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// Why not.
        source: std::io::Error,
    },
    /// What is stored was refused.
    #[error(transparent)]
    Failed(Arc<Failure>),
}

impl StartError {
    /// Whether the disk or the file system refused something, as opposed to what was configured or stored: the caller
    /// may start again as soon as that is mended.
    pub fn is_of_the_disk(&self) -> bool {
        match self {
            Self::Store(error) => error.is_of_the_disk(),
            Self::Failed(failure) => failure.is_of_the_disk(),
            Self::Config(_) | Self::System { .. } => false,
        }
    }
}

/// Why a coordinator that was started has ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Failure {
    /// What is stored cannot be served.
    #[error("the load {verdict}: {0}", verdict = if _0.is_of_the_disk() { "failed" } else { "is refused" })]
    Load(#[source] LoadError),
    /// The store failed while serving; the caller may start another coordinator on it, which reads it back. Others in the
    /// process, on stores of their own, are not concerned.
    #[error("the store failed: {0}")]
    Storage(#[source] StoreError),
    /// Another coordinator has the store now; the caller must leave it alone. Others in the process are not concerned.
    #[error("the store was given up: {0}")]
    LostOwnership(#[source] StoreError),
    /// A defect of the coordinator; nothing that was not durable has been told.
    #[error("the writer gave up: {0}")]
    Defect(String),
}

impl Failure {
    /// Whether the disk or the file system refused something, while loading or later: the caller may start again as
    /// soon as that is mended, what is stored is not at fault.
    pub fn is_of_the_disk(&self) -> bool {
        match self {
            Self::Load(error) => error.is_of_the_disk(),
            Self::Storage(_) => true,
            Self::LostOwnership(_) | Self::Defect(_) => false,
        }
    }
}

#[derive(Debug, Clone)]
enum Phase {
    Loading,
    Serving,
    Stopped,
    Failed(Arc<Failure>),
}

/// A coordinator that was started. Dropping it stops the coordinator without waiting.
#[derive(Debug)]
pub struct Handle {
    local_addr: SocketAddr,
    frontend: Frontend,
    phase: watch::Receiver<Phase>,
    stop: watch::Sender<bool>,
    server: Option<JoinHandle<()>>,
    shutdown_timeout: Duration,
}

impl Coordinator {
    /// Starts a coordinator on its data directory and waits until it is loaded.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(config: Config) -> Result<Handle, StartError> {
        let mut handle = Self::listen(config).await?;
        handle.loaded().await?;
        Ok(handle)
    }

    /// Starts a coordinator on its data directory; listens, and answers `COORDINATOR_LOADING`, before the load is done.
    /// See [`Handle::loaded`].
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn listen(config: Config) -> Result<Handle, StartError> {
        config.check()?;
        let mut options = EmbeddedOptions::new(&config.data_dir);
        options.mark_interval = Duration::from_millis(config.mark_interval_ms);
        options.segment_bytes = config.log_segment_bytes;
        let store = EmbeddedStore::open(options)?;
        Self::listen_with(config, Box::new(store)).await
    }

    /// As [`Coordinator::listen`], on a store of the caller's.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn listen_with(config: Config, store: Box<dyn Store>) -> Result<Handle, StartError> {
        config.check()?;
        let system = |action: String| move |source| StartError::System { action, source };
        let listener =
            TcpListener::bind(config.listen).await.map_err(system(format!("listen on {}", config.listen)))?;
        let local_addr = listener.local_addr().map_err(system("ask for the bound address".to_owned()))?;
        let metrics = Arc::new(Metrics::new());
        let frontend = Frontend::with_metrics(&config, metrics.clone());
        let (stop, stopped) = watch::channel(false);
        let server = tokio::spawn(serve_connections(listener, frontend.clone(), Bounds::new(&config), stopped));
        let shutdown_timeout = Duration::from_millis(config.shutdown_timeout_ms);
        let (phase_sender, phase) = watch::channel(Phase::Loading);
        let run = Run { config, store, frontend: frontend.clone(), metrics, phase: phase_sender };
        let thread = thread::Builder::new().name("ratified-writer".to_owned());
        thread.spawn(move || run.run()).map_err(system("start the writer's thread".to_owned()))?;
        Ok(Handle { local_addr, frontend, phase, stop, server: Some(server), shutdown_timeout })
    }
}

impl Handle {
    /// Where the coordinator listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address for clients, without a slash at the end.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.local_addr)
    }

    /// Which store answers; `None` until it is loaded.
    pub fn store_id(&self) -> Option<StoreId> {
        self.frontend.store_id()
    }

    /// Waits until the load is done.
    ///
    /// # Errors
    /// [`StartError::Failed`]: what is stored was refused, or the store failed.
    pub async fn loaded(&mut self) -> Result<(), StartError> {
        let loaded = self.phase.wait_for(|phase| !matches!(phase, Phase::Loading)).await;
        match loaded.as_deref() {
            Ok(Phase::Failed(failure)) => Err(StartError::Failed(failure.clone())),
            Ok(_) => Ok(()),
            Err(_) => Err(StartError::Failed(Arc::new(ended_silently()))),
        }
    }

    /// Waits until the coordinator has ended, for whatever reason.
    ///
    /// # Errors
    /// It did not end by a shutdown. Everybody who waited has been answered.
    pub async fn wait(&self) -> Result<(), Arc<Failure>> {
        let mut phase = self.phase.clone();
        let ended = phase.wait_for(|phase| matches!(phase, Phase::Stopped | Phase::Failed(_))).await;
        match ended.as_deref() {
            Ok(Phase::Failed(failure)) => Err(failure.clone()),
            Ok(_) => Ok(()),
            Err(_) => Err(Arc::new(ended_silently())),
        }
    }

    /// Stops taking requests, makes what was taken durable, answers `SHUTTING_DOWN` to the rest, and waits until the
    /// data directory is free and, for `shutdown_timeout_ms` at most, until every connection has ended.
    ///
    /// # Errors
    /// The coordinator had failed, or failed while it stopped.
    pub async fn shutdown(mut self) -> Result<(), Arc<Failure>> {
        let _ = self.stop.send(true);
        self.frontend.close(Code::ShuttingDown);
        let ended = self.wait().await;
        if let Some(mut server) = self.server.take()
            && tokio::time::timeout(self.shutdown_timeout, &mut server).await.is_err()
        {
            server.abort();
        }
        ended
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        self.frontend.close(Code::ShuttingDown);
    }
}

fn ended_silently() -> Failure {
    Failure::Defect("its thread ended without a word".to_owned())
}

/// What the writer's thread is given.
struct Run {
    config: Config,
    store: Box<dyn Store>,
    frontend: Frontend,
    metrics: Arc<Metrics>,
    phase: watch::Sender<Phase>,
}

impl Run {
    fn run(self) {
        let Self { config, store, frontend, metrics, phase } = self;
        let loaded = phase.clone();
        let served = catch_unwind(AssertUnwindSafe(|| load_and_serve(&config, store, &frontend, &metrics, &loaded)));
        let ended = match served {
            Ok(Ok(())) => Phase::Stopped,
            Ok(Err(failure)) => Phase::Failed(Arc::new(failure)),
            Err(_) => Phase::Failed(Arc::new(Failure::Defect("it panicked".to_owned()))),
        };
        if matches!(ended, Phase::Failed(_)) {
            frontend.close(Code::StorageUnavailable);
        }
        phase.send_replace(ended);
    }
}

fn load_and_serve(
    config: &Config,
    mut store: Box<dyn Store>,
    frontend: &Frontend,
    metrics: &Arc<Metrics>,
    phase: &watch::Sender<Phase>,
) -> Result<(), Failure> {
    let began = Instant::now();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let room = Room { requests: config.max_batch_requests, bytes: config.max_batch_bytes };
    let loaded = writer::load(store.as_mut(), config.limits, room, clock.as_ref(), Drawn::at_random());
    let loaded = loaded.map_err(Failure::Load)?;
    metrics.loaded(began.elapsed());
    metrics.follow(store.status());
    let (history, records) = (loaded.history.clone(), loaded.records);
    let inbox = Arc::new(Inbox::new(clock.clone(), config.max_queue, config.max_queue_bytes));
    let writer = Writer::new(loaded, store, inbox.clone(), clock, metrics.clone(), config)
        .map_err(|e| Failure::Defect(format!("the thread that syncs cannot be started: {e}")))?;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(store = %history.store_id(), records, took_ms, "loaded");
    frontend.open(inbox, history);
    phase.send_replace(Phase::Serving);
    match writer.run() {
        Ended::Stopped => Ok(()),
        Ended::Failed(error) if error.kind() == ErrorKind::LostOwnership => Err(Failure::LostOwnership(error)),
        Ended::Failed(error) => Err(Failure::Storage(error)),
    }
}
