//! A caller that keeps to no rule: any call, any id, any epoch, in any order. Only the oracle knows what it must hear.

use std::{cell::RefCell, rc::Rc};

use ratified_core::{Answer, ClientNames, Page, Request, TxnCall, TxnFilter};
use ratified_protocol::{
    AckRequest, BatchItem, BatchOp, BeginRequest, CheckpointId, ClientName, CommitRequest, Epoch, EpochRequest,
    Incarnation, OpenRequest, Outcome, ParticipantName, Payload, PrepareRequest, Problem, TxnId, TxnState,
};

use super::{client, handle, id_of, number_of, participant};
use crate::{rng::Rng, world::World};

/// What all strangers know of each other.
#[derive(Debug, Default)]
pub struct Gossip {
    ids: RefCell<Vec<(ClientName, TxnId)>>,
    epochs: RefCell<Vec<(ClientName, Epoch)>>,
    incarnations: RefCell<Vec<Incarnation>>,
}

impl Gossip {
    /// A transaction somebody has heard of.
    pub fn any_id(&self, rng: &mut Rng) -> Option<(ClientName, TxnId)> {
        let ids = self.ids.borrow();
        // The newest are the ones where something happens.
        let among = if rng.coin() { ids.len().min(4) } else { ids.len() };
        let back = rng.below(among as u64) as usize;
        ids.get(ids.len().checked_sub(1 + back)?).cloned()
    }
}

/// Starts a stranger.
pub fn start(world: &Rc<World>, number: u64, gossip: &Rc<Gossip>) {
    let proc = world.kernel.borrow_mut().process();
    world.mortals.borrow_mut().insert(proc, ());
    let (w, g) = (world.clone(), gossip.clone());
    let name = client(&format!("r{}", number % 2));
    world.spawn(proc, async move { run(&w, &name, &g).await });
}

async fn run(world: &Rc<World>, name: &ClientName, gossip: &Gossip) {
    while !world.healed.get() {
        let request = world.draw(|rng| any_request(rng, name, gossip, world.mix.participants));
        let patience = world.draw(|rng| *rng.pick(&[0, 20, 90]));
        let answer = world.ask_for(&request, patience).await;
        match (answer, &request) {
            (Some(Answer::Open(open)), _) => {
                gossip.epochs.borrow_mut().push((name.clone(), open.epoch));
            }
            (_, Request::Txn { client, txn_id, call: TxnCall::Begin(_), .. }) => {
                let key = (client.clone(), *txn_id);
                if gossip.ids.borrow().last() != Some(&key) {
                    gossip.ids.borrow_mut().push(key);
                }
            }
            _ => {}
        }
        let pause = world.draw(|rng| *rng.pick(&[0, 1, 5, 20]));
        world.sleep(pause).await;
    }
}

fn any_request(rng: &mut Rng, name: &ClientName, gossip: &Gossip, participants: u64) -> Request {
    match rng.below(24) {
        0 => open(rng, name, gossip),
        1 => Request::Preserver { client: name.clone() },
        2 => Request::PreserverLookup { client: name.clone(), txn_id: some_id(rng, name, gossip).1 },
        3 => Request::Txns {
            filter: TxnFilter {
                state: rng.coin().then(|| *rng.pick(&TxnState::ALL)),
                client_prefix: rng.coin().then(|| "r".to_owned()),
                ..TxnFilter::default()
            },
            page: Page::default(),
        },
        4 => batch(rng, name, gossip, participants),
        5 => Request::Clients { names: ClientNames::All, page: Page::default() },
        _ => {
            if gossip.epochs.borrow().is_empty() {
                return open(rng, name, gossip);
            }
            let (client, txn_id) = some_id(rng, name, gossip);
            let call = any_call(rng, &client, txn_id, gossip, participants);
            let wait_ms = *rng.pick(&[0, 0, 15, 70]);
            Request::Txn { client, txn_id, call, wait_ms }
        }
    }
}

fn open(rng: &mut Rng, name: &ClientName, gossip: &Gossip) -> Request {
    let mut known = gossip.incarnations.borrow_mut();
    let again = !known.is_empty() && rng.permille(400);
    let incarnation = if again {
        *rng.pick(&known)
    } else {
        Incarnation::new(uuid::Uuid::from_u128(u128::from(rng.next()) | 1 << 120))
    };
    if !again {
        known.push(incarnation);
    }
    let body = OpenRequest { incarnation, owner: None, create: !rng.permille(200), generation: None };
    Request::Open { client: name.clone(), body }
}

