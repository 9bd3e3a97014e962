//! A participant against a resource that fails, and against gaps in what is remembered.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::{future::Future as _, task::Poll, time::Duration};

use ratified::{
    ClientError, ClientName, ClientOptions, Code, CoordinatorClient, Epoch, LostPolicy, Outcome, SinkError, TxnId,
    TxnState,
    participant::{Branch, Participant, ParticipantBuilder, ParticipantError},
    pending::{MAX_PENDING_ENTRIES, MemoryStore},
    protocol::{BeginRequest, CommitRequest, EpochRequest, Incarnation, OpenRequest},
};
use support::{World, copy_dir, log_of, sink::TestSink};
use uuid::Uuid;

fn client(name: &str) -> ClientName {
    name.parse().unwrap()
}

/// A participant over the world's sink.
fn builder(world: &World) -> ParticipantBuilder<TestSink> {
    Participant::builder("p".parse().unwrap(), world.sink.clone(), world.client())
        .pending(world.pending.clone())
        .poll_wait(Duration::from_millis(100))
}

async fn begin(world: &World, name: &str) -> TxnId {
    let id = TxnId::try_from(Uuid::now_v7()).unwrap();
    let opening =
        OpenRequest { incarnation: Incarnation::new(Uuid::new_v4()), owner: None, create: true, generation: None };
    assert_eq!(world.client().open(&client(name), &opening).await.unwrap().epoch, Epoch::FIRST);
    let request = BeginRequest { epoch: Some(Epoch::FIRST), ..BeginRequest::default() };
    world.client().begin(&client(name), id, &request).await.unwrap();
    id
}

async fn decide(world: &World, name: &str, id: TxnId, outcome: Outcome) {
    let epoch = Some(Epoch::FIRST);
    let commit = CommitRequest { epoch, ..CommitRequest::default() };
    let _ = match outcome {
        Outcome::Committed => world.client().commit(&client(name), id, &commit, None).await.unwrap(),
        Outcome::Aborted => world.client().abort(&client(name), id, &EpochRequest { epoch }, None).await.unwrap(),
    };
}

async fn flushed(participant: &Participant<TestSink>, name: &str, id: TxnId) -> Branch<TestSink> {
    let branch = participant.join(&client(name), id, Epoch::FIRST).await.unwrap();
    branch.write(vec![format!("of {name}")]).await.unwrap();
    branch.flush().await.unwrap();
    branch
}

/// Why it stopped; a participant that goes on instead is a failure, not a test without an end.
async fn failed(participant: &Participant<TestSink>) -> ParticipantError {
    tokio::time::timeout(Duration::from_secs(60), participant.failed()).await.unwrap()
}

async fn state(world: &World, name: &str, id: TxnId) -> TxnState {
    world.client().get(&client(name), id, None).await.unwrap().state.known().unwrap()
}

fn count(world: &World, call: &str) -> usize {
    world.sink.calls().iter().filter(|made| made.starts_with(call)).count()
}

#[tokio::test]
async fn a_resource_that_fails_for_now_is_asked_until_it_works_and_only_then_acknowledged() {
    for outcome in [Outcome::Committed, Outcome::Aborted] {
        let world = World::start().await;
        let participant = builder(&world).open().await.unwrap();
        let id = begin(&world, "a").await;
        let _branch = flushed(&participant, "a", id).await;
        let call = if outcome == Outcome::Committed { "commit" } else { "abort" };
        for _ in 0..3 {
            world.sink.fail(call, SinkError::indeterminate("reset"));
        }
        decide(&world, "a", id, outcome).await;
        participant.until_idle().await.unwrap();
        assert_eq!(count(&world, call), 4);
        assert_eq!(world.sink.visible().len(), usize::from(outcome == Outcome::Committed));
        assert_eq!(world.sink.staged(), 0);
        assert_eq!(state(&world, "a", id).await.outcome(), Some(outcome));
        assert!(state(&world, "a", id).await.is_terminal());
    }
}

#[tokio::test]
async fn a_refused_decision_stops_the_participant_and_holds_up_its_own_client_only() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let (a, b) = (begin(&world, "a").await, begin(&world, "b").await);
    flushed(&participant, "a", a).await;
    flushed(&participant, "b", b).await;
    drop(participant);
    for (name, id) in [("a", a), ("b", b)] {
        decide(&world, name, id, Outcome::Committed).await;
    }
    world.sink.fail("commit", SinkError::rejected("no such table"));
    let error = builder(&world).open().await.unwrap_err();
    assert_eq!(error.to_string(), "sink.commit: the sink refused: no such table");
    assert_eq!(world.sink.visible(), ["of b"]);
    assert_eq!(state(&world, "a", a).await, TxnState::Committing);
    // Mended: nothing was forgotten.
    let participant = builder(&world).open().await.unwrap();
    assert_eq!((participant.report().applied, participant.report().pending.len()), (1, 0));
    assert_eq!(world.sink.visible(), ["of b", "of a"]);
}

