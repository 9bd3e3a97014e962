//! Calls about a transaction.

use ratified_core::{Request, TxnCall};
use ratified_protocol::{Problem, decode_body};

use super::target::Target;

fn about(mut target: Target, call: TxnCall) -> Result<Request, Problem> {
    let txn_id = target.txn_id()?;
    Ok(Request::Txn { client: target.client()?, txn_id, call, wait_ms: target.wait_ms })
}

/// `PUT /v1/clients/{clientName}/txns/{txnId}`
pub(super) fn begin(target: Target, body: &[u8]) -> Result<Request, Problem> {
    about(target, TxnCall::Begin(decode_body(body)?))
}

/// `GET /v1/clients/{clientName}/txns/{txnId}`
pub(super) fn get(target: Target, _body: &[u8]) -> Result<Request, Problem> {
    about(target, TxnCall::Get)
}

/// `POST .../prepare`
pub(super) fn prepare(target: Target, body: &[u8]) -> Result<Request, Problem> {
    about(target, TxnCall::Prepare(decode_body(body)?))
}

/// `POST .../commit`
pub(super) fn commit(target: Target, body: &[u8]) -> Result<Request, Problem> {
    about(target, TxnCall::Commit(decode_body(body)?))
}

/// `POST .../abort`
pub(super) fn abort(target: Target, body: &[u8]) -> Result<Request, Problem> {
    about(target, TxnCall::Abort(decode_body(body)?))
}

/// `POST .../keep-alive`
pub(super) fn keep_alive(target: Target, body: &[u8]) -> Result<Request, Problem> {
    about(target, TxnCall::KeepAlive(decode_body(body)?))
}

/// `POST .../resolve`
pub(super) fn resolve(target: Target, body: &[u8]) -> Result<Request, Problem> {
    about(target, TxnCall::Resolve(decode_body(body)?))
}

/// `PUT .../participants/{participant}`
pub(super) fn register(mut target: Target, body: &[u8]) -> Result<Request, Problem> {
    let participant = target.participant()?;
    about(target, TxnCall::Register(participant, decode_body(body)?))
}

/// `POST .../participants/{participant}/ack`
pub(super) fn ack(mut target: Target, body: &[u8]) -> Result<Request, Problem> {
    let participant = target.participant()?;
    about(target, TxnCall::Ack(participant, decode_body(body)?))
}

/// `GET /v1/txns`
pub(super) fn list(target: Target, _body: &[u8]) -> Result<Request, Problem> {
    Ok(Request::Txns { filter: target.filter, page: target.page })
}
