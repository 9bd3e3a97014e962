//! Storage errors under the real coordinator: after one nothing more is acknowledged, the process exits with code 3 and
//! says why, and the next one finds everything that was acknowledged.
//!
//! `TEST_SEED` sets what the random choices follow from, `TEST_FAULTS` how many faults each test injects.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
    path::PathBuf,
    process::ExitStatus,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratified_tests::{
    around::Around,
    config::Config,
    environment::from_environment,
    fiu::{Errno, Fiu, Times},
    load::{Load, Mix},
    poll,
    process::{Ratifyd, one_line_of},
    session::Session,
    strace::{Progress, Strace},
    tally,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use tokio::task::JoinSet;

/// A seed that was printed.
fn seeded(test: &str, default: u64) -> (u64, StdRng) {
    let seed = from_environment("TEST_SEED", default);
    tally::seed(test, seed);
    (seed, StdRng::seed_from_u64(seed))
}

fn every_kind() -> impl Iterator<Item = (Errno, Times)> {
    Errno::ALL.into_iter().flat_map(|errno| Times::ALL.map(|times| (errno, times))).cycle()
}

/// Waits for the end of a coordinator whose store has failed; what it says of it.
async fn ends_with_3(ratifyd: &mut Ratifyd, logged: usize) -> String {
    let status = ratifyd.wait_for_exit().await;
    ended_with_3(ratifyd, status, logged)
}

fn ended_with_3(ratifyd: &Ratifyd, status: ExitStatus, logged: usize) -> String {
    let log = ratifyd.log()[logged..].to_owned();
    assert_eq!(status.code(), Some(3), "{log}");
    let line = one_line_of(&log).to_owned();
    assert!(line.starts_with("the store failed: "), "{line}");
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_under_load_ends_the_process_and_loses_nothing_acknowledged() {
    let (seed, mut rng) = seeded("failed syncs under load", 31);
    let mut ratifyd = Ratifyd::stopped(&Config::new());
    let fiu = Fiu::new(ratifyd.side_dir());
    ratifyd.run_inside(fiu.around());
    ratifyd.start_again().await;
    let mut load = Load::start(ratifyd.raw(), Mix { seed, clients: 4, contested: 1, keep: None });
    let rounds = usize::try_from(from_environment("TEST_FAULTS", 12)).unwrap();
    for (errno, times) in every_kind().take(rounds) {
        let n = rng.random_range(0..150);
        load.until_answered(n).await;
        let logged = ratifyd.log().len();
        let kind = fiu.fail(ratifyd.pid(), "posix/io/sync/fdatasync", errno, times);
        let line = ends_with_3(&mut ratifyd, logged).await;
        tally::fault(&kind);
        let names_it = if errno == Errno::Eio { "Input/output error" } else { "No space left on device" };
        assert!(line.contains(names_it), "{line}");
        ratifyd.start_again().await;
        load.verify().await;
    }
    load.until_answered(100).await;
    load.stop().await;
    load.verify().await;
    let counts = load.counts();
    assert!(counts.acknowledged > 500 && counts.unknown >= rounds as u64, "too little happened: {counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_meets_a_failed_sync_is_never_acknowledged_and_has_one_answer_afterwards() {
    let mut ratifyd = Ratifyd::stopped(&Config::new());
    let fiu = Fiu::new(ratifyd.side_dir());
    ratifyd.run_inside(fiu.around());
    ratifyd.start_again().await;
    let mut c = Session::open(&ratifyd.raw(), "c", 1).await;
    for (round, (errno, times)) in (0..).zip(every_kind().take(4)) {
        let first = round * 100 + 1;
        c.begin(first, json!({})).await.ok(201);
        c.commit(first, json!({})).await.ok(200);
        c.begin(first + 1, json!({})).await.ok(201);
        let logged = ratifyd.log().len();
        let kind = fiu.fail(ratifyd.pid(), "posix/io/sync/fdatasync", errno, times);
        let mut calls = JoinSet::new();
        for n in first + 1..first + 40 {
            let c = c.clone();
            calls.spawn(async move {
                let body = json!({"epoch": c.epoch});
                let (path, method) = if n == first + 1 { (c.path(n) + "/commit", "POST") } else { (c.path(n), "PUT") };
                (n, c.raw.try_call(method, &path, Some(&body)).await)
            });
        }
        for (n, answer) in calls.join_all().await {
            let Ok(answer) = answer else { continue };
            assert!(matches!(answer.code(), "STORAGE_UNAVAILABLE" | "SHUTTING_DOWN"), "{n}: {}", answer.text);
            answer.refused("STORAGE_UNAVAILABLE");
        }
        ends_with_3(&mut ratifyd, logged).await;
        tally::fault(&kind);
        ratifyd.start_again().await;
        assert_eq!(c.get(first).await.ok(200)["state"], "COMMITTED");
        let mut fates = Vec::new();
        for n in first + 1..first + 40 {
            let fate = c.get(n).await;
            let state = fate.json["state"].as_str().unwrap_or("none").to_owned();
            assert!(matches!(state.as_str(), "OPEN" | "COMMITTED") || fate.code() == "TXN_NOT_FOUND", "{}", fate.text);
            fates.push(state);
        }
        assert!(matches!(fates[0].as_str(), "OPEN" | "COMMITTED"), "begun for certain: {fates:?}");
        ratifyd.crash().await;
        for (n, fate) in (first + 1..).zip(&fates) {
            assert_eq!(c.get(n).await.json["state"].as_str().unwrap_or("none"), fate, "{n}");
        }
        c = Session::open(&ratifyd.raw(), "c", round + 2).await;
    }
}

/// The thread that loads, and the one that makes segments, make fewer calls of one kind; the thread that serves makes as
/// many as it gets.
const AFTER_LOAD: u64 = 8;

/// Takes away what was written and certainly not synced: all of it, or some, or any of its sectors.
fn lose_what_was_not_synced(path: &PathBuf, progress: Progress, rng: &mut StdRng) -> u64 {
    const SECTOR: u64 = 512;
    let Progress { written, synced, .. } = progress;
    let Ok(mut file) = File::options().write(true).open(path) else { return 0 };
    let mut wipe = |from: u64, to: u64| {
        file.seek(SeekFrom::Start(from)).unwrap();
        file.write_all(&vec![0; usize::try_from(to - from).unwrap()]).unwrap();
        to - from
    };
    match rng.random_range(0..3) {
        0 => wipe(synced, written),
        1 => wipe(rng.random_range(synced..=written), written),
        _ => {
            let mut lost = 0;
            let mut from = synced;
            while from < written {
                let to = ((from / SECTOR + 1) * SECTOR).min(written);
                lost += if rng.random_bool(0.5) { wipe(from, to) } else { 0 };
                from = to;
            }
            lost
        }
    }
}

/// Runs the load against a coordinator under strace, ends it as told, takes away what was not synced, and looks
/// whether everything that was acknowledged is there, again and again on the same data.
async fn lose_unsynced(test: &str, default_seed: u64, rounds: u64, faults: &[(&'static str, &[Times])]) {
    let (seed, mut rng) = seeded(test, default_seed);
    // Faults are counted by the calls of a thread: with small segments the one that makes them would meet them, too.
    let config = if faults.is_empty() { Config::new().with("log_segment_bytes", 65_536) } else { Config::new() };
    let mut ratifyd = Ratifyd::stopped(&config);
    let trace = ratifyd.side_dir().join("trace");
    let mut load: Option<Load> = None;
    let (mut fired, mut lost) = (0, 0);
    for (round, (errno, _)) in (0..rounds).zip(every_kind()) {
        let mut strace = Strace::watch(&trace, "pwrite64,fdatasync", Vec::new());
        let fault = (!faults.is_empty()).then(|| faults[usize::try_from(round).unwrap() % faults.len()]);
        if let Some((call, times)) = fault {
            let times = times[rng.random_range(0..times.len())];
            strace = strace.failing(call, errno, rng.random_range(AFTER_LOAD..60), times);
        }
        ratifyd.run_inside(strace.around());
        let logged = ratifyd.log().len();
        ratifyd.spawn();
        let process = ratifyd.pid();
        // The load of the last round goes on, and may meet the fault before anybody has seen that the start is through.
        let ended = ratifyd.until_ready_or_ended().await;
        let load =
            load.get_or_insert_with(|| Load::start(ratifyd.raw(), Mix { seed, clients: 4, contested: 1, keep: None }));
        if fault.is_some() {
            match ended {
                Some(status) => ended_with_3(&ratifyd, status, logged),
                None => ends_with_3(&mut ratifyd, logged).await,
            };
            assert!(strace.injected(process).await > 0, "round {round}: it ended, but not of the fault");
            fired += 1;
        } else {
            assert_eq!(ended, None, "round {round}: {}", ratifyd.log());
            load.until_answered(rng.random_range(1..120)).await;
            ratifyd.kill();
        }
        for (path, progress) in strace.progress(process).await {
            lost += lose_what_was_not_synced(&path, progress, &mut rng);
        }
        ratifyd.run_inside(Around::nothing());
        ratifyd.start_again().await;
        load.verify().await;
        ratifyd.kill();
    }
    ratifyd.start_again().await;
    let mut load = load.unwrap();
    load.stop().await;
    load.verify().await;
    println!("{test}: {fired} faults fired, {lost} bytes lost, {:?}", load.counts());
    assert!(lost > 100, "hardly anything was lost: {lost} bytes");
    assert!(fired == if faults.is_empty() { 0 } else { rounds });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_write_or_sync_of_the_log_loses_nothing_acknowledged_though_all_else_is_lost() {
    let rounds = from_environment("TEST_FAULTS", 20);
    let faults: [(&str, &[Times]); 2] = [("pwrite64", &Times::ALL), ("fdatasync", &Times::ALL)];
    lose_unsynced("failing segments, unsynced bytes lost", 41, rounds, &faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_that_takes_all_that_was_not_synced_loses_nothing_acknowledged() {
    lose_unsynced("power cuts, unsynced bytes lost", 51, from_environment("TEST_KILLS", 20), &[]).await;
}

/// The segments of a coordinator, oldest first.
fn segments(ratifyd: &Ratifyd) -> Vec<PathBuf> {
    let names = fs::read_dir(ratifyd.data_dir().join("log")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = names.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).collect();
    found.sort();
    found
}

/// How far the newest segment of a running coordinator has been written.
fn log_position(ratifyd: &Ratifyd) -> u64 {
    let bytes = fs::read(segments(ratifyd).last().unwrap()).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    used.next_multiple_of(512) as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_written_no_further_tears_a_batch_and_loses_nothing_acknowledged() {
    let (seed, mut rng) = seeded("segments that are written no further", 81);
    let mut ratifyd = Ratifyd::stopped(&Config::new());
    // The limit is for every file; the log is kept below it.
    ratifyd.run_inside(Around::without_sigxfsz().with("RUST_LOG", "error"));
    ratifyd.start_again().await;
    let mut load = Load::start(ratifyd.raw(), Mix { seed, clients: 4, contested: 1, keep: None });
    for _ in 0..from_environment("TEST_FAULTS", 10) {
        load.until_answered(rng.random_range(100..200)).await;
        let logged = ratifyd.log().len();
        let limit = log_position(&ratifyd) + rng.random_range(1..2000);
        assert!(limit > logged as u64 + 1000, "the log would meet the limit too: {limit}");
        let pid = Pid::from_raw(i32::try_from(ratifyd.pid()).unwrap());
        prlimit(pid, Resource::Fsize, Rlimit { current: Some(limit), maximum: None }).unwrap();
        let line = ends_with_3(&mut ratifyd, logged).await;
        assert!(line.contains("File too large"), "{line}");
        tally::fault("EFBIG write");
        ratifyd.start_again().await;
        load.verify().await;
    }
    load.stop().await;
    load.verify().await;
}

/// More prepared transactions with a payload of 60,000 bytes than a new segment and the one before it hold.
const MORE_THAN_THE_RESERVE: u64 = 60;

/// A full disk is met where the next segment is made: nothing new is begun, what ends something goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_without_room_for_the_next_segment_begins_nothing_and_ends_what_there_is() {
    for (call, errno) in [("pwrite64", Errno::Enospc), ("openat", Errno::Eio), ("fsync", Errno::Enospc)] {
        let mut ratifyd = Ratifyd::start(Config::new()).await;
        let c = Session::open(&ratifyd.raw(), "c", 1).await;
        for n in 1..=MORE_THAN_THE_RESERVE {
            c.begin(n, json!({"timeoutMs": 600_000})).await.ok(201);
        }
        ratifyd.kill();
        let trace = ratifyd.side_dir().join("trace");
        let strace = Strace::watch(&trace, call, vec![ratifyd.data_dir().join("log/next")]);
        ratifyd.run_inside(strace.failing(call, errno, 1, Times::Always).around());
        let logged = ratifyd.log().len();
        ratifyd.spawn();
        assert_eq!(ratifyd.until_ready_or_ended().await, None, "{}", ratifyd.log());
        poll::until_some("the next segment to fail", || {
            ratifyd.log()[logged..].contains("the next segment cannot be made").then_some(())
        })
        .await;
        let begun = c.raw.put(&c.path(1000), json!({"epoch": c.epoch})).await;
        begun.refused("OVERLOADED");
        let body = json!({"incarnation": "6ba7b810-9dad-41d1-80b4-00c04fd430c9", "create": true});
        c.raw.post("/v1/clients/other/open", body).await.refused("OVERLOADED");
        c.begin(1, json!({"timeoutMs": 600_000})).await.ok(200);
        c.commit(1, json!({})).await.ok(200);
        let payload = "A".repeat(80_000);
        let mut acknowledged = 1;
        for n in 2..=MORE_THAN_THE_RESERVE {
            let body = json!({"epoch": c.epoch, "payload": payload});
            let prepared = c.raw.try_call("POST", &(c.path(n) + "/prepare"), Some(&body)).await;
            if !prepared.is_ok_and(|reply| reply.status == 200) {
                break;
            }
            acknowledged = n;
        }
        let what = format!("{call} {errno:?}, {acknowledged} acknowledged");
        println!("{what}");
        assert!((10..MORE_THAN_THE_RESERVE).contains(&acknowledged), "{what}");
        let line = ends_with_3(&mut ratifyd, logged).await;
        let next = ratifyd.data_dir().join("log/next");
        assert!(line.starts_with(&format!("the store failed: allocate {}: ", next.display())), "{line}");
        tally::fault(&format!("{} {call} of the next segment", errno.name()));
        ratifyd.run_inside(Around::nothing());
        ratifyd.start_again().await;
        assert_eq!(c.get(1).await.ok(200)["state"], "COMMITTED");
        for n in 2..=acknowledged {
            let txn = c.get(n).await.ok(200);
            assert_eq!((&txn["state"], &txn["payload"]), (&json!("PREPARED"), &json!(payload)), "{what}: {n}");
        }
        c.begin(1000, json!({})).await.ok(201);
    }
}

/// A segment is begun with what the store has opened before; only the one after it needs a descriptor, ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_a_descriptor_left_begins_the_segment_that_is_there_and_ends_what_there_is() {
    let mut ratifyd = Ratifyd::start(Config::new().with("log_segment_bytes", 65_536)).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=20 {
        c.begin(n, json!({"timeoutMs": 600_000})).await.ok(201);
    }
    let next = ratifyd.data_dir().join("log/next");
    poll::until_some("the next segment", || fs::metadata(&next).is_ok_and(|m| m.len() == 65_536).then_some(())).await;
    let before = segments(&ratifyd).len();
    let logged = ratifyd.log().len();
    let open = fs::read_dir(format!("/proc/{}/fd", ratifyd.pid())).unwrap();
    let open: Vec<u64> = open.map(|fd| fd.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let lowest_free = (0..).find(|fd| !open.contains(fd)).unwrap();
    let pid = Pid::from_raw(i32::try_from(ratifyd.pid()).unwrap());
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(lowest_free), maximum: Some(lowest_free) }).unwrap();
    let payload = "A".repeat(26_000);
    let mut acknowledged = 0;
    for n in 1..=20 {
        let body = json!({"epoch": c.epoch, "payload": payload});
        let prepared = c.raw.try_call("POST", &(c.path(n) + "/prepare"), Some(&body)).await;
        if !prepared.is_ok_and(|reply| reply.status == 200) {
            break;
        }
        acknowledged = n;
    }
    let line = ends_with_3(&mut ratifyd, logged).await;
    let is_said = line.starts_with(&format!("the store failed: allocate {}: Too many open files", next.display()));
    assert!(is_said, "{line}");
    assert_eq!(segments(&ratifyd).len(), before + 1, "{acknowledged} acknowledged");
    tally::fault("EMFILE of the next segment");
    ratifyd.start_again().await;
    for n in 1..=acknowledged {
        assert_eq!(c.get(n).await.ok(200)["state"], "PREPARED", "{n} of {acknowledged}");
    }
}
