//! What the next owner must not go on with: lost outcomes, stores that went back, states that went back.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use ratified::{
    CheckpointId, Lost, LostPolicy, RuntimeError, Snapshot, SnapshotElement, TxnState, pending::FileStore,
    protocol::Resolution,
};
use support::{World, checkpoint, client, completed, copy_dir, name, one_committed_one_prepared, reason};

#[tokio::test]
async fn a_checkpointed_transaction_that_was_aborted_is_loud() {
    let (world, snapshot) = one_committed_one_prepared().await;
    let id = world.sink.ids(&client(0))[1];
    world.client().resolve(&client(0), id, Resolution::Abort, reason(), None).await.unwrap();
    let failed = world.restore(2, snapshot.clone()).await.map(|_| ()).unwrap_err();
    assert!(matches!(&failed, RuntimeError::TxnAborted { txn_id, .. } if *txn_id == id), "{failed}");
    assert!(failed.to_string().contains("OPERATOR"), "{failed}");

    let skipping = world.builder().on_lost(Lost::Aborted, LostPolicy::Skip);
    let runtime = skipping.open(name(), Some(CheckpointId::new(2)), [snapshot]).await.unwrap();
    assert_eq!(runtime.report().skipped, [(client(0), id, Lost::Aborted)]);
    assert_eq!((world.sink.visible(), world.sink.staged()), (vec!["1".to_owned()], 0));
}

#[tokio::test]
async fn a_checkpointed_transaction_whose_outcome_expired_is_loud() {
    let world = World::with(|config| {
        config.limits.persist_count = 1;
        config.limits.max_outcomes_per_client = 1;
        config.limits.gc_retention_ms = 0;
    })
    .await;
    let mut runtime = world.first().await;
    let mut snapshots = Vec::new();
    for id in 1..=4 {
        runtime.write(format!("{id}")).await.unwrap();
        snapshots.push(runtime.pre_commit(checkpoint(id)).await.unwrap());
        runtime.checkpoint_completed(completed(id)).unwrap();
        runtime.flush_commits().await.unwrap();
    }
    drop(runtime);
    let id = snapshots[0].elements()[0].txn_id();
    // Restored is the newest checkpoint, whose snapshot wrongly carries an old transaction along.
    let failed = world.restore(4, snapshots[0].clone()).await.map(|_| ()).unwrap_err();
    assert!(matches!(failed, RuntimeError::TxnExpired { txn_id, .. } if txn_id == id), "{failed}");

    let skipping = world.builder().on_lost(Lost::Expired, LostPolicy::Skip);
    let runtime = skipping.open(name(), Some(CheckpointId::new(4)), [snapshots[0].clone()]).await.unwrap();
    assert_eq!(runtime.report().skipped, [(client(0), id, Lost::Expired)]);
    drop(runtime);

    let rewinding = world.builder().accept_rewind(true);
    let runtime = rewinding.open(name(), Some(CheckpointId::new(1)), [snapshots[0].clone()]).await.unwrap();
    assert_eq!(runtime.report().skipped, [(client(0), id, Lost::Expired)]);
}

#[tokio::test]
async fn a_checkpointed_transaction_that_the_coordinator_has_never_heard_of_is_loud() {
    let mut world = World::start().await;
    let mut runtime = world.first().await;
    world.stop_coordinator().await;
    copy_dir(&world.config.data_dir, &world.dir.path().join("backup"));
    world.start_coordinator().await;
    runtime.write("1".into()).await.unwrap();
    let snapshot = runtime.pre_commit(checkpoint(1)).await.unwrap();
    drop(runtime);
    // The backup has then been loaded as often as the store it replaces: its number gives nothing away, its nonce does.
    world.stop_coordinator().await;
    world.config.data_dir = world.dir.path().join("backup");
    world.start_coordinator().await;
    let id = snapshot.elements()[0].txn_id();
    let failed = world.restore(1, snapshot.clone()).await.map(|_| ()).unwrap_err();
    assert!(failed.to_string().contains("an older copy was put back, or it is another store"), "{failed}");

    let snapshot = without_nonce(&snapshot);
    let failed = world.restore(1, snapshot.clone()).await.map(|_| ()).unwrap_err();
    assert!(matches!(failed, RuntimeError::TxnNotFound { txn_id, .. } if txn_id == id), "{failed}");

    let skipping = world.builder().on_lost(Lost::NotFound, LostPolicy::Skip);
    let runtime = skipping.open(name(), Some(CheckpointId::new(1)), [snapshot]).await.unwrap();
    assert_eq!(runtime.report().skipped, [(client(0), id, Lost::NotFound)]);
    assert_eq!(world.sink.staged(), 1, "what the coordinator does not know is left alone");
    assert_eq!(runtime.report().unaccounted, [(client(0), id)]);
}

