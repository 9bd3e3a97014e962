//! SIGKILL of a job that writes to an object store, at every place in the life of a transaction, against a real store that
//! speaks S3; and of the store itself, under a running job.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_servers::SeaweedFs;
use ratified_tests::{
    config::Config,
    jobs::{Ended, JobSpec},
    pipeline::{BUCKET, check_objects, unfinished_uploads},
    process::Ratifyd,
    tally,
};
use tempfile::TempDir;

/// Every place in the life of a transaction, in the order of its life.
const PLACES: [&str; 11] = [
    "begun",
    "create",
    "marker",
    "part",
    "pre_committed",
    "prepared",
    "decided",
    "reveal_0",
    "reveal_1",
    "settle",
    "applied",
];

/// A coordinator, a store, and a directory for jobs.
struct Site {
    ratifyd: Ratifyd,
    store: SeaweedFs,
    bucket: String,
    dir: TempDir,
}

impl Site {
    async fn new() -> Self {
        let store = SeaweedFs::start();
        store.make_bucket(BUCKET);
        let bucket = format!("http://{}", store.address());
        Self { ratifyd: Ratifyd::start(Config::new()).await, store, bucket, dir: tempfile::tempdir().unwrap() }
    }

    fn job(&self, driver: &'static str, name: &str) -> JobSpec {
        let program = env!("CARGO_BIN_EXE_job");
        JobSpec { records: 40, ..JobSpec::new(program, driver, self.ratifyd.url(), self.dir.path(), name) }
    }

    async fn run(&self, job: &JobSpec, die: Option<&str>) -> Ended {
        let bucket = ("bucket", self.bucket.as_str());
        match die {
            Some(place) => job.run(&[bucket, ("die", place)]).await,
            None => job.run(&[bucket]).await,
        }
    }

    /// Every record is visible once, nothing is staged, and the coordinator has nothing unfinished.
    async fn check(&self, job: &JobSpec, what: &str) {
        check_objects(&self.bucket, &job.name, job.records).await.unwrap_or_else(|why| panic!("{what}: {why}"));
        job.check_finished(&self.ratifyd.raw(), what).await;
    }

    /// A death between an upload and its marker leaves one that only a lifecycle rule removes: it must hold nothing. The
    /// next transaction is written while one is committed, so any death may hit such a moment. How many there are.
    async fn check_uploads(&self, job: &JobSpec, what: &str) -> usize {
        let left = unfinished_uploads(&self.bucket, &job.name).await;
        assert!(left.iter().all(|(_, parts)| *parts == 0), "{what}: {left:?} are left");
        left.len()
    }
}

/// Kills the job at each place, for the first time it is passed and a later one; then runs it to the end.
async fn die_everywhere(driver: &'static str, places: &[&str]) {
    let site = Site::new().await;
    let (mut kills, mut orphans) = (0, 0);
    for place in places {
        for nth in [0, 3] {
            let what = format!("{driver}-{place}-{nth}").replace('_', "-");
            let job = site.job(driver, &what);
            match site.run(&job, Some(&format!("{place}:{nth}"))).await {
                Ended::Killed => kills += 1,
                ended => assert!(nth > 0 && ended == Ended::Finished, "{what}: {ended:?}, and was never there"),
            }
            assert_eq!(site.run(&job, None).await, Ended::Finished, "{what}");
            site.check(&job, &what).await;
            orphans += site.check_uploads(&job, &what).await;
        }
    }
    println!("{driver}: {kills} kills at named places, {orphans} uploads without parts left");
    assert!(kills >= 2 * places.len() - 2, "{kills} kills");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_checkpointing_job_killed_at_any_place_writes_every_object_once() {
    let places: Vec<_> = PLACES.into_iter().filter(|place| *place != "prepared").collect();
    die_everywhere("objects_split", &places).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_under_an_engine_killed_at_any_place_writes_every_object_once() {
    die_everywhere("objects_engine", &PLACES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_killed_while_it_cleans_up_cleans_up_the_next_time() {
    let site = Site::new().await;
    for driver in ["objects_split", "objects_engine"] {
        for (first, second) in [
            ("pre_committed:1", "discard:0"),
            ("part:2", "remove_marker:0"),
            ("decided:1", "reveal_1:0"),
            ("reveal_1:1", "settle:0"),
        ] {
            let what = format!("{driver}-{first}-{second}").replace(['_', ':'], "-");
            let job = site.job(driver, &what);
            for place in [first, second] {
                assert_eq!(site.run(&job, Some(place)).await, Ended::Killed, "{what}: {place} was never there");
            }
            assert_eq!(site.run(&job, None).await, Ended::Finished, "{what}");
            site.check(&job, &what).await;
            site.check_uploads(&job, &what).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_killed_under_a_running_job_loses_and_doubles_nothing() {
    let mut site = Site::new().await;
    for driver in ["objects_split", "objects_engine"] {
        let job = JobSpec { records: 400, ..site.job(driver, &driver.replace('_', "-")) };
        let bucket = site.bucket.clone();
        for _ in 0..3 {
            let mut running = job.start(&[("bucket", &bucket)]);
            let goal = job.decided(&site.ratifyd.raw()).await + 3;
            while job.decided(&site.ratifyd.raw()).await < goal && !running.is_over() {
                tokio::task::yield_now().await;
            }
            tokio::task::block_in_place(|| site.store.crash());
            tally::fault("SIGKILL SeaweedFS");
            // It gives up, or goes on when the store is back.
            if running.wait().await == Ended::Finished {
                break;
            }
        }
        assert_eq!(site.run(&job, None).await, Ended::Finished, "{driver}");
        site.check(&job, driver).await;
    }
}
