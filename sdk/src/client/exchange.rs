//! One question to the coordinator: sent, read within bounds, and judged. What is not surely an answer is asked again.

use std::time::Duration;

use http::{
    HeaderMap, Method,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use ratified_protocol::{Code, KNOWN_HEADER, LOAD_HEADER, LoadNonce, Problem, STORE_HEADER, StoreId, Txn};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::{
    CoordinatorClient,
    gather::{Operation, Parcel},
    store::MetStore,
};
use crate::{
    error::{Cause, ClientError},
    retry::{Ended, Limit, Retrier},
    transport::HttpTransport,
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
    /// Whether what the call asks for must be carried out in the end: it is not given up at the first refusal in front.
    pub(super) must_end: bool,
    /// What it is as one operation of many, if it may be asked together with others.
    pub(super) operation: Option<Operation<'a>>,
    /// Whether a body that parses really is about what was asked.
    pub(super) is_answer: &'a (dyn Fn(&T) -> bool + Send + Sync),
    /// Whether a transaction named in a refusal is the one that was asked for.
    pub(super) is_subject: &'a (dyn Fn(&Txn) -> bool + Send + Sync),
}

/// What one attempt came to.
enum Verdict<T> {
    /// The coordinator's answer.
    Answered(Result<T, ClientError>),
    /// No answer: it must be asked again, not before `after` if given.
    Unanswered { after: Option<Duration>, cause: Cause },
    /// A definite refusal, but not a word about the transaction: it may be gone as soon as somebody mends what is in front.
    InFront(ClientError),
}

impl CoordinatorClient {
    /// Asks until there is an answer or the question's limit is reached.
    pub(super) async fn ask<T: DeserializeOwned>(&self, question: Question<'_, T>) -> Result<T, ClientError> {
        let url = self.url(&question.path, &question.query);
        let mut retrier = Retrier::new(question.call, self.options.delays, question.limit);
        let mut refused_since = None;
        loop {
            let (after, cause) = match self.attempt(&question, url.clone()).await {
                Verdict::Answered(answer) => return answer,
                Verdict::Unanswered { after, cause } => {
                    refused_since = None;
                    (after, cause)
                }
                Verdict::InFront(error) => {
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    if !question.must_end || since.elapsed() >= self.options.call_deadline {
                        return Err(error);
                    }
                    (None, Cause::new(error))
                }
            };
            retrier.pause(after, cause).await.map_err(|ended| gave_up(question.call, ended))?;
        }
    }

    async fn attempt<T: DeserializeOwned>(&self, question: &Question<'_, T>, url: reqwest::Url) -> Verdict<T> {
        let sent = match self.store.send() {
            Ok(sent) => sent,
            Err(stopped) => return Verdict::Answered(Err(stopped)),
        };
        let timeout = question.limit.attempt_timeout(self.options.request_timeout + question.wait);
        let known = sent.header().map(ToString::to_string);
        let alone = fetch(&*self.transport, build(question, url, known.as_deref()));
        let fetched = async {
            match (&self.gathering, question.operation) {
                (Some(gathering), Some(operation)) => {
                    let parcel = || Parcel::new(operation, question.body.as_deref(), timeout);
                    gathering.ask(known.clone(), parcel, alone).await
                }
                _ => alone.await,
            }
        };
        let reply = match tokio::time::timeout(timeout, fetched).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(cause)) => return Verdict::Unanswered { after: None, cause },
            Err(_) => return Verdict::Unanswered { after: None, cause: Cause::new("no answer in time") },
        };
        let verdict = judge(question, &reply);
        let Verdict::Answered(answer) = verdict else { return verdict };
        // Only what would be acted on has to name its store: a proxy's 503 does not.
        let Some(met) = &reply.store else { return unsigned(question, &reply, answer) };
        if matches!(&answer, Err(error) if error.code() == Some(Code::StoreChanged)) {
            return Verdict::Answered(Err(self.store.refused(&sent, met)));
        }
        let accepted = if answer.is_ok() { accepted_from(question.call, &reply.body) } else { Vec::new() };
        match self.store.observe(&sent, met, &accepted) {
            Ok(()) => Verdict::Answered(answer),
            Err(stopped) => Verdict::Answered(Err(stopped)),
        }
    }
}

