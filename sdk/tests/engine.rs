//! The runtime driven by an engine, without failures: barriers, notifications in every order, bounds.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use ratified::{Barrier, CheckpointId, Code, RuntimeError, SinkError, Snapshot, TxnState, protocol::Outcome};
use support::{World, checkpoint, client, completed};

#[tokio::test]
async fn records_are_visible_when_their_checkpoint_completes_and_not_before() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("a".into()).await.unwrap();
    runtime.write("b".into()).await.unwrap();
    let snapshot = runtime.pre_commit(checkpoint(1)).await.unwrap();
    assert_eq!(snapshot.elements().len(), 1);
    assert_eq!(snapshot.elements()[0].client(), &client(0));
    assert_eq!(snapshot.elements()[0].checkpoint(), CheckpointId::new(1));
    assert_eq!(world.sink.visible(), [""; 0]);
    assert_eq!(world.states(&client(0)).await, [TxnState::Prepared]);
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["a", "b"]);
    assert_eq!(world.states(&client(0)).await, [TxnState::Committed]);
    assert_eq!(world.unfinished().await, []);
    assert_eq!(runtime.pre_commit(checkpoint(2)).await.unwrap(), Snapshot::default());
    runtime.close().await.unwrap();
}

#[tokio::test]
async fn the_pending_store_remembers_what_is_not_finished_and_nothing_else() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    let log = support::log_of(&world.pending, &client(0)).await;
    runtime.write("1".into()).await.unwrap();
    let handle = br#"{"records":0,"padding":""}"#.to_vec();
    let id = world.sink.ids(&client(0))[0];
    assert_eq!(log.contents().entries.into_iter().collect::<Vec<_>>(), [(id, Some(handle))]);
    assert_eq!(log.contents().store, world.client_store_id().await);
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    assert_eq!(log.contents().entries.len(), 1);
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(log.contents().entries.len(), 0);
}

#[tokio::test]
async fn an_empty_interval_makes_no_transaction() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    for id in 1..4 {
        assert_eq!(runtime.pre_commit(checkpoint(id)).await.unwrap(), Snapshot::default());
        runtime.checkpoint_completed(completed(id)).unwrap();
    }
    runtime.close().await.unwrap();
    assert_eq!(world.sink.calls(), [""; 0]);
    assert_eq!(world.unfinished().await, []);
}

#[tokio::test]
async fn a_lost_notification_is_made_up_for_by_the_next_one_oldest_first() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    for id in 1..=3 {
        runtime.write(format!("{id}")).await.unwrap();
        runtime.pre_commit(checkpoint(id)).await.unwrap();
    }
    world.sink.forget_calls();
    runtime.checkpoint_completed(completed(2)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.calls(), ["commit 0", "commit 1"]);
    assert_eq!(world.sink.visible(), ["1", "2"]);
    for late in [1, 2, 1] {
        runtime.checkpoint_completed(completed(late)).unwrap();
    }
    runtime.checkpoint_completed(completed(9)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.calls(), ["commit 0", "commit 1", "commit 2"]);
    assert_eq!(world.sink.visible(), ["1", "2", "3"]);
}

#[tokio::test]
async fn what_a_declined_checkpoint_covers_is_committed_with_the_next_completed_one() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.checkpoint_aborted(completed(1)).unwrap();
    runtime.write("2".into()).await.unwrap();
    let snapshot = runtime.pre_commit(checkpoint(2)).await.unwrap();
    assert_eq!(snapshot.elements().iter().map(|e| e.checkpoint().as_u64()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(world.states(&client(0)).await, [TxnState::Prepared, TxnState::Prepared]);
    runtime.checkpoint_completed(completed(2)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2"]);
}

#[tokio::test]
async fn a_savepoint_without_notification_is_committed_by_the_next_checkpoint() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(Barrier::savepoint(CheckpointId::new(1))).await.unwrap();
    runtime.write("2".into()).await.unwrap();
    runtime.pre_commit(checkpoint(2)).await.unwrap();
    runtime.checkpoint_completed(completed(2)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2"]);
}

#[tokio::test]
async fn a_failed_write_is_told_by_every_later_call_but_close() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    world.sink.fail("write", SinkError::indeterminate("disk full"));
    runtime.write("lost".into()).await.unwrap_err();
    let is_told = |error| matches!(error, RuntimeError::Sink { call: "sink.write", .. });
    assert!(is_told(runtime.write("2".into()).await.unwrap_err()));
    assert!(is_told(runtime.pre_commit(checkpoint(2)).await.unwrap_err()));
    assert!(is_told(runtime.checkpoint_completed(completed(1)).unwrap_err()));
    assert!(is_told(runtime.checkpoint_aborted(completed(1)).unwrap_err()));
    assert!(is_told(runtime.flush_commits().await.unwrap_err()));
    assert!(matches!(runtime.close().await, Err(RuntimeError::Unflushed { records: 1 })));
    assert_eq!(world.sink.visible(), [""; 0]);
}

#[tokio::test]
async fn what_stopped_the_runtime_first_is_what_it_tells() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.write("2".into()).await.unwrap();
    world.sink.close_gate();
    world.sink.fail("commit", SinkError::rejected("table dropped"));
    runtime.checkpoint_completed(completed(1)).unwrap();
    world.sink.until_called("commit 0").await;
    world.sink.fail("write", SinkError::indeterminate("disk full"));
    runtime.write("3".into()).await.unwrap_err();
    world.sink.open_gate();
    // The background committer ends with its own error while these ask.
    for _ in 0..50 {
        world.client().version().await.unwrap();
        let told = runtime.write("4".into()).await.unwrap_err();
        assert!(matches!(told, RuntimeError::Sink { call: "sink.write", .. }), "{told}");
    }
}

