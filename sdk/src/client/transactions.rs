//! Calls about one transaction.

use std::time::Duration;

use http::Method;
use ratified_protocol::{
    AbortRequest, AckRequest, BatchAnswer, BatchRequest, BeginRequest, ClientName, Code, CommitRequest, Epoch,
    EpochRequest, Outcome, ParticipantName, PrepareRequest, Resolution, ResolveRequest, ShortText, Txn, TxnId,
    TxnState,
};
use serde::Serialize;

use super::{CoordinatorClient, exchange::Question, gather::Operation};
use crate::{
    error::{Cause, ClientError},
    retry::Limit,
};

struct TxnCall<'a> {
    call: &'static str,
    method: Method,
    suffix: String,
    body: Option<Vec<u8>>,
    wait: Option<Duration>,
    limit: Limit,
    is_state: &'a (dyn Fn(TxnState) -> bool + Send + Sync),
    participant: Option<&'a ParticipantName>,
}

impl<'a> TxnCall<'a> {
    /// What the call is among many. One that waits would hold up the others; one that is not among them goes alone.
    fn operation(&self, client: &'a ClientName, id: TxnId) -> Option<Operation<'a>> {
        let is_one = matches!(self.call, "begin" | "prepare" | "commit" | "abort" | "ack" | "get");
        let participant = self.participant;
        (is_one && self.wait.is_none()).then_some(Operation { client, id, op: self.call, participant })
    }
}

impl CoordinatorClient {
    /// `begin`: idempotent by the id, which the caller must have made durable before.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn begin(&self, client: &ClientName, id: TxnId, request: &BeginRequest) -> Result<Txn, ClientError> {
        let call = TxnCall {
            call: "begin",
            method: Method::PUT,
            suffix: String::new(),
            body: Some(encode(request)?),
            wait: None,
            limit: self.within_deadline(),
            is_state: &|_| true,
            participant: None,
        };
        self.ask_txn(client, id, call).await
    }

