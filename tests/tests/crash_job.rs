//! SIGKILL of the job at every named place and at random moments, of the coordinator, and of both at once; and jobs that
//! wake up after their successors have taken over.
//!
//! `TEST_SEEDS` sets how many random runs are made, `TEST_SEED` the first seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratified_tests::{
    config::Config,
    environment::from_environment,
    jobs::{Ended, JobSpec},
    pipeline::visible,
    poll,
    process::Ratifyd,
    site::Site,
    tally,
};
use rustix::process::Signal;

/// Every place in the life of a transaction, in the order of its life.
const PLACES: [&str; 10] =
    ["begun", "write", "sync_file", "pre_committed", "prepared", "decided", "rename_0", "rename_1", "applied", "acked"];
/// Places between a transaction and the engine.
const ENGINE_PLACES: [&str; 4] = ["opened", "stored", "notified", "flushed"];

async fn site() -> Site {
    Site::new(Ratifyd::start(Config::new()).await, env!("CARGO_BIN_EXE_job")).await
}

/// Kills the job at each place, each for the first time it is passed and some later ones; then runs it to the end.
async fn die_everywhere(driver: &'static str, places: &[&str]) {
    let site = site().await;
    let mut kills = 0;
    for place in places {
        for nth in [0, 1, 4] {
            let what = format!("{driver}-{place}-{nth}");
            let job = site.job(driver, &what);
            match job.run(&[("die", &format!("{place}:{nth}"))]).await {
                Ended::Killed => kills += 1,
                ended => assert!(nth > 0 && ended == Ended::Finished, "{what}: {ended:?}, and was never there"),
            }
            assert_eq!(job.run(&[]).await, Ended::Finished, "{what}");
            site.check(&job, &what).await;
        }
    }
    println!("{driver}: {kills} kills at named places");
    assert!(kills >= 2 * places.len(), "{kills} kills");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_checkpointing_job_killed_at_any_place_writes_every_record_once() {
    let places: Vec<_> = PLACES.into_iter().filter(|place| *place != "prepared").collect();
    die_everywhere("split", &places).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_under_an_engine_killed_at_any_place_writes_every_record_once() {
    let places: Vec<_> = PLACES.into_iter().chain(ENGINE_PLACES).filter(|place| *place != "flushed").collect();
    die_everywhere("engine", &places).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_killed_while_it_recovers_recovers_from_that_too() {
    let site = site().await;
    let mut kills = 0;
    for driver in ["split", "engine"] {
        for (first, second) in [
            ("pre_committed:1", "remove:0"),
            ("write:3", "remove:0"),
            ("decided:1", "rename_0:0"),
            ("decided:1", "rename_1:0"),
            ("rename_1:1", "sync_directory:0"),
            ("applied:1", "begun:0"),
            ("acked:1", "sync_directory:1"),
        ] {
            let what = format!("{driver}-{}-{}", first.replace(':', "-"), second.replace(':', "-"));
            let job = site.job(driver, &what);
            for place in [first, second] {
                assert_eq!(job.run(&[("die", place)]).await, Ended::Killed, "{what}: {place} was never there");
                kills += 1;
            }
            assert_eq!(job.run(&[]).await, Ended::Finished, "{what}");
            site.check(&job, &what).await;
        }
    }
    println!("{kills} kills in recovery");
}

/// One random run: the job, the coordinator, or both at once are killed, until the job has finished.
async fn random_run(site: &mut Site, driver: &'static str, seed: u64) -> (u64, u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let job = JobSpec { records: 300, ..site.job(driver, &format!("{driver}-{seed}")) };
    let (mut job_kills, mut coordinator_kills) = (0, 0);
    for _ in 0..5 {
        let place = PLACES[rng.random_range(0..PLACES.len())];
        let die = format!("{place}:{}", rng.random_range(0..8));
        let chooses_place = rng.random_bool(0.4);
        let options = [("die", die.as_str())];
        let mut running = job.start(if chooses_place { &options } else { &[] });
        // At some point of its progress, however fast the machine is, and a moment of chance behind it.
        let goal = job.visible_files() + rng.random_range(0..12);
        poll::until_some("the job to come so far", || (job.visible_files() >= goal || running.is_over()).then_some(()))
            .await;
        tokio::time::sleep(Duration::from_micros(rng.random_range(0..20_000))).await;
        let (kills_job, kills_coordinator) = [(true, false), (false, true), (true, true)][rng.random_range(0..3)];
        if kills_job && !running.is_over() {
            running.signal(Signal::KILL);
        }
        if kills_coordinator {
            coordinator_kills += u64::from(!running.is_over() || kills_job);
            site.ratifyd.crash().await;
        }
        match running.wait().await {
            Ended::Killed => job_kills += 1,
            Ended::Finished => break,
            Ended::Failed => panic!("{driver}, seed {seed}: {}", running.log()),
        }
    }
    assert_eq!(job.run(&[]).await, Ended::Finished, "{driver}, seed {seed}");
    site.check(&job, &format!("{driver}, seed {seed}")).await;
    (job_kills, coordinator_kills)
}

async fn die_at_random(driver: &'static str, default_seed: u64) {
    let (runs, first) = (from_environment("TEST_SEEDS", 12), from_environment("TEST_SEED", default_seed));
    tally::seed(&format!("kills of {driver} jobs, {runs} runs"), first);
    let mut site = site().await;
    let (mut job_kills, mut coordinator_kills) = (0, 0);
    for seed in first..first + runs {
        let (jobs, coordinators) = random_run(&mut site, driver, seed).await;
        job_kills += jobs;
        coordinator_kills += coordinators;
    }
    println!(
        "{driver}, seeds {first}..{}: {job_kills} kills of the job, {coordinator_kills} of the coordinator",
        first + runs
    );
    assert!(job_kills >= runs && coordinator_kills >= runs, "too little happened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_checkpointing_job_and_its_coordinator_killed_at_random_write_every_record_once() {
    die_at_random("split", 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_under_an_engine_and_its_coordinator_killed_at_random_write_every_record_once() {
    die_at_random("engine", 200).await;
}

/// A job suspends itself at a place; a successor on another host runs to the end; then the first one wakes up.
async fn wake_up_late(driver: &'static str, place: &str) {
    let site = site().await;
    let job = site.job(driver, &format!("{driver}-{place}"));
    let mut zombie = job.start(&[("stop", &format!("{place}:1"))]);
    zombie.until_suspended().await;
    let elsewhere = site.dir.path().join("elsewhere").display().to_string();
    assert_eq!(job.run(&[("pending", &elsewhere)]).await, Ended::Finished);
    site.check(&job, place).await;
    let clients =
        format!("/v1/preserver/{}", if driver == "engine" { format!("{}.0", job.name) } else { job.name.clone() });
    let kept = site.ratifyd.raw().get(&clients).await.ok(200);
    zombie.signal(Signal::CONT);
    assert_eq!(zombie.wait().await, Ended::Failed, "{place}");
    let log = zombie.log();
    let says_why = log.contains("was opened by a newer owner") || log.contains("was superseded by attempt");
    assert!(says_why, "{place}: {log}");
    let outcomes = |answer: &ratified_tests::raw::Reply| {
        let items = answer["outcomes"].as_array().unwrap().clone();
        items.into_iter().map(|o| (o["txnId"].clone(), o["outcome"].clone())).collect::<Vec<_>>()
    };
    let after = site.ratifyd.raw().get(&clients).await.ok(200);
    assert_eq!(outcomes(&after), outcomes(&kept), "{place}: what the winner did is untouched");
    let still_visible = visible(&job.out()).unwrap();
    assert_eq!(still_visible.iter().flatten().count() as u64, job.records, "{place}: nothing new is visible");
    // What it staged before it learnt that it is fenced is removed by the next owner.
    assert_eq!(job.run(&[]).await, Ended::Finished);
    site.check(&job, &format!("{place}, after the zombie woke")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_checkpointing_job_that_wakes_up_late_is_fenced_and_the_winner_is_untouched() {
    for place in ["begun", "write", "pre_committed", "decided", "rename_1", "applied", "acked"] {
        wake_up_late("split", place).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_under_an_engine_that_wakes_up_late_is_fenced_and_the_winner_is_untouched() {
    for place in ["begun", "write", "pre_committed", "prepared", "stored", "notified", "decided", "rename_1", "acked"] {
        wake_up_late("engine", place).await;
    }
}
