//! What the next owner finds, and what it does about it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ratified::{
    CheckpointId, Code, CoordinatorClient, Epoch, Mode, Outcome, Point, RuntimeError, SinkError, Snapshot, TxnState,
    UnnamedPolicy,
    pending::{FileStore, MemoryStore, PendingStore},
    protocol::{
        BatchItem, BatchOp, BatchRequest, BeginRequest, EpochRequest, Incarnation, OpenRequest, PrepareRequest,
        Resolution,
    },
};
use support::{
    World, checkpoint, client, completed, log_of, name, one_committed_one_prepared, one_committed_one_prepared_with,
    reason,
};

#[tokio::test]
async fn prepared_for_a_checkpoint_that_never_completed_is_aborted_and_read_again() {
    let (world, _) = one_committed_one_prepared().await;
    let mut runtime = world.restore(1, Snapshot::default()).await.unwrap();
    assert_eq!(world.states(&client(0)).await, [TxnState::Committed, TxnState::Aborted]);
    assert_eq!((runtime.report().aborted, world.sink.staged()), (1, 0));
    runtime.write("2".into()).await.unwrap();
    runtime.pre_commit(checkpoint(3)).await.unwrap();
    runtime.checkpoint_completed(completed(3)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2"]);
}

#[tokio::test]
async fn prepared_for_a_completed_checkpoint_is_committed_by_the_next_open() {
    let (world, snapshot) = one_committed_one_prepared().await;
    let runtime = world.restore(2, snapshot).await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2"]);
    assert_eq!((runtime.report().committed, runtime.report().already_committed), (1, 0));
    assert_eq!(world.unfinished().await, []);
}

#[tokio::test]
async fn the_same_checkpoint_may_be_restored_any_number_of_times() {
    let (world, snapshot) = one_committed_one_prepared().await;
    for round in 0..5 {
        let runtime = world.restore(2, snapshot.clone()).await.unwrap();
        assert_eq!(world.sink.visible(), ["1", "2"]);
        assert_eq!(runtime.report().already_committed, u64::from(round > 0), "{round}");
    }
}

#[tokio::test]
async fn open_transactions_of_older_owners_are_removed() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("lost".into()).await.unwrap();
    drop(runtime);
    let mut runtime = world.restore(0, Snapshot::default()).await.unwrap();
    assert_eq!(world.states(&client(0)).await, [TxnState::Aborted]);
    assert_eq!((world.sink.staged(), runtime.report().aborted), (0, 1));
    runtime.write("read again".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["read again"]);
}

#[tokio::test]
async fn what_is_decided_is_finished_from_the_coordinators_payload_although_host_and_disk_are_lost() {
    let world = World::start().await;
    world.sink.close_gate();
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.checkpoint_completed(completed(1)).unwrap();
    world.sink.until_called("commit 0").await;
    drop(runtime);
    world.sink.open_gate();
    assert_eq!(world.states(&client(0)).await, [TxnState::Committing]);
    let elsewhere = world.builder().pending(MemoryStore::new());
    let runtime = elsewhere.open(name(), Some(CheckpointId::new(1)), []).await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
    assert_eq!(runtime.report().committed, 1);
    assert_eq!(world.states(&client(0)).await, [TxnState::Committed]);
}

