//! What a composite adds to its members: routing, one outcome for all, and errors that say which of them.

#[cfg(feature = "testkit")]
mod contract;
mod places;
mod scripted;

use ratified_protocol::Epoch;
use scripted::Scripted;

use super::*;
use crate::{
    error::Certainty,
    sink::{Committed, SinkCommitter, SinkWriter, TxnContext},
};

fn txn() -> TxnContext {
    TxnContext::new("c".parse().unwrap(), "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap(), Epoch::FIRST)
}

/// Odd numbers go to `a`, and everything twice to `b`.
fn composite(a: &Scripted, b: &Scripted) -> Composite<u64> {
    Composite::builder()
        .member("a", a.clone(), |n: &u64, odd| odd.extend(Some(*n).filter(|n| n % 2 == 1)))
        .member("b", b.clone(), |n: &u64, twice| twice.extend([*n, *n]))
        .build()
        .unwrap()
}

async fn stage(sink: &Composite<u64>, numbers: &[u64]) -> CompositeHandle {
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn()).await.unwrap();
    writer.write(&txn(), &mut handle, numbers.to_vec()).await.unwrap();
    writer.pre_commit(&txn(), &mut handle).await.unwrap();
    handle
}

fn again(handle: &CompositeHandle) -> CompositeHandle {
    serde_json::from_slice(&serde_json::to_vec(handle).unwrap()).unwrap()
}

fn without(handle: &CompositeHandle, name: &str) -> CompositeHandle {
    let members = handle.members.iter().filter(|(known, _)| known.as_str() != name).cloned().collect();
    CompositeHandle { members }
}

#[tokio::test]
async fn each_member_gets_what_its_route_makes_and_commits_in_its_turn() {
    let a = Scripted::new("a");
    let b = Scripted::sharing("b", &a);
    let sink = composite(&a, &b);
    let handle = again(&stage(&sink, &[1, 2, 3]).await);
    assert_eq!((a.visible(), b.visible()), (vec![], vec![]));
    a.forget_calls();
    let committer = sink.committer().await.unwrap();
    assert_eq!(committer.commit(&txn(), &handle).await.unwrap(), Committed::Now);
    assert_eq!((a.visible(), b.visible()), (vec![1, 3], vec![1, 1, 2, 2, 3, 3]));
    assert_eq!(committer.commit(&txn(), &handle).await.unwrap(), Committed::Already);
    assert_eq!(a.calls(), ["a commit", "b commit", "a commit", "b commit"]);
}

