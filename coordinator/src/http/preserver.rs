//! Calls about preserved outcomes.

use ratified_core::Request;
use ratified_protocol::Problem;

use super::target::Target;

/// `GET /v1/preserver/{clientName}`
pub(super) fn list(mut target: Target, _body: &[u8]) -> Result<Request, Problem> {
    Ok(Request::Preserver { client: target.client()? })
}

/// `GET /v1/preserver/{clientName}/{txnId}`
pub(super) fn lookup(mut target: Target, _body: &[u8]) -> Result<Request, Problem> {
    let txn_id = target.txn_id()?;
    Ok(Request::PreserverLookup { client: target.client()?, txn_id })
}
