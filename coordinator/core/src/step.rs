//! One step: an input, the engine, the time it is judged at, and the effects it has. What every call shares.

use std::ops::Bound;

use ratified_protocol::{ClientName, Code, Epoch, Outcome, ParticipantName, Payload, Problem, Txn, TxnId, TxnState};

use crate::{
    client::Client,
    effect::{Answer, Effect, Ownership, OwnershipEvent, Request, Revision, Success, Ticket, Transition},
    engine::Engine,
    paged::Paged,
    preserver::Entry,
    record::Key,
    time::Now,
    transaction::Transaction,
};

/// A step on its way.
pub(crate) struct Step<'a> {
    pub(crate) engine: &'a mut Engine,
    pub(crate) now: Now,
    pub(crate) out: &'a mut Vec<Effect>,
    changed: bool,
}

/// A transaction, told to a caller.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) success: Success,
    pub(crate) txn: Txn,
    /// The newest step the answer depends on.
    pub(crate) after: Revision,
}

/// A refusal, and the newest step it depends on.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) problem: Problem,
    pub(crate) after: Revision,
}

/// What a call about one transaction comes to.
pub(crate) type TxnResult = Result<Told, Refusal>;

impl<'a> Step<'a> {
    pub(crate) fn new(engine: &'a mut Engine, now: Now, out: &'a mut Vec<Effect>) -> Self {
        Self { engine, now, out, changed: false }
    }

    /// Answers a request, or parks it.
    pub(crate) fn request(&mut self, ticket: Ticket, request: Request) {
        match request {
            Request::Open { client, body } => match self.open(&client, &body) {
                Ok(epoch) => {
                    let (ticket, request) = (Some(ticket), Some(Box::new(body)));
                    self.go_on(Paged::Fence { ticket, client, epoch, request, from: Bound::Unbounded });
                }
                Err(refusal) => self.reply(ticket, Err(refusal)),
            },
            Request::Txn { client, txn_id, call, wait_ms } => {
                let result = self.txn_call(&client, txn_id, &call);
                self.reply_or_park(ticket, &client, txn_id, (&call, wait_ms), result);
            }
            Request::Batch { client, items, ordered } => {
                let result = self.batch(&client, items, ordered);
                self.reply(ticket, result.map(|(answer, after)| (Answer::Batch(answer), after)));
            }
            Request::Many { items } => {
                let (answer, after) = self.many(items);
                self.reply(ticket, Ok((Answer::Many(answer), after)));
            }
            Request::Decisions { participant, after, wait_ms } => {
                self.decisions(ticket, participant, after.as_deref(), wait_ms);
            }
            Request::Retire { participant, reason } => {
                self.retire(&participant, reason);
                self.go_on(Paged::Retire { ticket: Some(ticket), participant });
            }
            Request::Reinstate { participant, reason } => {
                let answer = self.reinstate(&participant, reason);
                self.reply_now(ticket, Answer::Participant(answer));
            }
            Request::Preserver { client } => match self.require_client(&client).map(drop) {
                Ok(()) => self.go_on(Paged::List { ticket, client, from: Bound::Unbounded, collected: None }),
                Err(refusal) => self.reply(ticket, Err(refusal)),
            },
            Request::PreserverLookup { client, txn_id } => {
                let result = self.preserver_lookup(&client, txn_id);
                self.reply(ticket, result.map(|(answer, after)| (Answer::Preserved(answer), after)));
            }
            Request::Clients { names, page } => {
                let answer = self.list_clients(&names, &page);
                self.reply(ticket, answer.map(|list| (Answer::Clients(list), self.engine.revision)));
            }
            Request::Txns { filter, page } => {
                let answer = self.list_txns(&filter, &page);
                self.reply(ticket, answer.map(|list| (Answer::Txns(list), self.engine.revision)));
            }
            Request::Forget { client, reason } => {
                let result = self.forget(&client, &reason);
                self.reply(ticket, result.map(|item| (Answer::Client(Box::new(item)), self.engine.revision)));
            }
        }
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, result: Result<(Answer, Revision), Refusal>) {
        let (answer, after) = match result {
            Ok(told) => told,
            Err(refusal) => (Answer::Problem(Box::new(refusal.problem)), refusal.after),
        };
        self.out.push(Effect::Reply { ticket, after, answer });
    }

