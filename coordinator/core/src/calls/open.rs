//! open: raise the epoch, fence what is older, tell what is unfinished.

use ratified_protocol::{ClientName, Code, Epoch, MAX_ANSWER_PAYLOAD_BYTES, OpenAnswer, OpenRequest, Txn};

use crate::{
    client::Client,
    effect::{OwnershipEvent, Revision},
    record::Key,
    step::{Refusal, Step},
};

/// Most transactions in the answer to `open`; the rest by list.
const MAX_UNFINISHED: usize = 1000;

/// What is left of the payload bytes one answer may carry.
pub(crate) struct PayloadBudget(usize);

impl PayloadBudget {
    pub(crate) const fn new() -> Self {
        Self(MAX_ANSWER_PAYLOAD_BYTES)
    }

    /// Counts bytes that are in the answer anyway.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }

    /// Takes the payload out of a transaction when there is no room for it.
    pub(crate) fn fit(&mut self, txn: &mut Txn) {
        let Some(payload) = &txn.payload else { return };
        if payload.len() <= self.0 {
            self.0 -= payload.len();
        } else {
            txn.payload = None;
            txn.payload_omitted = true;
        }
    }
}

impl Step<'_> {
    /// `open` of a client by one incarnation: who holds it from now on, and with which epoch. What older epochs have left
    /// OPEN is still to be ended before it is answered.
    pub(crate) fn open(&mut self, name: &ClientName, request: &OpenRequest) -> Result<Epoch, Refusal> {
        let is_there = self.client(name).is_some_and(|c| !c.record.forgotten);
        if !is_there && !request.create {
            let detail = format!(
                "client {name} is not known here; if this is its first start open it with create:true, else this \
                 coordinator's store may have been lost"
            );
            return Err(self.refuse(name, Code::ClientNotFound, detail));
        }
        self.check_generation(name, request)?;
        match self.client(name).and_then(|c| c.is_current(request.incarnation)) {
            Some(false) => return Err(self.refuse_superseded(name, request)),
            Some(true) if is_there => self.raise_generation(name, request),
            known => {
                self.check_room(name, is_there)?;
                self.take_over(name, request, known.is_some())?;
            }
        }
        Ok(self.client(name).map_or(Epoch::new(0), |client| client.record.epoch))
    }

    /// An engine that numbers its attempts cannot be overtaken back by a late `open` of an earlier one.
    fn check_generation(&mut self, name: &ClientName, request: &OpenRequest) -> Result<(), Refusal> {
        let greatest = self.client(name).and_then(|c| c.record.generation);
        let (Some(given), Some(greatest)) = (request.generation, greatest) else { return Ok(()) };
        if given >= greatest {
            return Ok(());
        }
        let detail = format!("generation {given} of {name} was superseded by generation {greatest}: stop");
        Err(self.refuse_open(name, request, detail))
    }

    fn raise_generation(&mut self, name: &ClientName, request: &OpenRequest) {
        let Some(client) = self.client_mut(name) else { return };
        if client.record.generation < request.generation {
            client.record.generation = request.generation;
            self.touch_client(name);
        }
    }

    pub(crate) fn refuse_superseded(&mut self, name: &ClientName, request: &OpenRequest) -> Refusal {
        let current = self.client(name).map(|c| (c.record.epoch, c.owner()));
        let (epoch, owner) = current.unwrap_or((Epoch::new(0), None));
        let who = owner.as_deref().unwrap_or("an unnamed owner");
        self.refuse_open(
            name,
            request,
            format!("this incarnation of {name} was superseded by epoch {epoch} of {who}: stop"),
        )
    }

    fn refuse_open(&mut self, name: &ClientName, request: &OpenRequest, detail: String) -> Refusal {
        let event = OwnershipEvent::OpenFenced { by: request.owner.clone(), generation: request.generation };
        self.fenced(name, detail, event)
    }

    fn check_room(&self, name: &ClientName, is_there: bool) -> Result<(), Refusal> {
        let clients = self.engine.clients.len() - self.engine.tombstones;
        if is_there {
            return Ok(());
        }
        self.check_store(name)?;
        if clients < self.engine.limits.max_clients {
            return Ok(());
        }
        let detail = format!("{clients} clients are known (max_clients); forget some and ask again");
        Err(self.refuse(name, Code::TooManyClients, detail))
    }

    /// Makes, revives or hands over the client. `keeps_epoch`: a retry of
    /// the very open that held the client when it was forgotten.
    fn take_over(&mut self, name: &ClientName, request: &OpenRequest, keeps_epoch: bool) -> Result<(), Refusal> {
        let uptime = self.engine.uptime;
        let current = self.client(name).map_or(Epoch::new(0), |c| c.record.epoch);
        let Some(epoch) = current.next() else {
            return Err(self.refuse(name, Code::InvalidArgument, "epoch: all numbers are used up; take a new name"));
        };
        let existed = self.client(name).is_some();
        if self.client(name).is_some_and(|c| c.record.forgotten) {
            self.engine.tombstones -= 1;
        }
        let client = self.engine.clients.entry(name.clone()).or_insert_with(|| Client::unopened(uptime));
        if keeps_epoch {
            client.record.forgotten = false;
            client.record.owner.clone_from(&request.owner);
        } else {
            client.hand_over(epoch, request.incarnation, request.owner.clone());
        }
        client.record.generation = client.record.generation.max(request.generation);
        self.touch(Key::Client(name.clone()), existed);
        self.touch_client(name);
        self.tell_ownership(name, OwnershipEvent::Opened { generation: request.generation });
        Ok(())
    }

    /// Nothing that is over is told as unfinished.
    pub(crate) fn settle_listed(&mut self, name: &ClientName) {
        let Some(client) = self.client(name) else { return };
        let listed: Vec<_> = client.txns.keys().copied().take(MAX_UNFINISHED).collect();
        for id in listed {
            self.settle(name, id);
        }
    }

    pub(crate) fn open_answer(&self, name: &ClientName) -> (OpenAnswer, Revision) {
        let unopened = Client::unopened(self.engine.uptime);
        let client = self.client(name).unwrap_or(&unopened);
        let last_committed = client.last_committed();
        let mut budget = PayloadBudget::new();
        budget.spend(client.last_payload.as_ref().map_or(0, bytes::Bytes::len));
        let mut unfinished = Vec::new();
        for (id, txn) in client.txns.iter().take(MAX_UNFINISHED) {
            let mut view = txn.view(name, *id, self.now.uptime);
            budget.fit(&mut view);
            unfinished.push(view);
        }
        let mut answer = OpenAnswer::new(client.record.epoch);
        answer.previous_epoch = client.previous_epoch();
        answer.previous_owner = client.record.previous_owner.clone().map(String::from);
        answer.unfinished = unfinished;
        answer.last_committed = last_committed;
        answer.newest_txn_id = client.record.newest_txn_id;
        answer.evicted_through = client.record.evicted_through;
        (answer, self.client_revision(name))
    }
}
