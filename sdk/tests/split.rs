//! The runtime that checkpoints itself.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ratified::{
    ClientName, EngineSinkBuilder, JobSink, Point, RuntimeError, SinkError, Snapshot, TxnState,
    protocol::{BeginRequest, CommitRequest, Incarnation, OpenRequest, Payload, PrepareRequest},
};
use support::{
    World, client_at,
    proxy::{EVERY_MISCHIEF, Mischief, Proxy},
    sink::TestSink,
};

fn split() -> ClientName {
    "import.part-0".parse().unwrap()
}

async fn first(world: &World) -> JobSink<TestSink> {
    world.job_builder().first_start(true).open(split()).await.unwrap()
}

async fn again(world: &World) -> JobSink<TestSink> {
    world.job_builder().open(split()).await.unwrap()
}

#[tokio::test]
async fn a_commit_decides_and_stores_the_position_in_one_step() {
    let world = World::start().await;
    let mut runtime = first(&world).await;
    assert_eq!(runtime.position(), None);
    runtime.write("1".into()).await.unwrap();
    let id = runtime.commit(b"one").await.unwrap().unwrap();
    runtime.write("2".into()).await.unwrap();
    runtime.commit(b"two").await.unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2"]);
    assert!(runtime.finished().unwrap() > id);
    drop(runtime);
    let runtime = again(&world).await;
    assert_eq!(runtime.position(), Some(&b"two"[..]));
    assert_eq!((runtime.report().committed, &runtime.report().clients), (0, &vec![split()]));
}

#[tokio::test]
async fn an_interval_that_writes_nothing_stores_its_position_by_one_call_and_without_the_sink() {
    let world = World::start().await;
    let proxy = Proxy::start(world.addr()).await;
    let builder = world.job_builder_at(client_at(proxy.addr)).first_start(true);
    let mut runtime = builder.open(split()).await.unwrap();
    // Whatever happens to the one call, it is the same transaction.
    proxy.plan("/batch ", Mischief::LoseAnswer, 2);
    let id = runtime.commit(b"one").await.unwrap().unwrap();
    assert!(proxy.is_spent());
    runtime.flush_commits().await.unwrap();
    assert_eq!(runtime.finished(), Some(id));
    assert_eq!(runtime.commit(b"one").await.unwrap(), None, "it is stored");
    assert_eq!(world.sink.calls(), [""; 0]);
    assert_eq!(world.unfinished().await, []);
    drop(runtime);
    assert_eq!(again(&world).await.position(), Some(&b"one"[..]));
}

#[tokio::test]
async fn what_was_not_committed_is_removed_and_read_again_from_the_last_position() {
    let world = World::start().await;
    let mut runtime = first(&world).await;
    runtime.write("1".into()).await.unwrap();
    runtime.commit(b"one").await.unwrap();
    runtime.flush_commits().await.unwrap();
    runtime.write("lost".into()).await.unwrap();
    drop(runtime);
    let runtime = again(&world).await;
    assert_eq!(runtime.position(), Some(&b"one"[..]));
    assert_eq!((world.sink.visible(), world.sink.staged()), (vec!["1".to_owned()], 0));
    assert_eq!(world.unfinished().await, []);
}

#[tokio::test]
async fn a_decided_commit_is_finished_by_the_next_open_which_goes_on_behind_it() {
    let world = World::start().await;
    world.sink.close_gate();
    let mut runtime = first(&world).await;
    for record in ["1", "2", "3"] {
        runtime.write(record.into()).await.unwrap();
        runtime.commit(record.as_bytes()).await.unwrap();
    }
    drop(runtime);
    assert_eq!(world.sink.visible(), [""; 0]);
    world.sink.open_gate();
    let runtime = again(&world).await;
    assert_eq!(world.sink.visible(), ["1", "2", "3"], "oldest first");
    assert_eq!((runtime.position(), runtime.report().committed), (Some(&b"3"[..]), 3));
}

#[tokio::test]
async fn only_making_visible_overlaps_with_the_next_interval() {
    let world = World::start().await;
    world.sink.close_gate();
    let mut runtime = first(&world).await;
    runtime.write("1".into()).await.unwrap();
    runtime.commit(b"1").await.unwrap();
    world.sink.until_called("commit 0").await;
    runtime.write("2".into()).await.unwrap();
    runtime.commit(b"2").await.unwrap();
    assert_eq!((runtime.finished(), world.sink.visible().len()), (None, 0));
    world.sink.open_gate();
    runtime.flush_commits().await.unwrap();
    assert_eq!(world.sink.visible(), ["1", "2"]);
}