#[tokio::test]
async fn a_member_without_records_is_not_written_to_and_still_takes_part() {
    let a = Scripted::new("a");
    let b = Scripted::sharing("b", &a);
    stage(&composite(&a, &b), &[2]).await;
    let (mut calls, expected) = (a.calls(), ["a begin", "a pre_commit", "b begin", "b pre_commit", "b write"]);
    calls.sort_unstable();
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn already_needs_every_member_to_say_so() {
    let (a, b) = (Scripted::new("a"), Scripted::new("b"));
    let sink = composite(&a, &b);
    let handle = stage(&sink, &[1]).await;
    let committer = sink.committer().await.unwrap();
    // As after a crash between the two.
    assert_eq!(a.committer().await.unwrap().commit(&txn(), &String::new()).await.unwrap(), Committed::Now);
    assert_eq!(committer.commit(&txn(), &handle).await.unwrap(), Committed::Now);
    assert_eq!(committer.commit(&txn(), &handle).await.unwrap(), Committed::Already);
    assert_eq!((a.visible(), b.visible()), (vec![1], vec![1, 1]));
}

#[tokio::test]
async fn a_member_that_cannot_commit_for_now_does_not_keep_the_others_from_it() {
    let (a, b) = (Scripted::new("a"), Scripted::new("b"));
    let sink = composite(&a, &b);
    let handle = stage(&sink, &[1]).await;
    a.fail("commit", SinkError::determinate("busy"));
    let committer = sink.committer().await.unwrap();
    let error = committer.commit(&txn(), &handle).await.unwrap_err();
    let SinkError::Retry { certainty, cause, .. } = &error else { panic!("{error}") };
    assert_eq!((*certainty, cause.to_string()), (Certainty::Indeterminate, "member a failed for now: busy".to_owned()));
    assert_eq!((a.visible(), b.visible()), (vec![], vec![1, 1]));
    assert_eq!(committer.commit(&txn(), &handle).await.unwrap(), Committed::Now);
    assert_eq!((a.visible(), b.visible()), (vec![1], vec![1, 1]));
}

#[tokio::test]
async fn a_refusal_after_the_decision_names_its_member_once_the_others_have_committed() {
    let (a, b) = (Scripted::new("a"), Scripted::new("b"));
    let sink = composite(&a, &b);
    let handle = stage(&sink, &[1]).await;
    a.lose_staged();
    b.fail("commit", SinkError::indeterminate("reset"));
    let committer = sink.committer().await.unwrap();
    let error = committer.commit(&txn(), &handle).await.unwrap_err();
    assert!(matches!(error, SinkError::Retry { .. }), "b may still succeed: {error}");
    for _ in 0..2 {
        let error = committer.commit(&txn(), &handle).await.unwrap_err();
        assert_eq!(error.to_string(), "the sink refused: member a refused: neither staged nor visible");
        assert_eq!(b.visible(), [1, 1]);
    }
}

#[tokio::test]
async fn an_abort_reaches_every_member_whatever_is_left_of_the_handle() {
    type Left = fn(&CompositeHandle) -> Option<CompositeHandle>;
    let left: [Left; 3] = [|_| None, |all| Some(without(all, "a")), |all| Some(again(all))];
    for left in left {
        let (a, b) = (Scripted::new("a"), Scripted::new("b"));
        let sink = composite(&a, &b);
        let handle = left(&stage(&sink, &[1]).await);
        let committer = sink.committer().await.unwrap();
        assert_eq!(committer.list_staged(&txn().client).await.unwrap(), [txn().txn_id]);
        a.fail("abort", SinkError::indeterminate("reset"));
        let error = committer.abort(&txn(), handle.as_ref()).await.unwrap_err();
        assert!(error.to_string().contains("member a failed for now: reset"), "{error}");
        // What is staged in one is enough for the transaction to be listed.
        assert_eq!((a.staged(), b.staged()), (1, 0));
        assert_eq!(committer.list_staged(&txn().client).await.unwrap(), [txn().txn_id]);
        committer.abort(&txn(), handle.as_ref()).await.unwrap();
        assert_eq!((a.staged(), b.staged()), (0, 0));
        assert_eq!(committer.list_staged(&txn().client).await.unwrap(), []);
    }
}

#[tokio::test]
async fn every_member_is_fenced_and_a_list_that_fails_is_none() {
    let (a, b) = (Scripted::new("a"), Scripted::new("b"));
    let committer = composite(&a, &b).committer().await.unwrap();
    a.fail("fence", SinkError::determinate("busy"));
    let error = committer.fence(&txn().client, Epoch::FIRST).await.unwrap_err();
    assert!(error.to_string().contains("member a failed for now: busy"), "{error}");
    assert_eq!((a.calls(), b.calls()), (vec!["a fence".to_owned()], vec!["b fence".to_owned()]));
    b.fail("list_staged", SinkError::determinate("busy"));
    assert!(committer.list_staged(&txn().client).await.is_err());
}

#[tokio::test]
async fn only_members_that_failed_are_asked_again() {
    let (a, b) = (Scripted::new("a"), Scripted::new("b"));
    let sink = composite(&a, &b);
    let mut writer = sink.writer().await.unwrap();
    b.fail("begin", SinkError::determinate("busy"));
    let error = writer.begin(&txn()).await.unwrap_err();
    let SinkError::Retry { certainty: Certainty::Determinate, cause, .. } = &error else { panic!("{error}") };
    assert_eq!(cause.to_string(), "member b failed for now: busy");
    let mut handle = writer.begin(&txn()).await.unwrap();
    writer.write(&txn(), &mut handle, vec![1]).await.unwrap();
    b.fail("pre_commit", SinkError::determinate("busy"));
    assert!(writer.pre_commit(&txn(), &mut handle).await.is_err());
    writer.pre_commit(&txn(), &mut handle).await.unwrap();
    assert_eq!(a.calls(), ["a begin", "a write", "a pre_commit"]);
    assert_eq!(b.calls(), ["b begin", "b begin", "b write", "b pre_commit", "b pre_commit"]);
}

#[tokio::test]
async fn a_write_that_fails_in_one_member_says_in_which() {
    let (a, b) = (Scripted::new("a"), Scripted::new("b"));
    let mut writer = composite(&a, &b).writer().await.unwrap();
    let mut handle = writer.begin(&txn()).await.unwrap();
    a.fail("write", SinkError::rejected("too long"));
    let error = writer.write(&txn(), &mut handle, vec![1]).await.unwrap_err();
    assert_eq!(error.to_string(), "the sink refused: member a refused: too long");
}

#[tokio::test]
async fn a_removed_member_is_missed_loudly_and_an_added_one_takes_no_part() {
    let (a, b) = (Scripted::new("a"), Scripted::new("b"));
    let handle = again(&stage(&composite(&a, &b), &[1]).await);
    let only_b = Composite::builder().member("b", b.clone(), |n: &u64, out| out.push(*n)).build().unwrap();
    let committer = only_b.committer().await.unwrap();
    let expected = "the sink refused: member a refused: it takes part in the transaction and is not a member here: \
                    add it again";
    assert_eq!(committer.commit(&txn(), &handle).await.unwrap_err().to_string(), expected);
    assert_eq!(b.visible(), [1, 1], "the other one has committed");
    assert_eq!(committer.abort(&txn(), Some(&handle)).await.unwrap_err().to_string(), expected);
    assert!(committer.abort(&txn(), None).await.is_ok());

    let committer = composite(&a, &b).committer().await.unwrap();
    let early = without(&handle, "a");
    assert_eq!(committer.commit(&txn(), &early).await.unwrap(), Committed::Already);
    assert_eq!(a.staged(), 1, "a was not part of it");
}

#[tokio::test]
async fn handles_that_are_too_large_together_are_refused_with_their_names() {
    let (a, b) = (Scripted::new("a"), Scripted::new("b").with_handles_of(7));
    let mut writer = composite(&a.with_handles_of(64_500), &b).writer().await.unwrap();
    let error = writer.begin(&txn()).await.unwrap_err();
    let expected = "at most 64512 are taken (a 64500, b 7): take checkpoints more often";
    assert!(matches!(error, SinkError::Rejected(_)) && error.to_string().contains(expected), "{error}");
}

#[test]
fn names_and_numbers_of_members_are_checked() {
    let with = |names: &[&str]| {
        let add = |builder: CompositeBuilder<u64>, name: &&str| {
            builder.member(name, Scripted::new("x"), |n: &u64, out| out.push(*n))
        };
        names.iter().fold(Composite::builder(), add).build()
    };
    assert_eq!(with(&["a", "b"]).unwrap().member_names(), ["a".parse().unwrap(), "b".parse().unwrap()]);
    assert_eq!(with(&["a", "b", "a"]).unwrap_err().to_string(), "two members are named a");
    assert_eq!(with(&[]).unwrap_err(), CompositeError::Count { count: 0 });
    let error = with(&["a", "b.c"]).unwrap_err().to_string();
    assert_eq!(error, "a member's name must be 1..=32 characters of A-Z a-z 0-9 _ -, not \"b.c\"");
    let names: Vec<_> = (0..=MAX_MEMBERS).map(|n| n.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert!(with(&names[..MAX_MEMBERS]).is_ok());
    assert_eq!(with(&names).unwrap_err(), CompositeError::Count { count: 17 });
}
