//! A wall clock that jumps, before a start and under a running process: nothing but what is shown follows it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::time::{Duration, SystemTime};

use ratified_tests::{
    clock::FakeClock,
    config::Config,
    jobs::{Ended, JobSpec},
    pipeline::check_exactly_once,
    poll,
    process::Ratifyd,
    raw::Reply,
    session::Session,
};
use serde_json::json;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Everything that can expire does so soon, by the right clock.
fn config() -> Config {
    Config::new()
        .with("transaction_meta_persist_time_in_hour", 1)
        .with("transaction_meta_expire_check_interval_in_second", 1)
        .with("gc_interval_seconds", 1)
        .with("timeout_sweep_interval_seconds", 1)
}

/// How far an instant of an answer is from now, in seconds.
fn offset_of(answer: &Reply, member: &str) -> i64 {
    let instant = humantime::parse_rfc3339(answer[member].as_str().unwrap()).unwrap();
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap();
    match instant.duration_since(SystemTime::now()) {
        Ok(ahead) => seconds(ahead),
        Err(behind) => -seconds(behind.duration()),
    }
}

/// A transaction that is begun now, by the clock that was set, and ends at its own deadline: the sweeps have run behind it.
async fn let_sweeps_run(c: &Session, n: u64, offset: i64) {
    let begun = c.begin(n, json!({"timeoutMs": 1_200})).await.ok(201);
    let shown = offset_of(&begun, "beginTime");
    assert!((shown - offset).abs() < 60, "the clock was set off by {offset} s, what is shown by {shown} s");
    assert!(begun["deadlineInMs"].as_u64().is_some_and(|ms| ms <= 1_200), "{}", begun.text);
    let ended = poll::until("its timeout", || async {
        let txn = c.get(n).await.ok(200);
        (txn["state"] != "OPEN").then_some(txn)
    })
    .await;
    assert_eq!((&ended["state"], &ended["endReason"]), (&json!("ABORTED"), &json!("TIMEOUT")));
}

async fn check(c: &Session, what: &str) {
    for (n, state) in [(1, "OPEN"), (2, "PREPARED"), (3, "PREPARED"), (4, "COMMITTED"), (5, "ABORTED")] {
        assert_eq!(c.get(n).await.ok(200)["state"], state, "{what}: {n}");
    }
    assert_eq!(c.commit(4, json!({})).await.ok(200)["replayed"], true, "{what}");
    c.keep_alive(1).await.ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_of_the_coordinators_clock_ends_and_forgets_nothing() {
    let mut ratifyd = Ratifyd::stopped(&config());
    let clock = FakeClock::new(&ratifyd.side_dir().join("clock"));
    ratifyd.run_inside(clock.around());
    ratifyd.start_again().await;
    let c = Session::open(&ratifyd.raw(), "c", 1).await;
    for n in 1..=5 {
        c.begin(n, json!({"timeoutMs": 600_000})).await.ok(201);
    }
    c.prepare(2, json!({})).await.ok(200);
    c.prepare(3, json!({"preparedTimeoutMs": 600_000})).await.ok(200);
    c.commit(4, json!({})).await.ok(200);
    c.abort(5).await.ok(200);
    let mut n = 10;
    for offset in [HOUR, -HOUR, 30 * DAY, -30 * DAY, 0] {
        clock.set(offset);
        let_sweeps_run(&c, n, offset).await;
        check(&c, &format!("a jump to {offset} s while it runs")).await;
        ratifyd.kill();
        clock.set(-offset);
        ratifyd.start_again().await;
        let_sweeps_run(&c, n + 1, -offset).await;
        check(&c, &format!("a start at {} s", -offset)).await;
        n += 2;
    }
    assert_eq!(c.commit(2, json!({})).await.ok(200)["state"], "COMMITTED");
    assert_eq!(c.commit(3, json!({})).await.ok(200)["state"], "COMMITTED");
    assert_eq!(c.commit(1, json!({})).await.ok(200)["state"], "COMMITTED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_whose_clocks_jump_all_the_time_writes_every_record_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut ratifyd = Ratifyd::stopped(&config());
    let (theirs, ours) = (FakeClock::new(&dir.path().join("theirs")), FakeClock::new(&dir.path().join("ours")));
    ratifyd.run_inside(theirs.around());
    ratifyd.start_again().await;
    for driver in ["split", "engine"] {
        let program = env!("CARGO_BIN_EXE_job");
        let job = JobSpec { records: 400, ..JobSpec::new(program, driver, ratifyd.url(), dir.path(), driver) };
        let mut running = job.start_inside(&ours.around(), &[]);
        let mut jumps = 0;
        for offset in [HOUR, -HOUR, 30 * DAY, -30 * DAY, 0].into_iter().cycle() {
            let seen = job.visible_files();
            poll::until_some("the job to go on", || (running.is_over() || job.visible_files() > seen).then_some(()))
                .await;
            if running.is_over() {
                break;
            }
            theirs.set(offset);
            ours.set(-offset);
            jumps += 1;
        }
        assert_eq!(running.wait().await, Ended::Finished, "{driver}: {}", running.log());
        println!("{driver}: {jumps} jumps");
        assert!(jumps >= 5, "{driver}: {jumps} jumps");
        check_exactly_once(&job.out(), job.records).unwrap();
        job.check_finished(&ratifyd.raw(), driver).await;
    }
}
