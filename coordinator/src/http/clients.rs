//! Calls about a client.

use ratified_core::{ClientNames, Request};
use ratified_protocol::{Code, ForgetRequest, OpenRequest, Problem, decode_body};

use super::target::Target;

/// `POST /v1/clients/{clientName}/open`
pub(super) fn open(mut target: Target, body: &[u8]) -> Result<Request, Problem> {
    Ok(Request::Open { client: target.client()?, body: decode_body::<OpenRequest>(body)? })
}

/// `POST /v1/clients/{clientName}/forget`
pub(super) fn forget(mut target: Target, body: &[u8]) -> Result<Request, Problem> {
    Ok(Request::Forget { client: target.client()?, reason: decode_body::<ForgetRequest>(body)?.reason })
}

/// `GET /v1/clients`
pub(super) fn list(target: Target, _body: &[u8]) -> Result<Request, Problem> {
    let names = match (target.prefix, target.sink) {
        (None, None) => ClientNames::All,
        (Some(prefix), None) => ClientNames::From(prefix),
        (None, Some(sink)) => ClientNames::Of(sink),
        (Some(_), Some(_)) => {
            let detail = "sink: says which names on its own, prefix cannot be given too";
            return Err(Problem::new(Code::InvalidArgument, detail));
        }
    };
    Ok(Request::Clients { names, page: target.page })
}
