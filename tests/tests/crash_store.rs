//! Stores that were damaged, emptied or put back: refused, or noticed; never served as if nothing had happened.
//!
//! `TEST_FLIPS` sets how many bits are flipped, each in a fresh copy, `TEST_SEED` which ones.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratified_tests::{
    answers::{ask, fill},
    config::Config,
    environment::from_environment,
    load::{Load, Mix},
    process::{Ratifyd, copy_dir},
    tally,
};

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files(&path));
        } else if path.metadata().unwrap().len() > 0 {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Flips one bit of one file; which, for people.
fn flip(dir: &Path, rng: &mut StdRng) -> String {
    let files = files(dir);
    let path = &files[rng.random_range(0..files.len())];
    let mut bytes = fs::read(path).unwrap();
    // A file may be large and mostly reserved: its beginning is where the data is.
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
    let at = rng.random_range(0..used);
    let bit = rng.random_range(0..8);
    bytes[at] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
    format!("bit {bit} of byte {at} of {used} of {}", path.display())
}

#[tokio::test]
async fn a_damaged_store_is_refused_or_answers_as_before_and_never_panics() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let c = fill(&ratifyd).await;
    ratifyd.crash().await;
    let before = ask(&c).await;
    assert_eq!(ratifyd.terminate().await.code(), Some(0));
    let backup = tempfile::tempdir().unwrap();
    copy_dir(&ratifyd.data_dir(), backup.path());
    let seed = from_environment("TEST_SEED", 7);
    tally::seed("flipped bits", seed);
    let (mut rng, mut refused, mut served) = (StdRng::seed_from_u64(seed), 0, 0);
    let mut wrong = Vec::new();
    for _ in 0..from_environment("TEST_FLIPS", 60) {
        ratifyd.restore(backup.path());
        let what = flip(&ratifyd.data_dir(), &mut rng);
        let logged = ratifyd.log().len();
        ratifyd.spawn();
        match ratifyd.until_ready_or_ended().await {
            Some(status) if status.code() == Some(1) => refused += 1,
            Some(status) => wrong.push(format!("{what}: {status}")),
            None => {
                served += 1;
                if ask(&c).await != before {
                    wrong.push(format!("{what}: the answers are others"));
                }
                ratifyd.kill();
            }
        }
        let log = ratifyd.log()[logged..].to_owned();
        if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
            wrong.push(format!("{what}: {line}"));
        }
    }
    println!("{refused} refused, {served} served");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused > 0, "no damage was ever noticed");
}

/// A load that has ended, on a coordinator that still runs.
async fn loaded(seed: u64) -> (Ratifyd, Load) {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let mut load = Load::start(ratifyd.raw(), Mix { seed, clients: 2, contested: 0, keep: None });
    load.until_answered(200).await;
    load.stop().await;
    load.verify().await;
    (ratifyd, load)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_notices_a_store_that_was_emptied() {
    let (mut ratifyd, load) = loaded(11).await;
    ratifyd.kill();
    fs::remove_dir_all(ratifyd.data_dir()).unwrap();
    ratifyd.start_again().await;
    assert!(!load.violations().await.is_empty(), "everything is gone, and nobody noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_notices_a_store_that_was_put_back() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    fill(&ratifyd).await;
    ratifyd.terminate().await;
    let backup = tempfile::tempdir().unwrap();
    copy_dir(&ratifyd.data_dir(), backup.path());
    ratifyd.start_again().await;
    let mut load = Load::start(ratifyd.raw(), Mix { seed: 13, clients: 2, contested: 0, keep: None });
    load.until_answered(100).await;
    load.stop().await;
    ratifyd.kill();
    ratifyd.restore(backup.path());
    ratifyd.start_again().await;
    assert!(!load.violations().await.is_empty(), "the newest answers are gone, and nobody noticed");
}
