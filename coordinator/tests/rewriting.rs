//! Engine, pipeline and log together: the log stays short, and at every instant it holds what was synced and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use ratified_coordinator::{
    SystemClock,
    store::{Batch, EmbeddedOptions, EmbeddedStore, Store},
    writer::{Drawn, Loaded, Pipeline, Room, load},
};
use ratified_core::{Input, Limits, Now, Request, Ticket, TxnCall, Uptime};
use ratified_protocol::{BeginRequest, CommitRequest, Epoch, Incarnation, OpenRequest, Payload, TxnId};
use uuid::Uuid;

const SEGMENT: u64 = 65_536;
const ROOM: Room = Room { requests: 100, bytes: 1 << 20 };

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn limits() -> Limits {
    Limits { persist_count: 4, max_outcomes_per_client: 8, ..Limits::default() }
}

fn open(dir: &Path) -> EmbeddedStore {
    let mut options = EmbeddedOptions::new(dir);
    (options.segment_bytes, options.mark_interval) = (SEGMENT, Duration::ZERO);
    EmbeddedStore::open(options).unwrap()
}

fn entries(dir: &Path) -> Map {
    let mut map = Map::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        map.insert(key.to_vec(), value.to_vec());
        Ok(())
    };
    open(dir).load(&mut visit).unwrap();
    map
}

fn apply(map: &mut Map, batch: &Batch) {
    for change in &batch.changes {
        match &change.value {
            Some(value) => map.insert(change.key.clone(), value.clone()),
            None => map.remove(&change.key),
        };
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("log")).unwrap();
    for name in ["STORE", "MARK"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let names = fs::read_dir(from.join("log")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.filter(|name| name != "next").collect();
    // The oldest ones may just be going, and the oldest first.
    names.sort();
    for name in names.into_iter().rev() {
        let _ = fs::copy(from.join("log").join(&name), to.join("log").join(&name));
    }
}

/// Client `n mod 5` opens, or begins and commits its next transaction.
fn step(pipeline: &mut Pipeline, n: u64) {
    let now = Now { uptime: Uptime::from_millis(n), ..Now::default() };
    let client = format!("client-{}", n % 5).parse().unwrap();
    let mut ask = |request| pipeline.step(now, Input::Request { ticket: Ticket(n), request }, 100).unwrap();
    if n <= 5 {
        let incarnation = Incarnation::new(Uuid::from_u128(1));
        ask(Request::Open { client, body: OpenRequest { incarnation, owner: None, create: true, generation: None } });
        return;
    }
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(n << 16 | 0x7000).to_be_bytes());
    id[8] = 0x80;
    let txn_id = TxnId::from_bytes(id).unwrap();
    let begin = TxnCall::Begin(BeginRequest { epoch: Some(Epoch::FIRST), ..BeginRequest::default() });
    ask(Request::Txn { client: client.clone(), txn_id, call: begin, wait_ms: 0 });
    let payload = Payload::new(vec![7; 300]);
    let commit = CommitRequest { epoch: Some(Epoch::FIRST), payload: Some(payload), ..CommitRequest::default() };
    ask(Request::Txn { client, txn_id, call: TxnCall::Commit(commit), wait_ms: 0 });
}

#[test]
fn a_log_stays_short_and_every_kill_finds_what_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let (mut map, mut longest, mut rounds) = (Map::new(), 0, 0);
    for start in 0..4_u64 {
        let mut store = open(dir.path());
        let clock = SystemClock::new();
        let Loaded { mut pipeline, claim, .. } = load(&mut store, limits(), ROOM, &clock, Drawn::at_random()).unwrap();
        map = match start {
            0 => entries_of(dir.path()),
            _ => {
                // The load record, and nothing but meta.
                let now = entries_of(dir.path());
                let records = |map: &Map| {
                    map.iter().filter(|(key, _)| key[0] != 1).map(|(k, v)| (k.clone(), v.clone())).collect::<Map>()
                };
                assert_eq!(records(&now), records(&map), "start {start}");
                now
            }
        };
        let status = store.status();
        for n in start * 500 + 1..=(start + 1) * 500 {
            step(&mut pipeline, n);
            let batch = pipeline.seal().unwrap().unwrap();
            rounds += u64::from(batch.rewritten_since.is_some());
            apply(&mut map, &batch);
            store.write(claim, batch).unwrap();
            store.sync().unwrap();
            pipeline.synced();
            pipeline.take_released();
            longest = longest.max(status.log_bytes());
            if n % 29 == 0 {
                assert_eq!(entries_of(dir.path()), map, "killed behind batch {n}");
            }
        }
    }
    let live: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    let bound = 4 * live as u64 + SEGMENT;
    println!("{rounds} rounds, at most {longest} bytes for {live}, bound {bound}");
    assert!((10..60).contains(&rounds), "{rounds} rounds: one for each segment or so");
    assert!(longest <= bound, "{longest} bytes, for {live} that are there");
    let segments = fs::read_dir(dir.path().join("log")).unwrap().count();
    assert!(segments <= 5, "{segments} files");
}

/// What a start would find now.
fn entries_of(dir: &Path) -> Map {
    let killed = tempfile::tempdir().unwrap();
    copy(dir, killed.path());
    entries(killed.path())
}