#[tokio::test]
async fn a_crash_at_any_point_loses_nothing_and_doubles_nothing() {
    for point in [Point::Begun, Point::PreCommitted, Point::Decided, Point::Applied, Point::Acked] {
        let world = World::start().await;
        let builder = world.job_builder().first_start(true).on_point(move |passed| {
            assert!(passed != point, "crash here");
        });
        let crashed = tokio::spawn(async move {
            let mut runtime = builder.open(split()).await.unwrap();
            runtime.write("1".into()).await.unwrap();
            runtime.commit(b"one").await.unwrap();
            runtime.flush_commits().await.unwrap_err();
        });
        let is_decided = crashed.await.is_ok();
        let mut runtime = again(&world).await;
        assert_eq!(runtime.position(), is_decided.then_some(&b"one"[..]), "{point:?}");
        if !is_decided {
            runtime.write("1".into()).await.unwrap();
            runtime.commit(b"one").await.unwrap();
            runtime.flush_commits().await.unwrap();
        }
        assert_eq!(world.sink.visible(), ["1"], "{point:?}");
        assert_eq!((world.sink.staged(), world.unfinished().await), (0, vec![]), "{point:?}");
    }
}

#[tokio::test]
async fn whatever_happens_to_the_deciding_call_it_decides_once() {
    for mischief in EVERY_MISCHIEF {
        let world = World::start().await;
        let proxy = Proxy::start(world.addr()).await;
        let builder = world.job_builder_at(client_at(proxy.addr)).first_start(true);
        let mut runtime = builder.open(split()).await.unwrap();
        proxy.plan("/commit ", mischief, 3);
        runtime.write("1".into()).await.unwrap();
        runtime.commit(b"one").await.unwrap();
        runtime.write("2".into()).await.unwrap();
        runtime.commit(b"two").await.unwrap();
        runtime.write("3".into()).await.unwrap();
        runtime.commit(b"three").await.unwrap();
        runtime.flush_commits().await.unwrap();
        assert_eq!(world.sink.visible(), ["1", "2", "3"], "{mischief:?}");
        drop(runtime);
        assert_eq!(again(&world).await.position(), Some(&b"three"[..]), "{mischief:?}");
        assert!(proxy.is_spent(), "{mischief:?}");
    }
}

#[tokio::test]
async fn closing_after_a_dropped_commit_does_not_remove_what_it_decided() {
    let world = World::start().await;
    let proxy = Proxy::start(world.addr()).await;
    let builder = world.job_builder_at(client_at(proxy.addr)).first_start(true);
    let mut runtime = builder.open(split()).await.unwrap();
    runtime.write("1".into()).await.unwrap();
    proxy.plan("/commit ", Mischief::LoseAnswer, usize::MAX);
    let id = world.sink.ids(&split())[0];
    let decided =
        async { while world.client().get(&split(), id, None).await.unwrap().state != TxnState::Committing {} };
    tokio::select! {
        _ = runtime.commit(b"one") => panic!("its answer never comes"),
        () = decided => {}
    }
    assert!(matches!(runtime.write("2".into()).await, Err(RuntimeError::Interrupted)));
    assert!(matches!(runtime.close().await, Err(RuntimeError::Unflushed { records: 1 })));
    assert_eq!(world.sink.staged(), 1);
    assert_eq!(again(&world).await.position(), Some(&b"one"[..]));
    assert_eq!(world.sink.visible(), ["1"]);
}

#[tokio::test]
async fn an_interval_that_was_aborted_is_told_and_stays_so() {
    let world = World::start().await;
    let mut runtime = first(&world).await;
    runtime.write("1".into()).await.unwrap();
    let newer = again(&world).await;
    let fenced = runtime.commit(b"one").await.unwrap_err();
    assert!(matches!(fenced, RuntimeError::Fenced { .. }), "{fenced}");
    assert!(runtime.write("2".into()).await.is_err());
    assert!(runtime.commit(b"two").await.is_err());
    assert_eq!(newer.position(), None);
    assert_eq!(world.sink.visible(), [""; 0]);
}

#[tokio::test]
async fn a_failed_flush_decides_nothing() {
    let world = World::start().await;
    let mut runtime = first(&world).await;
    runtime.write("1".into()).await.unwrap();
    world.sink.fail("pre_commit", SinkError::indeterminate("disk full"));
    runtime.commit(b"one").await.unwrap_err();
    runtime.commit(b"one").await.unwrap_err();
    assert!(matches!(runtime.close().await, Err(RuntimeError::Unflushed { records: 1 })));
    assert_eq!(again(&world).await.position(), None);
    assert_eq!((world.sink.visible().len(), world.sink.staged()), (0, 0));
}

