//! Two owners of one client: one wins, the other is told so.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use ratified::{
    CheckpointId, EngineSink, Epoch, Generation, RuntimeError, SinkError, Snapshot, TxnState,
    pending::FileStore,
    protocol::{Incarnation, OpenRequest, ShortText, TimeoutMs},
};
use support::{
    World, checkpoint, client, client_at, completed, name,
    proxy::{Mischief, Proxy},
    sink::TestSink,
};

fn text(text: &str) -> ShortText {
    ShortText::try_from(text.to_owned()).unwrap()
}

async fn old_and_new(world: &World) -> (EngineSink<TestSink>, EngineSink<TestSink>) {
    let old = world.builder().first_start(true).owner(text("old:1")).open(name(), None, []).await.unwrap();
    let new = world.builder().owner(text("new:2")).open(name(), Some(CheckpointId::new(0)), []).await.unwrap();
    (old, new)
}

async fn write_and_commit(runtime: &mut EngineSink<TestSink>, record: &str, id: u64) {
    runtime.write(record.into()).await.unwrap();
    runtime.pre_commit(checkpoint(id)).await.unwrap();
    runtime.checkpoint_completed(completed(id)).unwrap();
    runtime.flush_commits().await.unwrap();
}

fn names_both(error: &RuntimeError) {
    assert!(matches!(error, RuntimeError::Fenced { .. }), "{error}");
    assert_eq!(error.to_string(), "job.sink.0 of old:1 was opened by a newer owner: new:2, epoch 2");
}

#[tokio::test]
async fn an_old_owner_that_wakes_and_begins_is_told_both_names() {
    let world = World::start().await;
    let (mut old, mut new) = old_and_new(&world).await;
    names_both(&old.write("stale".into()).await.unwrap_err());
    names_both(&old.pre_commit(checkpoint(1)).await.unwrap_err());
    write_and_commit(&mut new, "1", 1).await;
    assert_eq!(world.sink.visible(), ["1"]);
}

/// What the newer owner has removed is missing at the sink; that is no reason to look into the sink.
#[tokio::test]
async fn an_old_owner_whose_sink_misses_what_was_staged_is_told_both_names() {
    let world = World::start().await;
    let mut old = world.builder().first_start(true).owner(text("old:1")).open(name(), None, []).await.unwrap();
    old.write("stale".into()).await.unwrap();
    let _new = world.builder().owner(text("new:2")).open(name(), Some(CheckpointId::new(0)), []).await.unwrap();
    world.sink.fail("pre_commit", SinkError::rejected("no such file"));
    names_both(&old.pre_commit(checkpoint(1)).await.unwrap_err());
}

#[tokio::test]
async fn an_old_owner_that_wakes_and_prepares_is_told_both_names() {
    let world = World::start().await;
    let mut old = world.builder().first_start(true).owner(text("old:1")).open(name(), None, []).await.unwrap();
    old.write("stale".into()).await.unwrap();
    let mut new = world.builder().owner(text("new:2")).open(name(), Some(CheckpointId::new(0)), []).await.unwrap();
    names_both(&old.pre_commit(checkpoint(1)).await.unwrap_err());
    assert!(matches!(old.close().await, Err(RuntimeError::Unflushed { records: 1 })));
    write_and_commit(&mut new, "1", 1).await;
    assert_eq!(world.sink.visible(), ["1"]);
    assert_eq!(world.states(&client(0)).await, [TxnState::Aborted, TxnState::Committed]);
}

#[tokio::test]
async fn the_new_owner_is_named_among_more_clients_than_a_page_lists() {
    let world = World::start().await;
    for number in 0..50 {
        let open = OpenRequest {
            incarnation: Incarnation::new(uuid::Uuid::new_v4()),
            owner: None,
            create: true,
            generation: None,
        };
        world.client().open(&format!("a.{number}").parse().unwrap(), &open).await.unwrap();
    }
    let mut old = world.builder().first_start(true).owner(text("old:1")).open(name(), None, []).await.unwrap();
    old.write("stale".into()).await.unwrap();
    let new = world.builder().owner(text("new:2")).open(name(), Some(CheckpointId::new(0)), []).await;
    names_both(&old.pre_commit(checkpoint(1)).await.unwrap_err());
    drop(new.unwrap());
}