/// The snapshot as version 1 has it, which knows the store's number only.
fn without_nonce(snapshot: &Snapshot) -> Snapshot {
    Snapshot::from_elements(snapshot.elements().iter().map(|element| {
        let bytes = element.to_bytes();
        let rest = &bytes[1..bytes.len() - 4];
        let (store, rest) = rest[4..].split_at(usize::from(rest[0]));
        let store: Vec<_> = std::str::from_utf8(store).unwrap().split('.').collect();
        let mut old = vec![1];
        old.extend(store[0].parse::<uuid::Uuid>().unwrap().into_bytes());
        old.extend(store[1].parse::<u64>().unwrap().to_le_bytes());
        old.extend(rest);
        old.extend(crc32fast::hash(&old).to_le_bytes());
        SnapshotElement::from_bytes(&old).unwrap()
    }))
}

#[tokio::test]
async fn a_store_that_went_back_is_met_by_an_error() {
    let mut world = World::start().await;
    let runtime = world.first().await;
    world.stop_coordinator().await;
    copy_dir(&world.config.data_dir, &world.dir.path().join("backup"));
    for _ in 0..2 {
        world.start_coordinator().await;
        world.stop_coordinator().await;
    }
    world.start_coordinator().await;
    drop(runtime);
    let runtime = world.restore(0, Snapshot::default()).await.unwrap();
    drop(runtime);
    world.stop_coordinator().await;
    world.config.data_dir = world.dir.path().join("backup");
    world.start_coordinator().await;
    let failed = world.restore(0, Snapshot::default()).await.map(|_| ()).unwrap_err();
    assert!(failed.to_string().contains("an older copy was put back, or it is another store"), "{failed}");
}

#[tokio::test]
async fn another_coordinator_is_met_by_an_error_before_anything_is_begun() {
    let world = World::start().await;
    let files = world.dir.path().join("pending");
    let opened = world.builder().pending(FileStore::new(&files)).first_start(true).open(name(), None, []).await;
    drop(opened.unwrap());
    let other = World::start().await;
    let failed = other.builder().pending(FileStore::new(&files)).first_start(true).open(name(), None, []).await;
    let failed = failed.map(|_| ()).unwrap_err();
    assert!(failed.to_string().contains("an older copy was put back, or it is another store"), "{failed}");
}

#[tokio::test]
async fn restoring_an_older_checkpoint_than_the_last_committed_is_refused_naming_both() {
    let (world, _) = one_committed_one_prepared().await;
    let failed = world.restore(0, Snapshot::default()).await.map(|_| ()).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "restoring checkpoint 0 would write twice what job.sink.0 has committed with checkpoint 1"
    );
    assert_eq!(world.states(&client(0)).await, [TxnState::Committed, TxnState::Prepared], "nothing was aborted");

    let accepting = world.builder().accept_rewind(true);
    let mut runtime = accepting.open(name(), Some(CheckpointId::new(0)), []).await.unwrap();
    assert_eq!(world.states(&client(0)).await, [TxnState::Committed, TxnState::Aborted]);
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(3)).await.unwrap();
    runtime.checkpoint_completed(completed(3)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "1"], "the accepted duplicate");
}

#[tokio::test]
async fn starting_from_nothing_is_refused_once_something_was_prepared_or_committed() {
    let (world, _) = one_committed_one_prepared().await;
    let failed = world.builder().open(name(), None, []).await.map(|_| ()).unwrap_err();
    assert!(matches!(failed, RuntimeError::Rewound { restored: None, committed: Some(_), .. }), "{failed}");

    let world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    drop(runtime);
    let failed = world.builder().open(name(), None, []).await.map(|_| ()).unwrap_err();
    assert!(matches!(failed, RuntimeError::Rewound { restored: None, committed: None, .. }), "{failed}");
    assert_eq!(world.states(&client(0)).await, [TxnState::Prepared]);
}

#[tokio::test]
async fn a_snapshot_of_a_later_checkpoint_than_the_restored_one_is_refused() {
    let (world, snapshot) = one_committed_one_prepared().await;
    let failed = world.restore(1, snapshot).await.map(|_| ()).unwrap_err();
    assert_eq!(failed.to_string(), "a snapshot of checkpoint 2 cannot belong to checkpoint 1");
    assert_eq!(world.states(&client(0)).await, [TxnState::Committed, TxnState::Prepared]);
}

#[tokio::test]
async fn data_that_is_neither_staged_nor_visible_stops_the_job() {
    let (world, snapshot) = one_committed_one_prepared().await;
    world.sink.lose_staged();
    let failed = world.restore(2, snapshot).await.map(|_| ()).unwrap_err();
    assert!(matches!(&failed, RuntimeError::Sink { call: "sink.commit", .. }), "{failed}");
    assert!(failed.to_string().contains("neither staged nor visible"), "{failed}");
}

#[tokio::test]
async fn a_client_that_was_forgotten_is_not_known() {
    let world = World::start().await;
    drop(world.first().await);
    world.client().forget(&client(0), reason()).await.unwrap();
    let failed = world.restore(0, Snapshot::default()).await.map(|_| ()).unwrap_err();
    assert!(matches!(failed, RuntimeError::ClientUnknown { .. }), "{failed}");
}
