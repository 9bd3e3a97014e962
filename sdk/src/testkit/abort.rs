//! Abort: removes what is staged under one id, whatever is known of it, and nothing else.

use super::{
    Failure, SinkHarness, Verdict,
    scene::{CLIENT, Scene, by_next_owner},
};
use crate::sink::{SinkCommitter, SinkWriter};

/// An abort leaves nothing staged and nothing visible, of an open and of a prepared transaction.
///
/// # Errors
/// What was left, or the call that failed.
pub async fn abort_removes_staged_data<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "abort_removes_staged_data").await?;
    let mut process = scene.process().await?;
    let prepared = scene.stage(&mut process, &[1, 2]).await?;
    scene.abort(&process, &prepared).await?;
    scene.expect_staged(&process, "after the abort of a prepared one", CLIENT, &[]).await?;
    let open = scene.txn(CLIENT)?;
    let mut handle = scene.ok("begin", process.writer.begin(&open).await)?;
    let records = scene.records([3]);
    scene.ok("write", process.writer.write(&open, &mut handle, records).await)?;
    scene.ok("abort", process.committer.abort(&open, Some(&handle)).await)?;
    scene.expect_staged(&process, "after the abort of an open one", CLIENT, &[]).await?;
    scene.expect_visible("after aborts", &[]).await?;
    Ok(Verdict::Held)
}

/// A repeated abort succeeds, from the same process and from the next.
///
/// # Errors
/// The call that failed.
pub async fn abort_twice_succeeds<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "abort_twice_succeeds").await?;
    let mut process = scene.process().await?;
    let staged = scene.stage(&mut process, &[1]).await?;
    scene.abort(&process, &staged).await?;
    scene.abort(&process, &staged).await?;
    drop(process);
    let process = scene.process().await?;
    scene.abort(&process, &staged).await?;
    scene.expect_staged(&process, "after three aborts", CLIENT, &[]).await?;
    Ok(Verdict::Held)
}

/// The id alone is enough to remove a prepared transaction: the handle may be lost with its process.
///
/// # Errors
/// What was left, or the call that failed.
pub async fn abort_without_a_handle_removes_staged_data<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "abort_without_a_handle_removes_staged_data").await?;
    let mut process = scene.process().await?;
    let staged = scene.stage(&mut process, &[1, 2]).await?;
    drop(process);
    let process = scene.process().await?;
    scene.abort_by_id(&process, &by_next_owner(&staged.txn)).await?;
    scene.expect_staged(&process, "after an abort without a handle", CLIENT, &[]).await?;
    scene.commit_lost(&process, &staged).await?;
    scene.expect_visible("after an abort without a handle", &[]).await?;
    Ok(Verdict::Held)
}

/// An abort of an id under which nothing was ever begun succeeds.
///
/// # Errors
/// The call that failed.
pub async fn abort_of_nothing_succeeds<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "abort_of_nothing_succeeds").await?;
    let process = scene.process().await?;
    let txn = scene.txn(CLIENT)?;
    scene.abort_by_id(&process, &txn).await?;
    scene.abort_by_id(&process, &txn).await?;
    scene.expect_staged(&process, "after the abort of nothing", CLIENT, &[]).await?;
    Ok(Verdict::Held)
}

/// An abort never removes committed data, not even of its own transaction. The runtime never asks for that; whether the
/// sink refuses or ignores it is the sink's choice.
///
/// # Errors
/// What was visible.
pub async fn abort_leaves_committed_data<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "abort_leaves_committed_data").await?;
    let mut process = scene.process().await?;
    let staged = scene.stage(&mut process, &[1, 2]).await?;
    scene.commit(&process, &staged).await?;
    for handle in [Some(&staged.handle), None] {
        let _ = process.committer.abort(&staged.txn, handle).await;
        scene.expect_visible("after the abort of a committed transaction", &[1, 2]).await?;
    }
    scene.commit_again(&process, &staged).await?;
    Ok(Verdict::Held)
}

/// An abort leaves the other transactions of its client alone: the committed stay visible, the prepared can be committed.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn abort_leaves_other_transactions<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "abort_leaves_other_transactions").await?;
    let mut process = scene.process().await?;
    let committed = scene.stage(&mut process, &[1]).await?;
    scene.commit(&process, &committed).await?;
    let prepared = scene.stage(&mut process, &[2]).await?;
    let by_handle = scene.stage(&mut process, &[3]).await?;
    let by_id = scene.stage(&mut process, &[4]).await?;
    scene.abort(&process, &by_handle).await?;
    scene.abort_by_id(&process, &by_id.txn).await?;
    scene.expect_visible("after aborts of later transactions", &[1]).await?;
    scene.expect_staged(&process, "after aborts of later transactions", CLIENT, &[&prepared.txn]).await?;
    scene.commit(&process, &prepared).await?;
    scene.expect_visible("after the commit of the prepared one", &[1, 2]).await?;
    Ok(Verdict::Held)
}

/// What a process had written when it died before `pre_commit` is removed by its id.
///
/// # Errors
/// What was left, or the call that failed.
pub async fn open_data_of_a_crash_is_removed<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "open_data_of_a_crash_is_removed").await?;
    let mut process = scene.process().await?;
    let txn = scene.txn(CLIENT)?;
    let mut handle = scene.ok("begin", process.writer.begin(&txn).await)?;
    let records = scene.records(1..=harness.large_records());
    scene.ok("write", process.writer.write(&txn, &mut handle, records).await)?;
    drop((process, handle));
    let process = scene.process().await?;
    scene.expect_visible("after a crash before pre_commit", &[]).await?;
    scene.abort_by_id(&process, &by_next_owner(&txn)).await?;
    scene.expect_staged(&process, "after the abort of a crashed one", CLIENT, &[]).await?;
    scene.expect_visible("after the abort of a crashed one", &[]).await?;
    Ok(Verdict::Held)
}
