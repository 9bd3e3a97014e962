//! A resource that pulls decisions, applies and acknowledges them.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use ratified_core::{Answer, Request, TxnCall};
use ratified_protocol::{AckRequest, Code, Outcome, ParticipantName};

use super::{call, participant};
use crate::{kernel::ProcId, oracle::TxnKey, world::World};

/// A resource. What it has applied survives its own crashes.
#[derive(Debug)]
pub struct Resource {
    /// Its name.
    pub name: ParticipantName,
    heard: RefCell<BTreeMap<TxnKey, Outcome>>,
    proc: RefCell<Option<ProcId>>,
}

impl Resource {
    /// A resource that is not running.
    pub fn new(number: u64) -> Rc<Self> {
        Rc::new(Self { name: participant(&format!("p{number}")), heard: RefCell::default(), proc: RefCell::default() })
    }

    /// No participant hears both outcomes.
    fn hear(&self, world: &World, key: &TxnKey, outcome: Outcome) {
        let before = self.heard.borrow_mut().insert(key.clone(), outcome);
        if before.is_some_and(|before| before != outcome) {
            world.fail(|| format!("no participant hears both outcomes: {} of {key:?}", self.name));
        }
    }
}

/// Starts the resource, or starts it again after a crash.
pub fn start(world: &Rc<World>, resource: &Rc<Resource>) {
    let proc = world.kernel.borrow_mut().process();
    if let Some(before) = resource.proc.borrow_mut().replace(proc) {
        world.kill(before);
    }
    let (w, r) = (world.clone(), resource.clone());
    world.spawn(proc, async move { serve(&w, &r).await });
}

async fn serve(world: &Rc<World>, resource: &Rc<Resource>) {
    let mut cursor = None;
    loop {
        let wait_ms = world.draw(|rng| *rng.pick(&[0, 20, 60]));
        let request = Request::Decisions { participant: resource.name.clone(), after: cursor.clone(), wait_ms };
        let answer = world.ask_for(&request, wait_ms + 90).await;
        cursor = None;
        if let Some(Answer::Decisions(answer)) = answer {
            let mut failed = false;
            for decision in answer.decisions {
                let key = (decision.client_name, decision.txn_id);
                let outcome = decision.outcome.known().expect("an outcome of this version");
                resource.hear(world, &key, outcome);
                failed |= !acknowledge(world, resource, &key, outcome).await;
            }
            // After a failed apply everything is asked for again.
            cursor = (!failed).then_some(answer.cursor);
        }
        let pause = world.draw(|rng| rng.between(5, 60));
        world.sleep(pause).await;
    }
}

async fn acknowledge(world: &Rc<World>, resource: &Resource, key: &TxnKey, outcome: Outcome) -> bool {
    if world.strikes(100) {
        return false;
    }
    let request = call(&key.0, key.1, TxnCall::Ack(resource.name.clone(), AckRequest { outcome }));
    match world.ask(&request).await {
        Some(Answer::Problem(problem)) => {
            let ended = problem.retryable || problem.code == Code::OutcomeExpired;
            if !ended {
                world.fail(|| format!("an ack of the told outcome is taken: {key:?} {outcome} {problem}"));
            }
            ended && !problem.retryable
        }
        answer => answer.is_some(),
    }
}
