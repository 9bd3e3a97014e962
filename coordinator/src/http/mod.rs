//! The protocol over HTTP. Handlers read, hand over to the writer and wait; they decide nothing.
//!
//! Refusals come in this order: path and method; origin and host; names in path, query and headers; body size; media
//! type; JSON and fields; loading; another store than the known one; then the engine's.

mod batch;
mod body;
mod clients;
mod connections;
mod conversation;
mod descriptors;
mod frontend;
mod known;
mod operations;
mod origin;
mod participants;
mod peers;
mod preserver;
mod problem;
mod routes;
mod target;
mod transactions;

pub(crate) use connections::{Bounds, serve as serve_connections};
pub use frontend::Frontend;
pub use operations::OPENAPI;

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    body::Body,
    extract::{RawPathParams, Request, rejection::RawPathParamsRejection},
    http::{HeaderValue, Method, StatusCode, header, request::Parts},
    response::Response,
    routing::any,
};
use ratified_core::Answer;
use ratified_protocol::{Code, KnownStore, Problem};

use self::{
    body::{Received, Upload},
    conversation::Conversation,
    problem::{empty, json, refuse},
    routes::{Action, RESOURCES, Resource, Takes},
    target::Target,
};
use crate::writer::Refused;

/// The router of a coordinator.
pub(crate) fn router(frontend: &Frontend) -> Router {
    let mut router = Router::new();
    for (at, resource) in RESOURCES.iter().enumerate() {
        let frontend = frontend.clone();
        let serve = move |params: Result<RawPathParams, RawPathParamsRejection>, request: Request| {
            let frontend = frontend.clone();
            async move {
                let began = Instant::now();
                let (parts, body) = request.into_parts();
                let mut upload = Upload::new(&parts.headers, body);
                let served = serve(&frontend, resource, params, &parts, &mut upload).await;
                let response = served.unwrap_or_else(|problem| refuse(&problem));
                count(&frontend, at, &parts.method, &response);
                frontend.metrics().calls.took(at, response.status().as_u16(), began.elapsed());
                finish(&frontend, &parts, upload, response).await
            }
        };
        router = router.route(resource.path, any(serve));
    }
    let frontend = frontend.clone();
    router.fallback(async move |request: Request| {
        let (parts, body) = request.into_parts();
        let upload = Upload::new(&parts.headers, body);
        let response = no_such_path(&parts);
        count(&frontend, RESOURCES.len(), &parts.method, &response);
        finish(&frontend, &parts, upload, response).await
    })
}

/// The paths of the interface, as they are counted by.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    RESOURCES.iter().map(|resource| resource.path)
}

fn count(frontend: &Frontend, resource: usize, method: &Method, response: &Response) {
    let code = response.extensions().get::<Code>().copied();
    frontend.metrics().calls.answered(resource, method.as_str(), response.status().as_u16(), code);
}

fn no_such_path(parts: &Parts) -> Response {
    refuse(&Problem::new(Code::RouteNotFound, format!("{}: there is no such path", parts.uri.path())))
}

/// Signs an answer, and leaves the connection where the next request begins, or says that it ends.
async fn finish(frontend: &Frontend, parts: &Parts, mut upload: Upload, response: Response) -> Response {
    let mut response = sign(frontend, response);
    if !upload.finish(frontend).await {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Some(conversation) = parts.extensions.get::<Arc<Conversation>>() {
            conversation.leaves_unread();
        }
    }
    response
}

/// Every answer names its store once that is known, and is nobody's to keep: what is absent today may be there
/// tomorrow.
fn sign(frontend: &Frontend, mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(signature) = frontend.signature() {
        signature.put(headers);
    }
    response
}

