//! A whole pipeline under everything at once: kills of the job and of the coordinator, and storage errors under either, at
//! random; the output is that of a run that nothing disturbed.
//!
//! `TEST_SEEDS` sets how many random runs are made for each kind of job, `TEST_SEED` the first seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratified::sinks::file::read_target;
use ratified_tests::{
    config::Config,
    environment::from_environment,
    fiu::{Errno, Fiu, Times},
    jobs::{Ended, JobSpec},
    poll,
    process::{Ratifyd, one_line_of},
    session::incarnation,
    site::Site,
    tally,
};
use rustix::process::Signal;
use serde_json::json;

const PLACES: [&str; 6] = ["begun", "write", "sync_file", "pre_committed", "decided", "rename_1"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mishap {
    KillJob,
    KillCoordinator,
    KillBoth,
    CoordinatorsDisk,
    JobsDisk,
}

const MISHAPS: [Mishap; 5] =
    [Mishap::KillJob, Mishap::KillCoordinator, Mishap::KillBoth, Mishap::CoordinatorsDisk, Mishap::JobsDisk];

/// A site whose disks can be made to fail.
struct Drill {
    site: Site,
    fiu: Fiu,
    opens: u64,
}

impl Drill {
    async fn new() -> Self {
        let mut ratifyd = Ratifyd::stopped(&Config::new());
        let fiu = Fiu::new(ratifyd.side_dir());
        ratifyd.run_inside(fiu.around());
        ratifyd.start_again().await;
        Self { site: Site::new(ratifyd, env!("CARGO_BIN_EXE_job")).await, fiu, opens: 0 }
    }

    fn job(&self, driver: &'static str, name: &str) -> JobSpec {
        JobSpec { records: 300, ..self.site.job(driver, name) }
    }

    /// Lets the next sync of the coordinator fail, and starts it again on what is on disk.
    async fn fail_disk(&mut self, errno: Errno, times: Times) {
        self.opens += 1;
        let logged = self.site.ratifyd.log().len();
        let kind = self.fiu.fail(self.site.ratifyd.pid(), "posix/io/sync/fdatasync", errno, times);
        // Somebody must want something durable; the job may just have ended.
        let body = json!({"incarnation": incarnation(self.opens), "create": true});
        let answer = self.site.ratifyd.raw().try_call("POST", "/v1/clients/other/open", Some(&body)).await;
        assert!(!answer.is_ok_and(|reply| reply.status == 200), "acknowledged after the fault");
        let status = self.site.ratifyd.wait_for_exit().await;
        let log = self.site.ratifyd.log()[logged..].to_owned();
        assert_eq!(status.code(), Some(3), "{log}");
        assert!(one_line_of(&log).starts_with("the store failed: "), "{log}");
        tally::fault(&kind);
        self.site.ratifyd.start_again().await;
    }

    /// One run of the job, with one mishap; whether the job has finished nevertheless.
    async fn meet(&mut self, job: &JobSpec, mishap: Mishap, rng: &mut StdRng) -> bool {
        let errno = Errno::ALL[rng.random_range(0..2)];
        let place = format!("{}:{}", PLACES[rng.random_range(0..PLACES.len())], rng.random_range(0..6));
        let pipes = self.site.ratifyd.side_dir().display().to_string();
        let fail = [
            ("fail", place.as_str()),
            ("call", "posix/io/sync/fsync"),
            ("errno", errno.name()),
            ("times", "Once"),
            ("pipes", pipes.as_str()),
        ];
        let fails_itself = mishap == Mishap::JobsDisk;
        let goal = job.visible_files() + rng.random_range(0..12);
        let mut running = job.start_inside(&self.fiu.around(), if fails_itself { &fail } else { &[] });
        if !fails_itself {
            poll::until_some("the job to come so far", || {
                (job.visible_files() >= goal || running.is_over()).then_some(())
            })
            .await;
        }
        if matches!(mishap, Mishap::KillJob | Mishap::KillBoth) && !running.is_over() {
            running.signal(Signal::KILL);
        }
        match mishap {
            Mishap::KillCoordinator | Mishap::KillBoth => self.site.ratifyd.crash().await,
            Mishap::CoordinatorsDisk => {
                let times = Times::ALL[rng.random_range(0..2)];
                self.fail_disk(errno, times).await;
            }
            Mishap::KillJob | Mishap::JobsDisk => {}
        }
        match running.wait().await {
            Ended::Finished => true,
            Ended::Killed => false,
            Ended::Failed => {
                assert!(fails_itself && running.log().contains("os error"), "{mishap:?}: {}", running.log());
                tally::fault(&format!("{} fsync in a job", errno.name()));
                false
            }
        }
    }
}

fn output(job: &JobSpec) -> [Vec<u8>; 2] {
    ["even", "odd"].map(|target| read_target(&job.out(), &target.parse().unwrap()).unwrap())
}

async fn disturb(driver: &'static str, default_seed: u64) {
    let (runs, first) = (from_environment("TEST_SEEDS", 5), from_environment("TEST_SEED", default_seed));
    tally::seed(&format!("mixed faults under {driver} pipelines, {runs} runs"), first);
    let mut drill = Drill::new().await;
    let undisturbed = drill.job(driver, &format!("{driver}-undisturbed"));
    assert_eq!(undisturbed.run(&[]).await, Ended::Finished);
    let expected = output(&undisturbed);
    assert_eq!(expected.iter().map(|bytes| bytes.iter().filter(|byte| **byte == b'\n').count()).sum::<usize>(), 300);
    let mut met = BTreeMap::<Mishap, u64>::new();
    for seed in first..first + runs {
        let mut rng = StdRng::seed_from_u64(seed);
        let job = drill.job(driver, &format!("{driver}-{seed}"));
        let mut has_finished = false;
        for at in 0..MISHAPS.len() {
            // Each kind once, in an order that differs from run to run.
            let mishap = MISHAPS[(at * 2 + usize::try_from(seed).unwrap()) % MISHAPS.len()];
            has_finished = drill.meet(&job, mishap, &mut rng).await;
            *met.entry(mishap).or_default() += 1;
            if has_finished && job.visible_files() >= 60 {
                break;
            }
        }
        if !has_finished {
            assert_eq!(job.run(&[]).await, Ended::Finished, "{driver}, seed {seed}");
        }
        drill.site.check(&job, &format!("{driver}, seed {seed}")).await;
        assert!(output(&job) == expected, "{driver}, seed {seed}: another output than that of an undisturbed run");
    }
    println!("{driver}: {met:?}");
    assert!(MISHAPS.iter().all(|mishap| met.contains_key(mishap)), "too little happened: {met:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_checkpointing_pipeline_under_mixed_faults_writes_what_an_undisturbed_one_writes() {
    disturb("split", 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_under_an_engine_and_mixed_faults_writes_what_an_undisturbed_one_writes() {
    disturb("engine", 400).await;
}
