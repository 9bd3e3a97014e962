//! The coordinator as a simulated process: the real router, the real load and the real pipeline of group commit. Only the
//! threads of its writer are tasks here, and the clock is the world's.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use ratified_coordinator::{
    Clock, Config, Frontend, Periods,
    store::{Claim, Store, StoreError},
    writer::{Drawn, Inbox, Pipeline, Release, Room, Sweeps, load},
};
use ratified_core::{Answer, Input, Limits, Now, Ticket, Uptime};
use ratified_protocol::{Code, LoadNonce, WallTime};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::{
    disk::Disk,
    mistake::Mistake,
    world::{COORDINATOR, World},
};

const ROOM: Room = Room { requests: 8, bytes: 1 << 20 };
const PERIODS: Periods = Periods { timeouts_ms: 1000, expiry_ms: 300_000, gc_ms: 300_000 };

/// Uptime goes on from what is on disk; wall time is the world's.
struct SimClock {
    world: World,
    started_ms: u64,
    offset_ms: AtomicU64,
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        let now_ms = self.world.now_ms();
        let uptime = Uptime::from_millis(now_ms - self.started_ms).plus_millis(self.offset_ms.load(Ordering::SeqCst));
        Now { uptime, wall: WallTime::from_unix_millis(1_700_000_000_000 + now_ms) }
    }

    fn resume(&self, from: Uptime) {
        self.offset_ms.fetch_add(from.as_millis(), Ordering::SeqCst);
    }
}

/// Runs until it is crashed; asks to be when its store fails, as the real one exits.
pub async fn run(world: World) {
    let mut config = Config::local("not-used");
    config.server_names = vec!["coordinator".parse().expect("a DNS name")];
    let frontend = Frontend::new(&config);
    let listener = turmoil::net::TcpListener::bind("0.0.0.0:7117").await.expect("a free port");
    tokio::spawn(serve(listener, frontend.router()));
    world.linger(200).await;
    let clock = Arc::new(SimClock { world: world.clone(), started_ms: world.now_ms(), offset_ms: AtomicU64::new(0) });
    let mut disk = Disk(world.clone());
    let nonce = LoadNonce::new(Uuid::from_u128(world.now_ms().into()));
    let drawn = Drawn { cluster_id: Uuid::from_bytes([7; 16]), nonce };
    match load(&mut disk, Limits::default(), ROOM, clock.as_ref(), drawn) {
        Ok(loaded) => {
            world.note(format!("coordinator load {}", loaded.history.store_id().newest_loads()));
            let inbox = Arc::new(Inbox::new(clock.clone(), 100, 1 << 20));
            frontend.open(inbox.clone(), loaded.history);
            let sweeps = Sweeps::new(PERIODS, clock.now().uptime);
            let (replies, next_ticket) = (BTreeMap::new(), 0);
            let writer = Writer {
                world: world.clone(),
                pipeline: loaded.pipeline,
                claim: loaded.claim,
                inbox,
                sweeps,
                clock,
                replies,
                next_ticket,
                disk,
            };
            writer.run().await;
        }
        Err(error) => {
            world.note(format!("coordinator load failed: {error}"));
            if !error.to_string().contains("input/output error") {
                world.violate(format!("the load is refused: {error}"));
            }
        }
    }
    frontend.close(Code::StorageUnavailable);
    world.count("coordinator exits");
    world.linger(100).await;
    world.ask_kill(COORDINATOR);
    std::future::pending::<()>().await;
}

async fn serve(listener: turmoil::net::TcpListener, router: Router) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(2));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let service = TowerToHyperService::new(router.clone());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move { drop(connection.await) });
    }
}

/// As the coordinator's own writer, with tasks for threads.
struct Writer {
    world: World,
    pipeline: Pipeline,
    claim: Claim,
    inbox: Arc<Inbox>,
    sweeps: Sweeps,
    clock: Arc<SimClock>,
    replies: BTreeMap<Ticket, oneshot::Sender<Result<Answer, Code>>>,
    next_ticket: u64,
    disk: Disk,
}

impl Writer {
    /// Until the store fails; then everybody who waits is told so.
    async fn run(mut self) {
        let Err(error) = self.serve().await;
        self.world.note(format!("coordinator: {error}"));
        self.inbox.close(Code::StorageUnavailable);
        for (ticket, code) in self.pipeline.fail() {
            self.reply(ticket, Err(code));
        }
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, StoreError> {
        loop {
            self.release();
            let room = self.pipeline.room_left();
            let turn = self.inbox.take(room);
            if let Some(synced) = turn.synced {
                synced?;
                self.pipeline.synced();
            }
            if room.requests > 0 {
                let deadline = self.pipeline.engine().next_deadline();
                for sweep in self.sweeps.take_due(turn.sweep_at.uptime, deadline) {
                    self.pipeline.step(turn.sweep_at, Input::Sweep(sweep), 0)?;
                }
            }
            let is_idle = turn.arrivals.is_empty();
            for arrival in turn.arrivals {
                let ticket = Ticket(self.next_ticket);
                self.next_ticket += 1;
                self.replies.insert(ticket, arrival.reply);
                let input = Input::Request { ticket, request: arrival.request };
                self.pipeline.step(arrival.now, input, arrival.bytes)?;
            }
            self.release();
            self.hand_over()?;
            if is_idle {
                self.wait().await;
            }
        }
    }

    async fn wait(&self) {
        let wake_at = self.sweeps.wake_at(self.pipeline.engine().next_deadline());
        // Without room no sweep runs: the end of the sync is what comes next.
        let patience =
            if self.pipeline.room_left().requests > 0 { wake_at.millis_since(self.clock.now().uptime) } else { 60_000 };
        let _ = tokio::time::timeout(Duration::from_millis(patience.max(1)), self.inbox.changed()).await;
    }

    fn hand_over(&mut self) -> Result<(), StoreError> {
        let Some(batch) = self.pipeline.seal()? else { return Ok(()) };
        self.world.count("batches");
        self.disk.write(self.claim, batch)?;
        if self.world.mistake == Mistake::RepliesBeforeSync {
            self.pipeline.synced();
        }
        if self.world.mischief(60) {
            self.world.count("killed before the sync");
            self.world.ask_kill(COORDINATOR);
        }
        let (world, inbox, mut disk) = (self.world.clone(), self.inbox.clone(), self.disk.clone());
        tokio::spawn(async move {
            if world.mischief(30) {
                world.count("slow syncs");
                world.linger(900).await;
            } else {
                world.linger(12).await;
            }
            inbox.sync_ended(disk.sync());
        });
        Ok(())
    }

    fn release(&mut self) {
        for release in self.pipeline.take_released() {
            if let Release::Reply(ticket, answer) = release {
                self.reply(ticket, Ok(answer));
            }
        }
        for sweep in self.pipeline.take_again() {
            self.sweeps.again(sweep);
        }
    }

    fn reply(&mut self, ticket: Ticket, answer: Result<Answer, Code>) {
        if let Some(reply) = self.replies.remove(&ticket) {
            let _ = reply.send(answer);
        }
    }
}
