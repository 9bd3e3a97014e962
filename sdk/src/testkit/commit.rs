//! Commit: exactly once, by whoever comes, as often as they come.

use super::{
    Failure, SinkHarness, Verdict,
    scene::{Handle, Process, Scene, Staged, by_next_owner},
};
use crate::{
    error::SinkError,
    sink::{Committed, SinkCommitter},
};

const RACES: u64 = 16;
const MAX_RACE_ATTEMPTS: usize = 1000;
/// Greatest handle, encoded: what a transaction's payload can hold.
const MAX_HANDLE_BYTES: usize = ratified_protocol::MAX_PAYLOAD_BYTES;

/// A commit makes the records of its transaction visible, each once, and no others.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn commit_makes_exactly_its_records_visible<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "commit_makes_exactly_its_records_visible").await?;
    let mut process = scene.process().await?;
    let staged = scene.stage(&mut process, &[1, 2, 3]).await?;
    scene.commit(&process, &staged).await?;
    scene.expect_visible("after the commit", &[1, 2, 3]).await?;
    Ok(Verdict::Held)
}

/// A repeated commit answers [`Committed::Already`] and changes nothing: from the same process, and after restarts.
///
/// # Errors
/// The other answer, or what was visible.
pub async fn commit_twice_is_already<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "commit_twice_is_already").await?;
    let mut process = scene.process().await?;
    let mut staged = scene.stage(&mut process, &[1, 2]).await?;
    scene.commit(&process, &staged).await?;
    scene.commit_again(&process, &staged).await?;
    scene.expect_visible("after a repeated commit", &[1, 2]).await?;
    drop(process);
    for _ in 0..2 {
        staged.txn = by_next_owner(&staged.txn);
        scene.commit_again(&scene.process().await?, &staged).await?;
        scene.expect_visible("after a repeated commit by another process", &[1, 2]).await?;
    }
    Ok(Verdict::Held)
}

/// A commit is known as one also after later commits of its client: a restored job repeats all that a checkpoint lists.
///
/// # Errors
/// The other answer, or what was visible.
pub async fn an_older_commit_is_still_already<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "an_older_commit_is_still_already").await?;
    let mut process = scene.process().await?;
    let mut all = Vec::new();
    for number in 1..=3 {
        let staged = scene.stage(&mut process, &[number]).await?;
        scene.commit(&process, &staged).await?;
        all.push(staged);
    }
    for staged in &all {
        scene.commit_again(&process, staged).await?;
    }
    scene.expect_visible("after all were repeated", &[1, 2, 3]).await?;
    Ok(Verdict::Held)
}

/// A committer of another process commits what this one staged, while this one lives; both know it afterwards.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn commit_from_another_instance_makes_the_records_visible<H: SinkHarness>(
    harness: &H,
) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "commit_from_another_instance_makes_the_records_visible").await?;
    let mut process = scene.process().await?;
    let other = scene.process().await?;
    let staged = scene.stage(&mut process, &[1, 2]).await?;
    scene.commit(&other, &staged).await?;
    scene.expect_visible("after a commit by another process", &[1, 2]).await?;
    scene.commit_again(&process, &staged).await?;
    Ok(Verdict::Held)
}

/// After the process that staged is gone, a new one commits from the encoded handle.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn commit_after_a_crash_makes_the_records_visible<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "commit_after_a_crash_makes_the_records_visible").await?;
    let mut process = scene.process().await?;
    let staged = scene.stage(&mut process, &[1, 2]).await?;
    let encoded = encode(&scene, &staged.handle)?;
    drop(process);
    let restored = Staged { txn: by_next_owner(&staged.txn), handle: decode(&scene, &encoded)? };
    let process = scene.process().await?;
    scene.commit(&process, &restored).await?;
    scene.expect_visible("after a commit by the next process", &[1, 2]).await?;
    Ok(Verdict::Held)
}

