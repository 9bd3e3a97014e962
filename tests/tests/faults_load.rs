//! Storage errors at every place of a start: the load ends with code 3 and names what failed, or goes on where that is
//! harmless; the next start finds everything.
//!
//! `TEST_STRIDE` = 1 fails every single call; by default a sample, `TEST_SEED` says which.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratified_tests::{
    answers::{ask, fill},
    around::Around,
    config::Config,
    environment::from_environment,
    fiu::{Errno, Times},
    process::{Ratifyd, one_line_of},
    session::Session,
    strace::Strace,
    tally,
};
use serde_json::json;

/// What changes the disk, and what reads it. The last is so frequent that it is thinned out more.
const CALLS: [(&str, u64); 7] =
    [("fsync", 1), ("fdatasync", 1), ("pwrite64", 1), ("openat", 1), ("rename", 1), ("unlink", 1), ("read", 3)];

/// Every file that a start may touch in this directory: those that are there, and those that it will make.
fn paths(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(dir, &mut found);
    found.extend(["log/next", "log/copy"].map(|name| dir.join(name)));
    found.sort();
    found.dedup();
    found
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    found.push(dir.to_owned());
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, found) } else { found.push(path) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_meets_a_storage_error_says_so_and_the_next_one_finds_everything() {
    let (stride, seed) = (from_environment("TEST_STRIDE", 6), from_environment("TEST_SEED", 61));
    tally::seed("storage errors while loading", seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = fill(&ratifyd).await;
    ratifyd.crash().await;
    let before = ask(&c).await;
    let kinds: Vec<_> = Errno::ALL.into_iter().flat_map(|errno| Times::ALL.map(|times| (errno, times))).collect();
    let mut ends = BTreeMap::<(&str, &str), u64>::new();
    for (call, thinned) in CALLS {
        let mut nth = 1;
        loop {
            ratifyd.kill();
            let (errno, times) = kinds[rng.random_range(0..kinds.len())];
            let trace = ratifyd.side_dir().join("trace");
            let strace = Strace::watch(&trace, call, paths(&ratifyd.data_dir())).failing(call, errno, nth, times);
            ratifyd.run_inside(strace.around());
            let what = format!("{call} {nth} {errno:?} {times:?}");
            let logged = ratifyd.log().len();
            ratifyd.spawn();
            let process = ratifyd.pid();
            let end = match ratifyd.until_ready_or_ended().await {
                Some(status) => {
                    let log = ratifyd.log()[logged..].to_owned();
                    let line = one_line_of(&log);
                    println!("{what}: {status}: {line}");
                    // Before the directory is taken there is no load that could have failed.
                    let data = ratifyd.data_dir();
                    let taking = [("list", ""), ("make the data directory", ""), ("open", "/LOCK")];
                    let is_taking = |(action, file): (&str, &str)| {
                        line.starts_with(&format!("{action} {}{file}: ", data.display()))
                    };
                    let is_taking = taking.into_iter().any(is_taking);
                    assert!(is_taking || line.starts_with("the load failed: "), "{what}: {line}");
                    assert_eq!(status.code(), Some(3), "{what}: {log}");
                    "ended"
                }
                None => {
                    println!("{what}: served");
                    assert_eq!(ask(&c).await, before, "{what}");
                    ratifyd.kill();
                    "served"
                }
            };
            let fired = strace.injected(process).await > 0;
            *ends.entry((call, if fired { end } else { "not reached" })).or_default() += 1;
            ratifyd.run_inside(Around::nothing());
            ratifyd.start_again().await;
            assert_eq!(ask(&c).await, before, "{what}");
            if !fired {
                assert_eq!(end, "served", "{what}");
                break;
            }
            nth += if stride == 1 { 1 } else { rng.random_range(1..2 * stride * thinned) };
        }
    }
    println!("{ends:?}");
    for (call, _) in CALLS {
        assert!(ends.get(&(call, "ended")).is_some_and(|n| *n > 0), "{call} never failed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_that_meets_a_storage_error_is_no_obstacle_to_the_second() {
    let (stride, seed) = (from_environment("TEST_STRIDE", 6), from_environment("TEST_SEED", 71));
    tally::seed("storage errors while making a store", seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut failed = 0;
    for call in ["fsync", "fdatasync", "pwrite64", "mkdir", "rename"] {
        let mut nth = 1;
        loop {
            let mut ratifyd = Ratifyd::stopped(&Config::new());
            let errno = Errno::ALL[rng.random_range(0..2)];
            let strace = Strace::watch(&ratifyd.side_dir().join("trace"), call, Vec::new());
            let strace = strace.failing(call, errno, nth, Times::Once);
            ratifyd.run_inside(strace.around());
            ratifyd.spawn();
            let process = ratifyd.pid();
            let what = format!("{call} {nth} {errno:?}");
            match ratifyd.until_ready_or_ended().await {
                Some(status) => {
                    assert_eq!(status.code(), Some(3), "{what}: {}", ratifyd.log());
                }
                None => ratifyd.kill(),
            }
            if strace.injected(process).await == 0 {
                break;
            }
            failed += 1;
            ratifyd.run_inside(Around::nothing());
            ratifyd.start_again().await;
            let c = Session::open(&ratifyd.raw(), "c", 1).await;
            c.begin(1, json!({})).await.ok(201);
            ratifyd.crash().await;
            assert_eq!(c.commit(1, json!({})).await.ok(200)["state"], "COMMITTED", "{what}");
            nth += rng.random_range(1..2 * stride);
        }
    }
    assert!(failed >= 5, "{failed} starts failed");
}