#[tokio::test]
async fn a_failed_pre_commit_is_sticky_and_only_a_determinate_one_is_repeated() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    world.sink.fail("pre_commit", SinkError::determinate("busy"));
    world.sink.fail("pre_commit", SinkError::determinate("busy"));
    assert_eq!(runtime.pre_commit(checkpoint(1)).await.unwrap().elements().len(), 1);
    runtime.write("2".into()).await.unwrap();
    world.sink.fail("pre_commit", SinkError::indeterminate("lost a background write"));
    runtime.pre_commit(checkpoint(2)).await.unwrap_err();
    let again = runtime.pre_commit(checkpoint(3)).await.unwrap_err();
    assert!(matches!(again, RuntimeError::Sink { call: "sink.pre_commit", .. }), "{again}");
}

#[tokio::test]
async fn a_decided_commit_is_repeated_until_the_sink_takes_it() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    for _ in 0..20 {
        world.sink.fail("commit", SinkError::indeterminate("timeout"));
    }
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
    assert_eq!(world.sink.calls().iter().filter(|call| *call == "commit 0").count(), 21);
}

#[tokio::test]
async fn a_rejected_commit_stops_the_job_and_keeps_the_transaction() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    let snapshot = runtime.pre_commit(checkpoint(1)).await.unwrap();
    world.sink.fail("commit", SinkError::rejected("table dropped"));
    runtime.checkpoint_completed(completed(1)).unwrap();
    let stopped = runtime.flush_commits().await.unwrap_err();
    assert!(matches!(&stopped, RuntimeError::Sink { call: "sink.commit", .. }), "{stopped}");
    runtime.write("2".into()).await.unwrap_err();
    assert_eq!(world.states(&client(0)).await, [TxnState::Committing]);
    drop(runtime);
    let restored = world.restore(1, snapshot).await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
    assert_eq!(restored.report().committed, 1);
}

#[tokio::test]
async fn write_waits_while_too_many_commits_are_unfinished_and_pre_commit_never_does() {
    let world = World::start().await;
    let mut runtime = world.builder().first_start(true).max_pending(1).open(support::name(), None, []).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.write("2".into()).await.unwrap();
    world.sink.close_gate();
    runtime.checkpoint_completed(completed(1)).unwrap();
    world.sink.until_called("commit 0").await;
    let snapshot = runtime.pre_commit(checkpoint(2)).await.unwrap();
    assert_eq!(snapshot.elements().len(), 2, "also what is decided and not finished");
    let (sink, coordinator) = (world.sink.clone(), world.client());
    let (written, ()) = tokio::join!(runtime.write("3".into()), async move {
        // Far more round trips than beginning a transaction takes.
        for _ in 0..50 {
            coordinator.version().await.unwrap();
        }
        assert!(!sink.calls().contains(&"begin 2".to_owned()));
        sink.open_gate();
    });
    written.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
    assert_eq!(world.sink.calls().last().unwrap(), "write 2");
}

#[tokio::test]
async fn so_many_prepared_checkpoints_without_a_completed_one_are_an_error() {
    let world = World::start().await;
    let mut runtime = world.builder().first_start(true).max_prepared(3).open(support::name(), None, []).await.unwrap();
    for id in 1..=3 {
        runtime.write(format!("{id}")).await.unwrap();
        runtime.pre_commit(checkpoint(id)).await.unwrap();
    }
    let refused = runtime.write("4".into()).await.unwrap_err();
    assert!(matches!(refused, RuntimeError::TooManyPrepared { prepared: 3 }), "{refused}");
}

#[tokio::test]
async fn closing_aborts_the_open_transaction_and_names_its_records() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    for record in ["1", "2", "3"] {
        runtime.write(record.into()).await.unwrap();
    }
    assert!(matches!(runtime.close().await, Err(RuntimeError::Unflushed { records: 3 })));
    assert_eq!(world.states(&client(0)).await, [TxnState::Aborted]);
    assert_eq!((world.sink.staged(), world.sink.visible().len()), (0, 0));
}

