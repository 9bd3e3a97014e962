//! Accepting connections within their bounds.

use std::{convert::Infallible, future::Future, io, io::Write, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use ratified_protocol::{Code, Problem};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::Instant,
};
use tower_service::Service as _;

use super::{
    conversation::{Conversation, Stream},
    descriptors,
    frontend::Frontend,
    peers::{Peer, Share, Shares},
    problem,
};
use crate::{config::Config, metrics::OpenConnection};

/// How long to wait before accepting again when the process has no file descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// What goes on and on is told once in this time.
const TOLD_AGAIN: Duration = Duration::from_secs(10);

/// The bounds of connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    max_connections: usize,
    max_connections_per_address: usize,
    max_head_bytes: usize,
    idle_timeout: Duration,
}

impl Bounds {
    /// As configured, and as many connections as the limit of open files has room for.
    pub(crate) fn new(config: &Config) -> Self {
        let max_connections = descriptors::connections(config.max_connections);
        let per_address = match config.max_connections_per_address {
            0 => max_connections.div_ceil(2),
            configured => configured,
        };
        Self {
            max_connections,
            max_connections_per_address: per_address,
            max_head_bytes: config.max_head_bytes,
            idle_timeout: Duration::from_millis(config.idle_timeout_ms),
        }
    }
}

/// A connection that was accepted, and what it holds.
struct Accepted {
    tcp: TcpStream,
    peer: Peer,
    /// Given back in this order, so that whoever is accepted next finds the share free.
    held: (Share, OwnedSemaphorePermit, OpenConnection),
}

/// Serves until told to stop, then until every running request is answered.
pub(crate) async fn serve(listener: TcpListener, frontend: Frontend, bounds: Bounds, stop: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(bounds.max_connections));
    let shares = Shares::new(bounds.max_connections_per_address);
    let (router, calls) = (frontend.router(), &frontend.metrics().calls);
    let mut connections = JoinSet::new();
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(bounds.idle_timeout).max_buf_size(bounds.max_head_bytes);
    let (mut told_full, mut told_failing) = (Told::default(), Told::default());
    let mut stopped = stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &permits) => accepted,
            () = told_to(&mut stopped) => break,
        };
        match accepted {
            Ok((tcp, address, permit)) => {
                let peer = Peer::from(address);
                let mut share = shares.of(peer);
                if share.grow(1) {
                    let accepted = Accepted { tcp, peer, held: (share, permit, calls.connected()) };
                    connections.spawn(converse(
                        accepted,
                        frontend.clone(),
                        router.clone(),
                        builder.clone(),
                        stop.clone(),
                    ));
                } else {
                    calls.not_connected();
                    let max = bounds.max_connections_per_address;
                    told_full
                        .tell(|| tracing::warn!(%address, max, "an address has as many connections as one may have"));
                    refuse(tcp, &frontend);
                }
            }
            Err(e) if is_of_the_peer(&e) => {}
            Err(e) => {
                calls.cannot_accept();
                told_failing.tell(|| tracing::warn!(error = %e, "connections cannot be accepted"));
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Waits until told to stop; whoever could tell being gone tells it, too.
async fn told_to(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (tcp, address) = listener.accept().await?;
    // Answers are small and waited for: none may sit in a buffer for another to join it.
    tcp.set_nodelay(true)?;
    Ok((tcp, address.ip(), permit))
}

/// Serves one connection to its end. When nothing more is served, a request that runs is answered, and one that has not
/// begun is not waited for.
async fn converse(
    accepted: Accepted,
    frontend: Frontend,
    router: Router,
    builder: http1::Builder,
    mut stop: watch::Receiver<bool>,
) {
    let Accepted { tcp, peer, held: _held } = accepted;
    let conversation = Arc::new(Conversation::default());
    let stream = Stream::new(tcp, conversation.clone(), frontend);
    let of_requests = conversation.clone();
    let service = service_fn(move |request| answer(router.clone(), of_requests.clone(), peer, request));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told_to(&mut stop) => {
            if conversation.is_idle() {
                return;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(e) = ended {
        tracing::debug!(error = %e, "a connection broke");
    }
}

fn answer(
    mut router: Router,
    conversation: Arc<Conversation>,
    peer: Peer,
    request: Request<Incoming>,
) -> impl Future<Output = Result<axum::response::Response, Infallible>> {
    conversation.begin();
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(conversation.clone());
    let answered = router.call(request);
    async move {
        let response = answered.await;
        conversation.answered();
        response
    }
}

/// Says why, if that can be said without waiting, and closes.
fn refuse(tcp: TcpStream, frontend: &Frontend) {
    let detail = "too many connections from one address; nothing was done, use fewer, or come again later";
    let said = problem::as_bytes(frontend, &Problem::new(Code::Overloaded, detail));
    if let Ok(mut tcp) = tcp.into_std() {
        let _ = tcp.write_all(&said);
    }
}

/// Tells what goes on and on now and then.
#[derive(Debug, Default)]
struct Told(Option<Instant>);

impl Told {
    fn tell(&mut self, tell: impl FnOnce()) {
        if self.0.is_none_or(|at| at.elapsed() >= TOLD_AGAIN) {
            self.0 = Some(Instant::now());
            tell();
        }
    }
}

/// Whether only the one connection is gone, and others can be accepted at once.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected)
}
