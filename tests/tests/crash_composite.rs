//! Two sinks, one decision: a job is killed at every step that either of them takes, and both have everything once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    config::Config,
    jobs::{Ended, JobSpec},
    pipeline::{check_both, copy_of, visible},
    process::Ratifyd,
};
use tempfile::TempDir;

/// Every place in the life of a transaction of two sinks. Members flush at the same time and commit in their turn.
const PLACES: [&str; 14] = [
    "begun",
    "write",
    "copy_write",
    "sync_file",
    "copy_sync_file",
    "pre_committed",
    "decided",
    "rename_0",
    "rename_1",
    "copy_rename_0",
    "copy_rename_1",
    "copy_sync_directory",
    "applied",
    "acked",
];

fn job(ratifyd: &Ratifyd, dir: &TempDir, name: &str) -> JobSpec {
    JobSpec::new(env!("CARGO_BIN_EXE_job"), "composite", ratifyd.url(), dir.path(), name)
}

async fn check(ratifyd: &Ratifyd, job: &JobSpec, what: &str) {
    check_both(&job.out(), job.records).unwrap_or_else(|why| panic!("{what}: {why}"));
    job.check_finished(&ratifyd.raw(), what).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_killed_between_the_commits_of_two_sinks_finds_its_records_once_in_both() {
    let (mut ratifyd, dir) = (Ratifyd::start(Config::new()).await, tempfile::tempdir().unwrap());
    let job = job(&ratifyd, &dir, "between");
    assert_eq!(job.run(&[("die", "copy_rename_0:0")]).await, Ended::Killed);
    // The first sink has committed, the second has not.
    assert_eq!(visible(&job.out()).unwrap(), [vec![0, 2, 4, 6, 8], vec![1, 3, 5, 7, 9]]);
    assert_eq!(visible(&copy_of(&job.out())).unwrap().concat(), Vec::<u64>::new());
    // The decision outlives the coordinator, too.
    ratifyd.crash().await;
    let job = JobSpec { url: ratifyd.url(), ..job };
    assert_eq!(job.run(&[]).await, Ended::Finished);
    check(&ratifyd, &job, "after the restart").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_two_sinks_killed_at_any_place_writes_every_record_once_to_both() {
    let (ratifyd, dir) = (Ratifyd::start(Config::new()).await, tempfile::tempdir().unwrap());
    let mut kills = 0;
    for place in PLACES {
        for nth in [0, 3] {
            let what = format!("{place}-{nth}");
            let job = job(&ratifyd, &dir, &what);
            assert_eq!(job.run(&[("die", &format!("{place}:{nth}"))]).await, Ended::Killed, "{what}");
            kills += 1;
            // A second crash while the first one is recovered from.
            match job.run(&[("die", "copy_rename_1:0")]).await {
                Ended::Killed => kills += 1,
                ended => panic!("{what}: {ended:?}"),
            }
            assert_eq!(job.run(&[]).await, Ended::Finished, "{what}");
            check(&ratifyd, &job, &what).await;
        }
    }
    println!("{kills} kills");
}
