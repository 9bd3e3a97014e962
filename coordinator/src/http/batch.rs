//! Many operations in one durable write.

use ratified_core::Request;
use ratified_protocol::{BatchItem, BatchRequest, ManyItem, ManyRequest, Problem, decode_body};

use super::target::Target;

/// `POST /v1/clients/{clientName}/batch`
pub(super) fn batch(mut target: Target, body: &[u8]) -> Result<Request, Problem> {
    let request = decode_body::<BatchRequest>(body)?;
    let ordered = request.is_ordered();
    let items = request.operations.into_iter().map(BatchItem::parse).collect();
    Ok(Request::Batch { client: target.client()?, items, ordered })
}

/// `POST /v1/batch`
pub(super) fn many(_: Target, body: &[u8]) -> Result<Request, Problem> {
    let request = decode_body::<ManyRequest>(body)?;
    Ok(Request::Many { items: request.operations.into_iter().map(ManyItem::parse).collect() })
}
