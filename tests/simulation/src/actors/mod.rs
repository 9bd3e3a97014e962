//! Who talks to the coordinator: jobs under the SDK's rules, participants, operators, and strangers that keep to none.

pub mod chaos;
pub mod job;
pub mod opening;
pub mod operator;
pub mod participant;
pub mod self_job;
pub mod stranger;
pub mod worker;

use std::rc::Rc;

use ratified_core::{Answer, Request, TxnCall};
use ratified_protocol::{
    AckRequest, BeginRequest, ClientName, Code, CommitRequest, Epoch, EpochRequest, Incarnation, Outcome,
    ParticipantName, Payload, PrepareRequest, Problem, TxnId,
};
use uuid::Uuid;

use crate::world::World;

/// How long one attempt of a call waits for its answer.
const ATTEMPT_MS: u64 = 90;

/// Why a call came to nothing.
#[derive(Debug, Clone)]
pub enum Refused {
    /// A definite answer.
    Problem(Box<Problem>),
    /// No answer in time; what was asked may have happened.
    Unknown,
}

impl Refused {
    /// The code of a definite answer.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Problem(problem) => problem.code.known(),
            Self::Unknown => None,
        }
    }
}

impl World {
    /// One attempt of one call. `None`: no answer came, it may have happened.
    pub async fn ask(self: &Rc<Self>, request: &Request) -> Option<Answer> {
        self.ask_for(request, ATTEMPT_MS).await
    }

    /// As [`World::ask`], with another patience.
    pub async fn ask_for(self: &Rc<Self>, request: &Request, patience_ms: u64) -> Option<Answer> {
        let token = self.expect_reply();
        let known = self.greatest_load.get();
        self.send(token, request);
        let deadline = self.now() + patience_ms;
        loop {
            if let Some(reply) = self.take_reply(token) {
                if reply.loads > 0 && reply.loads < known {
                    self.fail(|| format!("the store's loads went back from {known} to {}", reply.loads));
                }
                self.greatest_load.set(known.max(reply.loads).max(self.greatest_load.get()));
                return Some(reply.answer);
            }
            if self.now() >= deadline {
                self.forget_reply(token);
                return None;
            }
            self.park(deadline).await;
        }
    }

    /// Asks until there is a definite answer, at most for so long.
    ///
    /// # Errors
    /// A definite refusal, or none in time.
    pub async fn insist(self: &Rc<Self>, request: &Request, limit_ms: Option<u64>) -> Result<Answer, Refused> {
        let until = limit_ms.map(|limit| self.now() + limit);
        loop {
            match self.ask(request).await {
                Some(Answer::Problem(problem)) if !problem.retryable => return Err(Refused::Problem(problem)),
                Some(Answer::Problem(_)) | None => {}
                Some(answer) => return Ok(answer),
            }
            if until.is_some_and(|until| self.now() >= until) {
                return Err(Refused::Unknown);
            }
            let pause = self.draw(|rng| rng.between(1, 20));
            self.sleep(pause).await;
        }
    }

    /// An incarnation never used before in this run.
    pub fn incarnation(&self) -> Incarnation {
        let number = self.kernel.borrow_mut().unique();
        Incarnation::new(Uuid::from_u128(u128::from(number) << 64 | 0x8000_0000_0000_0000))
    }

    /// An id above all of these, never drawn before in this run.
    pub fn draw_id(&self, above: impl IntoIterator<Item = Option<TxnId>>) -> TxnId {
        let unique = self.kernel.borrow_mut().unique() & 0xf_ffff;
        let floor = above.into_iter().flatten().map(number_of).max().unwrap_or_default();
        id_of(((floor >> 20) + 1) << 20 | unique)
    }
}

/// The id with this number; ids are ordered as their numbers.
///
/// # Panics
/// The number needs more than 60 bits.
pub fn id_of(number: u64) -> TxnId {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&number.to_be_bytes()[..6]);
    bytes[6] = 0x70;
    bytes[8] = 0x80;
    bytes[14..].copy_from_slice(&number.to_be_bytes()[6..]);
    TxnId::from_bytes(bytes).unwrap()
}

/// See [`id_of`].
pub fn number_of(id: TxnId) -> u64 {
    let bytes = id.as_bytes();
    let mut number = [0; 8];
    number[..6].copy_from_slice(&bytes[..6]);
    number[6..].copy_from_slice(&bytes[14..]);
    u64::from_be_bytes(number)
}

/// A client name.
///
/// # Panics
/// The text is none.
pub fn client(text: &str) -> ClientName {
    text.parse().unwrap()
}

/// A participant name.
///
/// # Panics
/// The text is none.
pub fn participant(text: &str) -> ParticipantName {
    text.parse().unwrap()
}

/// A call about one transaction.
pub fn call(client: &ClientName, txn_id: TxnId, call: TxnCall) -> Request {
    Request::Txn { client: client.clone(), txn_id, call, wait_ms: 0 }
}

/// `begin` by this epoch, with these participants.
///
/// # Panics
/// The bounds of the protocol are broken.
pub fn begin(epoch: Epoch, timeout_ms: u64, require_prepare: bool, participants: Vec<ParticipantName>) -> TxnCall {
    TxnCall::Begin(BeginRequest {
        epoch: Some(epoch),
        timeout_ms: timeout_ms.try_into().unwrap(),
        require_prepare,
        participants: participants.try_into().unwrap(),
        labels: Default::default(),
    })
}

/// `prepare` for a checkpoint.
///
/// # Panics
/// The bounds of the protocol are broken.
pub fn prepare(epoch: Epoch, checkpoint: u64, payload: Payload, timeout_ms: Option<u64>) -> TxnCall {
    TxnCall::Prepare(PrepareRequest {
        epoch: Some(epoch),
        checkpoint_id: Some(ratified_protocol::CheckpointId::new(checkpoint)),
        payload: Some(payload),
        prepared_timeout_ms: timeout_ms.map(|ms| ms.try_into().unwrap()),
    })
}

/// `commit` of what is prepared.
pub fn commit(epoch: Option<Epoch>) -> TxnCall {
    TxnCall::Commit(CommitRequest { epoch, ..CommitRequest::default() })
}

/// `abort` by this epoch.
pub fn abort(epoch: Epoch) -> TxnCall {
    TxnCall::Abort(EpochRequest { epoch: Some(epoch) })
}

/// `ack` of an outcome, by the client's own sink.
pub fn ack_own(client: &ClientName, outcome: Outcome) -> TxnCall {
    TxnCall::Ack(client.into(), AckRequest { outcome })
}

/// The handle of a transaction: enough for another process to finish it.
pub fn handle(id: TxnId) -> Payload {
    Payload::new(id.as_bytes().to_vec())
}