#[tokio::test]
async fn a_crash_at_any_point_loses_nothing_and_doubles_nothing() {
    for point in [Point::Begun, Point::PreCommitted, Point::Prepared, Point::Decided, Point::Applied, Point::Acked] {
        let world = World::start().await;
        let builder = world.builder().first_start(true).on_point(move |passed| {
            assert!(passed != point, "crash here");
        });
        let crashed = tokio::spawn(async move {
            let mut runtime = builder.open(name(), None, []).await.unwrap();
            runtime.write("1".into()).await.unwrap();
            let snapshot = runtime.pre_commit(checkpoint(1)).await.unwrap();
            runtime.checkpoint_completed(completed(1)).unwrap();
            runtime.flush_commits().await.unwrap_err();
            snapshot
        });
        let (restored, snapshot) = match crashed.await {
            Ok(snapshot) => (1, snapshot),
            Err(panicked) => {
                assert!(panicked.is_panic());
                (0, Snapshot::default())
            }
        };
        let mut runtime = world.restore(restored, snapshot).await.unwrap();
        if restored == 0 {
            assert_eq!(world.sink.visible(), [""; 0], "{point:?}");
            runtime.write("1".into()).await.unwrap();
        }
        runtime.pre_commit(checkpoint(2)).await.unwrap();
        runtime.checkpoint_completed(completed(2)).unwrap();
        runtime.flush_commits().await.unwrap();
        assert_eq!(world.sink.visible(), ["1"], "{point:?}");
        assert_eq!((world.sink.staged(), world.unfinished().await), (0, vec![]), "{point:?}");
    }
}

#[tokio::test]
async fn a_commit_that_wins_against_the_abort_of_open_is_noticed() {
    let (world, _) = one_committed_one_prepared().await;
    let id = world.sink.ids(&client(0))[1];
    let coordinator = world.client();
    // An old worker is told that checkpoint 2 is complete just when a new one is about to abort what it covers.
    world.sink.on_fence(move || {
        let coordinator = coordinator.clone();
        Box::pin(async move {
            coordinator.commit(&client(0), id, &Default::default(), None).await.unwrap();
        })
    });
    let failed = world.restore(1, Snapshot::default()).await.map(|_| ()).unwrap_err();
    let committed = Some(CheckpointId::new(2));
    assert!(matches!(&failed, RuntimeError::Rewound { committed: c, .. } if *c == committed), "{failed}");
    assert_eq!(world.states(&client(0)).await, [TxnState::Committed, TxnState::Committing]);
    assert_eq!(world.sink.staged(), 1, "its data was not removed");
}

#[tokio::test]
async fn whoever_keeps_committing_what_open_is_about_to_abort_is_told_of_after_ten_looks() {
    let (world, _) = one_committed_one_prepared().await;
    let looks = Arc::new(AtomicU64::new(0));
    support::never_rests(&world, client(0), looks.clone());
    let builder = world.builder().accept_rewind(true);
    let failed = builder.open(name(), Some(CheckpointId::new(1)), []).await.map(|_| ()).unwrap_err();
    assert!(matches!(&failed, RuntimeError::Contended { client: c } if *c == client(0)), "{failed}");
    assert_eq!(looks.load(Ordering::Relaxed), 10);
}

#[tokio::test]
async fn what_no_completed_checkpoint_lists_is_aborted_newest_first() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    for id in 1..=3 {
        runtime.write(format!("{id}")).await.unwrap();
        runtime.pre_commit(checkpoint(id)).await.unwrap();
    }
    drop(runtime);
    world.sink.forget_calls();
    let runtime = world.restore(0, Snapshot::default()).await.unwrap();
    assert_eq!(world.sink.calls(), ["abort 2", "abort 1", "abort 0"]);
    assert_eq!(runtime.report().aborted, 3);
}

#[tokio::test]
async fn an_unknown_client_is_made_only_at_a_declared_first_start() {
    let world = World::start().await;
    let failed = world.restore(7, Snapshot::default()).await.map(|_| ()).unwrap_err();
    assert!(matches!(&failed, RuntimeError::ClientUnknown { client: named } if *named == client(0)), "{failed}");
    let listed = world.client().clients(&Default::default()).await.unwrap();
    assert_eq!(listed.items, [], "nothing was stored");
    world.first().await.close().await.unwrap();
    assert!(world.restore(7, Snapshot::default()).await.is_ok());
}

