//! Listing, fencing and names: whose data is whose.

use super::{
    Failure, SinkHarness, Verdict,
    scene::{CLIENT, Scene, by_next_owner},
};
use crate::sink::SinkCommitter;

/// Names that a prefix, a pattern or a comparison without case would take for each other.
const CLIENTS: [&str; 7] = ["a.1", "a.10", "a_1", "A.1", "a.1-x", "a.1~@:", "a"];

/// `list_staged` names what is prepared, also by a process that is gone, and not what was committed or aborted.
///
/// # Errors
/// The other list, or the call that failed.
pub async fn list_staged_names_staged_data_only<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "list_staged_names_staged_data_only").await?;
    let mut process = scene.process().await?;
    scene.expect_staged(&process, "before anything was staged", CLIENT, &[]).await?;
    let committed = scene.stage(&mut process, &[1]).await?;
    let aborted = scene.stage(&mut process, &[2]).await?;
    let prepared = scene.stage(&mut process, &[3]).await?;
    let all = [&committed.txn, &aborted.txn, &prepared.txn];
    scene.expect_staged(&process, "with three prepared", CLIENT, &all).await?;
    scene.commit(&process, &committed).await?;
    scene.abort(&process, &aborted).await?;
    scene.expect_staged(&process, "after a commit and an abort", CLIENT, &[&prepared.txn]).await?;
    drop(process);
    let process = scene.process().await?;
    scene.expect_staged(&process, "after a crash", CLIENT, &[&prepared.txn]).await?;
    Ok(Verdict::Held)
}

/// `list_staged` names what this client staged and nothing of another, however alike their names are.
///
/// # Errors
/// The other list, or the call that failed.
pub async fn list_staged_tells_clients_apart<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "list_staged_tells_clients_apart").await?;
    let longest = ["a".repeat(200), format!("{}b", "a".repeat(199))];
    let clients: Vec<&str> = CLIENTS.into_iter().chain(longest.iter().map(String::as_str)).collect();
    let mut process = scene.process().await?;
    let mut all = Vec::new();
    for (client, number) in clients.iter().zip(1..) {
        let txn = scene.txn(client)?;
        all.push(scene.stage_as(&mut process, txn, &[number]).await?);
    }
    for (client, staged) in clients.iter().zip(&all) {
        scene.expect_staged(&process, "with one prepared of each client", client, &[&staged.txn]).await?;
    }
    let (Some(client), Some(staged)) = (clients.first(), all.first()) else { return Ok(Verdict::Held) };
    scene.commit(&process, staged).await?;
    scene.expect_staged(&process, "after its commit", client, &[]).await?;
    for (client, staged) in clients.iter().zip(&all).skip(1) {
        scene.expect_staged(&process, "after the commit of another", client, &[&staged.txn]).await?;
    }
    Ok(Verdict::Held)
}

/// `list_visible`, where a sink can tell, names what was committed, in ascending order and also to another process: nothing that
/// is staged or was aborted, and nothing of another client.
///
/// # Errors
/// The other list, or the call that failed.
pub async fn list_visible_names_what_was_committed<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "list_visible_names_what_was_committed").await?;
    let mut process = scene.process().await?;
    let nothing = process.committer.list_visible(&scene.client(CLIENT)?).await;
    if scene.ok("list_visible", nothing)?.is_none() {
        return Ok(Verdict::Skipped);
    }
    let (first, second) = (scene.stage(&mut process, &[1]).await?, scene.stage(&mut process, &[2]).await?);
    let aborted = scene.stage(&mut process, &[3]).await?;
    let _prepared = scene.stage(&mut process, &[4]).await?;
    let txn = scene.txn(CLIENTS[0])?;
    let of_another = scene.stage_as(&mut process, txn, &[5]).await?;
    scene.expect_listed_visible(&process, "with all of them prepared", CLIENT, &[]).await?;
    scene.abort(&process, &aborted).await?;
    for staged in [&of_another, &first, &second] {
        scene.commit(&process, staged).await?;
    }
    drop(process);
    let process = scene.process().await?;
    scene.expect_listed_visible(&process, "after two commits", CLIENT, &[&first.txn, &second.txn]).await?;
    scene.expect_listed_visible(&process, "after its commit", CLIENTS[0], &[&of_another.txn]).await?;
    scene.expect_listed_visible(&process, "with nothing committed", CLIENTS[1], &[]).await?;
    Ok(Verdict::Held)
}

/// Client and id together name a transaction: the same id under two clients is two transactions.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn one_id_of_two_clients_is_two_transactions<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "one_id_of_two_clients_is_two_transactions").await?;
    let (mut one, mut two) = (scene.process().await?, scene.process().await?);
    let txn = scene.txn("a.1")?;
    let mut same_id = txn.clone();
    same_id.client = scene.client("a.10")?;
    let first = scene.stage_as(&mut one, txn, &[1]).await?;
    let second = scene.stage_as(&mut two, same_id, &[2]).await?;
    scene.commit(&one, &first).await?;
    scene.expect_visible("after the commit of the first client", &[1]).await?;
    scene.expect_staged(&one, "after the commit of the first client", "a.10", &[&second.txn]).await?;
    scene.commit(&two, &second).await?;
    scene.expect_visible_unordered("after both commits", &[1, 2]).await?;

    let txn = scene.txn("a.1")?;
    let mut same_id = txn.clone();
    same_id.client = scene.client("a.10")?;
    let first = scene.stage_as(&mut one, txn, &[3]).await?;
    let second = scene.stage_as(&mut two, same_id, &[4]).await?;
    scene.abort_by_id(&one, &first.txn).await?;
    scene.commit(&two, &second).await?;
    scene.expect_visible_unordered("after the abort of the first client's", &[1, 2, 4]).await?;
    Ok(Verdict::Held)
}

/// `fence` for a newer owner leaves what older ones prepared alone: it is still listed, and can be committed.
///
/// # Errors
/// What was visible, or the call that failed.
pub async fn fence_leaves_prepared_data<H: SinkHarness>(harness: &H) -> Result<Verdict, Failure> {
    let mut scene = Scene::new(harness, "fence_leaves_prepared_data").await?;
    let mut process = scene.process().await?;
    let mut staged = scene.stage(&mut process, &[1, 2]).await?;
    staged.txn = by_next_owner(&staged.txn);
    let next = scene.process().await?;
    for _ in 0..2 {
        scene.ok("fence", next.committer.fence(&staged.txn.client, staged.txn.epoch).await)?;
        scene.expect_staged(&next, "after a fence", CLIENT, &[&staged.txn]).await?;
        scene.expect_visible("after a fence", &[]).await?;
    }
    scene.commit(&next, &staged).await?;
    scene.expect_visible("after a fence and the commit", &[1, 2]).await?;
    Ok(Verdict::Held)
}