fn some_id(rng: &mut Rng, name: &ClientName, gossip: &Gossip) -> (ClientName, TxnId) {
    let known = gossip.any_id(rng);
    if let Some(key) = known.clone().filter(|_| rng.permille(750)) {
        return key;
    }
    let newest = known.map_or(0, |(_, id)| number_of(id));
    let ahead = *rng.pick(&[1, 1, 1, 3, 60]);
    let number = if rng.permille(100) { newest.saturating_sub(2).max(1) } else { newest + ahead };
    (name.clone(), id_of(number))
}

fn some_epoch(rng: &mut Rng, name: &ClientName, gossip: &Gossip) -> Option<Epoch> {
    let epochs = gossip.epochs.borrow();
    let newest = epochs.iter().filter(|(c, _)| c == name).map(|(_, e)| *e).max().unwrap_or(Epoch::FIRST);
    match rng.below(20) {
        0 => None,
        1 => Some(Epoch::new(newest.as_u64().saturating_sub(1))),
        2 if rng.permille(200) => Some(Epoch::new(newest.as_u64() + 1000)),
        _ => Some(newest),
    }
}

fn some_participant(rng: &mut Rng, name: &ClientName, participants: u64) -> ParticipantName {
    let number = rng.below(participants + 2);
    if number >= participants { name.into() } else { participant(&format!("p{number}")) }
}

fn any_call(rng: &mut Rng, name: &ClientName, id: TxnId, gossip: &Gossip, participants: u64) -> TxnCall {
    let epoch = some_epoch(rng, name, gossip);
    match rng.below(20) {
        0..=4 => TxnCall::Begin(begin(rng, name, id, epoch, participants)),
        5..=7 => TxnCall::Prepare(prepare(rng, id, epoch)),
        8..=10 => TxnCall::Commit(commit(rng, id, epoch)),
        11 | 12 => TxnCall::Abort(EpochRequest { epoch }),
        13 => TxnCall::KeepAlive(EpochRequest { epoch }),
        14 | 15 => TxnCall::Get,
        16 => TxnCall::Register(some_participant(rng, name, participants), EpochRequest { epoch }),
        _ => {
            let outcome = *rng.pick(&Outcome::ALL);
            TxnCall::Ack(some_participant(rng, name, participants), AckRequest { outcome })
        }
    }
}

fn begin(rng: &mut Rng, name: &ClientName, id: TxnId, epoch: Option<Epoch>, participants: u64) -> BeginRequest {
    // Mostly as the id says, so that repeats are equal.
    let draw = if rng.permille(50) { rng.next() } else { number_of(id).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 };
    let mut among = Rng::new(draw);
    let count = among.below(3);
    let names: Vec<_> = (0..count).map(|_| some_participant(&mut among, name, participants)).collect();
    BeginRequest {
        epoch,
        timeout_ms: (*among.pick(&[20, 60, 200, 700])).try_into().unwrap(),
        require_prepare: among.permille(300),
        participants: names.try_into().unwrap(),
        labels: Default::default(),
    }
}

fn prepare(rng: &mut Rng, id: TxnId, epoch: Option<Epoch>) -> PrepareRequest {
    let timeout = number_of(id).is_multiple_of(3);
    PrepareRequest {
        epoch,
        checkpoint_id: Some(CheckpointId::new(if rng.permille(30) { 99 } else { 7 })),
        payload: number_of(id).is_multiple_of(2).then(|| handle(id)),
        prepared_timeout_ms: timeout.then(|| 90.try_into().unwrap()),
    }
}

fn commit(rng: &mut Rng, id: TxnId, epoch: Option<Epoch>) -> CommitRequest {
    let bare = rng.permille(600);
    CommitRequest {
        epoch: epoch.filter(|_| !rng.permille(200)),
        checkpoint_id: (!bare).then(|| CheckpointId::new(7)),
        payload: (!bare && rng.coin()).then(|| if rng.permille(30) { Payload::new(vec![1]) } else { handle(id) }),
    }
}

fn batch(rng: &mut Rng, name: &ClientName, gossip: &Gossip, participants: u64) -> Request {
    let count = rng.between(1, 5);
    let mut items = Vec::new();
    let mut id = some_id(rng, name, gossip).1;
    for _ in 0..count {
        if rng.permille(300) {
            id = some_id(rng, name, gossip).1;
        }
        let op = match any_call(rng, name, id, gossip, participants) {
            TxnCall::Begin(request) => BatchOp::Begin(request),
            TxnCall::Prepare(request) => BatchOp::Prepare(request),
            TxnCall::Commit(request) => BatchOp::Commit(request),
            TxnCall::Abort(request) => BatchOp::Abort(request),
            TxnCall::Ack(participant, request) => BatchOp::Ack(participant, request),
            _ => BatchOp::Get,
        };
        items.push(Ok::<_, Problem>(BatchItem { txn_id: id, op }));
    }
    Request::Batch { client: name.clone(), items, ordered: rng.coin() }
}