#[tokio::test]
async fn a_worker_that_is_new_by_rescaling_needs_no_first_start() {
    let world = World::start().await;
    drop(world.first().await);
    let worker = support::worker(1, 2);
    let runtime = world.builder().worker(worker).open(name(), Some(CheckpointId::new(0)), []).await.unwrap();
    assert_eq!(runtime.report().clients, [client(1)]);
}

#[tokio::test]
async fn pending_ids_that_never_began_are_dropped_and_their_data_is_left_alone() {
    let world = World::start().await;
    drop(world.first().await);
    let id = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
    log_of(&world.pending, &client(0)).await.begin(id).await.unwrap();
    world.sink.plant(&client(0), id);
    let runtime = world.restore(0, Snapshot::default()).await.unwrap();
    assert_eq!(runtime.report().dropped, [(client(0), id)]);
    assert_eq!(runtime.report().unaccounted, [(client(0), id)]);
    assert_eq!(world.sink.staged(), 1);
    assert!(log_of(&world.pending, &client(0)).await.contents().entries.is_empty());
}

#[tokio::test]
async fn staged_data_of_an_aborted_transaction_is_removed_although_every_trace_but_the_outcome_is_gone() {
    let (world, _) = one_committed_one_prepared().await;
    let id = world.sink.ids(&client(0))[1];
    world.restore(1, Snapshot::default()).await.unwrap().close().await.unwrap();
    world.sink.plant(&client(0), id);
    let runtime = world.restore(1, Snapshot::default()).await.unwrap();
    assert_eq!((world.sink.staged(), runtime.report().aborted), (0, 1));
}

#[tokio::test]
async fn what_an_operator_aborts_while_it_is_left_alone_is_removed_and_acknowledged() {
    let (world, _) = one_committed_one_prepared().await;
    let id = world.sink.ids(&client(0))[1];
    let coordinator = world.client();
    world.sink.on_fence(move || {
        let coordinator = coordinator.clone();
        Box::pin(async move {
            coordinator.resolve(&client(0), id, Resolution::Abort, reason(), None).await.unwrap();
        })
    });
    let leaving = world.builder().on_unnamed(UnnamedPolicy::LeaveAlone);
    let runtime = leaving.open(name(), Some(CheckpointId::new(2)), []).await.unwrap();
    assert_eq!(runtime.report().left_alone, [(client(0), id)]);
    assert_eq!((world.sink.staged(), world.unfinished().await), (0, vec![]));
}

#[tokio::test]
async fn new_ids_are_above_every_id_the_coordinator_has_seen() {
    let world = World::start().await;
    drop(world.first().await);
    let far = "fff0f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
    let begin = ratified::protocol::BeginRequest { epoch: Some(Epoch::FIRST), ..Default::default() };
    world.client().begin(&client(0), far, &begin).await.unwrap();
    let mut runtime = world.restore(0, Snapshot::default()).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    assert!(world.sink.ids(&client(0))[0] > far);
}

#[tokio::test]
async fn open_says_what_is_left_at_its_deadline_and_may_be_repeated() {
    let (world, snapshot) = one_committed_one_prepared().await;
    for _ in 0..10_000 {
        world.sink.fail("commit", SinkError::indeterminate("away"));
    }
    let hurried = world.builder().open_deadline(std::time::Duration::from_millis(200));
    let failed = hurried.open(name(), Some(CheckpointId::new(2)), [snapshot.clone()]).await.map(|_| ()).unwrap_err();
    let id = snapshot.elements()[0].txn_id();
    assert!(matches!(&failed, RuntimeError::OpenIncomplete { left, .. } if *left == [(client(0), id)]), "{failed}");
    world.sink.forgive();
    world.restore(2, snapshot).await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2"]);
}

