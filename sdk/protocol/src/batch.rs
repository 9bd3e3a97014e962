//! Many operations in one durable write: of one client, or of many.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    decode::{RequestBody, decode_value},
    ids::{ClientName, ParticipantName, TxnId},
    problem::{Code, Problem},
    request::{AbortRequest, AckRequest, BeginRequest, CommitRequest, EmptyRequest, PrepareRequest},
};

/// Most operations of one batch.
pub const MAX_BATCH_OPERATIONS: usize = 1000;
/// Largest body of a batch, in bytes.
pub const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;

/// `batch`: operations as they came; each is read alone by [`BatchItem::parse`], so that a malformed one fails alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchRequest {
    /// At most 1000.
    #[serde(deserialize_with = "crate::strict::values")]
    pub operations: Vec<Value>,
    /// Whether the batch stops at the first item that is not a 2xx; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<bool>,
}

impl BatchRequest {
    /// A batch of these items.
    pub fn new(items: &[BatchItem], ordered: bool) -> Self {
        Self { operations: items.iter().map(BatchItem::to_value).collect(), ordered: Some(ordered) }
    }

    /// Whether the batch stops at the first item that is not a 2xx.
    pub fn is_ordered(&self) -> bool {
        self.ordered.unwrap_or(true)
    }
}

/// `batch` over many clients: operations as they came; each is read alone by [`ManyItem::parse`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ManyRequest {
    /// At most 1000.
    #[serde(deserialize_with = "crate::strict::values")]
    pub operations: Vec<Value>,
}

impl ManyRequest {
    /// These operations.
    pub fn new(items: &[ManyItem]) -> Self {
        Self { operations: items.iter().map(ManyItem::to_value).collect() }
    }
}

pub(crate) fn check_count(operations: &[Value]) -> Result<(), Problem> {
    if operations.len() <= MAX_BATCH_OPERATIONS {
        return Ok(());
    }
    let detail = format!("operations: {} items, at most {MAX_BATCH_OPERATIONS} are taken", operations.len());
    Err(Problem::new(Code::TooLarge, detail))
}

/// One operation of a batch over many clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManyItem {
    /// Whose.
    pub client_name: ClientName,
    /// What.
    pub item: BatchItem,
}

impl ManyItem {
    /// Reads one operation.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming the field, or `TOO_LARGE`; the caller must mend the operation.
    pub fn parse(value: Value) -> Result<Self, Problem> {
        let mut members = members(value)?;
        let client_name = take(&mut members, "clientName")?;
        Ok(Self { client_name, item: BatchItem::read(members)? })
    }

    fn to_value(&self) -> Value {
        let mut members = self.item.to_members();
        members.insert("clientName".to_owned(), self.client_name.to_string().into());
        Value::Object(members)
    }
}

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchItem {
    /// The transaction it is about.
    pub txn_id: TxnId,
    /// What to do with it.
    pub op: BatchOp,
}

/// What a batch item does: a single call's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchOp {
    /// As the single call.
    Begin(BeginRequest),
    /// As the single call.
    Prepare(PrepareRequest),
    /// As the single call, without waiting.
    Commit(CommitRequest),
    /// As the single call, without waiting.
    Abort(AbortRequest),
    /// As the single call; the participant is a member of the item.
    Ack(ParticipantName, AckRequest),
    /// As the single call, without waiting.
    Get,
}

impl BatchItem {
    /// Reads one item.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming the field, or `TOO_LARGE`; the caller must mend the item.
    pub fn parse(value: Value) -> Result<Self, Problem> {
        Self::read(members(value)?)
    }

    fn read(mut members: Map<String, Value>) -> Result<Self, Problem> {
        let op: String = take(&mut members, "op")?;
        let txn_id: TxnId = take(&mut members, "txnId")?;
        let op = match op.as_str() {
            "begin" => BatchOp::Begin(body(members)?),
            "prepare" => BatchOp::Prepare(body(members)?),
            "commit" => BatchOp::Commit(body(members)?),
            "abort" => BatchOp::Abort(body(members)?),
            "ack" => {
                let participant = take(&mut members, "participant")?;
                BatchOp::Ack(participant, body(members)?)
            }
            "get" => {
                body::<EmptyRequest>(members)?;
                BatchOp::Get
            }
            other => {
                let detail = format!("op: `{other}` is not one of begin, prepare, commit, abort, ack, get");
                return Err(Problem::new(Code::InvalidArgument, detail));
            }
        };
        Ok(Self { txn_id, op })
    }

    fn to_value(&self) -> Value {
        Value::Object(self.to_members())
    }

    fn to_members(&self) -> Map<String, Value> {
        let (name, participant, body) = match &self.op {
            BatchOp::Begin(body) => ("begin", None, serde_json::to_value(body)),
            BatchOp::Prepare(body) => ("prepare", None, serde_json::to_value(body)),
            BatchOp::Commit(body) => ("commit", None, serde_json::to_value(body)),
            BatchOp::Abort(body) => ("abort", None, serde_json::to_value(body)),
            BatchOp::Ack(participant, body) => ("ack", Some(participant), serde_json::to_value(body)),
            BatchOp::Get => ("get", None, serde_json::to_value(EmptyRequest {})),
        };
        // Every body is a struct of plain members: writing it as a value cannot fail.
        let mut members = match body {
            Ok(Value::Object(members)) => members,
            _ => Map::new(),
        };
        members.insert("op".to_owned(), name.into());
        members.insert("txnId".to_owned(), self.txn_id.to_string().into());
        if let Some(participant) = participant {
            members.insert("participant".to_owned(), participant.to_string().into());
        }
        members
    }
}

