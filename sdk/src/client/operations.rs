//! Calls about clients, participants and the coordinator itself.

use std::time::Duration;

use http::Method;
use ratified_protocol::{
    ClientItem, ClientName, DecisionsAnswer, ForgetRequest, OpenAnswer, OpenRequest, ParticipantAnswer,
    ParticipantName, ReinstateRequest, RetireRequest, ShortText, VersionAnswer,
};
use serde::de::DeserializeOwned;

use super::{
    CoordinatorClient,
    exchange::Question,
    transactions::{encode, wait_query},
};
use crate::error::ClientError;

impl CoordinatorClient {
    /// `open`: raises the client's epoch and tells what is unfinished. To repeat one `open` the caller must give the same
    /// incarnation; every other `open` needs a new one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn open(&self, client: &ClientName, request: &OpenRequest) -> Result<OpenAnswer, ClientError> {
        let is_answer = |answer: &OpenAnswer| answer.unfinished.iter().all(|txn| txn.client_name == *client);
        self.post_plain("open", format!("/v1/clients/{client}/open"), encode(request)?, &is_answer).await
    }

    /// `forget`: drops what is kept about a client that will never come back.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn forget(&self, client: &ClientName, reason: ShortText) -> Result<ClientItem, ClientError> {
        let is_answer = |item: &ClientItem| item.client_name == *client;
        let body = encode(&ForgetRequest { reason })?;
        self.post_plain("forget", format!("/v1/clients/{client}/forget"), body, &is_answer).await
    }

    /// The outcomes a participant has to apply, oldest first. With `wait` and the last answer's cursor as `after` the
    /// coordinator waits for something newer; after a failed apply the caller must ask without `after`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn decisions(
        &self,
        participant: &ParticipantName,
        wait: Option<Duration>,
        after: Option<&str>,
    ) -> Result<DecisionsAnswer, ClientError> {
        let mut query = wait_query(wait);
        query.extend(after.map(|cursor| ("after", cursor.to_owned())));
        let path = format!("/v1/participants/{participant}/decisions");
        self.fetch_plain("decisions", path, query, wait.unwrap_or_default(), &|_| true).await
    }

    /// `retire`: declares a vanished participant gone, so that nothing waits for it any longer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn retire(
        &self,
        participant: &ParticipantName,
        reason: ShortText,
    ) -> Result<ParticipantAnswer, ClientError> {
        let is_answer = |answer: &ParticipantAnswer| answer.name == *participant && answer.retired;
        let body = encode(&RetireRequest { reason })?;
        self.post_plain("retire", format!("/v1/participants/{participant}/retire"), body, &is_answer).await
    }

    /// `reinstate`: takes a retired participant back.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reinstate(
        &self,
        participant: &ParticipantName,
        reason: Option<ShortText>,
    ) -> Result<ParticipantAnswer, ClientError> {
        let is_answer = |answer: &ParticipantAnswer| answer.name == *participant && !answer.retired;
        let body = encode(&ReinstateRequest { reason })?;
        self.post_plain("reinstate", format!("/v1/participants/{participant}/reinstate"), body, &is_answer).await
    }

    /// What answers, and what it can do.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn version(&self) -> Result<VersionAnswer, ClientError> {
        self.fetch_plain("version", "/v1".to_owned(), Vec::new(), Duration::ZERO, &|_| true).await
    }

    async fn post_plain<T: DeserializeOwned>(
        &self,
        call: &'static str,
        path: String,
        body: Vec<u8>,
        is_answer: &(dyn Fn(&T) -> bool + Send + Sync),
    ) -> Result<T, ClientError> {
        let question = Question {
            call,
            method: Method::POST,
            path,
            query: Vec::new(),
            body: Some(body),
            wait: Duration::ZERO,
            limit: self.within_deadline(),
            must_end: false,
            operation: None,
            is_answer,
            is_subject: &|_| true,
        };
        self.ask(question).await
    }

    pub(super) async fn fetch_plain<T: DeserializeOwned>(
        &self,
        call: &'static str,
        path: String,
        query: Vec<(&'static str, String)>,
        wait: Duration,
        is_answer: &(dyn Fn(&T) -> bool + Send + Sync),
    ) -> Result<T, ClientError> {
        let question = Question {
            call,
            method: Method::GET,
            path,
            query,
            body: None,
            wait,
            limit: self.within_deadline(),
            must_end: false,
            operation: None,
            is_answer,
            is_subject: &|_| true,
        };
        self.ask(question).await
    }
}
