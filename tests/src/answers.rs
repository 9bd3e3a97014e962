//! A store with something of everything in it, and everything that can be asked about it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    process::Ratifyd,
    session::{Session, id},
};

/// A client with transactions in every state, and one that was forgotten.
pub async fn fill(ratifyd: &Ratifyd) -> Session {
    let raw = ratifyd.raw();
    Session::open(&raw, "c", 1).await;
    let c = Session::open(&raw, "c", 2).await;
    for n in 1..=9 {
        let participants = if n <= 5 { vec!["p", "q"] } else { vec![] };
        let body = json!({"participants": participants, "labels": {"n": n.to_string()}, "timeoutMs": 600_000});
        c.begin(n, body).await.ok(201);
    }
    c.register(1, "r").await.ok(201);
    c.prepare(2, json!({"checkpointId": 2, "payload": "dHdv"})).await.ok(200);
    c.prepare(3, json!({"checkpointId": 3, "payload": "dGhyZWU="})).await.ok(200);
    c.prepare(7, json!({"preparedTimeoutMs": 600_000})).await.ok(200);
    c.commit(3, json!({})).await.ok(202);
    c.ack(3, "q", "COMMITTED").await.ok(200);
    c.commit(4, json!({"checkpointId": 4, "payload": "Zm91cg=="})).await.ok(202);
    c.abort(5).await.ok(202);
    c.commit(8, json!({"checkpointId": 8, "payload": "ZWlnaHQ="})).await.ok(200);
    c.abort(9).await.ok(200);
    raw.post("/v1/participants/gone/retire", json!({"reason": "lost"})).await.ok(200);
    let forgotten = Session::open(&raw, "forgotten", 3).await;
    forgotten.begin(1, json!({})).await.ok(201);
    forgotten.abort(1).await.ok(200);
    raw.post("/v1/clients/forgotten/forget", json!({"reason": "moved"})).await.ok(200);
    c
}

/// Everything that can be asked without changing anything.
pub async fn ask(c: &Session) -> BTreeMap<String, Value> {
    let mut paths: Vec<_> = (1..=10)
        .flat_map(|n| [c.path(n), format!("/v1/preserver/c/{}", id(n)), c.path(n).replace("/c/", "/forgotten/")])
        .collect();
    for path in [
        "/v1/clients",
        "/v1/txns",
        "/v1/txns?state=COMMITTED",
        "/v1/txns?state=ABORTED",
        "/v1/preserver/c",
        "/v1/preserver/forgotten",
    ] {
        paths.push(path.to_owned());
    }
    let mut answers = BTreeMap::new();
    for path in paths {
        let reply = c.raw.get(&path).await;
        answers.insert(path, json!([reply.status, without_countdowns(reply.json)]));
    }
    for participant in ["p", "q", "r"] {
        let reply = c.raw.get(&format!("/v1/participants/{participant}/decisions")).await.ok(200);
        answers.insert(participant.to_owned(), reply["decisions"].clone());
    }
    answers
}

/// Times stay; what counts down does not.
pub fn without_countdowns(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_countdowns(item.take())),
        Value::Object(members) => {
            members.retain(|name, _| name != "deadlineInMs" && name != "keptForMs");
            members.values_mut().for_each(|member| *member = without_countdowns(member.take()));
        }
        _ => {}
    }
    value
}
