//! How fast the coordinator decides, next to what the same machine can do without it, in one run.
//!
//! `bench [seconds per round] [rounds]`; needs a release build to mean anything. The store lies in the directory for
//! temporary files (`TMPDIR`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "test program: a failure here ends the run"
)]

mod batch;
mod coalescing;
mod cpu;
mod echo;
mod gathering;
mod latency;
mod single;

use std::time::Duration;

use ratified::{ClientName, ClientOptions, CoordinatorClient, Epoch, TxnId, protocol};
use ratified_tests::{config::Config, process::Ratifyd};
use uuid::Uuid;

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "echo") {
        return echo::serve(&arguments[1]).await;
    }
    let number = |at: usize, default: u64| arguments.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (round, rounds) = (Duration::from_secs(number(0, 5)), number(1, 5));
    if cfg!(debug_assertions) {
        println!("not a release build: the numbers mean little");
    }
    let config = Config::new().with("max_open_per_client", 100_000);
    let ratifyd = Ratifyd::start(config).await;
    single::measure(&ratifyd, round, rounds).await;
    gathering::measure(&ratifyd, round, rounds).await;
    batch::measure(&ratifyd, round).await;
    latency::measure(&ratifyd).await;
    coalescing::measure(&ratifyd, round).await;
}

/// A client that was opened, and what it is called.
struct Opened {
    client: CoordinatorClient,
    name: ClientName,
    epoch: Epoch,
}

impl Opened {
    async fn new(client: &CoordinatorClient, name: String) -> Self {
        let name: ClientName = name.parse().expect("a name");
        let request = protocol::OpenRequest {
            create: true,
            ..protocol::OpenRequest::new(protocol::Incarnation::new(Uuid::new_v4()))
        };
        let opened = client.open(&name, &request).await.expect("the client can be opened");
        Self { client: client.clone(), name, epoch: opened.epoch }
    }

    async fn begin(&self, id: TxnId, request: protocol::BeginRequest) {
        let request = protocol::BeginRequest { epoch: Some(self.epoch), ..request };
        self.client.begin(&self.name, id, &request).await.expect("begin");
    }

    async fn prepare(&self, id: TxnId) {
        let payload = Some(protocol::Payload::new(&b"a handle of a usual size, some sixty bytes of file names"[..]));
        let request = protocol::PrepareRequest { epoch: Some(self.epoch), payload, ..Default::default() };
        self.client.prepare(&self.name, id, &request).await.expect("prepare");
    }

    async fn commit(&self, id: TxnId) {
        let request = protocol::CommitRequest { epoch: Some(self.epoch), ..Default::default() };
        self.client.commit(&self.name, id, &request, None).await.expect("commit");
    }

    /// begin, prepare and commit: one decision.
    async fn decide(&self) {
        let id = new_id();
        self.begin(id, protocol::BeginRequest::default()).await;
        self.prepare(id).await;
        self.commit(id).await;
    }
}

/// A client whose concurrent calls share requests, or have one each.
fn client(url: &str, gather: bool) -> CoordinatorClient {
    CoordinatorClient::with_options(url, ClientOptions::default().gather(gather)).expect("a client")
}

fn new_id() -> TxnId {
    TxnId::try_from(Uuid::now_v7()).expect("a UUIDv7")
}

/// The middle of the values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