#[tokio::test]
async fn neither_close_nor_drop_nor_panic_aborts_what_is_prepared() {
    let world = World::start().await;
    for how in ["close", "drop", "panic"] {
        let sink: ratified::SinkName = format!("job.{how}").parse().unwrap();
        let mut runtime = world.builder().first_start(true).open(sink, None, []).await.unwrap();
        runtime.write("1".into()).await.unwrap();
        runtime.pre_commit(checkpoint(1)).await.unwrap();
        match how {
            "close" => runtime.close().await.unwrap(),
            "drop" => drop(runtime),
            _ => {
                let panicked = tokio::spawn(async move {
                    let _held = runtime;
                    panic!("on purpose");
                });
                assert!(panicked.await.unwrap_err().is_panic());
            }
        }
        let client = format!("job.{how}.0").parse().unwrap();
        assert_eq!(world.states(&client).await, [TxnState::Prepared], "{how}");
    }
    assert_eq!(world.sink.staged(), 3);
}

#[tokio::test]
async fn barriers_only_go_forward_and_nothing_follows_the_final_one() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(Barrier::last(CheckpointId::new(5))).await.unwrap();
    let refused = runtime.write("2".into()).await.unwrap_err();
    assert!(matches!(refused, RuntimeError::AfterFinal), "{refused}");
    drop(runtime);

    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.pre_commit(checkpoint(5)).await.unwrap();
    let refused = runtime.pre_commit(checkpoint(5)).await.unwrap_err();
    assert!(matches!(refused, RuntimeError::BarrierOutOfOrder { .. }), "{refused}");
}

#[tokio::test]
async fn a_final_checkpoint_commits_and_closes_cleanly() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(Barrier::last(CheckpointId::new(1))).await.unwrap();
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    runtime.close().await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
}

#[tokio::test]
async fn a_handle_over_64_kib_stops_before_anything_is_prepared() {
    let world = World::start().await;
    // What does not fit even without its envelope is refused at once, what does not fit with it at the barrier.
    world.sink.pad_handles(70_000);
    let mut runtime = world.first().await;
    let refused = runtime.write("1".into()).await.unwrap_err();
    assert!(matches!(refused, RuntimeError::PayloadTooLarge { bytes: 70_026 }), "{refused}");
    drop(runtime);
    world.sink.pad_handles(65_510);
    let mut runtime = world.restore(0, Snapshot::default()).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    let refused = runtime.pre_commit(checkpoint(1)).await.unwrap_err();
    assert!(matches!(refused, RuntimeError::PayloadTooLarge { bytes: 65_546 }), "{refused}");
    assert_eq!(world.states(&client(0)).await, [TxnState::Aborted, TxnState::Open]);
}

#[tokio::test]
async fn a_call_that_was_dropped_half_way_stops_the_runtime() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    {
        let write = runtime.write("1".into());
        let mut write = std::pin::pin!(write);
        std::future::poll_fn(|cx| {
            assert!(write.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    }
    let stopped = runtime.write("2".into()).await.unwrap_err();
    assert!(matches!(stopped, RuntimeError::Interrupted), "{stopped}");
}

#[tokio::test]
async fn an_acknowledgement_of_what_is_forgotten_meanwhile_is_not_an_error() {
    let world = World::with(|config| {
        config.limits.persist_count = 1;
        config.limits.max_outcomes_per_client = 1;
    })
    .await;
    let mut runtime = world.first().await;
    world.sink.close_gate();
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.checkpoint_completed(completed(1)).unwrap();
    world.sink.until_called("commit 0").await;
    // An operator gives the sink up and takes it back: nobody waits for the first commit any more.
    let (coordinator, sink) = (world.client(), (&client(0)).into());
    coordinator.retire(&sink, support::reason()).await.unwrap();
    coordinator.reinstate(&sink, None).await.unwrap();
    runtime.write("2".into()).await.unwrap();
    runtime.pre_commit(checkpoint(2)).await.unwrap();
    // The second commit, decided and acknowledged by somebody else, leaves no room for the first one's outcome.
    let id = world.sink.ids(&client(0))[1];
    coordinator.commit(&client(0), id, &Default::default(), None).await.unwrap();
    coordinator.ack(&client(0), id, &sink, Outcome::Committed).await.unwrap();
    let first = world.sink.ids(&client(0))[0];
    let forgotten = coordinator.get(&client(0), first, None).await.unwrap_err();
    assert_eq!(forgotten.code(), Some(Code::OutcomeExpired));
    world.sink.open_gate();
    runtime.checkpoint_completed(completed(2)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2"]);
}

#[tokio::test]
async fn the_pending_store_learns_of_a_restart_of_the_coordinator() {
    let mut world = World::start().await;
    let mut runtime = world.first().await;
    let log = support::log_of(&world.pending, &client(0)).await;
    runtime.write("1".into()).await.unwrap();
    let before = log.contents().store.unwrap();
    world.stop_coordinator().await;
    world.start_coordinator().await;
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.write("2".into()).await.unwrap();
    let after = log.contents().store.unwrap();
    assert_eq!(
        (after.id.cluster_id(), after.id.newest_loads()),
        (before.id.cluster_id(), before.id.newest_loads() + 1)
    );
    drop(runtime);
}
