//! What an input asks for, transaction by transaction.

use ratified_core::{Input, Request, TxnCall};
use ratified_protocol::{
    BatchOp, BeginRequest, ClientName, CommitRequest, Epoch, Outcome, ParticipantName, PrepareRequest, TxnId,
};

/// A call about one transaction, single or in a batch.
#[derive(Debug, Clone, Copy)]
pub enum Call<'a> {
    /// `begin`
    Begin(&'a BeginRequest),
    /// `prepare`
    Prepare(&'a PrepareRequest),
    /// `commit`
    Commit(&'a CommitRequest),
    /// `abort`
    Abort(Option<Epoch>),
    /// `keep-alive`
    KeepAlive(Option<Epoch>),
    /// `get`
    Get,
    /// Participant registration.
    Register(&'a ParticipantName, Option<Epoch>),
    /// `ack`
    Ack(&'a ParticipantName, Outcome),
    /// `resolve`
    Resolve(Outcome),
}

impl Call<'_> {
    /// The epoch it was made under; `None` for calls that need none.
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Begin(request) => request.epoch,
            Self::Prepare(request) => request.epoch,
            Self::Commit(request) => request.epoch,
            Self::Abort(epoch) | Self::KeepAlive(epoch) | Self::Register(_, epoch) => *epoch,
            Self::Get | Self::Ack(..) | Self::Resolve(_) => None,
        }
    }
}

/// Every call about a transaction that an input makes.
pub fn calls(input: &Input) -> Vec<(&ClientName, TxnId, Call<'_>)> {
    match input {
        Input::Request { request, .. } => of_request(request),
        Input::Sweep(_) => Vec::new(),
    }
}

/// Every call about a transaction that a request makes.
pub fn of_request(request: &Request) -> Vec<(&ClientName, TxnId, Call<'_>)> {
    match request {
        Request::Txn { client, txn_id, call, .. } => {
            let call = match call {
                TxnCall::Begin(request) => Call::Begin(request),
                TxnCall::Prepare(request) => Call::Prepare(request),
                TxnCall::Commit(request) => Call::Commit(request),
                TxnCall::Abort(request) => Call::Abort(request.epoch),
                TxnCall::KeepAlive(request) => Call::KeepAlive(request.epoch),
                TxnCall::Get => Call::Get,
                TxnCall::Register(participant, request) => Call::Register(participant, request.epoch),
                TxnCall::Ack(participant, request) => Call::Ack(participant, request.outcome),
                TxnCall::Resolve(request) => Call::Resolve(request.outcome.outcome()),
            };
            vec![(client, *txn_id, call)]
        }
        Request::Batch { client, items, .. } => {
            items.iter().flatten().map(|item| (client, item.txn_id, of_item(&item.op))).collect()
        }
        Request::PreserverLookup { client, txn_id } => vec![(client, *txn_id, Call::Get)],
        _ => Vec::new(),
    }
}

fn of_item(op: &BatchOp) -> Call<'_> {
    match op {
        BatchOp::Begin(request) => Call::Begin(request),
        BatchOp::Prepare(request) => Call::Prepare(request),
        BatchOp::Commit(request) => Call::Commit(request),
        BatchOp::Abort(request) => Call::Abort(request.epoch),
        BatchOp::Ack(participant, request) => Call::Ack(participant, request.outcome),
        BatchOp::Get => Call::Get,
    }
}

/// The calls of an input about this transaction.
pub fn about<'a>(input: &'a Input, client: &ClientName, id: TxnId) -> impl Iterator<Item = Call<'a>> {
    calls(input).into_iter().filter(move |(c, i, _)| *c == client && *i == id).map(|(_, _, call)| call)
}
