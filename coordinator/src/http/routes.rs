//! The table of calls.

use ratified_core::Request;
use ratified_protocol::Problem;

use super::{batch, clients, operations::Operation, participants, preserver, target::Target, transactions};

/// Makes the engine's request of what a call says.
pub(super) type Parse = fn(Target, &[u8]) -> Result<Request, Problem>;

/// A path and the calls it takes.
pub(super) struct Resource {
    pub(super) path: &'static str,
    pub(super) routes: &'static [Route],
}

/// A call.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) query: &'static [&'static str],
    pub(super) takes: Takes,
    pub(super) action: Action,
}

/// What body a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Body,
    Batch,
}

/// Who answers a call.
pub(super) enum Action {
    Engine(Parse),
    Operation(Operation),
}

impl Resource {
    /// The call with this method; HEAD is GET without the body.
    pub(super) fn route(&self, method: &str) -> Option<&'static Route> {
        let method = if method == "HEAD" { "GET" } else { method };
        self.routes.iter().find(|route| route.method == method)
    }

    /// The `Allow` header.
    pub(super) fn allow(&self) -> String {
        let mut methods: Vec<_> = self.routes.iter().map(|route| route.method).collect();
        if methods.contains(&"GET") {
            methods.push("HEAD");
        }
        methods.push("OPTIONS");
        methods.join(", ")
    }
}

const fn post(parse: Parse) -> Route {
    Route { method: "POST", query: &[], takes: Takes::Body, action: Action::Engine(parse) }
}

const fn post_with(query: &'static [&'static str], parse: Parse) -> Route {
    Route { method: "POST", query, takes: Takes::Body, action: Action::Engine(parse) }
}

const fn post_batch(parse: Parse) -> Route {
    Route { method: "POST", query: &[], takes: Takes::Batch, action: Action::Engine(parse) }
}

const fn put(parse: Parse) -> Route {
    Route { method: "PUT", query: &[], takes: Takes::Body, action: Action::Engine(parse) }
}

const fn get(query: &'static [&'static str], parse: Parse) -> Route {
    Route { method: "GET", query, takes: Takes::Nothing, action: Action::Engine(parse) }
}

const fn operation(operation: Operation) -> Route {
    Route { method: "GET", query: &[], takes: Takes::Nothing, action: Action::Operation(operation) }
}

const fn at(path: &'static str, routes: &'static [Route]) -> Resource {
    Resource { path, routes }
}

/// Every call of the protocol.
pub(super) const RESOURCES: &[Resource] = &[
    at("/v1", &[operation(Operation::Version)]),
    at("/healthz", &[operation(Operation::Health)]),
    at("/readyz", &[operation(Operation::Ready)]),
    at("/metrics", &[operation(Operation::Metrics)]),
    at("/openapi.json", &[operation(Operation::OpenApi)]),
    at("/v1/clients", &[get(&["prefix", "sink", "pageSize", "pageToken"], clients::list)]),
    at("/v1/clients/{clientName}/open", &[post(clients::open)]),
    at("/v1/clients/{clientName}/forget", &[post(clients::forget)]),
    at("/v1/clients/{clientName}/batch", &[post_batch(batch::batch)]),
    at("/v1/batch", &[post_batch(batch::many)]),
    at("/v1/clients/{clientName}/txns/{txnId}", &[put(transactions::begin), get(&["waitMs"], transactions::get)]),
    at("/v1/clients/{clientName}/txns/{txnId}/prepare", &[post(transactions::prepare)]),
    at("/v1/clients/{clientName}/txns/{txnId}/commit", &[post_with(&["waitMs"], transactions::commit)]),
    at("/v1/clients/{clientName}/txns/{txnId}/abort", &[post_with(&["waitMs"], transactions::abort)]),
    at("/v1/clients/{clientName}/txns/{txnId}/keep-alive", &[post(transactions::keep_alive)]),
    at("/v1/clients/{clientName}/txns/{txnId}/resolve", &[post(transactions::resolve)]),
    at("/v1/clients/{clientName}/txns/{txnId}/participants/{participant}", &[put(transactions::register)]),
    at("/v1/clients/{clientName}/txns/{txnId}/participants/{participant}/ack", &[post(transactions::ack)]),
    at(
        "/v1/txns",
        &[get(&["state", "client", "clientPrefix", "olderThanMs", "pageSize", "pageToken"], transactions::list)],
    ),
    at("/v1/participants/{participant}/decisions", &[get(&["waitMs", "after"], participants::decisions)]),
    at("/v1/participants/{participant}/retire", &[post(participants::retire)]),
    at("/v1/participants/{participant}/reinstate", &[post(participants::reinstate)]),
    at("/v1/preserver/{clientName}", &[get(&[], preserver::list)]),
    at("/v1/preserver/{clientName}/{txnId}", &[get(&[], preserver::lookup)]),
];
