//! Storage errors under a real job: the error is told, and the job that is started again loses and doubles nothing.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    around::Around,
    config::Config,
    fiu::{Errno, Fiu},
    jobs::{Ended, JobSpec},
    pipeline::check_exactly_once,
    process::Ratifyd,
    tally,
};
use tempfile::TempDir;

/// Behind which the next call fails.
const PLACES: [&str; 9] =
    ["begun", "write", "sync_file", "sync_directory", "pre_committed", "decided", "rename_1", "applied", "acked"];
const CALLS: [&str; 3] = ["posix/io/sync/fsync", "posix/io/sync/fdatasync", "posix/io/oc/open"];

fn job(ratifyd: &Ratifyd, dir: &TempDir, driver: &'static str, name: &str) -> JobSpec {
    JobSpec::new(env!("CARGO_BIN_EXE_job"), driver, ratifyd.url(), dir.path(), name)
}

async fn check(ratifyd: &Ratifyd, job: &JobSpec) {
    assert_eq!(job.run(&[]).await, Ended::Finished, "{}", job.name);
    check_exactly_once(&job.out(), job.records).unwrap_or_else(|why| panic!("{}: {why}", job.name));
    job.check_finished(&ratifyd.raw(), &job.name).await;
}

/// Lets one call of each kind fail behind each place.
async fn fail_everywhere(driver: &'static str) {
    let (ratifyd, dir) = (Ratifyd::start(Config::new()).await, tempfile::tempdir().unwrap());
    let fiu = Fiu::new(dir.path());
    let pipes = dir.path().display().to_string();
    let (mut told, mut mended) = (0, 0);
    for (at, place) in PLACES.into_iter().enumerate() {
        for (call, nth) in CALLS.into_iter().zip([1, 0, 2]) {
            let errno = Errno::ALL[(at + nth) % 2];
            let short = call.rsplit('/').next().unwrap();
            let job = job(&ratifyd, &dir, driver, &format!("{driver}-{place}-{nth}-{short}"));
            let fail = format!("{place}:{nth}");
            let options = [
                ("fail", fail.as_str()),
                ("call", call),
                ("errno", errno.name()),
                ("times", "Once"),
                ("pipes", &pipes),
            ];
            let mut running = job.start_inside(&fiu.around(), &options);
            let (ended, log, what) = (running.wait().await, running.log(), &job.name);
            assert!(log.contains(&format!("job: {}", errno.name())), "{what}: the place was never there\n{log}");
            if ended == Ended::Failed {
                let names_it = if errno == Errno::Eio { "os error 5" } else { "os error 28" };
                assert!(log.contains(names_it), "{what}: it ended, but not of the fault\n{log}");
                told += 1;
                tally::fault(&format!("{} {short} in a job", errno.name()));
            } else {
                mended += 1;
            }
            assert!(place != "sync_file" || short != "fsync" || ended == Ended::Failed, "{what}: not told\n{log}");
            check(&ratifyd, &job).await;
        }
    }
    println!("{driver}: {told} faults told, {mended} repeated with success or never met");
    assert!(told >= PLACES.len(), "{told} faults told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_checkpointing_job_that_meets_a_storage_error_at_any_place_writes_every_record_once() {
    fail_everywhere("split").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_under_an_engine_that_meets_a_storage_error_at_any_place_writes_every_record_once() {
    fail_everywhere("engine").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_for_good_stops_a_job_each_time_it_is_started() {
    let (ratifyd, dir) = (Ratifyd::start(Config::new()).await, tempfile::tempdir().unwrap());
    let fiu = Fiu::new(dir.path());
    let pipes = dir.path().display().to_string();
    let [fsync, _, open] = CALLS;
    for driver in ["split", "engine"] {
        let job = job(&ratifyd, &dir, driver, &format!("{driver}-for-good"));
        for (place, call) in [("sync_file:3", fsync), ("write:0", fsync), ("begun:0", open)] {
            let options = [("fail", place), ("call", call), ("errno", "EIO"), ("times", "Always"), ("pipes", &pipes)];
            let mut running = job.start_inside(&fiu.around(), &options);
            assert_eq!(running.wait().await, Ended::Failed, "{driver}, {place}");
            assert!(running.log().contains("os error 5"), "{}", running.log());
            tally::fault("EIO for good in a job");
        }
        check(&ratifyd, &job).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_may_grow_no_further_tear_records_of_a_job_and_none_is_lost_or_doubled() {
    let (ratifyd, dir) = (Ratifyd::start(Config::new()).await, tempfile::tempdir().unwrap());
    for driver in ["split", "engine"] {
        for limit in [0, 20, 41, 100, 170, 400] {
            let job = job(&ratifyd, &dir, driver, &format!("{driver}-limit-{limit}"));
            // Its log would meet the limit too.
            let words =
                ["prlimit", &format!("--fsize={limit}"), "sh", "-c", "trap '' XFSZ; exec \"$@\" 2>/dev/null", "sh"];
            let ended = job.start_inside(&Around::program(words), &[]).wait().await;
            println!("{driver}, {limit} bytes: {ended:?}");
            if ended == Ended::Failed {
                tally::fault("EFBIG in a job");
            }
            assert!(ended == Ended::Failed || limit == 400, "{driver}, {limit} bytes");
            check(&ratifyd, &job).await;
        }
    }
}