    /// Answers with what depends on everything that has happened.
    pub(crate) fn reply_now(&mut self, ticket: Ticket, answer: Answer) {
        self.out.push(Effect::Reply { ticket, after: self.engine.revision, answer });
    }

    pub(crate) fn reply_txn(&mut self, ticket: Ticket, result: TxnResult) {
        self.reply(ticket, result.map(|told| (Answer::Txn(told.success, Box::new(told.txn)), told.after)));
    }

    /// Marks a durable thing as changed by this step; `existed` says whether the store may hold it already.
    pub(crate) fn touch(&mut self, key: Key, existed: bool) {
        if !self.changed {
            self.changed = true;
            self.engine.revision.0 += 1;
        }
        self.engine.dirty.entry(key).or_insert(existed);
    }

    /// Whether the store has room for something new; what ends something is never asked.
    pub(crate) fn check_store(&self, name: &ClientName) -> Result<(), Refusal> {
        if !self.engine.is_short {
            return Ok(());
        }
        let detail = "the store has no room for more; transactions that are there can be ended; ask again later";
        Err(self.refuse(name, Code::Overloaded, detail))
    }

    /// A client's record has changed in this step.
    pub(crate) fn touch_client(&mut self, name: &ClientName) {
        self.touch(Key::Client(name.clone()), true);
        self.note_activity(name);
        let written = self.engine.uptime;
        if let Some(client) = self.engine.clients.get_mut(name) {
            client.record.written = written;
        }
    }

    /// Something of this client has changed in this step.
    pub(crate) fn note_activity(&mut self, name: &ClientName) {
        let (revision, uptime) = (self.engine.revision, self.engine.uptime);
        if let Some(client) = self.engine.clients.get_mut(name) {
            client.changed = revision;
            client.active = uptime;
        }
        self.engine.reindex_idle(name);
    }

    /// A header has changed in this step.
    pub(crate) fn touch_txn(&mut self, name: &ClientName, id: TxnId) {
        self.touch(Key::Transaction(name.clone(), id), true);
        self.note_txn_change(name, id);
    }

    /// What is told about a transaction changes with this step.
    pub(crate) fn note_txn_change(&mut self, name: &ClientName, id: TxnId) {
        let revision = self.engine.revision;
        if let Some(txn) = self.client_mut(name).and_then(|client| client.txns.get_mut(&id)) {
            txn.changed = revision;
        }
        self.note_activity(name);
    }

    pub(crate) fn client(&self, name: &ClientName) -> Option<&Client> {
        self.engine.clients.get(name)
    }

    pub(crate) fn client_mut(&mut self, name: &ClientName) -> Option<&mut Client> {
        self.engine.clients.get_mut(name)
    }

    pub(crate) fn txn(&self, name: &ClientName, id: TxnId) -> Option<&Transaction> {
        self.client(name)?.txns.get(&id)
    }

    pub(crate) fn log_transition(&mut self, client: &ClientName, id: TxnId, from: Option<TxnState>, to: TxnState) {
        let reason = self.txn(client, id).and_then(|t| t.record.decision).map(|d| d.reason);
        let transition = Transition { client: client.clone(), txn_id: id, from, to, reason };
        self.out.push(Effect::Transition(transition));
    }

    /// A refusal that depends on the client's newest change.
    pub(crate) fn refuse(&self, name: &ClientName, code: Code, detail: impl Into<String>) -> Refusal {
        let after = self.client(name).map_or(Revision::default(), |c| c.changed);
        Refusal { problem: Problem::new(code, detail), after }
    }

    /// A refusal that tells the live transaction.
    pub(crate) fn refuse_with_txn(&self, name: &ClientName, id: TxnId, code: Code, detail: &str) -> Refusal {
        let mut refusal = self.refuse(name, code, detail);
        if let Some(txn) = self.txn(name, id) {
            refusal.problem = refusal.problem.with_txn(txn.view(name, id, self.now.uptime));
        }
        refusal
    }

    /// Refuses a client that never opened here.
    pub(crate) fn require_client(&self, name: &ClientName) -> Result<&Client, Refusal> {
        self.client(name).ok_or_else(|| {
            let detail =
                format!("client {name} never opened here; open it with create:true if this is its first start");
            self.refuse(name, Code::ClientNotFound, detail)
        })
    }

