//! Accepting connections within their bounds.

use std::{io, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};

use super::frontend::Frontend;
use crate::config::Config;

/// How long to wait before accepting again when the process has no file descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The bounds of connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    max_connections: usize,
    idle_timeout: Duration,
}

impl Bounds {
    /// As configured.
    pub(crate) fn new(config: &Config) -> Self {
        Self { max_connections: config.max_connections, idle_timeout: Duration::from_millis(config.idle_timeout_ms) }
    }
}

/// Serves until told to stop, then until every running request is answered.
pub(crate) async fn serve(listener: TcpListener, frontend: Frontend, bounds: Bounds, mut stop: watch::Receiver<bool>) {
    let (router, calls) = (frontend.router(), &frontend.metrics().calls);
    let permits = Arc::new(Semaphore::new(bounds.max_connections));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(bounds.idle_timeout);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &permits) => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (stream, permit) = match accepted {
            Ok(accepted) => accepted,
            Err(e) if is_of_the_peer(&e) => continue,
            Err(e) => {
                calls.not_connected();
                tracing::warn!(error = %e, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        let open = calls.connected();
        connections.spawn(async move {
            if let Err(e) = connection.await {
                tracing::debug!(error = %e, "a connection broke");
            }
            drop((permit, open));
        });
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    graceful.shutdown().await;
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Answers are small and waited for: none may sit in a buffer for another to join it.
    stream.set_nodelay(true)?;
    Ok((stream, permit))
}

/// Whether only the one connection is gone, and others can be accepted at once.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected)
}
