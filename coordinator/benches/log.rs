//! Transitions per second through state machine, pipeline and log, next to what the same disk does with the same bytes:
//! `cargo bench -p ratified-coordinator --bench log [seconds per pair]`. The store lies in the directory for temporary files.
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
}

impl Bench {
    fn new(dir: &std::path::Path) -> Self {
        let mut store = EmbeddedStore::open(EmbeddedOptions::new(dir)).unwrap();
        let loaded = load(&mut store, Limits::default(), ROOM, &SystemClock::new(), Drawn::at_random()).unwrap();
        let Loaded { pipeline, claim, .. } = loaded;
        let mut bench = Self { store, pipeline, claim, next: 0, begun: Vec::new() };
        for n in 0..CLIENTS {
            let incarnation = Incarnation::new(Uuid::from_u128(1));
            let body = OpenRequest { incarnation, owner: None, create: true, generation: None };
            bench.step(n, Request::Open { client: client(n), body });
        }
        bench.write();
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
            self.step(*n, Request::Txn { client: client(*n), txn_id: id(*n), call, wait_ms: 0 });
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
        self.store.write(self.claim, batch).unwrap();
        self.store.sync().unwrap();
        self.pipeline.synced();
        self.pipeline.take_released();
        bytes
    }
}

fn client(n: u64) -> ratified_protocol::ClientName {
    format!("orders-job.sink.{}", n % CLIENTS).parse().unwrap()
}

fn id(n: u64) -> TxnId {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&(n + 1).to_be_bytes()[2..]);
    (bytes[6], bytes[8]) = (0x70, 0x80);
    TxnId::from_bytes(bytes).unwrap()
}

fn main() {
    let seconds = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(4);
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(&dir.path().join("store"));
    let raw = File::options().read(true).write(true).create(true).truncate(true).open(dir.path().join("raw")).unwrap();
    raw.write_all_at(&vec![0; usize::try_from(RAW_BYTES).unwrap()], 0).unwrap();
    raw.sync_all().unwrap();
    let mut at = 0;
    println!("transitions in a batch    per second    write + fdatasync of the same bytes    ratio");
    for transitions in [1, 16, 64, 256] {
        let (mut ours, mut theirs, mut batches) = (Duration::ZERO, Duration::ZERO, 0);
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
        let (ours, theirs) = (rate(ours), rate(theirs));
        println!("{transitions:>22} {ours:>13.0} {theirs:>38.0} {:>8.2}", ours / theirs);
    }
}
