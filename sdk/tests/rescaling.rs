//! Jobs that change their number of workers while transactions are pending.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use ratified::{CheckpointId, EngineSink, RuntimeError, Snapshot, SnapshotElement, TxnState};
use support::{World, checkpoint, client, completed, name, sink::TestSink, worker};

async fn start(world: &World, parallelism: u32) -> Vec<EngineSink<TestSink>> {
    let mut workers = Vec::new();
    for index in 0..parallelism {
        let builder = world.builder().first_start(true).worker(worker(index, parallelism));
        workers.push(builder.open(name(), None, []).await.unwrap());
    }
    workers
}

/// Opens a new attempt, the snapshots dealt out by `deal`.
async fn restart(
    world: &World,
    parallelism: u32,
    restored: u64,
    elements: &[SnapshotElement],
    deal: impl Fn(usize) -> u32,
) -> Vec<EngineSink<TestSink>> {
    let mut workers = Vec::new();
    for index in 0..parallelism {
        let dealt = elements.iter().enumerate().filter(|(at, _)| deal(*at) == index).map(|(_, e)| e.clone());
        let builder = world.builder().worker(worker(index, parallelism));
        let opened = builder.open(name(), Some(CheckpointId::new(restored)), [Snapshot::from_elements(dealt)]);
        workers.push(opened.await.unwrap());
    }
    workers
}

/// Every worker writes one record, then the checkpoint is taken.
async fn write_all(workers: &mut [EngineSink<TestSink>], id: u64) -> Vec<SnapshotElement> {
    let mut elements = Vec::new();
    for (index, worker) in workers.iter_mut().enumerate() {
        worker.write(format!("{id}.{index}")).await.unwrap();
        elements.extend(worker.pre_commit(checkpoint(id)).await.unwrap().into_elements());
    }
    elements
}

async fn complete_all(workers: &mut [EngineSink<TestSink>], id: u64) {
    for worker in workers {
        worker.checkpoint_completed(completed(id)).unwrap();
        worker.flush_commits().await.unwrap();
    }
}

#[tokio::test]
async fn from_four_to_two_to_four_workers_every_pending_transaction_is_finished_once() {
    let world = World::start().await;
    let mut four = start(&world, 4).await;
    // Checkpoint 1 completes, but no worker hears of it.
    let first = write_all(&mut four, 1).await;
    drop(four);
    let mut two = restart(&world, 2, 1, &first, |at| u32::try_from(at).unwrap() / 2).await;
    assert_eq!(world.sink.visible_sorted(), ["1.0", "1.1", "1.2", "1.3"]);
    assert_eq!(two[0].report().clients, [client(0), client(2)]);
    assert_eq!(two[1].report().clients, [client(1), client(3)]);

    // Checkpoint 2 is prepared and never completes; checkpoint 3 is not reached.
    write_all(&mut two, 2).await;
    drop(two);
    let mut four = restart(&world, 4, 1, &[], |_| 0).await;
    assert_eq!(world.sink.staged(), 0, "checkpoint 2 was aborted");
    let third = write_all(&mut four, 3).await;
    complete_all(&mut four, 3).await;
    drop(four);
    restart(&world, 4, 3, &third, |at| 3 - u32::try_from(at).unwrap()).await;
    let expected = ["1.0", "1.1", "1.2", "1.3", "3.0", "3.1", "3.2", "3.3"];
    assert_eq!(world.sink.visible_sorted(), expected);
    assert_eq!(world.unfinished().await, []);
}

#[tokio::test]
async fn what_a_larger_past_left_behind_has_exactly_one_owner() {
    let world = World::start().await;
    let mut four = start(&world, 4).await;
    write_all(&mut four, 1).await;
    drop(four);
    // Nothing of checkpoint 1 is restored: each worker aborts what it took over.
    let two = restart(&world, 2, 0, &[], |_| 0).await;
    assert_eq!(two.iter().map(|worker| worker.report().aborted).collect::<Vec<_>>(), [2, 2]);
    assert_eq!((world.sink.staged(), world.unfinished().await), (0, vec![]));
}

#[tokio::test]
async fn a_worker_without_snapshots_that_opens_first_leaves_alone_what_others_restore() {
    let world = World::start().await;
    let mut two = start(&world, 2).await;
    let elements = write_all(&mut two, 1).await;
    drop(two);
    let two = restart(&world, 2, 1, &elements, |_| 1).await;
    assert_eq!(two[0].report().left_alone, [(client(0), elements[0].txn_id())]);
    assert_eq!(two[0].report().unaccounted, []);
    assert_eq!(two[1].report().committed, 2);
    assert_eq!(world.sink.visible_sorted(), ["1.0", "1.1"]);
    assert_eq!(world.states(&client(0)).await, [TxnState::Committed]);
}

#[tokio::test]
async fn two_workers_that_restore_the_same_handle_finish_it_once() {
    let world = World::start().await;
    let mut two = start(&world, 2).await;
    let elements = write_all(&mut two, 1).await;
    drop(two);
    let snapshot = || Snapshot::from_elements(elements.clone());
    let open = |index| world.builder().worker(worker(index, 2)).open(name(), Some(CheckpointId::new(1)), [snapshot()]);
    let (a, b) = tokio::join!(open(0), open(1));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!((a.report().committed, b.report().committed), (2, 2));
    assert_eq!(a.report().already_committed + b.report().already_committed, 2);
    assert_eq!(world.sink.visible_sorted(), ["1.0", "1.1"]);
}

#[tokio::test]
async fn a_rewind_is_noticed_on_every_client_of_the_sink() {
    let world = World::start().await;
    let mut two = start(&world, 2).await;
    write_all(&mut two, 1).await;
    // Only worker 1 hears that the checkpoint is complete.
    complete_all(&mut two[1..], 1).await;
    drop(two);
    let failed = world.builder().worker(worker(0, 2)).open(name(), Some(CheckpointId::new(0)), []).await;
    let failed = failed.map(|_| ()).unwrap_err();
    assert!(matches!(&failed, RuntimeError::Rewound { client: named, .. } if *named == client(1)), "{failed}");
    assert_eq!(world.states(&client(0)).await, [TxnState::Prepared]);
}

#[tokio::test]
async fn other_sinks_with_a_similar_name_are_not_touched() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    for other in ["job.sink2", "job.sink.x", "job"] {
        let other = other.parse().unwrap();
        let mut runtime = world.builder().first_start(true).open(other, None, []).await.unwrap();
        runtime.write("other".into()).await.unwrap();
        runtime.pre_commit(checkpoint(9)).await.unwrap();
        drop(runtime);
    }
    runtime.write("1".into()).await.unwrap();
    drop(runtime);
    let runtime = world.restore(0, Snapshot::default()).await.unwrap();
    assert_eq!(runtime.report().clients, [client(0)]);
    assert_eq!(world.sink.staged(), 3);
}
