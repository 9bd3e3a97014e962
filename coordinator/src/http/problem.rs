//! Answers and refusals as HTTP.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use ratified_protocol::{Code, PROBLEM_MEDIA_TYPE, Problem};
use serde::Serialize;

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
