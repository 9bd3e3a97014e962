//! Requests in short: names as text, ids as numbers, bodies as JSON.

use ratified_core::{ClientNames, Page, Request, TxnCall, TxnFilter};
use ratified_protocol::{
    AckRequest, BatchItem, ClientName, Generation, Incarnation, ManyItem, OpenRequest, Outcome, ParticipantName,
    RequestBody, ShortText, TxnId, decode_body,
};
use serde_json::{Value, json};
use uuid::Uuid;

/// The id `00000000-0000-7000-8000-<n in hex>`.
pub(crate) fn id(n: u64) -> TxnId {
    let mut bytes = [0; 16];
    bytes[10..].copy_from_slice(&n.to_be_bytes()[2..]);
    bytes[6] = 0x70;
    bytes[8] = 0x80;
    TxnId::from_bytes(bytes).unwrap()
}

/// The id as it is told.
pub(crate) fn id_text(n: u64) -> String {
    id(n).to_string()
}

pub(crate) fn client(name: &str) -> ClientName {
    name.parse().unwrap()
}

pub(crate) fn participant(name: &str) -> ParticipantName {
    name.parse().unwrap()
}

pub(crate) fn incarnation(n: u128) -> Incarnation {
    Incarnation::new(Uuid::from_u128(n))
}

pub(crate) fn text(text: &str) -> ShortText {
    ShortText::try_from(text.to_owned()).unwrap()
}

pub(crate) fn body<T: RequestBody>(json: &Value) -> T {
    decode_body(&serde_json::to_vec(json).unwrap()).unwrap()
}

/// `{"epoch": n}`
pub(crate) fn epoch(n: u64) -> Value {
    json!({ "epoch": n })
}

/// `open` with `create: true` by an owner named after the incarnation.
pub(crate) fn open(name: &str, by: u128) -> Request {
    open_with(name, by, true)
}

pub(crate) fn open_with(name: &str, by: u128, create: bool) -> Request {
    let owner = Some(text(&format!("owner-{by}")));
    Request::Open {
        client: client(name),
        body: OpenRequest { incarnation: incarnation(by), owner, create, generation: None },
    }
}

/// [`open`] with a generation.
pub(crate) fn open_of(name: &str, by: u128, generation: u64) -> Request {
    let mut request = open(name, by);
    if let Request::Open { body, .. } = &mut request {
        body.generation = Some(Generation::new(generation));
    }
    request
}

pub(crate) fn txn(name: &str, n: u64, call: TxnCall) -> Request {
    Request::Txn { client: client(name), txn_id: id(n), call, wait_ms: 0 }
}

/// The same call with `waitMs`.
pub(crate) fn waiting(mut request: Request, ms: u64) -> Request {
    match &mut request {
        Request::Txn { wait_ms, .. } | Request::Decisions { wait_ms, .. } => *wait_ms = ms,
        other => panic!("{other:?} does not wait"),
    }
    request
}

pub(crate) fn begin(name: &str, n: u64, json: &Value) -> Request {
    txn(name, n, TxnCall::Begin(body(json)))
}

pub(crate) fn prepare(name: &str, n: u64, json: &Value) -> Request {
    txn(name, n, TxnCall::Prepare(body(json)))
}

pub(crate) fn commit(name: &str, n: u64, json: &Value) -> Request {
    txn(name, n, TxnCall::Commit(body(json)))
}

pub(crate) fn abort(name: &str, n: u64, json: &Value) -> Request {
    txn(name, n, TxnCall::Abort(body(json)))
}

pub(crate) fn keep_alive(name: &str, n: u64, json: &Value) -> Request {
    txn(name, n, TxnCall::KeepAlive(body(json)))
}

pub(crate) fn get(name: &str, n: u64) -> Request {
    txn(name, n, TxnCall::Get)
}

pub(crate) fn register(name: &str, n: u64, who: &str, json: &Value) -> Request {
    txn(name, n, TxnCall::Register(participant(who), body(json)))
}

pub(crate) fn ack(name: &str, n: u64, who: &str, outcome: Outcome) -> Request {
    txn(name, n, TxnCall::Ack(participant(who), AckRequest { outcome }))
}

pub(crate) fn resolve(name: &str, n: u64, outcome: &str) -> Request {
    let json = json!({"outcome": outcome, "reason": "because", "actor": "op"});
    txn(name, n, TxnCall::Resolve(body(&json)))
}

pub(crate) fn batch(name: &str, operations: Vec<Value>, ordered: bool) -> Request {
    let items = operations.into_iter().map(BatchItem::parse).collect();
    Request::Batch { client: client(name), items, ordered }
}

pub(crate) fn many(operations: Vec<Value>) -> Request {
    Request::Many { items: operations.into_iter().map(ManyItem::parse).collect() }
}

pub(crate) fn decisions(who: &str, after: Option<&str>) -> Request {
    Request::Decisions { participant: participant(who), after: after.map(str::to_owned), wait_ms: 0 }
}

pub(crate) fn retire(who: &str) -> Request {
    Request::Retire { participant: participant(who), reason: text("gone") }
}

pub(crate) fn reinstate(who: &str) -> Request {
    Request::Reinstate { participant: participant(who), reason: Some(text("back")) }
}

pub(crate) fn preserver(name: &str) -> Request {
    Request::Preserver { client: client(name) }
}

pub(crate) fn lookup(name: &str, n: u64) -> Request {
    Request::PreserverLookup { client: client(name), txn_id: id(n) }
}

pub(crate) fn forget(name: &str) -> Request {
    Request::Forget { client: client(name), reason: text("over") }
}

pub(crate) fn clients(prefix: Option<&str>, page: Page) -> Request {
    let names = prefix.map_or(ClientNames::All, |prefix| ClientNames::From(prefix.to_owned()));
    Request::Clients { names, page }
}

pub(crate) fn clients_of(sink: &str, page: Page) -> Request {
    Request::Clients { names: ClientNames::Of(client(sink)), page }
}

pub(crate) fn txns(filter: TxnFilter, page: Page) -> Request {
    Request::Txns { filter, page }
}

/// A page of this size behind a token.
pub(crate) fn page(size: u64, token: Option<&str>) -> Page {
    Page { size: Some(size), token: token.map(str::to_owned) }
}
