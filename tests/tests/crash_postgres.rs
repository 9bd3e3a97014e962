//! A job that writes to PostgreSQL, killed at every step it takes and at random moments; the server, killed at each of them;
//! and both at once.
//!
//! `TEST_SEEDS` sets how many random runs are made of each kind, `TEST_SEED` the first seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratified_servers::Postgres;
use ratified_tests::{
    config::Config,
    environment::from_environment,
    jobs::{Ended, JobSpec},
    pipeline::{check_rows, make_tables},
    process::Ratifyd,
    tally,
};
use rustix::process::Signal;
use tempfile::TempDir;

/// Every place in the life of a transaction of a job that checkpoints itself, and of its opening.
const PLACES: [&str; 12] = [
    "pg_fence",
    "pg_begin",
    "begun",
    "pg_copy",
    "pg_prepare",
    "pg_prepared",
    "pre_committed",
    "decided",
    "pg_commit",
    "pg_committed",
    "applied",
    "acked",
];
/// Places that only a job under an engine has.
const ENGINE_PLACES: [&str; 4] = ["opened", "prepared", "stored", "notified"];
const STAGINGS: [&str; 2] = ["prepared", "ledger"];

struct Site {
    ratifyd: Ratifyd,
    server: Postgres,
    dir: TempDir,
}

/// A job and where it writes to.
struct Case {
    job: JobSpec,
    url: String,
    staging: &'static str,
    what: String,
}

impl Site {
    async fn new() -> Self {
        let server = Postgres::start();
        println!("{}", server.version());
        Self { ratifyd: Ratifyd::start(Config::new()).await, server, dir: tempfile::tempdir().unwrap() }
    }

    fn case(&self, driver: &'static str, staging: &'static str, place: &str) -> Case {
        let what = format!("{driver}-{staging}-{}", place.replace(':', "-"));
        make_tables(&self.server, &what);
        let program = env!("CARGO_BIN_EXE_job");
        let job = JobSpec { records: 40, ..JobSpec::new(program, driver, self.ratifyd.url(), self.dir.path(), &what) };
        Case { job, url: self.server.url(), staging, what }
    }

    /// Every record is in its table once, nothing is staged, and the coordinator has nothing unfinished.
    async fn check(&self, case: &Case) {
        let Case { job, what, .. } = case;
        check_rows(&self.server, &job.name, job.records).unwrap_or_else(|why| panic!("{what}: {why}"));
        job.check_finished(&self.ratifyd.raw(), what).await;
    }
}

impl Case {
    async fn run(&self, options: &[(&str, &str)]) -> Ended {
        self.job.run(&self.with(options)).await
    }

    fn with<'a>(&'a self, options: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        [(self.staging, self.url.as_str())].into_iter().chain(options.iter().copied()).collect()
    }
}

fn places(driver: &str, staging: &str) -> Vec<&'static str> {
    let of_engine = ENGINE_PLACES.into_iter().filter(|_| driver == "engine");
    let of_ledger = ["pg_moved"].into_iter().filter(|_| staging == "ledger");
    PLACES.into_iter().chain(of_engine).chain(of_ledger).collect()
}

