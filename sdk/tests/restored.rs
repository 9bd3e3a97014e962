//! What `open` finds when engine, coordinator and sink do not tell the same story.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use ratified::{
    CheckpointId, JobSink, RuntimeError, SinkName, Snapshot, TxnState, UnnamedPolicy, pending::MemoryStore,
    protocol::ShortText,
};
use support::{
    World, checkpoint, client, completed, copy_dir, name, one_committed_one_prepared, sink::TestSink, worker,
};

fn text(text: &str) -> ShortText {
    ShortText::try_from(text.to_owned()).unwrap()
}

#[tokio::test]
async fn what_no_snapshot_of_the_only_worker_names_is_not_lost_without_an_error() {
    let (world, _) = one_committed_one_prepared().await;
    let failed = world.restore(2, Snapshot::default()).await.map(|_| ()).unwrap_err();
    let id = world.sink.ids(&client(0))[1];
    assert!(matches!(&failed, RuntimeError::Unnamed { txns, .. } if *txns == [(client(0), id)]), "{failed}");
    assert_eq!(world.states(&client(0)).await, [TxnState::Committed, TxnState::Prepared]);
    assert_eq!(world.sink.visible(), ["1"]);

    let committing = world.builder().on_unnamed(UnnamedPolicy::Commit);
    let mut runtime = committing.open(name(), Some(CheckpointId::new(2)), []).await.unwrap();
    assert_eq!((world.sink.visible(), runtime.report().committed), (vec!["1".to_owned(), "2".to_owned()], 1));
    runtime.write("3".into()).await.unwrap();
    runtime.pre_commit(checkpoint(3)).await.unwrap();
    runtime.checkpoint_completed(completed(3)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2", "3"]);
    assert_eq!(world.unfinished().await, []);
}

/// Until then the worker that has the snapshot may still be on its way.
#[tokio::test]
async fn of_several_workers_each_looks_again_when_the_first_checkpoint_completes() {
    for policy in [UnnamedPolicy::Fail, UnnamedPolicy::Commit, UnnamedPolicy::LeaveAlone] {
        let (world, _) = one_committed_one_prepared().await;
        let builder = world.builder().worker(worker(0, 2)).on_unnamed(policy);
        let mut runtime = builder.open(name(), Some(CheckpointId::new(2)), []).await.unwrap();
        let id = world.sink.ids(&client(0))[1];
        assert_eq!(runtime.report().left_alone, [(client(0), id)]);
        runtime.write("3".into()).await.unwrap();
        runtime.pre_commit(checkpoint(3)).await.unwrap();
        assert_eq!(world.sink.visible(), ["1"], "{policy:?}");
        runtime.checkpoint_completed(completed(3)).unwrap();
        let flushed = runtime.flush_commits().await;
        let is_named = |txns: &[_]| *txns == [(client(0), id)];
        match policy {
            UnnamedPolicy::Commit => {
                flushed.unwrap();
                assert_eq!(world.sink.visible_sorted(), ["1", "2", "3"]);
            }
            UnnamedPolicy::LeaveAlone => {
                flushed.unwrap();
                assert_eq!(world.sink.visible(), ["1", "3"]);
            }
            _ => assert!(matches!(flushed, Err(RuntimeError::Unnamed { txns, .. }) if is_named(&txns))),
        }
    }
}

#[tokio::test]
async fn what_another_worker_has_restored_meanwhile_is_not_missed() {
    let (world, snapshot) = one_committed_one_prepared().await;
    let open = |index, snapshots: Vec<Snapshot>| {
        world.builder().worker(worker(index, 2)).open(name(), Some(CheckpointId::new(2)), snapshots)
    };
    let mut first = open(0, vec![]).await.unwrap();
    drop(open(1, vec![snapshot]).await.unwrap());
    assert_eq!(world.sink.visible(), ["1", "2"]);
    first.checkpoint_completed(completed(3)).unwrap();
    first.flush_commits().await.unwrap();
}

#[tokio::test]
async fn a_run_that_starts_from_nothing_aborts_what_it_has_prepared_itself_and_nobody_elses() {
    let world = World::start().await;
    let start = |run: &str| world.builder().first_start(true).run(text(run)).open(name(), None, []);
    let mut runtime = start("run 1").await.unwrap();
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    drop(runtime);
    let failed = start("run 2").await.map(|_| ()).unwrap_err();
    assert!(matches!(failed, RuntimeError::Rewound { restored: None, committed: None, .. }), "{failed}");
    assert_eq!(world.states(&client(0)).await, [TxnState::Prepared]);

    let mut runtime = start("run 1").await.unwrap();
    assert_eq!((runtime.report().aborted, world.sink.staged()), (1, 0));
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
    drop(runtime);
    let failed = start("run 1").await.map(|_| ()).unwrap_err();
    assert!(matches!(failed, RuntimeError::Rewound { committed: Some(_), .. }), "a checkpoint completed: {failed}");
}

#[tokio::test]
async fn a_job_and_a_coordinator_that_are_put_back_together_are_refused_by_what_the_sink_shows() {
    let mut world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    drop(runtime);
    world.stop_coordinator().await;
    let (data, copy) = (world.dir.path().join("data"), world.dir.path().join("copy"));
    copy_dir(&data, &copy);
    world.start_coordinator().await;
    let mut runtime = world.restore(1, Snapshot::default()).await.unwrap();
    runtime.write("2".into()).await.unwrap();
    runtime.pre_commit(checkpoint(2)).await.unwrap();
    runtime.checkpoint_completed(completed(2)).unwrap();
    runtime.flush_commits().await.unwrap();
    drop(runtime);
    world.stop_coordinator().await;
    std::fs::remove_dir_all(&data).unwrap();
    copy_dir(&copy, &data);
    world.start_coordinator().await;

    // On another host, so that no pending store remembers the coordinator either.
    let elsewhere = || world.builder().pending(MemoryStore::new());
    let failed = elsewhere().open(name(), Some(CheckpointId::new(1)), []).await.map(|_| ()).unwrap_err();
    let id = world.sink.ids(&client(0))[1];
    assert!(matches!(&failed, RuntimeError::SinkAhead { visible, .. } if *visible == [id]), "{failed}");
    let accepting = elsewhere().accept_unknown_data(true);
    let mut runtime = accepting.open(name(), Some(CheckpointId::new(1)), []).await.unwrap();
    runtime.write("2".into()).await.unwrap();
    runtime.pre_commit(checkpoint(2)).await.unwrap();
    runtime.checkpoint_completed(completed(2)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2", "2"], "the accepted duplicate");
    drop(runtime);
    drop(elsewhere().open(name(), Some(CheckpointId::new(2)), []).await.unwrap());
}

async fn first_start(world: &World) -> Result<JobSink<TestSink>, RuntimeError> {
    world.job_builder().pending(MemoryStore::new()).first_start(true).open("job.part-0".parse().unwrap()).await
}

#[tokio::test]
async fn a_first_start_into_a_sink_that_has_data_of_this_client_is_refused_naming_it() {
    let world = World::start().await;
    let part = "job.part-0".parse().unwrap();
    let mut runtime = first_start(&world).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    let id = runtime.commit(b"one").await.unwrap().unwrap();
    runtime.flush_commits().await.unwrap();
    drop(runtime);
    // Another coordinator, as after its store was lost, over the same sink.
    let mut lost = World::start().await;
    lost.sink = world.sink.clone();
    for again in 0..2 {
        let failed = first_start(&lost).await.map(|_| ()).unwrap_err();
        let is_told = matches!(&failed, RuntimeError::SinkAhead { visible, .. } if *visible == [id]);
        let told = failed.to_string();
        assert!(is_told && told.contains("of job.part-0 (1 visible, 0 staged"), "{again}: {told}");
        // Where it is and who asks; the other owner is known to another coordinator only.
        assert!(told.contains("in a place that it does not tell: ") && told.contains("beside this owner, "), "{told}");
    }
    let accepting = lost.job_builder().first_start(true).accept_unknown_data(true);
    let mut runtime = accepting.open(part).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    assert!(runtime.commit(b"one").await.unwrap().unwrap() > id);
}

#[tokio::test]
async fn a_first_start_into_a_sink_that_cannot_tell_what_it_shows_is_refused_by_what_is_staged() {
    let world = World::start().await;
    let id = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
    world.sink.plant(&client(0), id);
    let builder = world.builder().first_start(true);
    let failed = builder.open("job.sink".parse::<SinkName>().unwrap(), None, []).await.map(|_| ()).unwrap_err();
    assert!(matches!(&failed, RuntimeError::SinkAhead { staged, .. } if *staged == [id]), "{failed}");
}