async fn serve(
    frontend: &Frontend,
    resource: &'static Resource,
    params: Result<RawPathParams, RawPathParamsRejection>,
    parts: &Parts,
    upload: &mut Upload,
) -> Result<Response, Problem> {
    let route = resource.route(parts.method.as_str());
    if route.is_none() && parts.method != Method::OPTIONS {
        let detail = format!("{} does not take {}", parts.uri.path(), parts.method);
        return Ok(with_allow(refuse(&Problem::new(Code::MethodNotAllowed, detail)), resource));
    }
    origin::check(&parts.uri, &parts.headers, frontend.server_names())?;
    let Some(route) = route else {
        return Ok(with_allow(empty(StatusCode::NO_CONTENT), resource));
    };
    let target = Target::parse(route, params, parts.uri.query())?;
    let known = match route.action {
        Action::Engine(_) => known::parse(&parts.headers)?,
        Action::Operation(_) => None,
    };
    let received = receive(frontend, route.takes, parts, upload).await?;
    match route.action {
        Action::Operation(operation) => operations::answer(frontend, operation).await,
        Action::Engine(parse) => {
            let request = parse(target, &received.bytes)?;
            let bytes = received.bytes.len().saturating_sub(body::UNCOUNTED);
            // From here on the request counts as queued.
            drop(received);
            ask(frontend, known, request, bytes).await
        }
    }
}

async fn receive(frontend: &Frontend, takes: Takes, parts: &Parts, upload: &mut Upload) -> Result<Received, Problem> {
    let limits = frontend.limits();
    let max_bytes = match takes {
        Takes::Nothing => return Ok(Received::default()),
        Takes::Body => limits.max_body_bytes,
        Takes::Batch => limits.max_batch_body_bytes,
    };
    upload.read(frontend, parts, max_bytes).await
}

fn with_allow(mut response: Response<Body>, resource: &Resource) -> Response {
    if let Ok(allow) = HeaderValue::try_from(resource.allow()) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

/// Hands a request over and waits. The step is done even if nobody waits for it any more.
async fn ask(
    frontend: &Frontend,
    known: Option<KnownStore>,
    request: ratified_core::Request,
    bytes: usize,
) -> Result<Response, Problem> {
    let inbox = frontend.inbox()?;
    if let (Some(known), Some(history)) = (known, frontend.history()) {
        history.check(&known)?;
    }
    let answer = inbox.submit(request, bytes).map_err(|refused| match refused {
        Refused::Full => Problem::new(Code::Overloaded, "too many requests are waiting; ask again later"),
        Refused::Closed(code) => closed(code),
    })?;
    // A writer that ends without an answer has lost the store.
    match answer.await.unwrap_or(Err(Code::StorageUnavailable)) {
        Ok(answer) => respond(answer),
        Err(code) => Err(closed(code)),
    }
}

fn closed(code: Code) -> Problem {
    let detail = match code {
        Code::ShuttingDown => "the coordinator is stopping; send the same request again",
        Code::TransactionPreserverClosed => "the decision is durable, but the store failed before it was preserved",
        _ => "the store failed, and what was asked may already be on disk; send the same request again",
    };
    Problem::new(code, detail)
}

fn respond(answer: Answer) -> Result<Response, Problem> {
    match answer {
        Answer::Txn(success, txn) => {
            json(StatusCode::from_u16(success.status()).unwrap_or(StatusCode::OK), txn.as_ref())
        }
        Answer::Open(open) => json(StatusCode::OK, open.as_ref()),
        Answer::Batch(batch) => json(StatusCode::OK, &batch),
        Answer::Many(batch) => json(StatusCode::OK, &batch),
        Answer::Decisions(decisions) => json(StatusCode::OK, &decisions),
        Answer::Participant(participant) => json(StatusCode::OK, &participant),
        Answer::Preserver(preserver) => json(StatusCode::OK, preserver.as_ref()),
        Answer::Preserved(outcome) => json(StatusCode::OK, &outcome),
        Answer::Clients(clients) => json(StatusCode::OK, &clients),
        Answer::Txns(txns) => json(StatusCode::OK, &txns),
        Answer::Client(client) => json(StatusCode::OK, client.as_ref()),
        Answer::Problem(problem) => Err(*problem),
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
