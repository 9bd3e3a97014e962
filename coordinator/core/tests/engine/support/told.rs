//! Answers as a caller sees them: a status and a JSON body.

use std::fmt;

use ratified_core::{Answer, Effect, Revision, Ticket};
use serde_json::Value;

/// An answer on the wire.
#[derive(Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Told {
    pub(crate) fn of(answer: &Answer) -> Self {
        let (status, body) = match answer {
            Answer::Txn(success, txn) => (success.status(), serde_json::to_value(txn)),
            Answer::Open(open) => (200, serde_json::to_value(open)),
            Answer::Batch(batch) => (200, serde_json::to_value(batch)),
            Answer::Many(batch) => (200, serde_json::to_value(batch)),
            Answer::Decisions(decisions) => (200, serde_json::to_value(decisions)),
            Answer::Participant(participant) => (200, serde_json::to_value(participant)),
            Answer::Preserver(preserver) => (200, serde_json::to_value(preserver)),
            Answer::Preserved(outcome) => (200, serde_json::to_value(outcome)),
            Answer::Clients(list) => (200, serde_json::to_value(list)),
            Answer::Txns(list) => (200, serde_json::to_value(list)),
            Answer::Client(item) => (200, serde_json::to_value(item)),
            Answer::Problem(problem) => (problem.status, serde_json::to_value(problem)),
        };
        Self { status, body: body.unwrap() }
    }

    /// What decides, in one line: `201 OPEN`, `200 COMMITTED CLIENT replayed preserved`,
    /// `409 OUTCOME_ABORTED: ABORTED TIMEOUT preserved`, `404 TXN_NOT_FOUND`.
    pub(crate) fn brief(&self) -> String {
        match self.body.get("code") {
            Some(code) => {
                let txn = self.body.get("txn").map_or_else(String::new, |txn| format!(": {}", brief_txn(txn)));
                format!("{} {}{txn}", self.status, code.as_str().unwrap())
            }
            None => format!("{} {}", self.status, brief_txn(&self.body)),
        }
    }

    /// A member of the body; null when it is absent.
    pub(crate) fn member(&self, name: &str) -> Value {
        self.body.get(name).cloned().unwrap_or(Value::Null)
    }

    /// One member of each item of a list.
    pub(crate) fn each(&self, list: &str, name: &str) -> Vec<String> {
        let items = self.body[list].as_array().unwrap();
        items.iter().map(|item| item[name].as_str().unwrap().to_owned()).collect()
    }

    /// The last digits of the transaction ids in a list.
    pub(crate) fn ids(&self, list: &str) -> Vec<u64> {
        self.each(list, "txnId").iter().map(|id| number(id)).collect()
    }
}

/// The number an id was made of.
pub(crate) fn number(id: &str) -> u64 {
    u64::from_str_radix(id.rsplit('-').next().unwrap(), 16).unwrap()
}

pub(crate) fn brief_txn(txn: &Value) -> String {
    let mut words = vec![txn["state"].as_str().unwrap().to_owned()];
    words.extend(txn.get("endReason").map(|reason| reason.as_str().unwrap().to_owned()));
    for flag in ["replayed", "preserved"] {
        if txn[flag] == Value::Bool(true) {
            words.push(flag.to_owned());
        }
    }
    words.join(" ")
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#}", self.status, self.body)
    }
}

/// The replies among effects.
pub(crate) fn replies(effects: &[Effect]) -> Vec<(Ticket, Revision, &Answer)> {
    let reply = |effect| match effect {
        &Effect::Reply { ticket, after, ref answer } => Some((ticket, after, answer)),
        _ => None,
    };
    effects.iter().filter_map(reply).collect()
}

/// The only reply among effects, and the revision it waits for.
pub(crate) fn reply(effects: &[Effect]) -> (u64, Told) {
    let all = replies(effects);
    assert_eq!(all.len(), 1, "one reply in {effects:?}");
    (all[0].1.0, Told::of(all[0].2))
}
