//! What can go wrong around a sink, each with what must happen instead: the SDK, the file sink, a real coordinator.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use std::{
    fs,
    sync::{Arc, Mutex},
};

use ratified::{
    Barrier, CheckpointId, EngineSink, EngineSinkBuilder, Lost, LostPolicy, RuntimeError, Snapshot,
    sinks::file::FileSink,
};
use ratified_tests::{
    config::Config,
    pipeline::{Plan, Row, check_exactly_once, run_split, visible},
    poll,
    process::{Ratifyd, copy_dir},
    raw::Raw,
    session::Session,
};
use serde_json::json;
use tempfile::TempDir;

type Runtime = EngineSink<FileSink<Row>>;

/// A coordinator and a pipeline that nobody has run yet.
async fn scene(config: Config) -> (Ratifyd, TempDir, Plan) {
    let ratifyd = Ratifyd::start(config).await;
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::new(ratifyd.url(), dir.path());
    (ratifyd, dir, plan)
}

fn engine(plan: &Plan) -> EngineSinkBuilder<FileSink<Row>> {
    plan.builder()
}

async fn open(plan: &Plan, restored: u64, snapshots: &[&Snapshot]) -> Result<Runtime, RuntimeError> {
    let snapshots = snapshots.iter().map(|snapshot| (*snapshot).clone());
    engine(plan).open(plan.sink_name(), Some(CheckpointId::new(restored)), snapshots).await
}

async fn write(runtime: &mut Runtime, numbers: std::ops::Range<u64>) {
    for n in numbers {
        runtime.write(Row { n }).await.unwrap();
    }
}

async fn barrier(runtime: &mut Runtime, checkpoint: u64) -> Snapshot {
    runtime.pre_commit(Barrier::checkpoint(CheckpointId::new(checkpoint))).await.unwrap()
}

/// One prepared transaction, in a snapshot of checkpoint 1, and nothing running.
async fn prepared(plan: &Plan) -> Snapshot {
    let mut runtime = open(plan, 0, &[]).await.unwrap();
    write(&mut runtime, 0..4).await;
    let snapshot = barrier(&mut runtime, 1).await;
    runtime.close().await.unwrap();
    snapshot
}

async fn states(raw: &Raw) -> Vec<String> {
    let live = raw.get("/v1/txns").await.ok(200);
    live["items"].as_array().unwrap().iter().map(|t| t["state"].as_str().unwrap().to_owned()).collect()
}