#[tokio::test]
async fn an_old_owner_that_closes_leaves_the_new_ones_transactions_alone() {
    let world = World::start().await;
    let (old, mut new) = old_and_new(&world).await;
    new.write("1".into()).await.unwrap();
    old.close().await.unwrap();
    new.pre_commit(checkpoint(1)).await.unwrap();
    new.checkpoint_completed(completed(1)).unwrap();
    new.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
}

#[tokio::test]
async fn a_completed_checkpoint_of_an_old_owner_is_committed_all_the_same() {
    let world = World::start().await;
    let mut old = world.first().await;
    old.write("1".into()).await.unwrap();
    let snapshot = old.pre_commit(checkpoint(1)).await.unwrap();
    // Another worker of the new attempt has it in its snapshots; the notification reaches the old one, late.
    let new = world.builder().worker(support::worker(0, 2)).open(name(), Some(CheckpointId::new(1)), []).await.unwrap();
    assert_eq!(new.report().left_alone, [(client(0), snapshot.elements()[0].txn_id())]);
    old.checkpoint_completed(completed(1)).unwrap();
    old.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
}

#[tokio::test]
async fn of_two_that_open_at_once_exactly_one_goes_on() {
    let world = World::start().await;
    drop(world.first().await);
    let restore = || world.builder().open(name(), Some(CheckpointId::new(0)), []);
    let (a, b) = tokio::join!(restore(), restore());
    let mut going_on = 0;
    for mut runtime in [a.unwrap(), b.unwrap()] {
        match runtime.write("1".into()).await {
            Ok(()) => {
                runtime.pre_commit(checkpoint(1)).await.unwrap();
                runtime.checkpoint_completed(completed(1)).unwrap();
                runtime.flush_commits().await.unwrap();
                going_on += 1;
            }
            Err(error) => assert!(matches!(error, RuntimeError::Fenced { .. }), "{error}"),
        }
    }
    assert_eq!((going_on, world.sink.visible()), (1, vec!["1".to_owned()]));
}

#[tokio::test]
async fn an_attempt_that_lives_on_in_the_same_process_is_fenced_too() {
    let world = World::start().await;
    let files = FileStore::new(world.dir.path().join("pending"));
    let opened = world.builder().pending(files.clone()).first_start(true).open(name(), None, []).await;
    let mut old = opened.unwrap();
    old.write("stale".into()).await.unwrap();
    let new = world.builder().pending(files).open(name(), Some(CheckpointId::new(0)), []).await;
    let mut new = new.unwrap();
    let fenced = old.pre_commit(checkpoint(1)).await.unwrap_err();
    assert!(matches!(fenced, RuntimeError::Fenced { .. }), "{fenced}");
    write_and_commit(&mut new, "1", 1).await;
    assert_eq!(world.sink.visible(), ["1"]);
}

#[tokio::test]
async fn a_late_duplicate_of_an_old_open_does_not_disturb_the_new_owner() {
    let world = World::start().await;
    let late = OpenRequest {
        incarnation: Incarnation::new(uuid::Uuid::new_v4()),
        owner: None,
        create: true,
        generation: None,
    };
    world.client().open(&client(0), &late).await.unwrap();
    let mut new = world.restore(0, Snapshot::default()).await.unwrap();
    new.write("1".into()).await.unwrap();
    let refused = world.client().open(&client(0), &late).await.unwrap_err();
    assert_eq!(refused.code(), Some(ratified::Code::Fenced));
    new.pre_commit(checkpoint(1)).await.unwrap();
    new.checkpoint_completed(completed(1)).unwrap();
    new.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
}

