//! `/readyz` follows the writer.

use std::sync::Arc;

use ratified_coordinator::{
    Config, Frontend, SystemClock,
    store::MemoryStore,
    writer::{Drawn, Inbox, Room, load},
};
use ratified_core::Limits;
use ratified_protocol::Code;

use crate::support::Answer;

#[tokio::test]
async fn a_writer_that_is_stuck_or_gone_is_not_ready() {
    let mut config = Config::local("not-used");
    config.writer_timeout_ms = 20;
    let frontend = Frontend::new(&config);
    let clock = Arc::new(SystemClock::new());
    let room = Room { requests: 10, bytes: 1 << 20 };
    let mut store = MemoryStore::new();
    let loaded = load(&mut store, Limits::default(), room, clock.as_ref(), Drawn::at_random()).unwrap();
    frontend.open(Arc::new(Inbox::new(clock, 100, 1 << 20)), loaded.history);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let router = frontend.router();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |path: &str| Answer::read(client.get(format!("{base}{path}")).send().await.unwrap()).await;

    // Nobody takes anything out of the inbox.
    let stuck = get("/readyz").await;
    assert_eq!(stuck.refusal(), (503, "STORAGE_UNAVAILABLE"));
    assert_eq!(stuck.body["detail"], "the writer is gone, or does not get on with its work");
    assert_eq!(get("/metrics").await.status, 200);
    frontend.close(Code::ShuttingDown);
    assert_eq!(get("/readyz").await.refusal(), (503, "SHUTTING_DOWN"));
    assert_eq!(get("/healthz").await.status, 200);
}