    /// Refuses an epoch that is not the client's current one.
    pub(crate) fn check_epoch(&mut self, name: &ClientName, given: Option<Epoch>) -> Result<(), Refusal> {
        let Some(client) = self.client(name) else { return Ok(()) };
        let (current, owner) = (client.record.epoch, client.owner());
        let Some(given) = given else {
            let detail = "epoch: missing; send the epoch that open answered";
            return Err(self.refuse(name, Code::InvalidArgument, detail));
        };
        if given == current {
            return Ok(());
        }
        if given > current {
            let detail =
                format!("epoch {given} was never given out, the newest is {current}: stop, this store has forgotten");
            return Err(self.refuse(name, Code::EpochUnknown, detail));
        }
        let who = owner.as_deref().unwrap_or("an unnamed owner");
        let detail = format!("epoch {given} of {name} was superseded by epoch {current} of {who}: stop");
        Err(self.fenced(name, detail, OwnershipEvent::CallFenced { given }))
    }

    /// Refuses an owner that was superseded.
    pub(crate) fn fenced(&mut self, name: &ClientName, detail: String, event: OwnershipEvent) -> Refusal {
        self.engine.stats.fenced_calls += 1;
        self.tell_ownership(name, event);
        let mut refusal = self.refuse(name, Code::Fenced, detail);
        if let Some(client) = self.client(name) {
            refusal.problem = refusal.problem.with_owner(client.record.epoch, client.owner());
        }
        refusal
    }

    /// One line in the log about who holds a client.
    pub(crate) fn tell_ownership(&mut self, name: &ClientName, event: OwnershipEvent) {
        let Some(client) = self.client(name) else { return };
        let ownership = Ownership {
            client: name.clone(),
            epoch: client.record.epoch,
            owner: client.record.owner.clone(),
            previous_owner: client.record.previous_owner.clone(),
            event,
        };
        self.out.push(Effect::Ownership { after: client.changed, ownership });
    }

    /// The transaction as it stands, live or preserved.
    pub(crate) fn tell(&self, name: &ClientName, id: TxnId) -> Option<(Txn, Revision)> {
        let client = self.client(name)?;
        if let Some(txn) = client.txns.get(&id) {
            return Some((txn.view(name, id, self.now.uptime), txn.changed));
        }
        let payload = client.last_payload.clone().filter(|_| client.is_last_committed(id)).map(Payload::new);
        let mut txn = if let Some(entry) = self.engine.preserver.lookup(name, id) {
            (preserved_view(name, id, entry), entry.changed)
        } else {
            let last = client.record.last_committed.filter(|last| last.txn_id == id)?;
            let mut txn = ended_view(name, id, Outcome::Committed);
            txn.checkpoint_id = last.checkpoint_id;
            txn.end_time = Some(last.end_time);
            txn.end_reason = Some(last.end_reason.into());
            (txn, client.changed)
        };
        txn.0.payload = payload;
        Some(txn)
    }

    /// Why an absent id is absent: it never began here, or nobody knows any more.
    pub(crate) fn absent(&mut self, name: &ClientName, id: TxnId) -> Refusal {
        if self.client(name).is_some_and(|c| c.has_evicted(id)) {
            self.engine.stats.lookup_expired += 1;
            let detail = format!("the outcome of {id} is no longer kept and never guessed; an operator decides");
            self.refuse(name, Code::OutcomeExpired, detail)
        } else {
            self.engine.stats.lookup_misses += 1;
            self.refuse(name, Code::TxnNotFound, format!("{id} never began here"))
        }
    }

    /// Who waits for decisions of this participant is answered.
    pub(crate) fn wake_participant(&mut self, name: &ParticipantName) {
        for (ticket, what) in self.engine.waiting.take_for_participant(name) {
            self.answer_parked(ticket, &what);
        }
    }
}

fn ended_view(client: &ClientName, id: TxnId, outcome: Outcome) -> Txn {
    Txn::new(client.clone(), id, outcome.terminal())
}

/// An outcome as the preserver tells it.
fn preserved_view(client: &ClientName, id: TxnId, entry: &Entry) -> Txn {
    let mut view = ended_view(client, id, entry.outcome);
    view.preserved = true;
    view.checkpoint_id = entry.checkpoint_id;
    view.end_time = entry.terminal.map(|t| t.end_time);
    view.end_reason = Some(entry.end_reason.into());
    view
}
