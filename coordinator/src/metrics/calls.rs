//! What came in over HTTP: calls by route and status, refusals by code, connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{Counter, Gauge};
use ratified_protocol::Code;

use super::{
    counter,
    durations::{self, Durations},
    gauge,
};

const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "OPTIONS", OTHER];
const STATUSES: [(u16, &str); 20] = [
    (200, "200"),
    (201, "201"),
    (202, "202"),
    (204, "204"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (409, "409"),
    (410, "410"),
    (413, "413"),
    (414, "414"),
    (415, "415"),
    (422, "422"),
    (429, "429"),
    (431, "431"),
    (500, "500"),
    (503, "503"),
    (0, OTHER),
];
/// What is not one of the values that are told apart: no label takes what a caller has thought of.
const OTHER: &str = "other";
const CALLS: &str = "ratified_http_requests_total";

type ByStatus = [AtomicU64; STATUSES.len()];

/// The calls to one path of the interface.
struct Route {
    path: &'static str,
    by_method: [ByStatus; METHODS.len()],
    durations: Durations,
}

/// Counts of what came in. A call costs one addition; the rows of the text are made when it is read.
pub(crate) struct Calls {
    routes: Vec<Route>,
    refusals: Vec<(Code, Counter)>,
    connections: Arc<Connections>,
}

struct Connections {
    open: Gauge,
    accepted: Counter,
    refused: Counter,
    failed: Counter,
}

/// A connection that is open until this is dropped.
pub(crate) struct OpenConnection(Arc<Connections>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.decrement(1.0);
    }
}

impl Calls {
    /// Nothing has come in yet. `paths` are those of the interface, in the order by which calls are counted.
    pub(super) fn new(paths: impl IntoIterator<Item = &'static str>) -> Self {
        metrics::describe_counter!(
            CALLS,
            "Answers, by path of the interface (none: there is no such path) and status."
        );
        let refusals = "ratified_refusals_total";
        metrics::describe_counter!(refusals, "Calls refused, by code; operations within a batch are not counted.");
        let by_code = |code: &Code| (*code, metrics::counter!(refusals, "code" => code.as_str()));
        let route = |path| Route { path, by_method: Default::default(), durations: Durations::default() };
        Self {
            routes: paths.into_iter().map(route).chain([route("none")]).collect(),
            refusals: Code::ALL.iter().map(by_code).collect(),
            connections: Arc::new(Connections {
                open: gauge("ratified_connections_open", "Connections that are open."),
                accepted: counter("ratified_connections_accepted_total", "Connections accepted."),
                refused: counter(
                    "ratified_connections_refused_total",
                    "Connections closed at once because their address had as many as one may have.",
                ),
                failed: counter(
                    "ratified_accept_errors_total",
                    "Times that connections could not be accepted: no file descriptors or no memory left.",
                ),
            }),
        }
    }

    /// A call to this path was answered; a path that there is not is the one behind the last.
    pub(crate) fn answered(&self, route: usize, method: &str, status: u16, code: Option<Code>) {
        let method = METHODS.iter().position(|known| *known == method).unwrap_or(METHODS.len() - 1);
        let status = STATUSES.iter().position(|(known, _)| *known == status).unwrap_or(STATUSES.len() - 1);
        let cell = self.routes.get(route).and_then(|r| r.by_method.get(method)).and_then(|m| m.get(status));
        if let Some(cell) = cell {
            cell.fetch_add(1, Ordering::Relaxed);
        }
        if let Some((_, refused)) = self.refusals.iter().find(|(known, _)| Some(*known) == code) {
            refused.increment(1);
        }
    }

    /// A connection was accepted.
    pub(crate) fn connected(&self) -> OpenConnection {
        self.connections.accepted.increment(1);
        self.connections.open.increment(1.0);
        OpenConnection(self.connections.clone())
    }

    /// A connection was closed at once: there were too many.
    pub(crate) fn not_connected(&self) {
        self.connections.refused.increment(1);
    }

    /// Connections could not be accepted.
    pub(crate) fn cannot_accept(&self) {
        self.connections.failed.increment(1);
    }

    /// A call to this path took so long.
    pub(crate) fn took(&self, route: usize, status: u16, time: Duration) {
        if let Some(route) = self.routes.get(route) {
            route.durations.record(status, time);
        }
    }

    /// Appends how long calls took.
    pub(super) fn render_durations(&self, text: &mut String) {
        // Writing to a string cannot fail.
        let _ = durations::render(self.routes.iter().map(|route| (route.path, &route.durations)), text);
    }

    /// Hands the counts to the recorder in force: every call that there has been, and none that there has not.
    pub(super) fn publish(&self) {
        for route in &self.routes {
            for (by_status, method) in route.by_method.iter().zip(METHODS) {
                for (count, (_, status)) in by_status.iter().zip(STATUSES) {
                    let count = count.load(Ordering::Relaxed);
                    if count > 0 {
                        metrics::counter!(CALLS, "method" => method, "route" => route.path, "status" => status)
                            .absolute(count);
                    }
                }
            }
        }
    }
}
