//! Reading a request's body within its bounds.

use std::{future::poll_fn, pin::Pin, time::Duration};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, header},
};
use bytes::{Bytes, BytesMut};
use ratified_protocol::{Code, Problem};

/// How many times its bound a body is read and thrown away, so that its sender gets to read the refusal.
const DISCARDED: usize = 4;

/// The whole body.
///
/// # Errors
/// `TOO_LARGE`, then `UNSUPPORTED_MEDIA_TYPE`; `OVERLOADED` when the body does not arrive in time: nothing was done.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    max_bytes: usize,
    timeout: Duration,
) -> Result<Bytes, Problem> {
    if is_announced_beyond(headers, max_bytes) && headers.contains_key(header::EXPECT) {
        return Err(too_large(max_bytes));
    }
    let late = |_| Problem::new(Code::Overloaded, "the body did not arrive in time; nothing was done, send it again");
    let bytes = tokio::time::timeout(timeout, collect(body, max_bytes)).await.map_err(late)??;
    check_media_type(headers)?;
    Ok(bytes)
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

fn is_announced_beyond(headers: &HeaderMap, max_bytes: usize) -> bool {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    announced.is_some_and(|length: u64| length > max_bytes as u64)
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
