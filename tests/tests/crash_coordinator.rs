//! SIGKILL of the coordinator under load, again and again on the same data.
//!
//! `TEST_KILLS` sets how many kills each run makes, `TEST_SEED` what its random choices follow from.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::{
    fs::{self, File},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratified_tests::{
    config::Config,
    environment::from_environment,
    load::{Load, Mix},
    poll,
    process::{Ratifyd, run_to_end},
    session::Session,
    tally,
};
use rustix::process::Signal;
use serde_json::json;

/// Kills the coordinator so many times under load; some of the kills lie in the recovery from the one before.
async fn survive(what: &str, config: Config, keep: Option<usize>, default_seed: u64) {
    let (kills, seed) = (from_environment("TEST_KILLS", 60), from_environment("TEST_SEED", default_seed));
    tally::seed(&format!("kills of the coordinator, {what}"), seed);
    let mut rng = StdRng::seed_from_u64(seed);
    // Small segments, so that kills meet their beginning, their end, and the rounds of rewriting.
    let mut ratifyd = Ratifyd::start(config.with("log_segment_bytes", 65_536)).await;
    let mix = Mix { seed, clients: 4, contested: 1, keep };
    let mut load = Load::start(ratifyd.raw(), mix);
    let (mut killed, mut in_recovery) = (0, 0);
    while killed < kills {
        load.until_answered(rng.random_range(1..120)).await;
        tokio::time::sleep(Duration::from_micros(rng.random_range(0..3000))).await;
        ratifyd.kill();
        killed += 1;
        if killed < kills && killed % 4 == 0 {
            ratifyd.spawn();
            tokio::time::sleep(Duration::from_micros(rng.random_range(0..40_000))).await;
            ratifyd.kill();
            killed += 1;
            in_recovery += 1;
        }
        ratifyd.start_again().await;
        load.verify().await;
    }
    load.until_answered(100).await;
    load.stop().await;
    load.verify().await;
    assert_eq!(ratifyd.terminate().await.code(), Some(0));
    ratifyd.start_again().await;
    load.verify().await;
    let names = fs::read_dir(ratifyd.data_dir().join("log")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).filter(|name| name != "next").collect();
    names.sort();
    let first_is_gone = names[0] != "00000000000000000001.seg";
    assert!(first_is_gone || names.len() > 2, "the log has hardly grown: {names:?}");
    assert!(first_is_gone || keep.is_none(), "nothing was rewritten: {names:?}");
    let counts = load.counts();
    println!("{what}: segments from {} on, {} of them", names[0], names.len());
    println!("{what}: {killed} kills, {in_recovery} of them in recovery, {counts:?}");
    assert!(in_recovery > 0 && counts.acknowledged > 10 * kills, "too little happened");
    assert!(counts.refused > 0 && counts.unknown > 0 && counts.fenced > 0, "too little happened");
    assert_eq!(counts.expired > 0, keep.is_some(), "what expired: {}", counts.expired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_every_kill() {
    survive("everything kept", Config::new(), None, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eviction_under_kills_takes_only_what_it_may() {
    let config = Config::evicting(4).with("max_outcomes_per_client", 4);
    survive("four of each outcome kept", config, Some(4), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_stop_under_load_loses_nothing_and_exits_with_zero() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    let mut load = Load::start(ratifyd.raw(), Mix { seed: 3, clients: 3, contested: 1, keep: None });
    for _ in 0..10 {
        load.until_answered(50).await;
        assert_eq!(ratifyd.terminate().await.code(), Some(0));
        ratifyd.start_again().await;
        load.verify().await;
    }
    load.stop().await;
    load.verify().await;
}

#[tokio::test]
async fn a_second_process_on_the_same_directory_is_refused_and_the_first_goes_on() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    c.begin(1, json!({})).await.ok(201);
    let (status, stderr) = run_to_end(&mut ratifyd.command());
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("in use by another coordinator"), "it says why: {stderr}");
    assert_eq!(c.commit(1, json!({})).await.ok(200)["state"], "COMMITTED");
}

#[tokio::test]
async fn a_directory_is_free_again_after_a_kill() {
    let mut ratifyd = Ratifyd::start(Config::new()).await;
    for _ in 0..3 {
        ratifyd.kill();
        ratifyd.start_again().await;
    }
    assert_eq!(ratifyd.raw().get("/v1").await.loads(), 4);
}

#[tokio::test]
async fn a_refused_configuration_is_no_start_and_names_the_key() {
    for (key, value) in [
        ("max_clients", "0"),
        ("no_such_key", "1"),
        ("gc_interval_seconds", "\"soon\""),
        ("transaction_meta_persist_count", "-1"),
    ] {
        let ratifyd = Ratifyd::stopped(&Config::new().with(key, value));
        let (status, stderr) = run_to_end(&mut ratifyd.command());
        assert_eq!(status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(key), "{key}: {stderr}");
    }
}

#[tokio::test]
async fn a_log_that_takes_no_more_changes_no_exit_code() {
    let ratifyd = Ratifyd::stopped(&Config::new().with("max_clients", "0"));
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(ratifyd.command().stderr(full).status().unwrap().code(), Some(1));
}

#[tokio::test]
async fn a_wrong_command_line_has_an_exit_code_of_its_own() {
    let ratifyd = Ratifyd::stopped(&Config::new());
    let (status, stderr) = run_to_end(ratifyd.command().arg("--no-such-flag"));
    assert_eq!(status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--no-such-flag"), "{stderr}");
}

#[tokio::test]
async fn a_process_suspended_longer_than_every_timeout_judges_rightly_when_it_wakes() {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=3 {
        c.begin(n, json!({"timeoutMs": 1_000})).await.ok(201);
    }
    c.begin(4, json!({"timeoutMs": 600_000})).await.ok(201);
    c.prepare(2, json!({})).await.ok(200);
    c.prepare(3, json!({"preparedTimeoutMs": 1_000})).await.ok(200);
    // Nothing can be observed of a suspended process; a coordinator that is not suspended tells when as much time is over.
    let peer = Ratifyd::start(Config::new()).await;
    let timed = Session::open(&peer.raw(), "timed", 1).await;
    ratifyd.signal(Signal::STOP);
    timed.begin(1, json!({"timeoutMs": 1_000})).await.ok(201);
    poll::until("the peer's transaction to time out", || async {
        (timed.get(1).await.ok(200)["state"] == "ABORTED").then_some(())
    })
    .await;
    let late = tokio::spawn({
        let c = c.clone();
        async move { c.commit(1, json!({})).await }
    });
    tokio::task::yield_now().await;
    ratifyd.signal(Signal::CONT);
    let refused = late.await.unwrap().refused("OUTCOME_ABORTED");
    assert_eq!(refused["txn"]["endReason"], "TIMEOUT");
    assert_eq!(c.get(2).await.ok(200)["state"], "PREPARED");
    let prepared = c.get(3).await.ok(200);
    assert_eq!((&prepared["state"], &prepared["endReason"]), (&json!("ABORTED"), &json!("PREPARED_TIMEOUT")));
    assert_eq!(c.get(4).await.ok(200)["state"], "OPEN");
    assert_eq!(c.commit(2, json!({})).await.ok(200)["state"], "COMMITTED");
}
