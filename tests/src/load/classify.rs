//! What an answer says, and whether it may say so at all. Bodies follow from the number of the transaction, so that
//! repeats are equal and every payload can be checked.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    oracle::{Answered, Asked, Outcome, Seen},
    session::id,
};

/// The payload of the n-th transaction, base64.
pub fn payload_of(txn: u64) -> String {
    STANDARD.encode(format!("payload of {txn}"))
}

/// The body of `begin`; every third transaction has a participant, every fourth must be prepared.
pub fn begin_body(client: &str, txn: u64, epoch: u64) -> Value {
    let participants = if txn.is_multiple_of(3) { vec![client] } else { vec![] };
    json!({"epoch": epoch, "timeoutMs": 3_600_000, "requirePrepare": txn.is_multiple_of(4), "participants": participants,
        "labels": {"txn": txn.to_string()}})
}

/// The body of `prepare`, and of `commit`.
pub fn prepare_body(txn: u64, epoch: Option<u64>) -> Value {
    json!({"epoch": epoch, "checkpointId": txn, "payload": payload_of(txn)})
}

/// What this answer to a call says.
pub(crate) fn answered(asked: Asked, txn: u64, status: u16, body: &Value) -> Result<Answered, String> {
    if (200..300).contains(&status) {
        return told(txn, body).map(Answered::Done);
    }
    let code = body["code"].as_str().unwrap_or_default();
    let state_told = || told(txn, &body["txn"]).map(Answered::Refused);
    match code {
        "TXN_NOT_FOUND" => Ok(Answered::Refused(Seen::Absent)),
        "OUTCOME_EXPIRED" | "TXN_ID_TOO_OLD" => Ok(Answered::Refused(Seen::Expired)),
        "OUTCOME_COMMITTED" if asked == Asked::Abort => state_told(),
        "OUTCOME_ABORTED" if matches!(asked, Asked::Prepare | Asked::Commit) => state_told(),
        "INVALID_TXN_STATE" if matches!(asked, Asked::Ack(_)) => state_told(),
        "TXN_NOT_PREPARED" if asked == Asked::Commit && txn.is_multiple_of(4) => state_told(),
        "FENCED" if !matches!(asked, Asked::Look | Asked::Ack(_)) => Ok(Answered::Fenced),
        _ if matches!(status, 429 | 503) => Ok(Answered::Unknown),
        _ => Err(format!("{code} is no answer to this call")),
    }
}

/// The state of a transaction object, if it is the right one and whole.
fn told(txn: u64, body: &Value) -> Result<Seen, String> {
    let state = body["state"].as_str().unwrap_or_default();
    let seen = Seen::from_state(state).ok_or_else(|| format!("{state:?} is no state"))?;
    if body["txnId"] != id(txn) {
        return Err("another transaction was told".to_owned());
    }
    match body["payload"].as_str() {
        Some(payload) if payload != payload_of(txn) => return Err("the payload is another".to_owned()),
        None if matches!(seen, Seen::Prepared | Seen::Ending(Outcome::Committed))
            && !body["payloadOmitted"].is_boolean() =>
        {
            return Err("the payload is lost".to_owned());
        }
        _ => {}
    }
    if seen.outcome().is_some() && !body["endReason"].is_string() {
        return Err("an outcome without a reason".to_owned());
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txn(state: &str, payload: Value) -> Value {
        json!({"txnId": id(3), "state": state, "payload": payload, "endReason": "CLIENT"})
    }

    #[test]
    fn a_lost_or_foreign_payload_is_noticed() {
        let whole = txn("PREPARED", json!(payload_of(3)));
        assert_eq!(answered(Asked::Prepare, 3, 200, &whole), Ok(Answered::Done(Seen::Prepared)));
        assert!(answered(Asked::Prepare, 3, 200, &txn("PREPARED", json!(null))).is_err());
        assert!(answered(Asked::Prepare, 3, 200, &txn("PREPARED", json!(payload_of(4)))).is_err());
        assert!(answered(Asked::Prepare, 4, 200, &whole).is_err());
    }

    #[test]
    fn a_refusal_that_does_not_belong_to_the_call_is_noticed() {
        let with = |code: &str| json!({"code": code, "txn": txn("ABORTED", json!(null))});
        let told = Ok(Answered::Refused(Seen::Ended(Outcome::Aborted)));
        assert_eq!(answered(Asked::Commit, 3, 409, &with("OUTCOME_ABORTED")), told);
        assert!(answered(Asked::Abort, 3, 409, &with("OUTCOME_ABORTED")).is_err());
        assert!(answered(Asked::Begin, 3, 422, &with("TXN_ID_REUSED")).is_err());
        assert!(answered(Asked::Look, 3, 409, &with("FENCED")).is_err());
        assert!(answered(Asked::Look, 3, 500, &json!(null)).is_err());
        assert_eq!(answered(Asked::Look, 3, 503, &with("STORAGE_UNAVAILABLE")), Ok(Answered::Unknown));
    }
}
