//! Staging: nothing is visible before its commit, and nothing that failed is taken for staged.

use super::{
    Failure, Medium, SinkHarness, Verdict,
    scene::{CLIENT, Scene, Staged},
};
use crate::sink::{SinkCommitter, SinkWriter};

const BATCH_RECORDS: u64 = 500;

/// Nothing of a transaction is visible before its commit: not when it begins, after writes, after `pre_commit`, nor when
/// its process has gone.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn staged_data_is_invisible<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "staged_data_is_invisible").await?;
    let mut process = scene.process().await?;
    let txn = scene.txn(CLIENT)?;
    let mut handle = scene.ok("begin", process.writer.begin(&txn).await)?;
    scene.expect_visible("after begin", &[]).await?;
    for numbers in [[1, 2], [3, 4]] {
        let records = scene.records(numbers);
        scene.ok("write", process.writer.write(&txn, &mut handle, records).await)?;
        scene.expect_visible("after a write", &[]).await?;
    }
    scene.ok("pre_commit", process.writer.pre_commit(&txn, &mut handle).await)?;
    scene.expect_visible("after pre_commit", &[]).await?;
    drop(process);
    scene.expect_visible("after the process is gone", &[]).await?;
    Ok(Verdict::Held)
}

/// A transaction without records goes the whole way, and its repetition too.
///
/// # Errors
/// The call that failed, or what became visible.
pub async fn empty_transaction_commits<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "empty_transaction_commits").await?;
    let mut process = scene.process().await?;
    let staged = scene.stage(&mut process, &[]).await?;
    for attempt in ["commit", "repeated commit", "third commit"] {
        // Nothing has to be shown, so either answer is true.
        let _ = scene.ok(attempt, process.committer.commit(&staged.txn, &staged.handle).await)?;
    }
    scene.expect_visible("after an empty commit", &[]).await?;
    let aborted = scene.stage(&mut process, &[]).await?;
    scene.abort(&process, &aborted).await?;
    scene.expect_staged(&process, "after an empty commit and an empty abort", CLIENT, &[]).await?;
    Ok(Verdict::Held)
}

/// A transaction larger than the sink's buffers becomes visible whole and in order, and not before its commit.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn large_transaction_is_whole<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "large_transaction_is_whole").await?;
    let mut process = scene.process().await?;
    let txn = scene.txn(CLIENT)?;
    let all: Vec<u64> = (1..=harness.large_records()).collect();
    let mut handle = scene.ok("begin", process.writer.begin(&txn).await)?;
    for batch in all.chunks(usize::try_from(BATCH_RECORDS).unwrap_or(1)) {
        let records = scene.records(batch.iter().copied());
        scene.ok("write", process.writer.write(&txn, &mut handle, records).await)?;
    }
    scene.ok("pre_commit", process.writer.pre_commit(&txn, &mut handle).await)?;
    scene.expect_visible("before the commit", &[]).await?;
    let staged = Staged { txn, handle };
    scene.commit(&process, &staged).await?;
    scene.expect_visible("after the commit", &all).await?;
    Ok(Verdict::Held)
}

/// While one transaction waits for its commit the next one of the same client is written; each has its own outcome.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn two_transactions_are_independent<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "two_transactions_are_independent").await?;
    let mut process = scene.process().await?;
    let first = scene.stage(&mut process, &[1, 2]).await?;
    let second = scene.txn(CLIENT)?;
    let mut handle = scene.ok("begin", process.writer.begin(&second).await)?;
    let records = scene.records([3]);
    scene.ok("write", process.writer.write(&second, &mut handle, records).await)?;
    scene.commit(&process, &first).await?;
    scene.expect_visible("after the commit of the first while the second is open", &[1, 2]).await?;
    let records = scene.records([4]);
    scene.ok("write", process.writer.write(&second, &mut handle, records).await)?;
    scene.ok("pre_commit", process.writer.pre_commit(&second, &mut handle).await)?;
    let third = scene.stage(&mut process, &[5]).await?;
    scene.expect_staged(&process, "with two prepared", CLIENT, &[&second, &third.txn]).await?;
    scene.abort(&process, &third).await?;
    scene.expect_staged(&process, "after the abort of the third", CLIENT, &[&second]).await?;
    scene.commit(&process, &Staged { txn: second, handle }).await?;
    scene.expect_visible("after the commit of the second", &[1, 2, 3, 4]).await?;
    Ok(Verdict::Held)
}

/// When the medium fails, `pre_commit` does, whether or not `write` told of it, and again when asked again. Skipped
/// unless the harness can [break the medium](SinkHarness::break_medium).
///
/// # Errors
/// The `pre_commit` that succeeded, or what became visible.
pub async fn write_error_surfaces_at_pre_commit<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "write_error_surfaces_at_pre_commit").await?;
    let mut process = scene.process().await?;
    let txn = scene.txn(CLIENT)?;
    let mut handle = scene.ok("begin", process.writer.begin(&txn).await)?;
    let records = scene.records([1]);
    scene.ok("write", process.writer.write(&txn, &mut handle, records).await)?;
    let broken = harness.break_medium(&scene.at).await;
    if scene.ok("the harness cannot break the medium", broken)? == Medium::Unbreakable {
        return Ok(Verdict::Skipped);
    }
    // Buffered or refused at once: both are right, as long as pre_commit tells.
    let records = scene.records([2]);
    let _ = process.writer.write(&txn, &mut handle, records).await;
    for attempt in ["pre_commit", "repeated pre_commit"] {
        if process.writer.pre_commit(&txn, &mut handle).await.is_ok() {
            return Err(scene.failure(format!("{attempt} succeeded on a broken medium")));
        }
    }
    scene.expect_visible("after a failed pre_commit", &[]).await?;
    Ok(Verdict::Held)
}
