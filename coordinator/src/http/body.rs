//! Reading a request's body within its bounds.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, header},
};
use bytes::{Bytes, BytesMut};
use ratified_protocol::{Code, Problem};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many times its bound a body is read and thrown away, so that its sender gets to read the refusal.
const DISCARDED: usize = 4;
/// What the budget is counted in, in bytes.
const UNIT: usize = 1024;

/// The memory that bodies may take while they are read.
#[derive(Debug)]
pub(super) struct Budget(Arc<Semaphore>);

impl Budget {
    /// This many bytes.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(max_bytes / UNIT)))
    }

    fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Problem> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let full =
            |_| Problem::new(Code::Overloaded, "too many bodies are being read; nothing was done, send it again");
        self.0.clone().try_acquire_many_owned(units).map_err(full)
    }
}

/// A body in memory; it counts against its budget until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) bytes: Bytes,
    _budget: Option<OwnedSemaphorePermit>,
}

/// Reads the whole body.
///
/// # Errors
/// `TOO_LARGE`, then `UNSUPPORTED_MEDIA_TYPE`; `OVERLOADED` when there is no memory left for it, or when it does not
/// arrive in time: nothing was done.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    max_bytes: usize,
    timeout: Duration,
    budget: &Budget,
) -> Result<Received, Problem> {
    let announced = announced(headers);
    if announced.is_some_and(|bytes| bytes > max_bytes) && headers.contains_key(header::EXPECT) {
        return Err(too_large(max_bytes));
    }
    let budget = budget.take(announced.unwrap_or(max_bytes).min(max_bytes))?;
    let late = |_| Problem::new(Code::Overloaded, "the body did not arrive in time; nothing was done, send it again");
    let bytes = tokio::time::timeout(timeout, collect(body, max_bytes)).await.map_err(late)??;
    check_media_type(headers)?;
    Ok(Received { bytes, _budget: Some(budget) })
}

async fn collect(mut body: Body, max_bytes: usize) -> Result<Bytes, Problem> {
    let mut kept = BytesMut::new();
    let mut total = 0_usize;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let broken = |e| Problem::new(Code::InvalidArgument, format!("body: {e}"));
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        total = total.saturating_add(data.len());
        if total <= max_bytes {
            kept.extend_from_slice(&data);
        } else if total > max_bytes.saturating_mul(DISCARDED) {
            break;
        }
    }
    if total > max_bytes { Err(too_large(max_bytes)) } else { Ok(kept.freeze()) }
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
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
