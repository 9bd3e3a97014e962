//! Transitions per second through state machine, pipeline and log on one thread, and of the log alone, next to what the same
//! disk does with the same bytes:
//! `cargo bench -p ratified-coordinator --bench log -- [seconds per pair]`. With `load`: how long a load of 1,000,000 outcomes of
//! 100,000 clients takes. The store lies in the directory for temporary files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench: a failure here ends the run")]

use std::{
    fs::File,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use ratified_coordinator::{
    SystemClock,
    store::{EmbeddedOptions, EmbeddedStore, Store, log::format::encoded_bytes},
    writer::{Drawn, Loaded, Pipeline, Room, load},
};
use ratified_core::{Input, Limits, Now, Request, Ticket, TxnCall, Uptime};
use ratified_protocol::{BeginRequest, CommitRequest, Epoch, Incarnation, OpenRequest, TxnId};
use uuid::Uuid;

const ROOM: Room = Room { requests: 1024, bytes: 1 << 24 };
const CLIENTS: u64 = 64;
const RAW_BYTES: u64 = 64 << 20;
/// So many batches of one kind, then as many of the other.
const TURN: usize = 20;

/// A coordinator without HTTP.
struct Bench {
    store: EmbeddedStore,
    pipeline: Pipeline,
    claim: ratified_coordinator::store::Claim,
    next: u64,
    begun: Vec<u64>,
    clients: u64,
    in_log: Duration,
}

impl Bench {
    fn new(dir: &std::path::Path) -> Self {
        Self::with_clients(dir, CLIENTS)
    }

    fn with_clients(dir: &std::path::Path, clients: u64) -> Self {
        let mut store = EmbeddedStore::open(EmbeddedOptions::new(dir)).unwrap();
        let loaded = load(&mut store, Limits::default(), ROOM, &SystemClock::new(), Drawn::at_random()).unwrap();
        let Loaded { pipeline, claim, .. } = loaded;
        let mut bench = Self { store, pipeline, claim, next: 0, begun: Vec::new(), clients, in_log: Duration::ZERO };
        for n in 0..clients {
            let incarnation = Incarnation::new(Uuid::from_u128(1));
            let body = OpenRequest { incarnation, owner: None, create: true, generation: None };
            bench.step(n, Request::Open { client: client(n, clients), body });
            if n % 1000 == 999 {
                bench.write();
            }
        }
        if !clients.is_multiple_of(1000) {
            bench.write();
        }
        bench
    }

    fn step(&mut self, n: u64, request: Request) {
        let now = Now { uptime: Uptime::from_millis(n), ..Now::default() };
        self.pipeline.step(now, Input::Request { ticket: Ticket(n), request }, 100).unwrap();
    }

    /// Begins what has not begun, or commits what has.
    fn batch(&mut self, transitions: u64) -> usize {
        let begins = self.begun.is_empty();
        let ids = if begins { (self.next..self.next + transitions).collect() } else { std::mem::take(&mut self.begun) };
        for n in &ids {
            let call = if begins {
                TxnCall::Begin(BeginRequest { epoch: Some(Epoch::FIRST), ..BeginRequest::default() })
            } else {
                TxnCall::Commit(CommitRequest { epoch: Some(Epoch::FIRST), ..CommitRequest::default() })
            };
            self.step(*n, Request::Txn { client: client(*n, self.clients), txn_id: id(*n), call, wait_ms: 0 });
        }
        if begins {
            self.next += transitions;
            self.begun = ids;
        }
        self.write()
    }

    fn write(&mut self) -> usize {
        let batch = self.pipeline.seal().unwrap().unwrap();
        let bytes = encoded_bytes(&batch);
        let began = Instant::now();
        self.store.write(self.claim, batch).unwrap();
        self.store.sync().unwrap();
        self.in_log += began.elapsed();
        self.pipeline.synced();
        self.pipeline.take_released();
        bytes
    }
}

fn measure_load() {
    const OUTCOMES: u64 = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let mut bench = Bench::with_clients(&store, 100_000);
    while bench.next < OUTCOMES || !bench.begun.is_empty() {
        bench.batch(1000);
    }
    drop(bench);
    let log_bytes: u64 =
        std::fs::read_dir(store.join("log")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    let began = Instant::now();
    EmbeddedStore::open(EmbeddedOptions::new(&store)).unwrap().load(&mut |_, _| Ok(())).unwrap();
    println!("the log alone is read in {:.2} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let mut opened = EmbeddedStore::open(EmbeddedOptions::new(&store)).unwrap();
    let loaded = load(&mut opened, Limits::default(), ROOM, &SystemClock::new(), Drawn::at_random()).unwrap();
    let took = began.elapsed();
    println!(
        "{} records are loaded in {:.2} s, from segments of {log_bytes} bytes",
        loaded.records,
        took.as_secs_f64()
    );
}

fn client(n: u64, clients: u64) -> ratified_protocol::ClientName {
    format!("orders-job.sink.{}", n % clients).parse().unwrap()
}

fn id(n: u64) -> TxnId {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&(n + 1).to_be_bytes()[2..]);
    (bytes[6], bytes[8]) = (0x70, 0x80);
    TxnId::from_bytes(bytes).unwrap()
}

fn main() {
    if std::env::args().any(|word| word == "load") {
        return measure_load();
    }
    let seconds = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(4);
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(&dir.path().join("store"));
    let raw = File::options().read(true).write(true).create(true).truncate(true).open(dir.path().join("raw")).unwrap();
    raw.write_all_at(&vec![0; usize::try_from(RAW_BYTES).unwrap()], 0).unwrap();
    raw.sync_all().unwrap();
    let mut at = 0;
    println!("transitions per second, against write + fdatasync of the same bytes:");
    println!("in a batch   all of it   the log alone   write + fdatasync   ratios");
    for transitions in [1, 16, 64, 256] {
        let (mut ours, mut theirs, mut batches) = (Duration::ZERO, Duration::ZERO, 0);
        bench.in_log = Duration::ZERO;
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until {
            let mut lengths = Vec::new();
            let began = Instant::now();
            (0..TURN).for_each(|_| lengths.push(bench.batch(transitions)));
            ours += began.elapsed();
            let began = Instant::now();
            for length in lengths {
                at = if at + length as u64 > RAW_BYTES { 0 } else { at };
                raw.write_all_at(&vec![7; length], at).unwrap();
                raw.sync_data().unwrap();
                at += length as u64;
            }
            theirs += began.elapsed();
            batches += TURN;
        }
        #[expect(clippy::cast_precision_loss, reason = "shown, not counted with")]
        let rate = |took: Duration| (batches as u64 * transitions) as f64 / took.as_secs_f64();
        let (ours, log, theirs) = (rate(ours), rate(bench.in_log), rate(theirs));
        let (all, alone) = (ours / theirs, log / theirs);
        println!("{transitions:>10} {ours:>11.0} {log:>15.0} {theirs:>19.0}   {all:.2}, {alone:.2}");
    }
}
