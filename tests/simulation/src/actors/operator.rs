//! Operators: they resolve, retire, reinstate and forget, now and then against the interest of a job.

use std::rc::Rc;

use ratified_core::{Answer, ClientNames, Page, Request, TxnCall, TxnFilter};
use ratified_protocol::{Resolution, ResolveRequest, ShortText, TxnState};

use super::{call, participant};
use crate::world::World;

fn reason() -> ShortText {
    ShortText::try_from("drill".to_owned()).unwrap_or_default()
}

/// Starts an operator.
pub fn start(world: &Rc<World>) {
    let proc = world.kernel.borrow_mut().process();
    let w = world.clone();
    world.spawn(proc, async move {
        loop {
            let pause = w.draw(|rng| rng.between(20, 250));
            w.sleep(pause).await;
            if w.healed.get() {
                return;
            }
            act(&w).await;
        }
    });
}

async fn act(world: &Rc<World>) {
    match world.draw(|rng| rng.below(10)) {
        0..=4 => resolve_some(world).await,
        5 | 6 => {
            let number = world.draw(|rng| rng.below(2));
            let participant = participant(&format!("p{number}"));
            let request = if world.draw(|rng| rng.permille(400)) {
                Request::Retire { participant, reason: reason() }
            } else {
                Request::Reinstate { participant, reason: None }
            };
            world.ask(&request).await;
        }
        7 => {
            let name = world.draw(|rng| *rng.pick(&["r0", "r1", "r0", "r1", "j0.1", "s0.0"]));
            world.ask(&Request::Forget { client: super::client(name), reason: reason() }).await;
        }
        _ => {
            world.ask(&Request::Clients { names: ClientNames::All, page: Page { size: Some(1), token: None } }).await;
        }
    }
}

async fn resolve_some(world: &Rc<World>) {
    let filter = TxnFilter { state: Some(TxnState::Prepared), ..TxnFilter::default() };
    let Some(Answer::Txns(list)) = world.ask(&Request::Txns { filter, page: Page::default() }).await else { return };
    let count = list.items.len() as u64;
    let Some(txn) = list.items.get(world.draw(|rng| rng.below(count)) as usize) else { return };
    // Mostly strangers' transactions: a job that is meddled with halts, and then tests nothing more.
    let of_job = !txn.client_name.as_str().starts_with('r');
    if of_job && !world.draw(|rng| rng.permille(60)) {
        return;
    }
    let outcome = world.draw(|rng| *rng.pick(&[Resolution::Commit, Resolution::Abort]));
    world.oracle.borrow_mut().meddle((txn.client_name.clone(), txn.txn_id));
    let resolve = ResolveRequest { outcome, reason: reason(), actor: None };
    world.ask(&call(&txn.client_name, txn.txn_id, TxnCall::Resolve(resolve))).await;
}

/// After the healing: takes back whom jobs need, declares the others gone, and resolves what nobody holds any more.
pub fn start_healer(world: &Rc<World>, gone: Vec<String>) {
    let proc = world.kernel.borrow_mut().process();
    let w = world.clone();
    world.spawn(proc, async move {
        retire(&w, gone).await;
        while !w.jobs_ended() {
            // A retirement that was on its way when faults stopped may still come in.
            let back = Request::Reinstate { participant: participant("p0"), reason: None };
            let _ = w.insist(&back, None).await;
            w.sleep(200).await;
        }
        w.check(w.left_overs());
        retire(&w, w.ended_clients()).await;
        loop {
            resolve_all(&w).await;
            w.sleep(50).await;
        }
    });
}

async fn retire(world: &Rc<World>, names: Vec<String>) {
    for name in names {
        let request = Request::Retire { participant: participant(&name), reason: reason() };
        let _ = world.insist(&request, None).await;
    }
}

async fn resolve_all(world: &Rc<World>) {
    let filter = TxnFilter { state: Some(TxnState::Prepared), ..TxnFilter::default() };
    let answer = world.insist(&Request::Txns { filter, page: Page::default() }, None).await;
    let Ok(Answer::Txns(list)) = answer else { return };
    for txn in list.items {
        let resolve = ResolveRequest { outcome: Resolution::Abort, reason: reason(), actor: None };
        let _ = world.insist(&call(&txn.client_name, txn.txn_id, TxnCall::Resolve(resolve)), None).await;
    }
}