#[tokio::test]
async fn a_refusal_while_it_runs_is_told_by_every_later_call() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let (a, b) = (begin(&world, "a").await, begin(&world, "b").await);
    flushed(&participant, "a", a).await;
    world.sink.fail("commit", SinkError::rejected("no such table"));
    decide(&world, "a", a, Outcome::Committed).await;
    let error = failed(&participant).await.to_string();
    assert_eq!(error, "sink.commit: the sink refused: no such table");
    assert_eq!(participant.until_idle().await.unwrap_err().to_string(), error);
    assert_eq!(participant.join(&client("b"), b, Epoch::FIRST).await.unwrap_err().to_string(), error);
}

#[tokio::test]
async fn a_client_whose_commit_does_not_come_to_an_end_holds_up_its_own_transactions_only() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let (a, b) = (begin(&world, "a").await, begin(&world, "b").await);
    let later = TxnId::try_from(Uuid::now_v7()).unwrap();
    let request = BeginRequest { epoch: Some(Epoch::FIRST), ..BeginRequest::default() };
    world.client().begin(&client("a"), later, &request).await.unwrap();
    for (name, id) in [("a", a), ("b", b), ("a", later)] {
        flushed(&participant, name, id).await;
    }
    world.sink.close_gate();
    decide(&world, "a", a, Outcome::Committed).await;
    world.sink.until_called("commit 0").await;
    decide(&world, "a", later, Outcome::Aborted).await;
    decide(&world, "b", b, Outcome::Aborted).await;
    let wait = Some(Duration::from_secs(30));
    assert_eq!(world.client().get(&client("b"), b, wait).await.unwrap().state, TxnState::Aborted);
    assert_eq!(state(&world, "a", a).await, TxnState::Committing);
    assert_eq!(state(&world, "a", later).await, TxnState::Aborting);
    world.sink.open_gate();
    participant.until_idle().await.unwrap();
    assert_eq!(state(&world, "a", later).await, TxnState::Aborted);
    assert_eq!((world.sink.visible(), world.sink.staged()), (vec!["of a".to_owned()], 0));
}

#[tokio::test]
async fn an_abort_ends_a_branch_that_is_still_written() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let id = begin(&world, "a").await;
    let branch = participant.join(&client("a"), id, Epoch::FIRST).await.unwrap();
    branch.write(vec!["1".into()]).await.unwrap();
    decide(&world, "a", id, Outcome::Aborted).await;
    participant.until_idle().await.unwrap();
    assert_eq!(world.sink.staged(), 0);
    for error in [branch.write(vec!["2".into()]).await.unwrap_err(), branch.flush().await.unwrap_err()] {
        assert_eq!(error.to_string(), format!("{id} of a was aborted"));
    }
    assert_eq!((world.sink.staged(), count(&world, "write")), (0, 1));
}

#[tokio::test]
async fn a_commit_before_the_flush_is_loud_and_shows_nothing() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let id = begin(&world, "a").await;
    let branch = participant.join(&client("a"), id, Epoch::FIRST).await.unwrap();
    branch.write(vec!["1".into()]).await.unwrap();
    decide(&world, "a", id, Outcome::Committed).await;
    let error = failed(&participant).await;
    assert!(matches!(error, ParticipantError::NotFlushed { txn_id, .. } if txn_id == id), "{error}");
    assert_eq!((world.sink.visible().len(), state(&world, "a", id).await), (0, TxnState::Committing));
}

#[tokio::test]
async fn an_error_of_staging_stays() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    for call in ["write", "pre_commit"] {
        let id = begin(&world, call).await;
        let branch = participant.join(&client(call), id, Epoch::FIRST).await.unwrap();
        world.sink.fail(if call == "write" { "write" } else { "pre_commit" }, SinkError::indeterminate("reset"));
        let _ = branch.write(vec!["1".into()]).await;
        for _ in 0..2 {
            let error = branch.flush().await.unwrap_err().to_string();
            assert_eq!(error, format!("sink.{call}: the sink failed for now (Indeterminate): reset"));
        }
        decide(&world, call, id, Outcome::Aborted).await;
        participant.until_idle().await.unwrap();
        assert_eq!(world.sink.staged(), 0);
    }
}

#[tokio::test]
async fn a_transaction_is_joined_once_and_flushed_once() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let id = begin(&world, "a").await;
    let branch = flushed(&participant, "a", id).await;
    let error = participant.join(&client("a"), id, Epoch::FIRST).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{id} of a was joined before"));
    assert!(branch.write(vec!["2".into()]).await.unwrap_err().to_string().contains("the branch is flushed"));
    decide(&world, "a", id, Outcome::Committed).await;
    participant.until_idle().await.unwrap();
    assert_eq!(world.sink.visible(), ["of a"]);
}