#[tokio::test]
async fn a_keep_alive_finds_out_that_the_owner_changed() {
    let world = World::start().await;
    let timeout = TimeoutMs::try_from(1500).unwrap();
    let builder = world.builder().first_start(true).owner(text("old:1")).transaction_timeout(timeout);
    let mut old = builder.batch_records(usize::MAX).open(name(), None, []).await.unwrap();
    old.write("stale".into()).await.unwrap();
    let new = world.builder().owner(text("new:2")).open(name(), Some(CheckpointId::new(0)), []).await.unwrap();
    // Gathered records call nobody: only the keep-alive can tell.
    let mut fenced = None;
    for _ in 0..20_000 {
        fenced = old.write("stale".into()).await.err();
        if fenced.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    names_both(&fenced.unwrap());
    drop(new);
}

#[tokio::test]
async fn keep_alives_hold_a_transaction_open_far_beyond_its_timeout() {
    let world = World::start().await;
    let timeout = TimeoutMs::try_from(1500).unwrap();
    let builder = world.builder().first_start(true).transaction_timeout(timeout);
    let mut runtime = builder.open(name(), None, []).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    let id = world.sink.ids(&client(0))[0];
    // Renewals show as a deadline that is farther away than it was.
    let mut renewals = 0;
    let mut last = u64::MAX;
    while renewals < 5 {
        let left = world.client().get(&client(0), id, None).await.unwrap().deadline_in_ms.unwrap();
        renewals += u32::from(left > last);
        last = left;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    runtime.pre_commit(checkpoint(1)).await.unwrap();
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
}

/// A renewal that is lost is asked for again at once, and not after another period: three periods are the timeout.
#[tokio::test]
async fn keep_alives_that_are_lost_three_times_in_a_row_hold_a_transaction_open() {
    let world = World::start().await;
    let proxy = Proxy::start(world.addr()).await;
    proxy.plan("/keep-alive ", Mischief::LoseRequest, 3);
    let builder = world.builder_at(client_at(proxy.addr)).first_start(true);
    let builder = builder.transaction_timeout(TimeoutMs::try_from(3000).unwrap());
    let mut runtime = builder.open(name(), None, []).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    until_renewed(&world).await;
    assert!(proxy.is_spent());
}

/// Returns once the deadline of the open transaction is farther away than it was.
async fn until_renewed(world: &World) {
    let id = world.sink.ids(&client(0))[0];
    let mut last = u64::MAX;
    loop {
        let txn = world.client().get(&client(0), id, None).await.unwrap();
        assert_eq!(txn.state, TxnState::Open);
        let left = txn.deadline_in_ms.unwrap();
        if left > last {
            break;
        }
        last = left;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// One request that hangs takes a period of the three that the timeout has; waiting for another would take the rest.
#[tokio::test]
async fn a_keep_alive_that_gets_no_answer_for_a_period_is_asked_for_again_at_once() {
    let world = World::start().await;
    let proxy = Proxy::start(world.addr()).await;
    proxy.plan("/keep-alive ", Mischief::Silence, 1);
    let builder = world.builder_at(client_at(proxy.addr)).first_start(true);
    let mut runtime =
        builder.transaction_timeout(TimeoutMs::try_from(3000).unwrap()).open(name(), None, []).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    until_renewed(&world).await;
    assert!(proxy.is_spent());
}

#[tokio::test]
async fn an_overtaken_attempt_that_opens_late_is_refused_and_changes_nothing() {
    let world = World::start().await;
    let open = |attempt| {
        let builder = world.builder().first_start(true).generation(Generation::new(attempt));
        builder.open(name(), Some(CheckpointId::new(0)), [])
    };
    let mut new = open(2).await.unwrap();
    new.write("1".into()).await.unwrap();
    new.pre_commit(checkpoint(1)).await.unwrap();
    let late = open(1).await.map(|_| ()).unwrap_err();
    assert!(matches!(late, RuntimeError::Fenced { .. }), "{late}");
    new.checkpoint_completed(completed(1)).unwrap();
    new.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
}

#[tokio::test]
async fn epochs_of_one_client_only_grow() {
    let world = World::start().await;
    drop(world.first().await);
    for expected in 2..5 {
        drop(world.restore(0, Snapshot::default()).await.unwrap());
        let items = world.client().clients(&Default::default()).await.unwrap().items;
        assert_eq!(items[0].epoch, Epoch::new(expected));
    }
}
