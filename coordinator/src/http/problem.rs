//! Answers and refusals as HTTP.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use ratified_protocol::{Code, PROBLEM_MEDIA_TYPE, Problem};
use serde::Serialize;

use super::frontend::Frontend;

/// What a caller that may come again is told to wait, in seconds.
const RETRY_AFTER_SECONDS: &str = "1";

/// A JSON answer.
///
/// # Errors
/// The answer cannot be written as JSON; a defect.
pub(super) fn json<T: Serialize>(status: StatusCode, body: &T) -> Result<Response, Problem> {
    let bytes = serde_json::to_vec(body).map_err(|e| {
        tracing::error!(error = %e, "an answer cannot be written as JSON");
        Problem::new(Code::StorageUnavailable, "the answer cannot be written down")
    })?;
    Ok(with_type(status, "application/json", bytes))
}

/// A refusal.
pub(super) fn refuse(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = with_type(status, PROBLEM_MEDIA_TYPE, serde_json::to_vec(problem).unwrap_or_default());
    // For whoever counts refusals.
    if let Some(code) = problem.code.known() {
        response.extensions_mut().insert(code);
    }
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
    }
    response
}

/// A refusal of a head that the HTTP layer cannot read, with its status. The connection ends with it.
pub(super) fn of_http(frontend: &Frontend, status: u16) -> Bytes {
    let (code, detail) = match status {
        414 => (Code::TooLarge, "the request's target: is too long"),
        431 => (Code::TooLarge, "the request's head: has too many headers, or more bytes than max_head_bytes"),
        _ => (Code::InvalidArgument, "the request's head: is not one of HTTP/1.1"),
    };
    let mut problem = Problem::new(code, detail);
    problem.status = status;
    frontend.metrics().calls.answered(super::paths().count(), "", status, Some(code));
    as_bytes(frontend, &problem)
}

/// A refusal as it goes over the wire, for where no request is.
pub(super) fn as_bytes(frontend: &Frontend, problem: &Problem) -> Bytes {
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = super::sign(frontend, refuse(problem));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    let mut said = format!("HTTP/1.1 {}\r\ncontent-length: {}\r\n", response.status(), body.len()).into_bytes();
    for (name, value) in response.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            said.extend_from_slice(part);
        }
    }
    said.extend_from_slice(b"\r\n");
    said.extend_from_slice(&body);
    said.into()
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// An answer of this media type.
pub(super) fn with_type(status: StatusCode, media_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
