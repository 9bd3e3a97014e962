//! What HTTP alone costs: a server that answers what the client expects and does nothing.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use axum::{
    Json, Router,
    extract::Path,
    http::{HeaderValue, StatusCode},
    middleware::map_response,
    response::Response,
    routing::{post, put},
    serve::ListenerExt,
};
use ratified_tests::poll;
use serde_json::{Value, json};
use tempfile::TempDir;

/// An echo in a process of its own.
pub(crate) struct Echo {
    child: Child,
    dir: TempDir,
}

impl Echo {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program).arg("echo").arg(dir.path().join("url")).stdin(Stdio::null()).spawn().unwrap();
        Self { child, dir }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) async fn url(&self) -> String {
        let path = self.dir.path().join("url");
        poll::until_some("the echo to listen", || fs::read_to_string(&path).ok().filter(|url| !url.is_empty())).await
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until it is killed; the URL goes to this file.
pub(crate) async fn serve(url_file: &str) {
    let router = Router::new()
        .route("/v1/clients/{client}/open", post(open))
        .route("/v1/clients/{client}/txns/{id}", put(begin))
        .route("/v1/clients/{client}/txns/{id}/{call}", post(end))
        .layer(map_response(sign));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    fs::write(url_file, format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await.unwrap();
}

/// The client takes no answer from a store without a name.
async fn sign(mut response: Response) -> Response {
    let store = HeaderValue::from_static("6b1c2e3f-0000-4000-8000-000000000000.1");
    response.headers_mut().insert("ratified-store", store);
    response
}

async fn open(Path(_): Path<String>, Json(_): Json<Value>) -> Json<Value> {
    Json(json!({"epoch": 1, "previousEpoch": null, "previousOwner": null, "unfinished": [], "lastCommitted": null,
        "newestTxnId": null, "evictedThrough": null}))
}

async fn begin(Path((client, id)): Path<(String, String)>, Json(_): Json<Value>) -> (StatusCode, Json<Value>) {
    (StatusCode::CREATED, txn(&client, &id, "OPEN"))
}

async fn end(Path((client, id, call)): Path<(String, String, String)>, Json(_): Json<Value>) -> Json<Value> {
    txn(&client, &id, if call == "prepare" { "PREPARED" } else { "COMMITTED" })
}

fn txn(client: &str, id: &str, state: &str) -> Json<Value> {
    Json(json!({"clientName": client, "txnId": id, "state": state, "replayed": false, "preserved": false, "epoch": 1,
        "deadlineInMs": null, "participants": [], "labels": {}}))
}