/// Whoever joins may be given up at each of its awaits; what it began is ended by the decision all the same.
#[tokio::test]
async fn a_join_that_is_dropped_half_way_is_ended_by_the_decision() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    for polls in 0.. {
        let name = format!("a{polls}");
        let id = begin(&world, &name).await;
        let client = client(&name);
        let mut join = Box::pin(participant.join(&client, id, Epoch::FIRST));
        let mut left = polls;
        let is_joined = std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(false);
            }
            left -= 1;
            join.as_mut().poll(context).map(|joined| joined.is_ok())
        });
        let is_joined = is_joined.await;
        drop(join);
        decide(&world, &name, id, Outcome::Aborted).await;
        tokio::time::timeout(Duration::from_secs(60), participant.until_idle()).await.unwrap().unwrap();
        if is_joined {
            return;
        }
    }
}

#[tokio::test]
async fn an_abort_of_what_is_not_remembered_removes_what_is_staged() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let id = begin(&world, "a").await;
    flushed(&participant, "a", id).await;
    drop(participant);
    let participant = builder(&world).pending(MemoryStore::new()).open().await.unwrap();
    decide(&world, "a", id, Outcome::Aborted).await;
    assert_eq!(
        world.client().get(&client("a"), id, Some(Duration::from_secs(20))).await.unwrap().state,
        TxnState::Aborted
    );
    assert_eq!(world.sink.staged(), 0);
    drop(participant);
}

#[tokio::test]
async fn staged_data_of_an_unknown_transaction_is_an_error_until_somebody_decides_to_go_on() {
    let world = World::start().await;
    let id = begin(&world, "a").await;
    let never = TxnId::try_from(Uuid::now_v7()).unwrap();
    let log = log_of(&world.pending, &client("p")).await;
    let entry = |handle: &str| format!(r#"{{"version":1,"client":"a","epoch":1,"handle":{handle}}}"#).into_bytes();
    let plant = async |handle: &str| {
        log.begin(never).await.unwrap();
        log.attach(never, entry(handle)).await.unwrap();
    };
    let flushed = r#"{"records":1,"padding":""}"#;

    // Nothing is staged: it was applied before, and only the removal of the entry was lost.
    plant(flushed).await;
    let participant = builder(&world).open().await.unwrap();
    assert_eq!(participant.report().forgotten, [(client("a"), never)]);
    drop(participant);
    assert!(log.contents().entries.is_empty());

    plant(flushed).await;
    world.sink.plant(&client("a"), never);
    let error = builder(&world).open().await.unwrap_err();
    assert!(matches!(error, ParticipantError::Forgotten { code: Code::TxnNotFound, txn_id, .. } if txn_id == never));
    assert_eq!(log.contents().entries.len(), 1);
    let participant = builder(&world).on_forgotten(LostPolicy::Skip).open().await.unwrap();
    assert_eq!(participant.report().forgotten, [(client("a"), never)]);
    assert_eq!(world.sink.staged(), 1, "the data stays where it is");
    drop(participant);

    // Noted before the coordinator heard of it: nothing waits.
    log.begin(id).await.unwrap();
    log.attach(id, entry("null")).await.unwrap();
    let participant = builder(&world).open().await.unwrap();
    assert_eq!(participant.report().never_joined, [(client("a"), id)]);
    drop(participant);

    log.begin(id).await.unwrap();
    log.attach(id, b"{\"version\":9}".to_vec()).await.unwrap();
    assert!(matches!(builder(&world).open().await.unwrap_err(), ParticipantError::Undecodable { .. }));
}

#[tokio::test]
async fn no_more_transactions_are_joined_than_can_be_remembered() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let log = log_of(&world.pending, &client("p")).await;
    for _ in 0..MAX_PENDING_ENTRIES {
        log.begin(TxnId::try_from(Uuid::now_v7()).unwrap()).await.unwrap();
    }
    let id = begin(&world, "a").await;
    let error = participant.join(&client("a"), id, Epoch::FIRST).await.unwrap_err();
    assert_eq!(error.to_string(), "more than 10000 transactions are pending");
    let told = world.client().get(&client("a"), id, None).await.unwrap();
    assert_eq!(told.participants, Some(vec![]), "nobody waits for it");
}

