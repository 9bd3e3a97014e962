//! What leaves as one request, and the answer to each of its calls.

use std::{collections::VecDeque, time::Duration};

use ratified_protocol::{ClientName, MAX_BATCH_BYTES, MAX_BATCH_OPERATIONS, ParticipantName, TxnId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Given, Waiting};
use crate::{client::exchange::Reply, error::Cause};

const HEAD: &str = r#"{"operations":["#;
const TAIL: &str = "]}";

/// A call as an operation of the call over many clients.
#[derive(Clone, Copy)]
pub(in crate::client) struct Operation<'a> {
    pub(in crate::client) client: &'a ClientName,
    pub(in crate::client) id: TxnId,
    /// As the wire has it.
    pub(in crate::client) op: &'static str,
    pub(in crate::client) participant: Option<&'a ParticipantName>,
}

/// A call, ready to be sent with others.
pub(in crate::client) struct Parcel {
    /// One operation, in JSON.
    text: String,
    timeout: Duration,
}

impl Parcel {
    /// The call with this body; none if it is too large to share a request.
    pub(in crate::client) fn new(operation: Operation<'_>, body: Option<&[u8]>, timeout: Duration) -> Option<Self> {
        let Operation { client, id, op, participant } = operation;
        let mut text = format!(r#"{{"clientName":"{client}","op":"{op}","txnId":"{id}""#);
        if let Some(participant) = participant {
            text.push_str(r#","participant":""#);
            text.push_str(participant.as_str());
            text.push('"');
        }
        // A body is an object: its members follow those above.
        let members =
            body.map_or(Some(""), |body| std::str::from_utf8(body).ok()?.strip_prefix('{')?.strip_suffix('}'))?;
        if !members.is_empty() {
            text.push(',');
            text.push_str(members);
        }
        text.push('}');
        (HEAD.len() + text.len() + TAIL.len() <= MAX_BATCH_BYTES).then_some(Self { text, timeout })
    }
}

/// Calls that leave together.
pub(super) struct Load {
    waiting: Vec<Waiting>,
}

/// What a request came to, for the calls that come after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    Each,
    CallIsUnknown,
}

impl Load {
    /// As much of what waits as one request takes, without what is no longer waited for.
    pub(super) fn of(waiting: &mut VecDeque<Waiting>) -> Option<Self> {
        let mut taken = Vec::new();
        let mut bytes = HEAD.len() + TAIL.len();
        while let Some(next) = waiting.front() {
            if next.answer.is_closed() {
                waiting.pop_front();
                continue;
            }
            bytes += next.parcel.text.len() + 1;
            if taken.len() == MAX_BATCH_OPERATIONS || (bytes > MAX_BATCH_BYTES && !taken.is_empty()) {
                break;
            }
            taken.extend(waiting.pop_front());
        }
        (!taken.is_empty()).then_some(Self { waiting: taken })
    }

    /// The only call of the load, if it has but one.
    pub(super) fn single(mut self) -> Result<Waiting, Self> {
        if self.waiting.len() > 1 {
            return Err(self);
        }
        self.waiting.pop().ok_or(self)
    }

    pub(super) fn calls(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// The longest that any of its calls waits for an answer.
    pub(super) fn timeout(&self) -> Duration {
        self.waiting.iter().map(|call| call.parcel.timeout).max().unwrap_or_default()
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let bytes: usize = self.waiting.iter().map(|call| call.parcel.text.len() + 1).sum();
        let mut body = String::with_capacity(HEAD.len() + bytes + TAIL.len());
        body.push_str(HEAD);
        for (index, call) in self.waiting.iter().enumerate() {
            if index > 0 {
                body.push(',');
            }
            body.push_str(&call.parcel.text);
        }
        body.push_str(TAIL);
        body.into_bytes()
    }

    /// Lets each ask by itself.
    pub(super) fn dismiss(self) {
        for call in self.waiting {
            drop(call.answer.send(Given::Alone(None)));
        }
    }

    /// Gives each call its own answer out of that of the request.
    pub(super) fn answer(self, reply: Result<Reply, Cause>) -> Answered {
        let reply = match reply {
            Ok(reply) => reply,
            Err(cause) => {
                self.give(|| Given::Reply(Err(cause.clone())));
                return Answered::Each;
            }
        };
        match reply.status {
            200 => self.answer_each(&reply),
            // What may pass, and another store than the one that is known, concern every call alike.
            409 | 408 | 425 | 429 | 500.. => self.give(|| Given::Reply(Ok(reply.clone()))),
            // What is refused to many may be allowed to one: each is to hear the truth about itself.
            _ => self.dismiss(),
        }
        if matches!(reply.status, 404 | 405) { Answered::CallIsUnknown } else { Answered::Each }
    }

    fn answer_each(self, reply: &Reply) {
        let results = match serde_json::from_slice::<Results>(&reply.body) {
            Ok(answer) if answer.results.len() == self.waiting.len() => answer.results,
            _ => return self.dismiss(),
        };
        for (call, result) in self.waiting.into_iter().zip(results) {
            drop(call.answer.send(result.given(reply)));
        }
    }

    fn give(self, given: impl Fn() -> Given) {
        for call in self.waiting {
            drop(call.answer.send(given()));
        }
    }
}

#[derive(Deserialize)]
struct Results<'a> {
    #[serde(borrow)]
    results: Vec<OneResult<'a>>,
}

#[derive(Deserialize)]
struct OneResult<'a> {
    status: u16,
    #[serde(borrow)]
    txn: Option<&'a RawValue>,
    #[serde(borrow)]
    problem: Option<&'a RawValue>,
}

impl OneResult<'_> {
    /// The answer of a single call. One whose payload was left out, to keep the whole small, is asked for again.
    fn given(&self, reply: &Reply) -> Given {
        match self.txn.or(self.problem).map(RawValue::get) {
            Some(body) if !body.contains(r#""payloadOmitted":true"#) => Given::Reply(Ok(Reply {
                status: self.status,
                store: reply.store.clone(),
                retry_after: None,
                body: body.as_bytes().to_vec(),
            })),
            _ => Given::Alone(None),
        }
    }
}