#[tokio::test]
async fn open_does_not_call_left_what_it_has_finished() {
    let (world, snapshot) = one_committed_one_prepared().await;
    let id = "fff0f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
    let participants = vec![(&client(0)).into()].try_into().unwrap();
    let begin = BeginRequest { epoch: Some(Epoch::FIRST), participants, ..Default::default() };
    world.client().begin(&client(0), id, &begin).await.unwrap();
    for _ in 0..10_000 {
        world.sink.fail("abort", SinkError::indeterminate("away"));
    }
    let hurried = world.builder().open_deadline(std::time::Duration::from_millis(500));
    let failed = hurried.open(name(), Some(CheckpointId::new(2)), [snapshot]).await.map(|_| ()).unwrap_err();
    assert!(matches!(&failed, RuntimeError::OpenIncomplete { left, .. } if *left == [(client(0), id)]), "{failed}");
    assert_eq!(world.sink.visible(), ["1", "2"]);
}

#[tokio::test]
async fn what_was_ended_and_forgotten_behind_opens_back_is_told_and_the_next_open_goes_on() {
    let (world, _) = one_committed_one_prepared_with(|config| {
        config.limits.persist_count = 1;
        config.limits.max_outcomes_per_client = 1;
        config.limits.gc_retention_ms = 0;
    })
    .await;
    let id = world.sink.ids(&client(0))[1];
    let coordinator = world.client();
    world.sink.on_fence(move || {
        let coordinator = coordinator.clone();
        Box::pin(async move {
            coordinator.resolve(&client(0), id, Resolution::Abort, reason(), None).await.unwrap();
            coordinator.ack(&client(0), id, &(&client(0)).into(), Outcome::Aborted).await.unwrap();
            let later = "fff0f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
            let epoch = Some(Epoch::new(2));
            let begin = BeginRequest { epoch, ..Default::default() };
            coordinator.begin(&client(0), later, &begin).await.unwrap();
            coordinator.abort(&client(0), later, &EpochRequest { epoch }, None).await.unwrap();
        })
    });
    let failed = world.restore(1, Snapshot::default()).await.map(|_| ()).unwrap_err();
    assert!(matches!(failed, RuntimeError::TxnExpired { txn_id, .. } if txn_id == id), "{failed}");
    let runtime = world.restore(1, Snapshot::default()).await.unwrap();
    assert_eq!(runtime.report().unaccounted, [(client(0), id)]);
}

#[tokio::test]
async fn an_acknowledgement_that_is_refused_is_told() {
    let (world, snapshot) = one_committed_one_prepared().await;
    let coordinator = world.client();
    let prepared = coordinator.get(&client(0), world.sink.ids(&client(0))[1], None).await.unwrap();
    // Decided and not applied, and not the sink's to acknowledge: only somebody else takes part in it.
    let id = "fff0f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
    let epoch = Some(Epoch::FIRST);
    let participants = vec!["elsewhere".parse().unwrap()].try_into().unwrap();
    let begin = BeginRequest { epoch, participants, ..Default::default() };
    coordinator.begin(&client(0), id, &begin).await.unwrap();
    let (checkpoint_id, payload) = (prepared.checkpoint_id, prepared.payload);
    let prepare = PrepareRequest { epoch, checkpoint_id, payload, prepared_timeout_ms: None };
    coordinator.prepare(&client(0), id, &prepare).await.unwrap();
    coordinator.commit(&client(0), id, &Default::default(), None).await.unwrap();
    world.sink.plant(&client(0), id);
    let failed = world.restore(2, snapshot).await.map(|_| ()).unwrap_err();
    assert!(failed.to_string().contains("job.sink.0 is not a participant of this transaction"), "{failed}");
    assert_eq!(coordinator.get(&client(0), id, None).await.unwrap().state, TxnState::Committing);
}

