//! One question to the coordinator: sent, read within bounds, and judged. What is not surely an answer is asked again.

use std::time::Duration;

use http::{
    HeaderMap, Method,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use ratified_protocol::{Problem, STORE_HEADER, StoreId, Txn};
use serde::de::DeserializeOwned;

use super::CoordinatorClient;
use crate::{
    error::{Cause, ClientError},
    retry::{Attempt, Ended, Limit, until_settled},
};

/// Largest answer that is read, in bytes. The longest legitimate one is a listing of preserved outcomes.
pub(super) const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// A question, and how to tell its answer from anything else.
pub(super) struct Question<'a, T> {
    pub(super) call: &'static str,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) body: Option<Vec<u8>>,
    /// How long the coordinator was asked to wait before it answers.
    pub(super) wait: Duration,
    pub(super) limit: Limit,
    /// Whether a body that parses really is about what was asked.
    pub(super) is_answer: &'a (dyn Fn(&T) -> bool + Send + Sync),
    /// Whether a transaction named in a refusal is the one that was asked for.
    pub(super) is_subject: &'a (dyn Fn(&Txn) -> bool + Send + Sync),
}

impl CoordinatorClient {
    /// Asks until there is an answer or the question's limit is reached.
    pub(super) async fn ask<T: DeserializeOwned>(&self, question: Question<'_, T>) -> Result<T, ClientError> {
        let url = self.url(&question.path, &question.query)?;
        let question = &question;
        let attempt = || async {
            let request = build(question, url.clone());
            self.attempt(question, request).await
        };
        let ended = until_settled(question.call, self.options.delays, question.limit, attempt).await;
        ended.map_err(|ended| match ended {
            Ended::Failed(error) => error,
            Ended::GaveUp { attempts, cause } => ClientError::Unanswered { call: question.call, attempts, cause },
        })
    }

    async fn attempt<T: DeserializeOwned>(
        &self,
        question: &Question<'_, T>,
        request: reqwest::Request,
    ) -> Attempt<T, ClientError> {
        if let Err(stopped) = self.store.check() {
            return Attempt::Settled(Err(stopped));
        }
        let known_at_send = self.store.known();
        let timeout = question.limit.attempt_timeout(self.options.request_timeout + question.wait);
        let reply = match tokio::time::timeout(timeout, self.fetch(request)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(cause)) => return Attempt::Again { after: None, cause },
            Err(_) => return Attempt::Again { after: None, cause: Cause::new("no answer in time") },
        };
        let verdict = judge(question, &reply);
        if matches!(verdict, Attempt::Again { .. }) {
            return verdict;
        }
        // Only what would be acted on has to name its store: a proxy's 503 does not.
        let Some(met) = reply.store else {
            return Attempt::Again { after: None, cause: Cause::new("an answer that does not name its store") };
        };
        match self.store.observe(known_at_send, met) {
            Ok(()) => verdict,
            Err(stopped) => Attempt::Settled(Err(stopped)),
        }
    }

    async fn fetch(&self, request: reqwest::Request) -> Result<Reply, Cause> {
        let mut response = self.transport.execute(request).await?;
        let status = response.status().as_u16();
        let store = parse_header::<StoreId>(response.headers(), STORE_HEADER);
        let retry_after = parse_header::<u64>(response.headers(), RETRY_AFTER.as_str()).map(Duration::from_secs);
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(Cause::new)? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(Cause::new(format!("an answer of more than {MAX_ANSWER_BYTES} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status, store, retry_after, body })
    }
}

struct Reply {
    status: u16,
    store: Option<StoreId>,
    retry_after: Option<Duration>,
    body: Vec<u8>,
}

fn build<T>(question: &Question<'_, T>, url: reqwest::Url) -> reqwest::Request {
    let mut request = reqwest::Request::new(question.method.clone(), url);
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(body) = &question.body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.body_mut() = Some(body.clone().into());
    }
    request
}

fn parse_header<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<T> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

fn judge<T: DeserializeOwned>(question: &Question<'_, T>, reply: &Reply) -> Attempt<T, ClientError> {
    if (200..300).contains(&reply.status) {
        return match serde_json::from_slice::<T>(&reply.body) {
            Ok(answer) if (question.is_answer)(&answer) => Attempt::Settled(Ok(answer)),
            Ok(_) => not_an_answer(reply, "its body is about something else"),
            Err(error) => not_an_answer(reply, &error.to_string()),
        };
    }
    let problem = match serde_json::from_slice::<Problem>(&reply.body) {
        Ok(problem) if problem.code.status() == reply.status => problem,
        Ok(_) => return not_an_answer(reply, "its code belongs to another status"),
        Err(error) => return not_an_answer(reply, &error.to_string()),
    };
    if problem.code.is_retryable() {
        return Attempt::Again { after: reply.retry_after, cause: Cause::new(problem) };
    }
    if problem.txn.as_ref().is_some_and(|txn| !(question.is_subject)(txn)) {
        return not_an_answer(reply, "its problem is about something else");
    }
    Attempt::Settled(Err(ClientError::Refused(Box::new(problem))))
}

fn not_an_answer<T>(reply: &Reply, why: &str) -> Attempt<T, ClientError> {
    let cause = Cause::new(format!("status {} is not an answer: {why}", reply.status));
    Attempt::Again { after: reply.retry_after, cause }
}
