//! SIGSTOP for longer than every timeout, of the coordinator, of the job, and of both: every record once, and who wakes up
//! late is fenced.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    config::Config,
    jobs::{Ended, JobProcess, JobSpec},
    poll,
    process::Ratifyd,
    site::Site,
};
use rustix::process::Signal;
use serde_json::Value;

/// How long a transaction of these jobs may stay open; a call of theirs is given up after 200 ms.
const TIMEOUT_MS: &str = "1000";

async fn site() -> Site {
    let ratifyd = Ratifyd::start(Config::new().with("timeout_sweep_interval_seconds", 1)).await;
    Site::new(ratifyd, env!("CARGO_BIN_EXE_job")).await
}

/// Waits until calls were sent again and again: all that were under way have timed out.
async fn until_asked_again(site: &Site) {
    let before = site.proxy.calls();
    poll::until_some("calls to be sent again", || (site.proxy.calls() >= before + 8).then_some(())).await;
}

/// The transactions of a job in this state, and why they ended.
async fn txns(site: &Site, job: &JobSpec, state: &str) -> Vec<Value> {
    let path = format!("/v1/txns?clientPrefix={}&state={state}", job.name);
    site.ratifyd.raw().get(&path).await.ok(200)["items"].as_array().unwrap().clone()
}

/// Waits until the transaction that a suspended job had open has timed out. It stays ABORTING: the job has to remove what it
/// staged.
async fn until_timed_out(site: &Site, job: &JobSpec) {
    poll::until("the transaction of the suspended job to time out", || async {
        let aborting = txns(site, job, "ABORTING").await;
        aborting.iter().any(|txn| txn["endReason"] == "TIMEOUT").then_some(())
    })
    .await;
}

async fn finish(job: &JobSpec) {
    assert_eq!(job.run(&[("timeout-ms", TIMEOUT_MS)]).await, Ended::Finished, "{}", job.name);
}

async fn suspended(job: &JobSpec, place: &str) -> JobProcess {
    let mut running = job.start(&[("stop", place), ("timeout-ms", TIMEOUT_MS)]);
    running.until_suspended().await;
    running
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_suspended_longer_than_every_timeout_is_waited_for() {
    let site = site().await;
    for driver in ["split", "engine"] {
        for place in ["begun:1", "pre_committed:2", "decided:0"] {
            let job = site.job(driver, &format!("{driver}-{}", place.replace(':', "-")));
            // The job stands still at the place for as long as it takes to suspend the coordinator.
            let mut running = suspended(&job, place).await;
            site.ratifyd.signal(Signal::STOP);
            running.signal(Signal::CONT);
            until_asked_again(&site).await;
            site.ratifyd.signal(Signal::CONT);
            let ended = running.wait().await;
            println!("{}: {ended:?}", job.name);
            if ended == Ended::Failed {
                assert!(running.log().contains("TIMEOUT") || running.log().contains("timed out"), "{}", running.log());
                finish(&job).await;
            }
            site.check(&job, &job.name).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_suspended_until_its_transaction_has_timed_out_shows_none_of_it_and_writes_every_record_once() {
    let site = site().await;
    for driver in ["split", "engine"] {
        for place in ["begun:1", "write:2", "sync_file:3"] {
            let job = site.job(driver, &format!("{driver}-{}", place.replace(':', "-")));
            let mut running = suspended(&job, place).await;
            until_timed_out(&site, &job).await;
            running.signal(Signal::CONT);
            let ended = running.wait().await;
            println!("{}: {ended:?}", job.name);
            finish(&job).await;
            site.check(&job, &job.name).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_outlives_a_suspended_job_and_is_finished_by_its_successor() {
    let site = site().await;
    let job = site.job("engine", "prepared");
    let mut zombie = suspended(&job, "prepared:1").await;
    // A transaction that is begun now times out while the other one is held.
    let timer = site.job("split", "timer");
    let mut timed = suspended(&timer, "begun:1").await;
    until_timed_out(&site, &timer).await;
    assert!(!txns(&site, &job, "PREPARED").await.is_empty(), "it is held");
    let elsewhere = site.dir.path().join("elsewhere").display().to_string();
    assert_eq!(job.run(&[("pending", &elsewhere)]).await, Ended::Finished);
    site.check(&job, &job.name).await;
    zombie.signal(Signal::CONT);
    assert_eq!(zombie.wait().await, Ended::Failed);
    let log = zombie.log();
    assert!(log.contains("was opened by a newer owner") || log.contains("was superseded by attempt"), "{log}");
    finish(&job).await;
    site.check(&job, &job.name).await;
    timed.signal(Signal::KILL);
    timed.wait().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_and_its_coordinator_both_suspended_leave_the_work_to_a_successor_and_the_zombie_is_fenced() {
    let site = site().await;
    for driver in ["split", "engine"] {
        for place in ["begun:1", "decided:1", "pre_committed:1"] {
            let job = site.job(driver, &format!("both-{driver}-{}", place.replace(':', "-")));
            let mut zombie = suspended(&job, place).await;
            site.ratifyd.signal(Signal::STOP);
            let elsewhere = site.dir.path().join(format!("{}-elsewhere", job.name)).display().to_string();
            let mut successor = job.start(&[("pending", &elsewhere), ("timeout-ms", TIMEOUT_MS)]);
            until_asked_again(&site).await;
            site.ratifyd.signal(Signal::CONT);
            assert_eq!(successor.wait().await, Ended::Finished, "{}", job.name);
            site.check(&job, &job.name).await;
            zombie.signal(Signal::CONT);
            assert_eq!(zombie.wait().await, Ended::Failed, "{}", job.name);
            let log = zombie.log();
            // What had timed out before the successor came is told so: that is the truth.
            let says_why = ["was opened by a newer owner", "was superseded by attempt", "was aborted (TIMEOUT)"];
            assert!(says_why.iter().any(|why| log.contains(why)), "{}: {log}", job.name);
            finish(&job).await;
            site.check(&job, &job.name).await;
        }
    }
}
