//! Answers that are lost, cut, garbled or doubled.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use ratified::{CheckpointId, SinkName, Slot, Snapshot, TxnState};
use support::{
    World, checkpoint, client, client_at, completed, log_of, name,
    proxy::{EVERY_MISCHIEF, Mischief, Proxy},
    sink::TestSink,
};

/// The calls of a job's life, by what their request lines contain.
const CALLS: [&str; 8] =
    ["/v1/clients?", "/open ", "PUT ", "/prepare ", "/commit ", "/ack ", "/abort ", "GET /v1/clients/"];

#[tokio::test]
async fn whatever_happens_to_any_call_the_records_are_visible_once() {
    for mischief in EVERY_MISCHIEF {
        let mut world = World::start().await;
        let proxy = Proxy::start(world.addr()).await;
        for (number, target) in CALLS.into_iter().enumerate() {
            world.sink = TestSink::default();
            let name: SinkName = format!("job.{number}").parse().unwrap();
            proxy.plan(target, mischief, 1);
            live_through_a_failed_checkpoint(&world, &proxy, &name).await;
            assert_eq!(world.sink.visible(), ["1", "2"], "{mischief:?} {target}");
            assert_eq!((world.sink.staged(), world.unfinished().await), (0, vec![]), "{mischief:?} {target}");
            assert!(proxy.is_spent(), "{mischief:?} {target} was never reached");
        }
    }
}

async fn live_through_a_failed_checkpoint(world: &World, proxy: &Proxy, name: &SinkName) {
    let through = || world.builder_at(client_at(proxy.addr));
    let mut runtime = through().first_start(true).open(name.clone(), None, []).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.write("2".into()).await.unwrap();
    runtime.flush_commits().await.unwrap();
    // Checkpoint 2 does not complete: the next owner aborts it and reads again. It also finds an id that never began.
    runtime.pre_commit(checkpoint(2)).await.unwrap();
    drop(runtime);
    let client = name.client(Slot::new(0)).unwrap();
    let never_began = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
    log_of(&world.pending, &client).await.begin(never_began).await.unwrap();
    let mut runtime = through().open(name.clone(), Some(CheckpointId::new(1)), []).await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
    assert_eq!(runtime.report().dropped, [(client, never_began)]);
    runtime.write("2".into()).await.unwrap();
    let snapshot = runtime.pre_commit(checkpoint(3)).await.unwrap();
    drop(runtime);
    let runtime = through().open(name.clone(), Some(CheckpointId::new(3)), [snapshot]).await.unwrap();
    runtime.close().await.unwrap();
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_ten_times_is_one_commit() {
    let world = World::start().await;
    let proxy = Proxy::start(world.addr()).await;
    let builder = world.builder_at(client_at(proxy.addr)).first_start(true);
    let mut runtime = builder.open(name(), None, []).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    proxy.plan("/commit ", Mischief::LoseAnswer, 10);
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert!(proxy.is_spent());
    assert_eq!(world.sink.visible(), ["1"]);
    assert_eq!(world.sink.calls().iter().filter(|call| call.starts_with("commit")).count(), 1);
}

#[tokio::test]
async fn a_coordinator_that_is_away_is_waited_for_and_no_commit_is_forgotten() {
    let mut world = World::start().await;
    let mut runtime = world.first().await;
    runtime.write("1".into()).await.unwrap();
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    world.stop_coordinator().await;
    runtime.checkpoint_completed(completed(1)).unwrap();
    assert_eq!(world.sink.visible(), [""; 0]);
    world.start_coordinator().await;
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
    // The restart did not cost the runtime its epoch.
    runtime.write("2".into()).await.unwrap();
    runtime.pre_commit(checkpoint(2)).await.unwrap();
    runtime.checkpoint_completed(completed(2)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2"]);
}

#[tokio::test]
async fn open_finishes_what_is_unfinished_through_a_bad_network() {
    let world = World::start().await;
    let mut runtime = world.first().await;
    for id in 1..=5 {
        runtime.write(format!("{id}")).await.unwrap();
        runtime.pre_commit(checkpoint(id)).await.unwrap();
    }
    drop(runtime);
    let proxy = Proxy::start(world.addr()).await;
    for mischief in EVERY_MISCHIEF {
        proxy.plan("/abort ", mischief, 1);
        proxy.plan("/ack ", mischief, 1);
    }
    let through = world.builder_at(client_at(proxy.addr));
    let runtime = through.open(name(), Some(CheckpointId::new(0)), [Snapshot::default()]).await.unwrap();
    assert_eq!((runtime.report().aborted, world.sink.staged()), (5, 0));
    assert_eq!(world.states(&client(0)).await, [TxnState::Aborted; 5]);
    assert!(proxy.is_spent());
}