#[tokio::test]
async fn a_position_that_does_not_fit_is_refused_before_anything_is_decided() {
    let world = World::start().await;
    let mut runtime = first(&world).await;
    runtime.write("1".into()).await.unwrap();
    let refused = runtime.commit(&[0; 65_536]).await.unwrap_err();
    assert!(matches!(refused, RuntimeError::PayloadTooLarge { .. }), "{refused}");
    drop(runtime);
    assert_eq!(again(&world).await.position(), None);
}

#[tokio::test]
async fn what_an_engine_prepared_under_the_name_is_aborted_since_nothing_lists_it() {
    let world = World::start().await;
    drop(first(&world).await);
    let open = OpenRequest {
        incarnation: Incarnation::new(uuid::Uuid::new_v4()),
        owner: None,
        create: false,
        generation: None,
    };
    let coordinator = world.client();
    let epoch = Some(coordinator.open(&split(), &open).await.unwrap().epoch);
    let id = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
    let participants = vec![(&split()).into()].try_into().unwrap();
    coordinator.begin(&split(), id, &BeginRequest { epoch, participants, ..Default::default() }).await.unwrap();
    coordinator.prepare(&split(), id, &PrepareRequest { epoch, ..Default::default() }).await.unwrap();
    let runtime = again(&world).await;
    assert_eq!(runtime.report().aborted, 1);
    assert_eq!(coordinator.get(&split(), id, None).await.unwrap().state, TxnState::Aborted);
}

#[tokio::test]
async fn a_last_commit_without_a_position_is_never_taken_for_an_empty_start() {
    for payload in [None, Some(Payload::new(b"\x01\x01\0\0\0\0\x02\0\0\0{}".to_vec()))] {
        let world = World::start().await;
        drop(first(&world).await);
        let open = OpenRequest {
            incarnation: Incarnation::new(uuid::Uuid::new_v4()),
            owner: None,
            create: false,
            generation: None,
        };
        let coordinator = world.client();
        let epoch = Some(coordinator.open(&split(), &open).await.unwrap().epoch);
        let id = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
        coordinator.begin(&split(), id, &BeginRequest { epoch, ..Default::default() }).await.unwrap();
        let commit = CommitRequest { epoch, checkpoint_id: None, payload };
        coordinator.commit(&split(), id, &commit, None).await.unwrap();
        let failed = world.job_builder().open(split()).await.map(|_| ()).unwrap_err();
        assert!(failed.to_string().contains("carries no source position"), "{failed}");
    }
}

#[tokio::test]
async fn an_unknown_split_is_made_only_at_a_declared_first_start() {
    let world = World::start().await;
    let failed = world.job_builder().open(split()).await.map(|_| ()).unwrap_err();
    assert!(matches!(failed, RuntimeError::ClientUnknown { .. }), "{failed}");
}

#[tokio::test]
async fn an_engine_can_refuse_nothing_it_did_not_prepare() {
    // Engine mode asks the coordinator to refuse a commit of what was not prepared; the other mode must not.
    let world = World::start().await;
    let mut engine = EngineSinkBuilder::new(world.sink.clone(), world.client())
        .first_start(true)
        .batch_records(1)
        .open("job.sink".parse().unwrap(), None, [Snapshot::default()])
        .await
        .unwrap();
    engine.write("1".into()).await.unwrap();
    let client: ClientName = "job.sink.0".parse().unwrap();
    let id = world.sink.ids(&client)[0];
    let commit = CommitRequest { epoch: Some(ratified::Epoch::FIRST), ..Default::default() };
    let refused = world.client().commit(&client, id, &commit, None).await.unwrap_err();
    assert_eq!(refused.code(), Some(ratified::Code::TxnNotPrepared));
}

#[tokio::test]
async fn whoever_keeps_committing_what_open_is_about_to_abort_is_told_of_after_ten_looks() {
    let (world, _) = support::one_committed_one_prepared().await;
    let (client, looks) = (support::client(0), Arc::new(AtomicU64::new(0)));
    support::never_rests(&world, client.clone(), looks.clone());
    let failed = world.job_builder().open(client.clone()).await.map(|_| ()).unwrap_err();
    assert!(matches!(&failed, RuntimeError::Contended { client: c } if *c == client), "{failed}");
    assert_eq!(looks.load(Ordering::Relaxed), 10);
}

#[tokio::test]
async fn a_commit_that_finds_its_data_visible_is_counted() {
    let world = World::start().await;
    let mut runtime = first(&world).await;
    world.sink.close_gate();
    runtime.write("1".into()).await.unwrap();
    let id = runtime.commit(b"one").await.unwrap().unwrap();
    world.sink.until_called("commit 0").await;
    assert_eq!(runtime.already_committed(), 0);
    world.sink.show(&split(), id);
    world.sink.open_gate();
    runtime.flush_commits().await.unwrap();
    assert_eq!((runtime.already_committed(), world.sink.visible()), (1, vec!["1".to_owned()]));
}
