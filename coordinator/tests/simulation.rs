//! The writer's rules without its threads and without its clock: what a simulation is built from.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

mod support;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ratified_coordinator::{
    Clock, Config, Frontend, Periods,
    store::{Claim, MemoryStore, Store},
    writer::{Drawn, Inbox, Pipeline, Release, Room, Sweeps, load},
};
use ratified_core::{Input, Limits, Now, Ticket, Uptime};
use ratified_protocol::{LoadNonce, WallTime};
use serde_json::json;
use support::{Answer, T1};

const ROOM: Room = Room { requests: 100, bytes: 1 << 20 };
const DRAWN: Drawn =
    Drawn { cluster_id: uuid::Uuid::from_bytes([7; 16]), nonce: LoadNonce::new(uuid::Uuid::from_bytes([8; 16])) };

/// A clock that stands still until it is told otherwise.
#[derive(Debug, Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Now {
        let millis = self.0.load(Ordering::SeqCst);
        Now { uptime: Uptime::from_millis(millis), wall: WallTime::from_unix_millis(millis) }
    }

    fn resume(&self, from: Uptime) {
        self.0.fetch_max(from.as_millis(), Ordering::SeqCst);
    }
}

/// The whole writer as a task: one turn for whatever has come.
async fn write(
    mut store: MemoryStore,
    claim: Claim,
    mut pipeline: Pipeline,
    inbox: Arc<Inbox>,
    clock: Arc<ManualClock>,
) {
    let mut sweeps = Sweeps::new(Periods::default(), clock.now().uptime);
    let (mut replies, mut tickets) = (BTreeMap::new(), 0);
    loop {
        inbox.changed().await;
        let turn = inbox.take(pipeline.room_left());
        for sweep in sweeps.take_due(turn.sweep_at.uptime, pipeline.engine().next_deadline()) {
            pipeline.step(turn.sweep_at, Input::Sweep(sweep), 0).unwrap();
        }
        for arrival in turn.arrivals {
            tickets += 1;
            replies.insert(Ticket(tickets), arrival.reply);
            let input = Input::Request { ticket: Ticket(tickets), request: arrival.request };
            pipeline.step(arrival.now, input, arrival.bytes).unwrap();
        }
        if let Some(batch) = pipeline.seal().unwrap() {
            store.write(claim, batch).unwrap();
            store.sync().unwrap();
            pipeline.synced();
        }
        for release in pipeline.take_released() {
            if let Release::Reply(ticket, answer) = release {
                let _ = replies.remove(&ticket).unwrap().send(Ok(answer));
            }
        }
    }
}

#[tokio::test]
async fn a_writer_that_is_a_task_serves_on_a_clock_of_its_own() {
    let clock = Arc::new(ManualClock::default());
    let mut store = MemoryStore::new();
    let loaded = load(&mut store, Limits::default(), ROOM, clock.as_ref(), DRAWN).unwrap();
    let inbox = Arc::new(Inbox::new(clock.clone(), 100, 1 << 20));
    let frontend = Frontend::new(&Config::local("not-used"));
    frontend.open(inbox.clone(), loaded.history);
    tokio::spawn(write(store, loaded.claim, loaded.pipeline, inbox, clock.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, frontend.router()).await });

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let body = json!({"incarnation": "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "create": true});
    let open = client.post(format!("{base}/v1/clients/c/open")).json(&body).send().await.unwrap();
    assert_eq!(Answer::read(open).await.header("ratified-store"), Some("07070707-0707-0707-0707-070707070707.1"));
    let txn = format!("{base}/v1/clients/c/txns/{T1}");
    let begin = client.put(&txn).json(&json!({"epoch": 1, "timeoutMs": 1000})).send().await.unwrap();
    assert_eq!(Answer::read(begin).await.body["deadlineInMs"], 1000);
    for (uptime, state) in [(999, "OPEN"), (1000, "ABORTED")] {
        clock.0.store(uptime, Ordering::SeqCst);
        let answer = Answer::read(client.get(&txn).send().await.unwrap()).await;
        assert_eq!(answer.body["state"], state, "at {uptime}");
    }
}

/// Deadlines and ages are instants of uptime: after a start that counted from 0 again everything would last longer.
#[test]
fn a_load_lets_the_clock_go_on_from_the_greatest_uptime_on_disk() {
    let mut store = MemoryStore::new();
    let first = ManualClock(AtomicU64::new(5000));
    load(&mut store, Limits::default(), ROOM, &first, DRAWN).unwrap();
    let second = ManualClock::default();
    load(&mut store, Limits::default(), ROOM, &second, DRAWN).unwrap();
    assert_eq!(second.now().uptime, Uptime::from_millis(5000));
}
