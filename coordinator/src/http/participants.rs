//! Calls of and about participants.

use ratified_core::Request;
use ratified_protocol::{Problem, ReinstateRequest, RetireRequest, decode_body};

use super::target::Target;

/// `GET /v1/participants/{participant}/decisions`
pub(super) fn decisions(mut target: Target, _body: &[u8]) -> Result<Request, Problem> {
    Ok(Request::Decisions { participant: target.participant()?, after: target.after, wait_ms: target.wait_ms })
}

/// `POST /v1/participants/{participant}/retire`
pub(super) fn retire(mut target: Target, body: &[u8]) -> Result<Request, Problem> {
    Ok(Request::Retire { participant: target.participant()?, reason: decode_body::<RetireRequest>(body)?.reason })
}

/// `POST /v1/participants/{participant}/reinstate`
pub(super) fn reinstate(mut target: Target, body: &[u8]) -> Result<Request, Problem> {
    Ok(Request::Reinstate { participant: target.participant()?, reason: decode_body::<ReinstateRequest>(body)?.reason })
}