    /// `prepare`: from here on the staged data survives a crash, and nobody's timeout ends the transaction.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn prepare(&self, client: &ClientName, id: TxnId, request: &PrepareRequest) -> Result<Txn, ClientError> {
        let is_state = |state| matches!(state, TxnState::Prepared | TxnState::Committing | TxnState::Committed);
        let call = self.post("prepare", encode(request)?, self.within_deadline(), &is_state);
        self.ask_txn(client, id, call).await
    }

    /// `commit`: decides, or tells what was decided. Repeated without an end. The answer is COMMITTING or COMMITTED;
    /// with `wait` the coordinator waits that long for the participants.
    ///
    /// # Errors
    /// See [`ClientError`]. OUTCOME_ABORTED is the true outcome, not a failure to reach it.
    pub async fn commit(
        &self,
        client: &ClientName,
        id: TxnId,
        request: &CommitRequest,
        wait: Option<Duration>,
    ) -> Result<Txn, ClientError> {
        let is_state = |state: TxnState| state.outcome() == Some(Outcome::Committed);
        let call = TxnCall { wait, ..self.post("commit", encode(request)?, self.limit, &is_state) };
        self.ask_txn(client, id, call).await
    }

    /// `abort`: decides, or tells what was decided. Repeated without an end. The answer is ABORTING or ABORTED.
    ///
    /// # Errors
    /// See [`ClientError`]. OUTCOME_COMMITTED is the true outcome, not a failure to reach it.
    pub async fn abort(
        &self,
        client: &ClientName,
        id: TxnId,
        request: &AbortRequest,
        wait: Option<Duration>,
    ) -> Result<Txn, ClientError> {
        let is_state = |state: TxnState| state.outcome() == Some(Outcome::Aborted);
        let call = TxnCall { wait, ..self.post("abort", encode(request)?, self.limit, &is_state) };
        self.ask_txn(client, id, call).await
    }

    /// `keep-alive`: gives an OPEN transaction its whole timeout again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn keep_alive(&self, client: &ClientName, id: TxnId, epoch: Epoch) -> Result<Txn, ClientError> {
        let is_state = |state: TxnState| state.outcome() != Some(Outcome::Aborted);
        let body = encode(&EpochRequest { epoch: Some(epoch) })?;
        let call = self.post("keep-alive", body, self.within_deadline(), &is_state);
        self.ask_txn(client, id, call).await
    }

    /// Where a transaction stands; with `wait` the coordinator waits that long for a terminal state.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get(&self, client: &ClientName, id: TxnId, wait: Option<Duration>) -> Result<Txn, ClientError> {
        let call = TxnCall {
            call: "get",
            method: Method::GET,
            suffix: String::new(),
            body: None,
            wait,
            limit: self.within_deadline(),
            is_state: &|_| true,
            participant: None,
        };
        self.ask_txn(client, id, call).await
    }

    /// Makes a resource a participant of an OPEN transaction: it must acknowledge the outcome.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn register(
        &self,
        client: &ClientName,
        id: TxnId,
        participant: &ParticipantName,
        epoch: Epoch,
    ) -> Result<Txn, ClientError> {
        let call = TxnCall {
            call: "register",
            method: Method::PUT,
            suffix: format!("/participants/{participant}"),
            body: Some(encode(&EpochRequest { epoch: Some(epoch) })?),
            wait: None,
            limit: self.within_deadline(),
            is_state: &|_| true,
            participant: None,
        };
        self.ask_txn(client, id, call).await
    }

    /// Tells the coordinator that a participant has applied the outcome. Repeated without an end.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ack(
        &self,
        client: &ClientName,
        id: TxnId,
        participant: &ParticipantName,
        outcome: Outcome,
    ) -> Result<Txn, ClientError> {
        let is_state = move |state: TxnState| state.outcome() == Some(outcome);
        let suffix = format!("/participants/{participant}/ack");
        let participant = Some(participant);
        let call = TxnCall {
            suffix,
            participant,
            ..self.post("ack", encode(&AckRequest { outcome })?, self.limit, &is_state)
        };
        self.ask_txn(client, id, call).await
    }

    /// `resolve`: an operator's decision about a transaction whose job is gone. Repeated within the deadline.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn resolve(
        &self,
        client: &ClientName,
        id: TxnId,
        outcome: Resolution,
        reason: ShortText,
        actor: Option<ShortText>,
    ) -> Result<Txn, ClientError> {
        let is_state = move |state: TxnState| state.outcome() == Some(outcome.outcome());
        let body = encode(&ResolveRequest { outcome, reason, actor })?;
        let call = self.post("resolve", body, self.within_deadline(), &is_state);
        self.ask_txn(client, id, call).await
    }

    /// Many operations of one client in one durable write. Each item succeeds or fails alone; the caller must look at
    /// every result. Repeated within the deadline.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn batch(&self, client: &ClientName, request: &BatchRequest) -> Result<BatchAnswer, ClientError> {
        let count = request.operations.len();
        let is_answer = |answer: &BatchAnswer| {
            let all = answer.results.len() == count || (answer.stopped_at.is_some() && answer.results.len() < count);
            let is_ours = |txn: &Txn| txn.client_name == *client;
            all && answer.results.iter().all(|r| match (&r.txn, &r.problem) {
                (Some(txn), None) => (200..300).contains(&r.status) && is_ours(txn),
                (None, Some(problem)) => problem.code.known().map_or(problem.status, Code::status) == r.status,
                _ => false,
            })
        };
        let question = Question {
            call: "batch",
            method: Method::POST,
            path: format!("/v1/clients/{client}/batch"),
            query: Vec::new(),
            body: Some(encode(request)?),
            wait: Duration::ZERO,
            limit: self.within_deadline(),
            must_end: false,
            operation: None,
            is_answer: &is_answer,
            is_subject: &|txn| txn.client_name == *client,
        };
        self.ask(question).await
    }

    fn post<'a>(
        &self,
        call: &'static str,
        body: Vec<u8>,
        limit: Limit,
        is_state: &'a (dyn Fn(TxnState) -> bool + Send + Sync),
    ) -> TxnCall<'a> {
        TxnCall {
            call,
            method: Method::POST,
            suffix: format!("/{call}"),
            body: Some(body),
            wait: None,
            limit,
            is_state,
            participant: None,
        }
    }

    async fn ask_txn(&self, client: &ClientName, id: TxnId, call: TxnCall<'_>) -> Result<Txn, ClientError> {
        let is_subject = |txn: &Txn| txn.client_name == *client && txn.txn_id == id;
        let operation = call.operation(client, id);
        let question = Question {
            call: call.call,
            method: call.method,
            path: format!("/v1/clients/{client}/txns/{id}{}", call.suffix),
            query: wait_query(call.wait),
            body: call.body,
            wait: call.wait.unwrap_or_default(),
            limit: call.limit,
            must_end: matches!(call.call, "commit" | "abort" | "ack"),
            operation,
            // A state of a later version is judged by the status that came with it.
            is_answer: &|txn: &Txn| is_subject(txn) && txn.state.known().is_none_or(call.is_state),
            is_subject: &is_subject,
        };
        self.ask(question).await
    }
}

pub(super) fn wait_query(wait: Option<Duration>) -> Vec<(&'static str, String)> {
    wait.map(|wait| ("waitMs", wait.as_millis().to_string())).into_iter().collect()
}

pub(super) fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(body).map_err(|e| ClientError::Setup(Cause::new(e)))
}
