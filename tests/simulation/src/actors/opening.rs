//! How a worker opens: raise the epochs, check, finish what is unfinished, clean up. Rules 6 to 8 of the SDK.

use std::rc::Rc;

use ratified_core::{Answer, ClientNames, Page, Request};
use ratified_protocol::{
    CheckpointId, ClientItem, ClientName, Code, OpenAnswer, OpenRequest, Outcome, ShortText, Txn, TxnId, TxnState,
};

use super::{
    abort, call,
    worker::{Failure, LIMIT_MS, Worker, ended},
};
use crate::{fault::Fault, oracle::is_of, probes::Probe};

/// What must be begun again from the first step.
enum Turn {
    Again,
    Failed(Failure),
}

impl From<Failure> for Turn {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Opens; returns once everything that an earlier owner left is finished.
///
/// # Errors
/// Another owner, a checkpoint that must not be restored, or a checkpointed transaction that cannot be committed.
pub async fn open(worker: &Rc<Worker>) -> Result<(), Failure> {
    for _ in 0..5 {
        match try_open(worker).await {
            Ok(()) => return Ok(()),
            Err(Turn::Again) => {}
            Err(Turn::Failed(failure)) => return Err(failure),
        }
    }
    Err(Failure::Unavailable)
}

async fn try_open(worker: &Rc<Worker>) -> Result<(), Turn> {
    let known = clients(worker).await?;
    let mut opened = Vec::new();
    for client in mine(worker, &known) {
        let is_own = client == worker.client;
        let answer = raise(worker, &client, is_own, &known).await?;
        if is_own {
            let mut state = worker.state.borrow_mut();
            state.epoch = answer.epoch;
            if !worker.world.mix.faults.has(Fault::IdsRestart) {
                state.newest = state.newest.max(answer.newest_txn_id).max(answer.evicted_through);
            }
        }
        opened.push((client, answer));
    }
    check(worker).await?;
    for (client, answer) in &opened {
        finish(worker, client, answer).await?;
    }
    for element in &worker.start.elements {
        if element.client != worker.client {
            worker.world.hit(Probe::CommittedForOther);
        }
        worker.finish_commit(element).await?;
    }
    clean_up(worker, &opened).await
}

/// Every client of the sink that the coordinator lists.
async fn clients(worker: &Worker) -> Result<Vec<ClientItem>, Failure> {
    let mut items = Vec::new();
    let mut token = None;
    loop {
        let names = ClientNames::From(format!("{}.", worker.job.sink));
        let request = Request::Clients { names, page: Page { size: Some(2), token } };
        match worker.world.insist(&request, Some(LIMIT_MS)).await {
            Ok(Answer::Clients(list)) => {
                items.extend(list.items.into_iter().filter(|i| is_of(&i.client_name, &worker.job.sink)));
                token = list.next_page_token;
                if token.is_none() {
                    return Ok(items);
                }
            }
            _ => return Err(Failure::Unavailable),
        }
    }
}

/// Its own client, and those of slots that no worker has any more: slot mod P = index.
fn mine(worker: &Worker, known: &[ClientItem]) -> Vec<ClientName> {
    let mut mine = vec![worker.client.clone()];
    if worker.world.mix.faults.has(Fault::NoTakeOver) {
        return mine;
    }
    for item in known.iter().filter(|item| !item.forgotten) {
        let slot = item.client_name.as_str().rsplit('.').next().and_then(|slot| slot.parse::<u64>().ok());
        let is_mine = slot.is_some_and(|slot| slot % worker.start.parallelism == worker.start.index);
        if is_mine && item.client_name != worker.client {
            mine.push(item.client_name.clone());
        }
    }
    mine
}

async fn raise(
    worker: &Worker,
    client: &ClientName,
    is_own: bool,
    known: &[ClientItem],
) -> Result<OpenAnswer, Failure> {
    let others = known.iter().any(|item| !item.forgotten && item.client_name != *client);
    let owner = format!("{}#{}", worker.client, worker.start.attempt);
    let request = Request::Open {
        client: client.clone(),
        body: OpenRequest {
            owner: ShortText::try_from(owner).ok(),
            create: is_own && (worker.start.first_start || others),
            ..OpenRequest::new(worker.incarnation)
        },
    };
    match worker.world.insist(&request, Some(LIMIT_MS)).await {
        Ok(Answer::Open(answer)) => Ok(*answer),
        Ok(_) => Err(Failure::Unavailable),
        Err(refused) => match refused.code() {
            Some(Code::Fenced) => {
                worker.world.hit(Probe::WorkerFenced);
                Err(Failure::Fenced)
            }
            Some(Code::ClientNotFound) => Err(Failure::ClientNotFound(client.clone())),
            _ => Err(Failure::Unavailable),
        },
    }
}

/// A restored checkpoint older than any commit of the sink, or none while there is something, is refused before
/// anything prepared is aborted.
async fn check(worker: &Worker) -> Result<(), Failure> {
    if worker.world.mix.faults.has(Fault::RewindNotRefused) {
        return Ok(());
    }
    let restored = worker.start.restored.map(CheckpointId::new);
    let items = clients(worker).await?;
    let committed = items.iter().any(|item| {
        item.last_committed.as_ref().is_some_and(|last| restored.is_none() || last.checkpoint_id > restored)
    });
    let prepared = items.iter().any(|item| item.count(TxnState::Prepared) > 0);
    if committed || (restored.is_none() && prepared && !worker.start.accept_prepared) {
        worker.world.hit(Probe::RewindRefused);
        return Err(Failure::RewindRefused { committed });
    }
    Ok(())
}

/// Finishes what one client left. What is prepared beyond the restored checkpoint is aborted, newest first; what is
/// prepared at or below it and not named here is left to whoever restored its handle.
async fn finish(worker: &Worker, client: &ClientName, answer: &OpenAnswer) -> Result<(), Turn> {
    for txn in &answer.unfinished {
        let key = (client.clone(), txn.txn_id);
        match txn.state.known() {
            Some(TxnState::Committing) if worker.world.mix.faults.has(Fault::OpenSkipsCommitting) => {}
            Some(TxnState::Committing) => {
                worker.world.hit(Probe::FinishedCommitting);
                worker.apply_commit(&key).await?;
            }
            Some(TxnState::Aborting) => {
                worker.world.hit(Probe::FinishedAborting);
                roll_back(worker, client, txn.txn_id).await?;
            }
            _ => {}
        }
    }
    let prepared = answer.unfinished.iter().rev().filter(|txn| txn.state == TxnState::Prepared);
    for txn in prepared {
        if is_named(worker, client, txn) {
            continue;
        }
        let beyond = txn.checkpoint_id > worker.start.restored.map(CheckpointId::new);
        if beyond || worker.world.mix.faults.has(Fault::AbortsUnnamed) {
            worker.world.hit(Probe::AbortedBeyond);
            abort_at_open(worker, client, txn.txn_id, answer).await?;
        } else {
            worker.world.hit(Probe::LeftPrepared);
        }
    }
    Ok(())
}

fn is_named(worker: &Worker, client: &ClientName, txn: &Txn) -> bool {
    worker.start.elements.iter().any(|e| e.client == *client && e.txn_id == txn.txn_id)
}

async fn abort_at_open(worker: &Worker, client: &ClientName, id: TxnId, opened: &OpenAnswer) -> Result<(), Turn> {
    // An attempt that no longer counts, or that was restored from an older checkpoint, may decide against the job.
    if !worker.job.is_current(worker.start.attempt, worker.start.restored) {
        worker.world.oracle.borrow_mut().meddle((client.clone(), id));
    }
    match worker.world.insist(&call(client, id, abort(opened.epoch)), None).await {
        Ok(_) => Ok(roll_back(worker, client, id).await?),
        // Somebody committed it meanwhile: lastCommitted has moved, and so the check must run again.
        Err(refused) if refused.code() == Some(Code::OutcomeCommitted) => Err(Turn::Again),
        Err(refused) => Err(Turn::Failed(ended(&refused))),
    }
}

/// For a seeded fault: aborts what the worker itself has prepared.
///
/// # Errors
/// A refusal.
pub async fn abort_prepared(worker: &Worker, client: &ClientName, id: TxnId) -> Result<(), Failure> {
    let epoch = worker.state.borrow().epoch;
    let request = call(client, id, abort(epoch));
    worker.world.insist(&request, None).await.map_err(|refused| ended(&refused))?;
    roll_back(worker, client, id).await
}

async fn roll_back(worker: &Worker, client: &ClientName, id: TxnId) -> Result<(), Failure> {
    let key = (client.clone(), id);
    let aborted = worker.world.sink.borrow_mut().abort(&key);
    worker.world.check(aborted);
    worker.acknowledge(&key, Outcome::Aborted).await
}

/// What is staged in the sink and aborted is removed; what the coordinator does not know is left alone.
async fn clean_up(worker: &Worker, opened: &[(ClientName, OpenAnswer)]) -> Result<(), Turn> {
    for (client, _) in opened {
        let staged = worker.world.sink.borrow().staged(client);
        for id in staged {
            let request = call(client, id, ratified_core::TxnCall::Get);
            let Ok(Answer::Txn(_, txn)) = worker.world.insist(&request, Some(LIMIT_MS)).await else { continue };
            if txn.state.outcome() == Some(Outcome::Aborted) {
                worker.world.hit(Probe::StagedCleaned);
                let aborted = worker.world.sink.borrow_mut().abort(&(client.clone(), id));
                worker.world.check(aborted);
            }
        }
    }
    Ok(())
}