#[tokio::test]
async fn more_unfinished_transactions_than_one_answer_tells_are_all_finished() {
    let world = World::start().await;
    drop(world.first().await);
    let coordinator = world.client();
    let epoch = Some(Epoch::FIRST);
    let checkpoint_id = Some(CheckpointId::new(1));
    for half in 0..2_u128 {
        let items = (0..505_u128).flat_map(|number| {
            let bytes = (0x0190_f2c4_7a61_7c3e_9d0a_0d0f_0000_0000 + half * 1000 + number).to_be_bytes();
            let txn_id = ratified::TxnId::from_bytes(bytes).unwrap();
            let participants = vec![(&client(0)).into()].try_into().unwrap();
            let begin = BeginRequest { epoch, participants, ..Default::default() };
            let prepare = PrepareRequest { epoch, checkpoint_id, ..Default::default() };
            [BatchOp::Begin(begin), BatchOp::Prepare(prepare)].map(|op| BatchItem { txn_id, op })
        });
        let items: Vec<_> = items.collect();
        for part in items.chunks(1000) {
            let answer = coordinator.batch(&client(0), &BatchRequest::new(part, true)).await.unwrap();
            assert_eq!(answer.stopped_at, None);
        }
    }
    let (other, id) = ("other.sink.0".parse().unwrap(), "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap());
    let open = OpenRequest {
        incarnation: Incarnation::new(uuid::Uuid::new_v4()),
        owner: None,
        create: true,
        generation: None,
    };
    coordinator.open(&other, &open).await.unwrap();
    coordinator.begin(&other, id, &BeginRequest { epoch, ..Default::default() }).await.unwrap();
    coordinator.prepare(&other, id, &PrepareRequest { epoch, checkpoint_id, ..Default::default() }).await.unwrap();
    let patient = world.builder().open_deadline(std::time::Duration::from_secs(600));
    let runtime = patient.open(name(), Some(CheckpointId::new(0)), []).await.unwrap();
    assert_eq!(runtime.report().aborted, 1010);
    let left: Vec<_> = world.unfinished().await.into_iter().map(|txn| (txn.client_name, txn.txn_id)).collect();
    assert_eq!(left, [(other, id)], "another client's");
}

#[tokio::test]
async fn at_least_once_is_visible_at_the_barrier_and_finishes_what_exactly_once_left() {
    let (world, snapshot) = one_committed_one_prepared().await;
    let loose = world.builder().mode(Mode::AtLeastOnce);
    let mut runtime = loose.open(name(), Some(CheckpointId::new(2)), [snapshot]).await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2"]);
    runtime.write("3".into()).await.unwrap();
    world.sink.fail("commit", SinkError::indeterminate("away for a moment"));
    assert_eq!(runtime.pre_commit(checkpoint(3)).await.unwrap(), Snapshot::default());
    assert_eq!(world.sink.visible(), ["1", "2", "3"]);
    assert_eq!(world.unfinished().await, []);
    runtime.checkpoint_completed(completed(3)).unwrap();
    runtime.close().await.unwrap();
    // Of what was written at least once the coordinator knows nothing.
    let failed = world.restore(3, Snapshot::default()).await.map(|_| ()).unwrap_err();
    assert!(matches!(failed, RuntimeError::SinkAhead { .. }), "{failed}");
    let accepting = world.builder().accept_unknown_data(true);
    let mut runtime = accepting.open(name(), Some(CheckpointId::new(3)), []).await.unwrap();
    runtime.write("4".into()).await.unwrap();
    runtime.pre_commit(checkpoint(4)).await.unwrap();
    runtime.checkpoint_completed(completed(4)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn what_an_at_least_once_run_left_staged_is_removed_by_whoever_has_its_pending_store_and_told_by_others() {
    let world = World::start().await;
    let loose = || world.builder().mode(Mode::AtLeastOnce).first_start(true);
    let mut runtime = loose().open(name(), None, []).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    // It dies between the sink's `pre_commit` and its `commit`; another id is nobody's.
    world.sink.fail("commit", SinkError::rejected("the process died here"));
    runtime.write("2".into()).await.unwrap();
    runtime.pre_commit(checkpoint(2)).await.unwrap_err();
    drop(runtime);
    let foreign = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
    world.sink.plant(&client(0), foreign);
    let orphan = world.sink.ids(&client(0))[1];
    assert_eq!(world.sink.staged(), 2);

    let elsewhere = loose().pending(MemoryStore::new()).open(name(), Some(CheckpointId::new(1)), []).await.unwrap();
    let unaccounted = [foreign, orphan].map(|id| (client(0), id));
    assert_eq!((elsewhere.report().aborted, &elsewhere.report().unaccounted[..]), (0, &unaccounted[..]));
    drop(elsewhere);
    for (aborted, what) in [(1, "the orphan"), (0, "nothing more")] {
        let mut again = loose().open(name(), Some(CheckpointId::new(1)), []).await.unwrap();
        assert_eq!(again.report().aborted, aborted, "{what}");
        assert_eq!(again.report().unaccounted, [(client(0), foreign)], "{what}");
        // What is open when the process dies is removed as well.
        again.write("lost".into()).await.unwrap();
        again.close().await.unwrap_err();
    }
    assert_eq!((world.sink.visible(), world.sink.staged()), (vec!["1".to_owned()], 1));
    assert!(world.pending.open(&client(0)).await.unwrap().contents().at_least_once.is_empty());
}

#[tokio::test]
async fn a_file_store_carries_pending_ids_and_the_store_id_across_restarts() {
    let world = World::start().await;
    let files = FileStore::new(world.dir.path().join("pending"));
    let opened = world.builder().pending(files.clone()).first_start(true).open(name(), None, []).await;
    let mut runtime = opened.unwrap();
    runtime.write("1".into()).await.unwrap();
    drop(runtime);
    let contents = files.open(&client(0)).await.unwrap().contents();
    assert_eq!(contents.store, world.client_store_id().await);
    assert_eq!(contents.entries.into_keys().collect::<Vec<_>>(), world.sink.ids(&client(0)));
    let reopened = world.builder().pending(files.clone()).open(name(), Some(CheckpointId::new(0)), []).await.unwrap();
    assert!(files.open(&client(0)).await.unwrap().contents().entries.is_empty());
    assert_eq!(reopened.report().aborted, 1);
}

#[tokio::test]
async fn every_typed_call_of_the_client_is_understood() {
    let (world, _) = one_committed_one_prepared().await;
    let coordinator: Arc<CoordinatorClient> = Arc::new(world.client());
    let ids = world.sink.ids(&client(0));
    assert_eq!(coordinator.version().await.unwrap().name, "ratifyd");
    let preserver = coordinator.preserver(&client(0)).await.unwrap();
    assert_eq!(preserver.last_committed.map(|last| last.txn_id), Some(ids[0]));
    assert_eq!(coordinator.preserved(&client(0), ids[0]).await.unwrap().txn_id, ids[0]);
    let undecided = coordinator.preserved(&client(0), ids[1]).await.unwrap_err();
    assert_eq!(undecided.code(), Some(Code::InvalidTxnState));
    let participant = (&client(0)).into();
    assert_eq!(coordinator.decisions(&participant, None, None).await.unwrap().decisions, []);
    let begun = coordinator.register(&client(0), ids[1], &participant, Epoch::FIRST).await.unwrap();
    assert_eq!(begun.state, TxnState::Prepared);
    assert!(coordinator.retire(&participant, reason()).await.unwrap().retired);
    assert!(!coordinator.reinstate(&participant, None).await.unwrap().retired);
    let get = ratified::protocol::BatchItem { txn_id: ids[0], op: ratified::protocol::BatchOp::Get };
    let batch = ratified::protocol::BatchRequest::new(&[get], true);
    assert_eq!(coordinator.batch(&client(0), &batch).await.unwrap().results[0].status, 200);
    let busy = coordinator.forget(&client(0), reason()).await.unwrap_err();
    assert_eq!(busy.code(), Some(Code::ClientBusy));
}