/// A handle is the same after it was encoded and decoded, and fits a transaction's payload.
///
/// # Errors
/// What changed, or its size.
pub async fn handle_survives_its_encoding<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "handle_survives_its_encoding").await?;
    let mut process = scene.process().await?;
    for numbers in [&[][..], &[1, 2, 3]] {
        let staged = scene.stage(&mut process, numbers).await?;
        let encoded = encode(&scene, &staged.handle)?;
        let again = encode(&scene, &decode(&scene, &encoded)?)?;
        if again != encoded {
            return Err(scene.failure(format!("{} became {}", lossy(&encoded), lossy(&again))));
        }
        if encoded.len() > MAX_HANDLE_BYTES {
            return Err(scene.failure(format!("a handle of {} bytes, more than {MAX_HANDLE_BYTES}", encoded.len())));
        }
        let restored = Staged { txn: staged.txn, handle: decode(&scene, &encoded)? };
        let committed = process.committer.commit(&restored.txn, &restored.handle).await;
        let _ = scene.ok("commit from the decoded handle", committed)?;
    }
    scene.expect_visible("after commits from decoded handles", &[1, 2, 3]).await?;
    Ok(Verdict::Held)
}

/// Two processes that commit the same transaction at once both succeed, and the records are visible once.
/// [`SinkError::Retry`] is taken as the answer of a sink that met the other one, and asked again.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn commits_at_once_apply_once<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "commits_at_once_apply_once").await?;
    let mut process = scene.process().await?;
    let other = scene.process().await?;
    let mut expected = Vec::new();
    for number in 1..=RACES {
        let staged = scene.stage(&mut process, &[number]).await?;
        expected.push(number);
        let race = |process: &Process<H>| tokio::spawn(commit_until_told(process.committer.clone(), staged.clone()));
        let (one, two) = (race(&process), race(&other));
        for committed in [one.await, two.await] {
            let committed = scene.ok("a committer died", committed)?;
            let _ = scene.ok("one of two commits at once", committed)?;
        }
        scene.expect_visible("after two commits at once", &expected).await?;
        scene.commit_again(&other, &staged).await?;
    }
    Ok(Verdict::Held)
}

/// Commits of one client in ascending order are read in that order.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn commits_keep_their_order<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "commits_keep_their_order").await?;
    let mut process = scene.process().await?;
    // The third is staged before the second is committed, as after a savepoint.
    let first = scene.stage(&mut process, &[3, 1]).await?;
    scene.commit(&process, &first).await?;
    let second = scene.stage(&mut process, &[4]).await?;
    let third = scene.stage(&mut process, &[2, 5]).await?;
    scene.commit(&process, &second).await?;
    scene.commit(&process, &third).await?;
    scene.expect_visible("after three commits", &[3, 1, 4, 2, 5]).await?;
    Ok(Verdict::Held)
}

/// A commit of data that was removed is rejected, by any process: absence is no proof of an earlier commit.
///
/// # Errors
/// The other answer, or what was visible.
pub async fn commit_after_abort_is_rejected<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "commit_after_abort_is_rejected").await?;
    let mut process = scene.process().await?;
    let staged = scene.stage(&mut process, &[1, 2]).await?;
    scene.abort(&process, &staged).await?;
    scene.commit_lost(&process, &staged).await?;
    // Nor does a later commit of the same client make it look like one.
    let later = scene.stage(&mut process, &[3]).await?;
    scene.commit(&process, &later).await?;
    drop(process);
    scene.commit_lost(&scene.process().await?, &staged).await?;
    scene.expect_visible("after a commit of removed data", &[3]).await?;
    Ok(Verdict::Held)
}

async fn commit_until_told<C: SinkCommitter>(committer: C, staged: Staged<C::Handle>) -> Result<Committed, SinkError> {
    let mut committed = committer.commit(&staged.txn, &staged.handle).await;
    for _ in 1..MAX_RACE_ATTEMPTS {
        if !matches!(committed, Err(SinkError::Retry { .. })) {
            break;
        }
        tokio::task::yield_now().await;
        committed = committer.commit(&staged.txn, &staged.handle).await;
    }
    committed
}

fn encode<H: SinkHarness>(scene: &Scene<'_, H>, handle: &Handle<H>) -> Result<Vec<u8>, Failure> {
    scene.ok("encode the handle", serde_json::to_vec(handle))
}

fn decode<H: SinkHarness>(scene: &Scene<'_, H>, encoded: &[u8]) -> Result<Handle<H>, Failure> {
    scene.ok("decode the handle", serde_json::from_slice(encoded))
}

fn lossy(encoded: &[u8]) -> String {
    String::from_utf8_lossy(encoded).chars().take(200).collect()
}