fn error_of(opened: Result<Runtime, RuntimeError>) -> RuntimeError {
    match opened {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

/// FLINK-8086: the same checkpoint is restored again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_checkpoint_restored_again_and_again_is_committed_once() {
    let (ratifyd, _dir, plan) = scene(Config::new()).await;
    let snapshot = prepared(&plan).await;
    for restore in 0..5 {
        let runtime = open(&plan, 1, &[&snapshot]).await.unwrap();
        let report = runtime.report();
        assert_eq!((report.committed, report.already_committed), (1, u64::from(restore > 0)), "restore {restore}");
        drop(runtime);
    }
    check_exactly_once(&plan.out(), 4).unwrap();
    assert!(states(&ratifyd.raw()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_or_dropping_a_runtime_aborts_nothing_that_is_prepared() {
    let (ratifyd, _dir, plan) = scene(Config::new()).await;
    let mut runtime = open(&plan, 0, &[]).await.unwrap();
    write(&mut runtime, 0..2).await;
    let first = barrier(&mut runtime, 1).await;
    write(&mut runtime, 2..4).await;
    drop(runtime);
    let mut runtime = open(&plan, 1, &[&first]).await.unwrap();
    write(&mut runtime, 2..4).await;
    let second = barrier(&mut runtime, 2).await;
    runtime.close().await.unwrap();
    assert_eq!(states(&ratifyd.raw()).await, ["PREPARED"]);
    open(&plan, 2, &[&second]).await.unwrap().close().await.unwrap();
    check_exactly_once(&plan.out(), 4).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_after_the_last_barrier_are_given_up_with_an_error_that_counts_them() {
    let (ratifyd, _dir, plan) = scene(Config::new()).await;
    let mut runtime = open(&plan, 0, &[]).await.unwrap();
    write(&mut runtime, 0..3).await;
    assert!(matches!(runtime.close().await, Err(RuntimeError::Unflushed { records: 3 })));
    assert_eq!(visible(&plan.out()).unwrap(), [const { Vec::<u64>::new() }; 2]);
    open(&plan, 0, &[]).await.unwrap().close().await.unwrap();
    assert!(states(&ratifyd.raw()).await.is_empty());
    check_exactly_once(&plan.out(), 0).unwrap();
}

/// A plain savepoint is not committed by itself; the next checkpoint commits both, ascending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checkpoint_after_a_savepoint_commits_both_in_order() {
    let (ratifyd, _dir, plan) = scene(Config::new()).await;
    let mut runtime = open(&plan, 0, &[]).await.unwrap();
    write(&mut runtime, 0..2).await;
    runtime.pre_commit(Barrier::savepoint(CheckpointId::new(1))).await.unwrap();
    write(&mut runtime, 2..4).await;
    barrier(&mut runtime, 2).await;
    assert_eq!(states(&ratifyd.raw()).await, ["PREPARED", "PREPARED"]);
    runtime.checkpoint_completed(CheckpointId::new(2)).unwrap();
    runtime.flush_commits().await.unwrap();
    check_exactly_once(&plan.out(), 4).unwrap();
    let kept = ratifyd.raw().get("/v1/preserver/pipeline.0").await.ok(200);
    let checkpoints: Vec<_> = kept["outcomes"].as_array().unwrap().iter().map(|o| &o["checkpointId"]).collect();
    assert_eq!(checkpoints, [&json!(2), &json!(1)], "newest first");
    runtime.close().await.unwrap();
}

/// FLINK-31363, RisingWave PR 26498.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_interval_makes_no_transaction_and_changes_nothing() {
    let (ratifyd, _dir, plan) = scene(Config::new()).await;
    let mut runtime = open(&plan, 0, &[]).await.unwrap();
    for checkpoint in 1..=3 {
        let snapshot = barrier(&mut runtime, checkpoint).await;
        assert_eq!(snapshot.elements(), []);
        runtime.checkpoint_completed(CheckpointId::new(checkpoint)).unwrap();
    }
    runtime.flush_commits().await.unwrap();
    runtime.close().await.unwrap();
    assert_eq!(ratifyd.raw().get("/v1/clients").await.ok(200)["items"][0]["counts"]["COMMITTED"], 0);
    open(&plan, 3, &[]).await.unwrap().close().await.unwrap();
}

/// FLINK-24131, FLINK-7784 and their kin: each way to lose a checkpointed transaction is its own loud error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpointed_transaction_an_operator_aborted_fails_the_job_loudly() {
    let (ratifyd, _dir, plan) = scene(Config::new()).await;
    let snapshot = prepared(&plan).await;
    resolve_the_only_one(&ratifyd.raw(), "ABORT").await;
    let error = error_of(open(&plan, 1, &[&snapshot]).await);
    assert!(matches!(error, RuntimeError::TxnAborted { .. }), "{error}");
    assert!(error.to_string().contains("OPERATOR"), "{error}");
    let again = error_of(open(&plan, 1, &[&snapshot]).await);
    assert_eq!(again.to_string(), error.to_string(), "as often as it is tried");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpointed_transaction_whose_outcome_expired_fails_the_job_loudly() {
    let (ratifyd, _dir, plan) = scene(Config::evicting(0)).await;
    let snapshot = prepared(&plan).await;
    resolve_the_only_one(&ratifyd.raw(), "ABORT").await;
    let id = snapshot.elements()[0].txn_id();
    let path = format!("/v1/clients/pipeline.0/txns/{id}");
    let raw = ratifyd.raw();
    poll::until("the participant to be asked", || async {
        // The sink is a participant: nobody else may let go of the outcome.
        let ack = format!("{path}/participants/pipeline.0/ack");
        (raw.post(&ack, json!({"outcome": "ABORTED"})).await.status == 200).then_some(())
    })
    .await;
    poll::until("the outcome to be evicted", || async { (raw.get(&path).await.status == 410).then_some(()) }).await;
    let error = error_of(open(&plan, 1, &[&snapshot]).await);
    assert!(matches!(error, RuntimeError::TxnExpired { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_given_up_only_by_the_policy_for_it_and_then_named() {
    let (ratifyd, _dir, plan) = scene(Config::new()).await;
    let snapshot = prepared(&plan).await;
    resolve_the_only_one(&ratifyd.raw(), "ABORT").await;
    let with = |lost| {
        let builder = engine(&plan).on_lost(lost, LostPolicy::Skip);
        builder.open(plan.sink_name(), Some(CheckpointId::new(1)), [snapshot.clone()])
    };
    assert!(matches!(error_of(with(Lost::Expired).await), RuntimeError::TxnAborted { .. }));
    let runtime = with(Lost::Aborted).await.unwrap();
    let skipped: Vec<_> = runtime.report().skipped.iter().map(|(_, id, lost)| (*id, *lost)).collect();
    assert_eq!(skipped, [(snapshot.elements()[0].txn_id(), Lost::Aborted)]);
    runtime.close().await.unwrap();
}

/// A store that was restored from a backup has forgotten what it acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_was_put_back_is_noticed_before_anything_is_lost() {
    let (mut ratifyd, dir, plan) = scene(Config::new()).await;
    open(&plan, 0, &[]).await.unwrap().close().await.unwrap();
    let backup = dir.path().join("backup");
    ratifyd.terminate().await;
    copy_dir(&ratifyd.data_dir(), &backup);
    ratifyd.start_again().await;
    ratifyd.crash().await;
    let mut plan = Plan { url: ratifyd.url(), ..plan };
    let snapshot = prepared(&plan).await;
    ratifyd.kill();
    ratifyd.restore(&backup);
    ratifyd.start_again().await;
    plan.url = ratifyd.url();
    let error = error_of(open(&plan, 1, &[&snapshot]).await);
    assert!(error.to_string().contains("an older copy was put back"), "{error}");
    // Started often enough, the copy's number is that of the original; its nonces are not.
    for _ in 0..4 {
        ratifyd.crash().await;
    }
    plan.url = ratifyd.url();
    let error = error_of(open(&plan, 1, &[&snapshot]).await);
    assert!(error.to_string().contains("an older copy was put back"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_with_an_empty_store_is_an_error_for_a_job_that_has_run_before() {
    let (mut ratifyd, _dir, plan) = scene(Config::new()).await;
    let snapshot = prepared(&plan).await;
    ratifyd.kill();
    fs::remove_dir_all(ratifyd.data_dir()).unwrap();
    ratifyd.start_again().await;
    let plan = Plan { url: ratifyd.url(), ..plan };
    let builder = engine(&plan).first_start(false);
    let opened = builder.open(plan.sink_name(), Some(CheckpointId::new(1)), [snapshot]).await;
    let error = error_of(opened);
    assert!(error.to_string().contains("it is another store"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_older_than_the_last_commit_is_refused_naming_both() {
    let (_ratifyd, _dir, plan) = scene(Config::new()).await;
    let mut runtime = open(&plan, 0, &[]).await.unwrap();
    let mut snapshots = Vec::new();
    for checkpoint in 1..=3 {
        write(&mut runtime, 2 * (checkpoint - 1)..2 * checkpoint).await;
        snapshots.push(barrier(&mut runtime, checkpoint).await);
        runtime.checkpoint_completed(CheckpointId::new(checkpoint)).unwrap();
    }
    runtime.flush_commits().await.unwrap();
    runtime.close().await.unwrap();
    let text = error_of(open(&plan, 1, &[&snapshots[0]]).await).to_string();
    assert!(text.contains("checkpoint 1") && text.contains("checkpoint 3"), "{text}");
    let builder = engine(&plan).accept_rewind(true);
    let rewound = builder.open(plan.sink_name(), Some(CheckpointId::new(1)), [snapshots[0].clone()]).await.unwrap();
    rewound.close().await.unwrap();
}

/// psycopg2 #1213, FLINK: a failed write must not be followed by a successful checkpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_write_surfaces_at_the_barrier_and_stays() {
    let (ratifyd, dir, plan) = scene(Config::new()).await;
    // Where the staged files would go there is a file already.
    fs::create_dir_all(plan.out()).unwrap();
    let mut runtime = open(&plan, 0, &[]).await.unwrap();
    write(&mut runtime, 0..2).await;
    let staged = plan.out().join(".staged");
    fs::rename(&staged, dir.path().join("gone")).unwrap();
    fs::write(&staged, "").unwrap();
    let mut errors = Vec::new();
    for checkpoint in 1..=2 {
        let failed = runtime.pre_commit(Barrier::checkpoint(CheckpointId::new(checkpoint))).await;
        errors.push(failed.unwrap_err().to_string());
    }
    errors.push(runtime.write(Row { n: 2 }).await.unwrap_err().to_string());
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    drop(runtime);
    assert!(!states(&ratifyd.raw()).await.contains(&"PREPARED".to_owned()), "nothing was prepared past the hole");
}

/// KAFKA and Flink reuse names; here ids are never reused, whatever the clock of the host says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_are_drawn_above_the_newest_although_the_clock_is_behind() {
    let (ratifyd, _dir, plan) = scene(Config::new()).await;
    let c = Session::open(&ratifyd.raw(), "pipeline", 1).await;
    let future = "fffffffe-ffff-7fff-bfff-ffffffffff00";
    let path = format!("/v1/clients/pipeline/txns/{future}");
    c.raw.put(&path, json!({"epoch": 1})).await.ok(201);
    c.raw.post(&format!("{path}/abort"), json!({"epoch": 1})).await.ok(200);
    run_split(&plan).await.unwrap();
    check_exactly_once(&plan.out(), plan.records).unwrap();
    let committed = c.raw.get("/v1/txns?state=COMMITTED").await.ok(200);
    let ids: Vec<_> = committed["items"].as_array().unwrap().iter().map(|t| t["txnId"].as_str().unwrap()).collect();
    assert!(ids.len() == 4 && ids.iter().all(|id| *id > future), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_may_be_fewer_and_more_again_and_every_pending_transaction_has_one_owner() {
    let (ratifyd, _dir, plan) = scene(Config::new()).await;
    let (mut elements, mut checkpoint, mut next) = (Vec::new(), 0, 0);
    for parallelism in [4_u32, 2, 4, 1] {
        // The engine deals the elements out in any way it likes.
        let mut shares = vec![Vec::new(); parallelism as usize];
        for (at, element) in elements.drain(..).enumerate() {
            shares[(at + 1) % parallelism as usize].push(element);
        }
        let mut runtimes = Vec::new();
        for (index, share) in (0..).zip(shares) {
            let plan = Plan { pending: plan.dir.join(format!("pending-{index}")), ..plan.clone() };
            let worker = ratified::Worker::new(index, parallelism).unwrap();
            let builder = engine(&plan).worker(worker);
            let snapshot = Snapshot::from_elements(share);
            let restored = Some(CheckpointId::new(checkpoint));
            runtimes.push(builder.open(plan.sink_name(), restored, [snapshot]).await.unwrap());
        }
        checkpoint += 1;
        for runtime in &mut runtimes {
            write(runtime, next..next + 2).await;
            next += 2;
            elements.extend(barrier(runtime, checkpoint).await.into_elements());
        }
    }
    let snapshot = Snapshot::from_elements(elements);
    open(&plan, checkpoint, &[&snapshot]).await.unwrap().close().await.unwrap();
    assert!(states(&ratifyd.raw()).await.is_empty());
    let mut numbers: Vec<_> = visible(&plan.out()).unwrap().into_iter().flatten().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..next).collect::<Vec<_>>());
}

/// The order of the life of a transaction, as the sink and the coordinator see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_applied_before_it_is_decided_and_nothing_acknowledged_before_it_is_applied() {
    let (_ratifyd, _dir, mut plan) = scene(Config::new()).await;
    let passed = Arc::new(Mutex::new(Vec::new()));
    let log = passed.clone();
    plan.places = Arc::new(move |place| log.lock().unwrap().push(place.to_owned()));
    plan.records = plan.per_txn;
    run_split(&plan).await.unwrap();
    let passed = passed.lock().unwrap();
    let at = |place: &str| passed.iter().position(|p| p == place).unwrap_or_else(|| panic!("{place}: {passed:?}"));
    let places =
        ["begun", "write", "sync_file", "pre_committed", "decided", "rename_0", "rename_1", "applied", "acked"];
    let order: Vec<_> = places.iter().map(|place| at(place)).collect();
    assert!(order.is_sorted(), "{passed:?}");
}

async fn resolve_the_only_one(raw: &Raw, outcome: &str) {
    let live = raw.get("/v1/txns").await.ok(200);
    let (client, id) = (live["items"][0]["clientName"].as_str(), live["items"][0]["txnId"].as_str());
    let path = format!("/v1/clients/{}/txns/{}/resolve", client.unwrap(), id.unwrap());
    raw.post(&path, json!({"outcome": outcome, "reason": "test"})).await.ok(202);
}