fn members(operation: Value) -> Result<Map<String, Value>, Problem> {
    match operation {
        Value::Object(members) => Ok(members),
        _ => Err(Problem::new(Code::InvalidArgument, "operation: must be a JSON object")),
    }
}

fn take<T: serde::de::DeserializeOwned>(members: &mut Map<String, Value>, name: &'static str) -> Result<T, Problem> {
    let value = members.remove(name).filter(|v| !v.is_null());
    let value = value.ok_or_else(|| Problem::new(Code::InvalidArgument, format!("{name}: missing")))?;
    serde_json::from_value(value).map_err(|e| Problem::new(Code::InvalidArgument, format!("{name}: {e}")))
}

fn body<T: RequestBody>(members: Map<String, Value>) -> Result<T, Problem> {
    decode_value(Value::Object(members))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{decode_body, ids::Epoch, state::Outcome};

    const ID: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f";

    #[test]
    fn items_survive_the_wire() {
        let txn_id: TxnId = ID.parse().unwrap();
        let epoch = Some(Epoch::new(3));
        let ops = [
            BatchOp::Begin(BeginRequest { epoch, ..Default::default() }),
            BatchOp::Prepare(PrepareRequest { epoch, ..Default::default() }),
            BatchOp::Commit(CommitRequest::default()),
            BatchOp::Abort(AbortRequest { epoch }),
            BatchOp::Ack("p".parse().unwrap(), AckRequest { outcome: Outcome::Committed }),
            BatchOp::Get,
        ];
        let items: Vec<_> = ops.into_iter().map(|op| BatchItem { txn_id, op }).collect();
        let wire = serde_json::to_vec(&BatchRequest::new(&items, false)).unwrap();
        let read = decode_body::<BatchRequest>(&wire).unwrap();
        assert!(!read.is_ordered());
        let parsed: Result<Vec<_>, _> = read.operations.into_iter().map(BatchItem::parse).collect();
        assert_eq!(parsed.unwrap(), items);
    }

    #[test]
    fn a_malformed_item_names_its_field() {
        for (item, detail) in [
            (json!(5), "operation: must be a JSON object"),
            (json!({"txnId": ID}), "op: missing"),
            (json!({"op": "get"}), "txnId: missing"),
            (json!({"op": "get", "txnId": "x"}), "txnId: must be a UUIDv7"),
            (json!({"op": "fly", "txnId": ID}), "op: `fly` is not one of"),
            (json!({"op": "get", "txnId": ID, "epoch": 1}), "epoch: unknown field"),
            (json!({"op": "ack", "txnId": ID, "outcome": "COMMITTED"}), "participant: missing"),
            (json!({"op": "begin", "txnId": ID, "timeoutMs": 0}), "timeoutMs: must be"),
        ] {
            let problem = BatchItem::parse(item.clone()).unwrap_err();
            assert_eq!(problem.code, Code::InvalidArgument, "{item}");
            assert!(problem.detail.starts_with(detail), "{item}: {}", problem.detail);
        }
    }

    #[test]
    fn an_item_of_many_clients_says_whose_it_is() {
        let txn_id: TxnId = ID.parse().unwrap();
        let item = BatchItem { txn_id, op: BatchOp::Get };
        let items = [ManyItem { client_name: "job.7".parse().unwrap(), item }];
        let wire = serde_json::to_vec(&ManyRequest::new(&items)).unwrap();
        let expected = json!({"operations": [{"clientName": "job.7", "op": "get", "txnId": ID}]});
        assert_eq!(serde_json::from_slice::<Value>(&wire).unwrap(), expected);
        let read = decode_body::<ManyRequest>(&wire).unwrap();
        let parsed: Result<Vec<_>, _> = read.operations.into_iter().map(ManyItem::parse).collect();
        assert_eq!(parsed.unwrap(), items);
        for (operation, detail) in [
            (json!([]), "operation: must be a JSON object"),
            (json!({"op": "get", "txnId": ID}), "clientName: missing"),
            (json!({"clientName": "a/b", "op": "get", "txnId": ID}), "clientName: must be"),
            (json!({"clientName": "job.7", "txnId": ID}), "op: missing"),
        ] {
            let problem = ManyItem::parse(operation.clone()).unwrap_err();
            assert_eq!(problem.code, Code::InvalidArgument, "{operation}");
            assert!(problem.detail.starts_with(detail), "{operation}: {}", problem.detail);
        }
        let refused = decode_body::<ManyRequest>(br#"{"operations":[],"ordered":true}"#).unwrap_err();
        assert!(refused.detail.starts_with("ordered: unknown field"), "{}", refused.detail);
    }

    #[test]
    fn a_thousand_operations_are_taken_and_not_one_more() {
        let body = |n: usize| serde_json::to_vec(&json!({"operations": vec![json!({}); n]})).unwrap();
        assert!(decode_body::<BatchRequest>(&body(1000)).is_ok_and(|b| b.is_ordered()));
        assert_eq!(decode_body::<BatchRequest>(&body(1001)).unwrap_err().code, Code::TooLarge);
        assert!(decode_body::<ManyRequest>(&body(1000)).is_ok());
        assert_eq!(decode_body::<ManyRequest>(&body(1001)).unwrap_err().code, Code::TooLarge);
    }
}