/// Sends a request and reads its answer, within bounds.
pub(super) async fn fetch(transport: &dyn HttpTransport, request: reqwest::Request) -> Result<Reply, Cause> {
    let mut response = transport.execute(request).await?;
    let status = response.status().as_u16();
    let nonce = parse_header::<LoadNonce>(response.headers(), LOAD_HEADER);
    let store = parse_header::<StoreId>(response.headers(), STORE_HEADER);
    // A nonce belongs to one load.
    let store = store.map(|id| MetStore { nonce: nonce.filter(|_| id.parts().count() == 1), id });
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

fn gave_up(call: &'static str, ended: Ended<ClientError>) -> ClientError {
    match ended {
        Ended::Failed(error) => error,
        Ended::GaveUp { attempts, cause } => ClientError::Unanswered { call, attempts, cause },
    }
}

/// An answer, before anything is made of it.
#[derive(Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) store: Option<MetStore>,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Vec<u8>,
}

fn build<T>(question: &Question<'_, T>, url: reqwest::Url, known: Option<&str>) -> reqwest::Request {
    request(question.method.clone(), url, known, question.body.clone())
}

/// A request with this body that says what is known of the store.
pub(super) fn post(url: reqwest::Url, known: Option<&str>, body: Vec<u8>) -> reqwest::Request {
    request(Method::POST, url, known, Some(body))
}

fn request(method: Method, url: reqwest::Url, known: Option<&str>, body: Option<Vec<u8>>) -> reqwest::Request {
    let mut request = reqwest::Request::new(method, url);
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(known) = known.and_then(|known| HeaderValue::try_from(known).ok()) {
        headers.insert(KNOWN_HEADER, known);
    }
    if let Some(body) = body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.body_mut() = Some(body.into());
    }
    request
}

fn parse_header<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<T> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

fn judge<T: DeserializeOwned>(question: &Question<'_, T>, reply: &Reply) -> Verdict<T> {
    if (200..300).contains(&reply.status) {
        return match serde_json::from_slice::<T>(&reply.body) {
            Ok(answer) if (question.is_answer)(&answer) => Verdict::Answered(Ok(answer)),
            Ok(_) => not_an_answer(reply, "its body is about something else"),
            Err(error) => not_an_answer(reply, &error.to_string()),
        };
    }
    let problem = serde_json::from_slice::<Problem>(&reply.body);
    // The class of the status decides what kind of answer it is, whoever gave it.
    if passes(reply.status) {
        let cause = problem.map_or_else(|_| Cause::new(format!("status {}", reply.status)), Cause::new);
        return Verdict::Unanswered { after: reply.retry_after, cause };
    }
    let problem = match problem {
        Ok(problem) if problem.code.known().map_or(problem.status, Code::status) == reply.status => problem,
        _ => return Verdict::InFront(not_the_coordinator(question.call, reply)),
    };
    if problem.txn.as_ref().is_some_and(|txn| !(question.is_subject)(txn)) {
        return not_an_answer(reply, "its problem is about something else");
    }
    let refused = ClientError::Refused(Box::new(problem));
    if matches!(reply.status, 401 | 403) { Verdict::InFront(refused) } else { Verdict::Answered(Err(refused)) }
}

/// Statuses after which the same request may succeed: 5xx, and those by which a proxy says that it came at a bad time.
const fn passes(status: u16) -> bool {
    status >= 500 || matches!(status, 408 | 425 | 429)
}

/// An answer that does not name its store. A coordinator that is loading may refuse so what no store has to be asked
/// about; all else is not the coordinator's, or not to be acted on.
fn unsigned<T>(question: &Question<'_, T>, reply: &Reply, answer: Result<T, ClientError>) -> Verdict<T> {
    match answer {
        Ok(_) => not_an_answer(reply, "it does not name its store"),
        Err(error) => match error.code() {
            Some(
                Code::InvalidArgument
                | Code::RouteNotFound
                | Code::MethodNotAllowed
                | Code::UnsupportedMediaType
                | Code::TooLarge,
            ) => Verdict::InFront(error),
            _ => Verdict::InFront(not_the_coordinator(question.call, reply)),
        },
    }
}

fn not_an_answer<T>(reply: &Reply, why: &str) -> Verdict<T> {
    let cause = Cause::new(format!("status {} is not an answer: {why}", reply.status));
    Verdict::Unanswered { after: reply.retry_after, cause }
}

/// Most bytes of a stranger's body that an error shows.
const SHOWN_BYTES: usize = 100;

fn not_the_coordinator(call: &'static str, reply: &Reply) -> ClientError {
    let begins = reply.body.get(..SHOWN_BYTES).unwrap_or(&reply.body).escape_ascii().to_string();
    ClientError::NotTheCoordinator { call, status: reply.status, begins }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Accepted {
    #[serde(default)]
    accepted_from: Vec<StoreId>,
}

/// The stores that an answer to `open` says this one may be taken for.
fn accepted_from(call: &str, body: &[u8]) -> Vec<StoreId> {
    if call != "open" {
        return Vec::new();
    }
    serde_json::from_slice::<Accepted>(body).map(|accepted| accepted.accepted_from).unwrap_or_default()
}
