//! Reading a request's body within its bounds, and what is left of it when the request is refused.

use std::{future::poll_fn, pin::Pin, sync::Arc};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use ratified_protocol::{Code, Problem};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    frontend::Frontend,
    peers::{Peer, Share, Shares},
};

/// What the budget is counted in, in bytes.
const UNIT: usize = 1024;
/// The beginning of each body is not counted, in bytes: connections are bounded, and so a keep-alive, an acknowledgement or
/// a decision finds its place however many large bodies are under way.
pub(super) const UNCOUNTED: usize = 1024;

/// The memory that bodies may take while they are read: what has arrived counts, not what was announced.
#[derive(Debug)]
pub(super) struct Budget {
    whole: Arc<Semaphore>,
    by_peer: Arc<Shares>,
}

impl Budget {
    /// This many bytes, and of one peer at most this many.
    pub(super) fn new(max_bytes: usize, max_bytes_per_peer: usize) -> Self {
        Self { whole: Arc::new(Semaphore::new(max_bytes / UNIT)), by_peer: Shares::new(max_bytes_per_peer / UNIT) }
    }

    fn reserve(&self, peer: Option<Peer>) -> Reservation {
        Reservation { whole: self.whole.clone(), share: peer.map(|peer| self.by_peer.of(peer)), units: 0, permit: None }
    }
}

/// What one body has of the budget; given back when dropped.
#[derive(Debug)]
struct Reservation {
    whole: Arc<Semaphore>,
    share: Option<Share>,
    units: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Reservation {
    fn grow_to(&mut self, bytes: usize) -> Result<(), Problem> {
        let units = bytes.saturating_sub(UNCOUNTED).div_ceil(UNIT);
        let more = units.saturating_sub(self.units);
        if more == 0 {
            return Ok(());
        }
        if self.share.as_mut().is_some_and(|share| !share.grow(more)) {
            return Err(overloaded("too many bodies from one address are being read"));
        }
        let full = |_| overloaded("too many bodies are being read");
        let permit =
            self.whole.clone().try_acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX)).map_err(full)?;
        self.units = units;
        match &mut self.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

/// A body in memory; it counts against its budget until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) bytes: Bytes,
    _reservation: Option<Reservation>,
}

/// The body of a request as it arrives.
#[derive(Debug)]
pub(super) struct Upload {
    body: Body,
    has_ended: bool,
    /// Whether the sender waits for leave to send it, and has none yet.
    is_held_back: bool,
    is_given_up: bool,
}

impl Upload {
    pub(super) fn new(headers: &HeaderMap, body: Body) -> Self {
        let has_ended = body.is_end_stream();
        Self { body, has_ended, is_held_back: headers.contains_key(header::EXPECT), is_given_up: false }
    }

    async fn next(&mut self) -> Option<Result<Bytes, Problem>> {
        self.is_held_back = false;
        loop {
            let Some(frame) = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await else {
                self.has_ended = true;
                return None;
            };
            match frame.map(http_body_data) {
                Ok(Some(data)) => {
                    self.has_ended = self.body.is_end_stream();
                    return Some(Ok(data));
                }
                Ok(None) => {}
                Err(e) => {
                    self.is_given_up = true;
                    return Some(Err(Problem::new(Code::InvalidArgument, format!("body: {e}"))));
                }
            }
        }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// `TOO_LARGE`, then `UNSUPPORTED_MEDIA_TYPE`; `OVERLOADED` when there is no memory left for it, or when it does not
    /// arrive in time; what requests are answered with when nothing is served any more. Nothing was done.
    pub(super) async fn read(
        &mut self,
        frontend: &Frontend,
        parts: &Parts,
        max_bytes: usize,
    ) -> Result<Received, Problem> {
        if self.announced() > max_bytes as u64 {
            return Err(too_large(max_bytes));
        }
        let mut reservation = frontend.budget().reserve(parts.extensions.get::<Peer>().copied());
        let bytes = tokio::select! {
            biased;
            read = tokio::time::timeout(frontend.limits().read_timeout(), self.collect(max_bytes, &mut reservation)) => {
                read.map_err(|_| overloaded("the body did not arrive in time"))
            }
            closed = frontend.closed() => Err(closed),
        };
        // Whoever did not send it in time, or has no time left, is not waited for again.
        self.is_given_up |= bytes.is_err();
        let bytes = bytes??;
        check_media_type(&parts.headers)?;
        Ok(Received { bytes, _reservation: Some(reservation) })
    }

    async fn collect(&mut self, max_bytes: usize, reservation: &mut Reservation) -> Result<Bytes, Problem> {
        let mut kept = BytesMut::new();
        while let Some(data) = self.next().await {
            let data = data?;
            let total = kept.len().saturating_add(data.len());
            if total > max_bytes {
                return Err(too_large(max_bytes));
            }
            reservation.grow_to(total)?;
            kept.extend_from_slice(&data);
        }
        Ok(kept.freeze())
    }

    /// Reads on what nobody needs, so that the next request of the connection finds its beginning.
    ///
    /// Whether it came to the end; if not, the connection has to be closed.
    pub(super) async fn finish(&mut self, frontend: &Frontend) -> bool {
        if self.has_ended {
            return true;
        }
        let limits = frontend.limits();
        let mut left = limits.max_discard_bytes;
        if self.is_held_back || self.is_given_up || self.announced() > left as u64 {
            return false;
        }
        let discard = async {
            while let Some(Ok(data)) = self.next().await {
                left = left.checked_sub(data.len())?;
            }
            Some(())
        };
        tokio::select! {
            biased;
            discarded = tokio::time::timeout(limits.discard_timeout(), discard) => drop(discarded),
            _ = frontend.closed() => {}
        }
        self.has_ended
    }

    /// What is certainly still to come, in bytes.
    fn announced(&self) -> u64 {
        self.body.size_hint().lower()
    }
}

fn http_body_data(frame: hyper::body::Frame<Bytes>) -> Option<Bytes> {
    frame.into_data().ok()
}

fn overloaded(why: &str) -> Problem {
    Problem::new(Code::Overloaded, format!("{why}; nothing was done, send it again"))
}

fn too_large(max_bytes: usize) -> Problem {
    Problem::new(Code::TooLarge, format!("body: at most {max_bytes} bytes are taken"))
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let essence = value.to_str().ok().and_then(|v| v.split(';').next()).map(str::trim);
    if essence.is_some_and(|e| e.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(Problem::new(
        Code::UnsupportedMediaType,
        format!("Content-Type: must be application/json or none, not {value:?}"),
    ))
}
