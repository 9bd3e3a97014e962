//! Calls that need no engine: version, health, numbers, the description of the interface.

use axum::{http::StatusCode, response::Response};
use ratified_protocol::{Problem, VersionAnswer};

use super::{
    frontend::Frontend,
    problem::{json, with_type},
};

/// The OpenAPI document of the protocol.
pub const OPENAPI: &str = include_str!("../../openapi.json");

/// A call that needs no engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Version,
    Health,
    Ready,
    Metrics,
    OpenApi,
}

/// Answers it.
pub(super) async fn answer(frontend: &Frontend, operation: Operation) -> Result<Response, Problem> {
    match operation {
        Operation::Version => json(StatusCode::OK, &version()),
        Operation::Health => json(StatusCode::OK, &serde_json::json!({"status": "alive"})),
        Operation::Ready => {
            frontend.ready().await?;
            json(StatusCode::OK, &serde_json::json!({"status": "ready"}))
        }
        Operation::Metrics => {
            let text = frontend.render_metrics().await;
            Ok(with_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
        }
        Operation::OpenApi => Ok(with_type(StatusCode::OK, "application/json", OPENAPI)),
    }
}

fn version() -> VersionAnswer {
    let features = ["batch", "participants", "waitMs"].map(str::to_owned).to_vec();
    VersionAnswer::new("ratifyd".to_owned(), env!("CARGO_PKG_VERSION").to_owned(), "v1".to_owned(), features)
}