async fn die_everywhere(driver: &'static str) {
    let site = Site::new().await;
    let mut kills = 0;
    for staging in STAGINGS {
        for place in places(driver, staging) {
            for nth in if place == "pg_fence" || place == "opened" { vec![0] } else { vec![0, 2] } {
                let case = site.case(driver, staging, &format!("{place}:{nth}"));
                assert_eq!(case.run(&[("die", &format!("{place}:{nth}"))]).await, Ended::Killed, "{}", case.what);
                tally::fault("SIGKILL job");
                kills += 1;
                assert_eq!(case.run(&[]).await, Ended::Finished, "{}", case.what);
                site.check(&case).await;
            }
        }
    }
    println!("{driver}: {kills} kills at named places");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_checkpointing_job_killed_at_any_step_writes_every_row_once() {
    die_everywhere("split").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_under_an_engine_killed_at_any_step_writes_every_row_once() {
    die_everywhere("engine").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_killed_while_it_recovers_recovers_from_that_too() {
    let site = Site::new().await;
    for (driver, staging, first, second) in [
        ("split", "prepared", "pg_prepared:1", "pg_abort:0"),
        ("split", "prepared", "pre_committed:1", "pg_aborted:0"),
        ("split", "prepared", "decided:1", "pg_commit:0"),
        ("split", "prepared", "pg_commit:1", "pg_committed:0"),
        ("split", "ledger", "pg_prepared:1", "pg_abort:0"),
        ("split", "ledger", "decided:1", "pg_moved:0"),
        ("split", "ledger", "pg_moved:1", "pg_committed:0"),
        ("engine", "prepared", "prepared:1", "pg_abort:0"),
        ("engine", "prepared", "stored:1", "pg_committed:0"),
        ("engine", "ledger", "stored:1", "pg_moved:0"),
    ] {
        let case = site.case(driver, staging, &format!("{first}-{second}"));
        for place in [first, second] {
            assert_eq!(case.run(&[("die", place)]).await, Ended::Killed, "{}: {place} was never there", case.what);
            tally::fault("SIGKILL job");
        }
        assert_eq!(case.run(&[]).await, Ended::Finished, "{}", case.what);
        site.check(&case).await;
    }
}

/// The job suspends itself at a place, and the server is killed; then the job goes on, or is killed as well.
async fn server_dies_everywhere(driver: &'static str, with_the_job: bool) {
    let mut site = Site::new().await;
    for staging in STAGINGS {
        for place in places(driver, staging) {
            let case = site.case(driver, staging, place);
            let nth = if place == "pg_fence" || place == "opened" { 0 } else { 1 };
            let stop = format!("{place}:{nth}");
            let mut running = case.job.start(&case.with(&[("stop", &stop)]));
            running.until_suspended().await;
            site.server.kill();
            tally::fault("SIGKILL PostgreSQL");
            running.signal(if with_the_job { Signal::KILL } else { Signal::CONT });
            site.server.start_again();
            // What was not prepared is lost with the server: then the job ends, and reads it again when it is started.
            let mut ended = running.wait().await;
            assert_eq!(with_the_job, ended == Ended::Killed, "{}", case.what);
            if ended != Ended::Finished {
                ended = case.run(&[]).await;
            }
            assert_eq!(ended, Ended::Finished, "{}", case.what);
            site.check(&case).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_at_any_step_of_a_self_checkpointing_job_has_every_row_once() {
    server_dies_everywhere("split", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_at_any_step_of_a_job_under_an_engine_has_every_row_once() {
    server_dies_everywhere("engine", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_together_with_the_job_at_any_step_has_every_row_once() {
    server_dies_everywhere("split", true).await;
}

/// One random run: the job, the server, or both at once are killed, until the job has finished. How often each was.
async fn random_run(site: &mut Site, driver: &'static str, staging: &'static str, seed: u64) -> [u64; 2] {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut case = site.case(driver, staging, &format!("random-{seed}"));
    case.job.records = 300;
    let raw = site.ratifyd.raw();
    let mut kills = [0; 2];
    for _ in 0..5 {
        let goal = case.job.decided(&raw).await + rng.random_range(0..6);
        let mut running = case.job.start(&case.with(&[]));
        // At some point of its progress, however fast the machine is, and a moment of chance behind it.
        while case.job.decided(&raw).await < goal && !running.is_over() {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_micros(rng.random_range(0..20_000))).await;
        let (kills_job, kills_server) = [(true, false), (false, true), (true, true)][rng.random_range(0..3)];
        if kills_server {
            site.server.kill();
            tally::fault("SIGKILL PostgreSQL");
            kills[1] += 1;
        }
        if kills_job && !running.is_over() {
            running.signal(Signal::KILL);
        }
        if kills_server {
            site.server.start_again();
        }
        match running.wait().await {
            Ended::Killed => kills[0] += 1,
            Ended::Finished => break,
            // What was not prepared is lost with the server.
            Ended::Failed => assert!(kills_server, "{}: {}", case.what, running.log()),
        }
    }
    assert_eq!(case.run(&[]).await, Ended::Finished, "{}", case.what);
    site.check(&case).await;
    kills
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_and_its_server_killed_at_random_have_every_row_once() {
    let (runs, first) = (from_environment("TEST_SEEDS", 1), from_environment("TEST_SEED", 500));
    tally::seed(&format!("kills of jobs that write to PostgreSQL and of the server, {runs} runs each"), first);
    let mut site = Site::new().await;
    let (mut jobs, mut servers) = (0, 0);
    for driver in ["split", "engine"] {
        for staging in STAGINGS {
            for seed in first..first + runs {
                let kills = random_run(&mut site, driver, staging, seed).await;
                (jobs, servers) = (jobs + kills[0], servers + kills[1]);
            }
        }
    }
    println!("{jobs} kills of the job, {servers} of the server");
    assert!(jobs >= 2 * runs && servers >= 2 * runs, "too little happened");
}

/// A job suspends itself at a place; a successor on another host runs to the end; then the first one wakes up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_wakes_up_late_is_fenced_and_leaves_nothing_behind() {
    let site = Site::new().await;
    for driver in ["split", "engine"] {
        for staging in STAGINGS {
            for place in ["pg_begin", "begun", "pg_copy", "pg_prepare", "pg_prepared", "pg_commit", "pg_committed"] {
                let case = site.case(driver, staging, place);
                let stop = format!("{place}:1");
                let mut zombie = case.job.start(&case.with(&[("stop", &stop)]));
                zombie.until_suspended().await;
                let elsewhere = site.dir.path().join("elsewhere").join(&case.what).display().to_string();
                assert_eq!(case.run(&[("pending", &elsewhere)]).await, Ended::Finished, "{}", case.what);
                site.check(&case).await;
                zombie.signal(Signal::CONT);
                tally::fault("SIGSTOP job");
                let ended = zombie.wait().await;
                // Commits overlap with the writing of what follows: at one the writer may have been done, and all that is
                // left to do is what the successor has done.
                let may_be_done = place.starts_with("pg_commit") && ended == Ended::Finished;
                assert!(ended == Ended::Failed || may_be_done, "{}: {ended:?}", case.what);
                // No later owner has to come: nothing that it does can be staged.
                site.check(&case).await;
            }
        }
    }
}
