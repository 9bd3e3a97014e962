//! What can go wrong around a job's process and its host, each with what must happen instead.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::{fs, path::Path};

use ratified_tests::{
    config::Config,
    jobs::{Ended, JobSpec},
    pipeline::{check_exactly_once, visible},
    process::Ratifyd,
};
use rustix::process::Signal;
use tempfile::TempDir;

/// A coordinator, and a directory for a job.
async fn scene() -> (Ratifyd, TempDir) {
    (Ratifyd::start(Config::new()).await, tempfile::tempdir().unwrap())
}

fn job(ratifyd: &Ratifyd, dir: &Path) -> JobSpec {
    JobSpec { dir: dir.to_owned(), ..JobSpec::new(env!("CARGO_BIN_EXE_job"), "split", ratifyd.url(), dir, "job") }
}

/// Decided, then host and disk lost: the next one finds what it needs at the coordinator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_host_had_decided_is_finished_by_the_next_one() {
    let (ratifyd, dir) = scene().await;
    let job = job(&ratifyd, dir.path());
    assert_eq!(job.run(&[("die", "decided:2")]).await, Ended::Killed);
    fs::remove_dir_all(dir.path().join("pending")).unwrap();
    assert_eq!(job.run(&[]).await, Ended::Finished);
    check_exactly_once(&job.out(), job.records).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_pending_file_is_cut_and_a_damaged_one_is_refused() {
    let (ratifyd, dir) = scene().await;
    let job = job(&ratifyd, dir.path());
    assert_eq!(job.run(&[("die", "begun:2")]).await, Ended::Killed);
    let file = dir.path().join("pending/job.pending");
    let whole = fs::read(&file).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let mut damaged = whole.clone();
    damaged[used / 2] ^= 1;
    fs::write(&file, &damaged).unwrap();
    assert_eq!(job.run(&[]).await, Ended::Failed);
    let log = fs::read_to_string(dir.path().join("job.log")).unwrap();
    assert!(log.contains("damaged"), "{log}");
    fs::write(&file, &whole[..used - 3]).unwrap();
    assert_eq!(job.run(&[]).await, Ended::Finished);
    check_exactly_once(&job.out(), job.records).unwrap();
}

/// Materialize #11334: two jobs of one name must not fence each other for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_jobs_with_one_name_the_loser_stops_and_names_both() {
    let (ratifyd, dir) = scene().await;
    let job = job(&ratifyd, dir.path());
    let mut loser = job.start(&[("stop", "begun:2")]);
    loser.until_suspended().await;
    let elsewhere = dir.path().join("elsewhere").display().to_string();
    let mut winner = job.start(&[("pending", &elsewhere), ("stop", "begun:0")]);
    winner.until_suspended().await;
    loser.signal(Signal::CONT);
    assert_eq!(loser.wait().await, Ended::Failed);
    let log = loser.log();
    for pid in [loser.id(), winner.id()] {
        assert!(log.contains(&format!(":{pid}")), "{pid} is not named: {log}");
    }
    winner.signal(Signal::CONT);
    assert_eq!(winner.wait().await, Ended::Finished);
    assert_eq!(visible(&job.out()).unwrap().iter().flatten().count(), 60);
}
