//! What goes on on one connection, seen from below HTTP: whether a request runs, whether all of its answer has left, and
//! how the connection ends.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use super::frontend::Frontend;

/// No request runs: nothing, or not all of a head, has come.
const WAITING: u8 = 0;
/// A request runs, or its body is being read.
const RUNNING: u8 = 1;
/// It is answered, and the answer may not have left yet.
const ANSWERED: u8 = 2;
/// Nothing more will be said.
const ENDING: u8 = 3;

/// How far a connection is, for all that serve it.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    phase: AtomicU8,
    has_more_to_read: AtomicBool,
}

impl Conversation {
    pub(super) fn begin(&self) {
        self.phase.store(RUNNING, Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        self.phase.store(ANSWERED, Ordering::Relaxed);
    }

    /// The sender has not come to the end of what it sends: when its answer is sent, what follows has to be read, since a
    /// connection that is closed with something unread takes back what was said last.
    pub(super) fn leaves_unread(&self) {
        self.has_more_to_read.store(true, Ordering::Relaxed);
    }

    /// Whether nobody loses an answer when the connection is cut.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase.load(Ordering::Relaxed), WAITING | ENDING)
    }

    fn is(&self, phase: u8) -> bool {
        self.phase.load(Ordering::Relaxed) == phase
    }

    fn left(&self) {
        let _ = self.phase.compare_exchange(ANSWERED, WAITING, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The stream of a connection.
///
/// What is written while no request runs is a refusal by the HTTP layer itself, of a head it cannot read, and has no
/// body: a problem goes out in its place.
pub(super) struct Stream {
    tcp: TcpStream,
    conversation: Arc<Conversation>,
    frontend: Frontend,
    refusal: Bytes,
    lingering: Option<Lingering>,
    stalled: Option<Stalled>,
}

/// A peer that takes nothing of what is said to it.
struct Stalled {
    end: Pin<Box<Sleep>>,
    is_stopping: bool,
}

/// Reading on after the last answer.
struct Lingering {
    left: usize,
    end: Pin<Box<Sleep>>,
}

impl Stream {
    pub(super) fn new(tcp: TcpStream, conversation: Arc<Conversation>, frontend: Frontend) -> Self {
        Self { tcp, conversation, frontend, refusal: Bytes::new(), lingering: None, stalled: None }
    }

    /// Takes over what the HTTP layer says by itself. Whether it did.
    fn replace(&mut self, head: &[u8]) -> bool {
        if !self.conversation.is(WAITING) {
            return false;
        }
        let status = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        self.refusal = super::problem::of_http(&self.frontend, status.unwrap_or(400));
        self.conversation.leaves_unread();
        self.conversation.answered();
        true
    }

    /// Passes on how a write went. One that does not get on within bounds has failed: an answer that nobody takes holds
    /// memory and a place, and at a shutdown everybody else.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let (limits, is_stopping) = (*self.frontend.limits(), self.frontend.is_closed());
        let bound =
            if is_stopping { limits.discard_timeout().min(limits.write_timeout()) } else { limits.write_timeout() };
        let stalled = self.stalled.take().filter(|stalled| stalled.is_stopping == is_stopping);
        let stalled =
            self.stalled.insert(stalled.unwrap_or_else(|| Stalled { end: Box::pin(sleep(bound)), is_stopping }));
        ready!(stalled.end.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.refusal.has_remaining() {
            let written = Pin::new(&mut self.tcp).poll_write(cx, &self.refusal);
            let written = ready!(self.bounded(cx, written))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.refusal.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and forgets until the peer has ended, too, within bounds.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limits = *self.frontend.limits();
        let lingering = self.lingering.get_or_insert_with(|| Lingering {
            left: limits.max_discard_bytes,
            end: Box::pin(sleep(limits.discard_timeout())),
        });
        let mut buffer = [0; 4096];
        loop {
            if lingering.left == 0 || lingering.end.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let mut unread = ReadBuf::new(&mut buffer);
            let has_failed = ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut unread)).is_err();
            if has_failed || unread.filled().is_empty() {
                return Poll::Ready(());
            }
            lingering.left = lingering.left.saturating_sub(unread.filled().len());
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.replace(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut self.tcp).poll_write(cx, buf);
        self.bounded(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.replace(bufs.first().map_or(&[], |first| first)) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let written = Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    /// The HTTP layer asks for this when it has handed over all it has.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_refusal(cx))?;
        ready!(Pin::new(&mut self.tcp).poll_flush(cx))?;
        self.conversation.left();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(self.poll_refusal(cx))?;
            ready!(Pin::new(&mut self.tcp).poll_shutdown(cx))?;
            self.conversation.phase.store(ENDING, Ordering::Relaxed);
        }
        let is_cut = self.frontend.is_closed() || !self.conversation.has_more_to_read.load(Ordering::Relaxed);
        if is_cut { Poll::Ready(Ok(())) } else { self.poll_linger(cx).map(Ok) }
    }
}
