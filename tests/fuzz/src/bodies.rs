//! Bodies of requests, and the items of a batch.

use std::fmt::Debug;

use ratified_protocol::{
    AckRequest, BatchItem, BatchRequest, BeginRequest, CommitRequest, EmptyRequest, EpochRequest, ForgetRequest,
    OpenRequest, PrepareRequest, ReinstateRequest, RequestBody, ResolveRequest, RetireRequest, decode_body,
};
use serde::Serialize;
use serde_json::Value;

/// The same bytes as the body of every call.
pub fn bodies(data: &[u8]) {
    body::<OpenRequest>(data);
    body::<BeginRequest>(data);
    body::<EpochRequest>(data);
    body::<PrepareRequest>(data);
    body::<CommitRequest>(data);
    body::<AckRequest>(data);
    body::<ResolveRequest>(data);
    body::<ForgetRequest>(data);
    body::<RetireRequest>(data);
    body::<ReinstateRequest>(data);
    body::<EmptyRequest>(data);
    batch(data);
}

/// The items of a batch are kept as they came and read one by one: only what an item means can be compared. (A number
/// that no item takes, 1e20 for one, may even change when it is written as it came.)
fn batch(data: &[u8]) {
    let Ok(taken) = decode_body::<BatchRequest>(data) else { return };
    refuses_more::<BatchRequest>(data);
    taken.operations.into_iter().for_each(item);
}

fn body<T: RequestBody + Serialize + PartialEq + Debug>(data: &[u8]) {
    let Ok(taken) = decode_body::<T>(data) else { return };
    let again = serde_json::to_vec(&taken).expect("what was read can be written");
    assert_eq!(decode_body::<T>(&again).expect("what was written is read"), taken);
    refuses_more::<T>(data);
}

fn refuses_more<T: RequestBody>(data: &[u8]) {
    if let Ok(Value::Object(mut members)) = serde_json::from_slice(data) {
        members.insert("no such member".to_owned(), Value::Null);
        let more = serde_json::to_vec(&members).expect("JSON");
        assert!(decode_body::<T>(&more).is_err(), "an unknown member is taken");
    } else {
        assert!(data.is_empty(), "something that is no object is taken");
    }
}

fn item(value: Value) {
    let Ok(taken) = BatchItem::parse(value.clone()) else { return };
    let again = BatchRequest::new(std::slice::from_ref(&taken), true).operations.remove(0);
    assert_eq!(BatchItem::parse(again).expect("what was written is read"), taken);
    let Value::Object(mut members) = value else { panic!("something that is no object is taken") };
    members.insert("no such member".to_owned(), Value::Null);
    assert!(BatchItem::parse(Value::Object(members)).is_err(), "an unknown member is taken");
}

/// One of each.
pub fn body_seeds() -> Vec<Vec<u8>> {
    let id = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f";
    let texts = [
        r#"{"incarnation":"6ba7b810-9dad-41d1-80b4-00c04fd430c8","owner":"host:1","create":true}"#.to_owned(),
        r#"{"epoch":8,"timeoutMs":60000,"requirePrepare":true,"participants":["a.0","b"],"labels":{"job":"x"}}"#
            .to_owned(),
        r#"{"epoch":8,"checkpointId":42,"payload":"aGFuZGxl","preparedTimeoutMs":5}"#.to_owned(),
        r#"{"epoch":8,"checkpointId":42,"payload":"aGFuZGxlIQ=="}"#.to_owned(),
        r#"{"epoch":8}"#.to_owned(),
        r#"{"outcome":"COMMITTED"}"#.to_owned(),
        r#"{"outcome":"ABORT","reason":"why","actor":"who"}"#.to_owned(),
        r#"{"reason":"why"}"#.to_owned(),
        "{}".to_owned(),
        String::new(),
        format!(
            r#"{{"operations":[{{"op":"begin","txnId":"{id}","epoch":1,"participants":["p"]}},{{"op":"prepare","txnId":"{id}","epoch":1,"payload":"aGk="}},{{"op":"ack","txnId":"{id}","participant":"p","outcome":"COMMITTED"}},{{"op":"get","txnId":"{id}"}}],"ordered":false}}"#
        ),
        format!(
            r#"{{"operations":[{{"op":"commit","txnId":"{id}","checkpointId":7}},{{"op":"abort","txnId":"{id}","epoch":2}}]}}"#
        ),
    ];
    texts.into_iter().map(String::into_bytes).collect()
}