#[tokio::test]
async fn a_client_whose_resource_does_not_come_back_holds_up_neither_the_others_nor_the_start() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let (a, b) = (begin(&world, "a").await, begin(&world, "b").await);
    flushed(&participant, "a", a).await;
    flushed(&participant, "b", b).await;
    drop(participant);
    decide(&world, "a", a, Outcome::Committed).await;
    decide(&world, "b", b, Outcome::Aborted).await;
    world.sink.close_gate();
    let participant = builder(&world).open_patience(Duration::from_millis(50)).open().await.unwrap();
    let report = participant.report();
    assert_eq!((report.applied, report.pending.clone()), (1, vec![(client("a"), a)]));
    assert_eq!(state(&world, "b", b).await, TxnState::Aborted);
    assert_eq!(state(&world, "a", a).await, TxnState::Committing);
    let c = begin(&world, "c").await;
    flushed(&participant, "c", c).await;
    world.sink.open_gate();
    decide(&world, "c", c, Outcome::Committed).await;
    participant.until_idle().await.unwrap();
    assert_eq!(world.sink.visible_sorted(), ["of a", "of c"]);
    assert_eq!(state(&world, "a", a).await, TxnState::Committed);
}

/// Whether the coordinator has heard of it is not known: what the participant has noted must not stay for ever.
#[tokio::test]
async fn a_join_without_an_answer_is_ended_whether_it_arrived_or_not() {
    let mut world = World::start().await;
    let participant = {
        let options = ClientOptions::default().call_deadline(Duration::from_millis(500));
        let impatient = CoordinatorClient::with_options(&format!("http://{}", world.addr()), options).unwrap();
        Participant::builder("p".parse().unwrap(), world.sink.clone(), impatient)
            .pending(world.pending.clone())
            .poll_wait(Duration::from_millis(100))
            .open()
            .await
            .unwrap()
    };
    let id = begin(&world, "a").await;
    world.stop_coordinator().await;
    let error = participant.join(&client("a"), id, Epoch::FIRST).await.unwrap_err();
    assert!(matches!(error, ParticipantError::Coordinator(ClientError::Unanswered { .. })), "{error}");
    let again = participant.join(&client("a"), id, Epoch::FIRST).await.unwrap_err();
    assert!(matches!(again, ParticipantError::Twice { .. }), "{again}");
    world.start_coordinator().await;
    tokio::time::timeout(Duration::from_secs(60), participant.until_idle()).await.unwrap().unwrap();
    assert!(log_of(&world.pending, &client("p")).await.contents().entries.is_empty());
    // It can join again, and does.
    flushed(&participant, "a", id).await;
    decide(&world, "a", id, Outcome::Committed).await;
    participant.until_idle().await.unwrap();
    assert_eq!(world.sink.visible(), ["of a"]);
}

#[tokio::test]
async fn a_resource_that_cannot_begin_leaves_nobody_waiting() {
    let world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let id = begin(&world, "a").await;
    world.sink.fail("begin", SinkError::rejected("no room"));
    let error = participant.join(&client("a"), id, Epoch::FIRST).await.unwrap_err();
    assert_eq!(error.to_string(), "sink.begin: the sink refused: no room");
    decide(&world, "a", id, Outcome::Aborted).await;
    participant.until_idle().await.unwrap();
    assert_eq!(state(&world, "a", id).await, TxnState::Aborted);
    assert!(log_of(&world.pending, &client("p")).await.contents().entries.is_empty());
}

/// The documented way to put a copy back: stop, copy it back, start. What was decided since is not in it.
#[tokio::test]
async fn a_participant_does_not_follow_a_store_that_was_put_back() {
    let mut world = World::start().await;
    let participant = builder(&world).open().await.unwrap();
    let (a, b) = (begin(&world, "a").await, begin(&world, "b").await);
    flushed(&participant, "a", a).await;
    flushed(&participant, "b", b).await;
    world.stop_coordinator().await;
    let (data, copy) = (world.dir.path().join("data"), world.dir.path().join("copy"));
    copy_dir(&data, &copy);
    world.start_coordinator().await;
    decide(&world, "a", a, Outcome::Committed).await;
    // It joins nothing in this load of the store, and remembers it all the same.
    world.client().get(&client("a"), a, Some(Duration::from_secs(30))).await.unwrap();
    assert_eq!(log_of(&world.pending, &client("p")).await.contents().store, world.client_store_id().await);
    world.stop_coordinator().await;
    std::fs::remove_dir_all(&data).unwrap();
    copy_dir(&copy, &data);
    world.start_coordinator().await;
    // The copy has forgotten the commit, and its owner aborts.
    decide(&world, "a", a, Outcome::Aborted).await;
    let stopped = failed(&participant).await;
    assert!(matches!(stopped, ParticipantError::Coordinator(ClientError::StoreChanged { .. })), "{stopped}");
    drop(participant);
    let refused = builder(&world).open().await.unwrap_err();
    assert!(matches!(refused, ParticipantError::Coordinator(ClientError::StoreChanged { .. })), "{refused}");
    assert_eq!((world.sink.visible(), count(&world, "abort")), (vec!["of a".to_owned()], 0));
}
