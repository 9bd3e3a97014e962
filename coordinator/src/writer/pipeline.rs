//! The rules of group commit, without threads: what joins a batch, what may be told when.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ratified_core::{
    Answer, Audit, Effect, Engine, Input, Now, Ownership, Request, Revision, Sweep, Ticket, Transition, TxnCall,
};
use ratified_protocol::{Code, Problem};

use super::rewriting::Rewriting;
use crate::store::{
    Batch, BatchLimits, Change, StoreError, StoreStatus,
    codec::{self, Meta},
};

/// What a record is taken to weigh beyond what its request brought, in bytes: what a step changes is written down when
/// its batch is sealed, and only counted before.
const RECORD_BYTES: usize = 512;

/// Something that may now be carried out.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Release {
    /// Answer a request.
    Reply(Ticket, Answer),
    /// One line in the log.
    Transition(Transition),
    /// One line in the log.
    Ownership(Ownership),
    /// One line in the log.
    Audit(Audit),
}

/// How much a batch takes before it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Steps.
    pub requests: usize,
    /// Bytes of the bodies of their requests.
    pub bytes: usize,
}

/// A batch being gathered, or one being synced.
#[derive(Debug, Default)]
struct Stage {
    batch: Batch,
    bytes: usize,
    steps: usize,
    held: Vec<Effect>,
    revision: Revision,
}

/// What a request that is not yet answered waits for.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    decides: bool,
    stepped: Revision,
}

/// Steps requests, gathers what they write, and holds back what they say until it is synced. One batch is in flight at
/// a time; stepping goes on meanwhile.
#[derive(Debug)]
pub struct Pipeline {
    engine: Engine,
    room: Room,
    limits: BatchLimits,
    next_batch: u64,
    synced: Revision,
    staged: Stage,
    in_flight: Option<Stage>,
    released: Vec<Release>,
    again: Vec<Sweep>,
    waiting: BTreeMap<Ticket, Waiting>,
    scratch: Vec<Effect>,
    rewriting: Rewriting,
}

impl Pipeline {
    /// A pipeline over an engine that was just rebuilt, with what has to be written before anything is served.
    ///
    /// # Errors
    /// A record cannot be written down; a defect, the caller must stop.
    pub fn new(
        engine: Engine,
        last_batch: u64,
        first: Vec<Effect>,
        room: Room,
        limits: BatchLimits,
    ) -> Result<Self, StoreError> {
        let mut pipeline = Self {
            engine,
            room,
            limits,
            next_batch: last_batch.saturating_add(1),
            synced: Revision::default(),
            staged: Stage::default(),
            in_flight: None,
            released: Vec::new(),
            again: Vec::new(),
            waiting: BTreeMap::new(),
            scratch: first,
            rewriting: Rewriting::default(),
        };
        pipeline.take_effects()?;
        Ok(pipeline)
    }

    /// The pipeline of a store that tells this of itself and held so many bytes of keys and values when it was loaded.
    #[must_use]
    pub fn following(self, status: Arc<StoreStatus>, live_bytes: u64) -> Self {
        Self { rewriting: Rewriting::new(status, live_bytes), ..self }
    }

    /// What the batch being gathered still takes; nothing once a bound of the configuration or of the store is reached.
    pub fn room_left(&self) -> Room {
        let changes = self.engine.touched_keys().saturating_add(self.staged.batch.changes.len());
        let written = self.staged.bytes.saturating_add(changes.saturating_mul(RECORD_BYTES));
        let requests = self.room.requests.saturating_sub(self.staged.steps);
        let bytes = self.room.bytes.saturating_sub(self.staged.bytes).min(self.limits.bytes.saturating_sub(written));
        if requests == 0 || bytes == 0 || changes >= self.limits.changes {
            Room { requests: 0, bytes: 0 }
        } else {
            Room { requests, bytes }
        }
    }

    /// Carries out one input; `bytes` is the size of its body. The caller must ask [`Pipeline::room_left`] before. A
    /// request that no batch of the store can hold is refused.
    ///
    /// # Errors
    /// A record cannot be written down; a defect, the caller must stop.
    pub fn step(&mut self, now: Now, input: Input, bytes: usize) -> Result<(), StoreError> {
        if let Input::Request { ticket, request } = &input
            && let Some(problem) = self.exceeds(request, bytes)
        {
            self.released.push(Release::Reply(*ticket, Answer::Problem(Box::new(problem))));
            return Ok(());
        }
        let asked = match &input {
            Input::Request { ticket, request } => Some((*ticket, decides(request))),
            Input::Sweep(_) => None,
        };
        let before = (self.engine.revision(), self.staged.held.len());
        self.engine.set_short_of_room(self.rewriting.is_short());
        self.engine.step(now, input, &mut self.scratch);
        if let Some((ticket, decides)) = asked {
            self.waiting.insert(ticket, Waiting { decides, stepped: self.engine.revision() });
        }
        self.take_effects()?;
        // A step that reads synced state only joins no batch, and so takes no room in one.
        if before != (self.engine.revision(), self.staged.held.len()) {
            self.staged.steps += 1;
            self.staged.bytes = self.staged.bytes.saturating_add(bytes);
        }
        Ok(())
    }

    /// Closes the batch and gives it out to be written and synced, if there is anything to write and nothing is in
    /// flight. The caller must call [`Pipeline::synced`] once it is durable, or [`Pipeline::fail`].
    ///
    /// # Errors
    /// A record cannot be written down; a defect, the caller must stop.
    pub fn seal(&mut self) -> Result<Option<Batch>, StoreError> {
        self.seal_with(&[])
    }

    /// As [`Pipeline::seal`], with meta records of the caller's, which win; these alone are reason enough to write.
    ///
    /// # Errors
    /// A record cannot be written down; a defect, the caller must stop.
    pub fn seal_with(&mut self, meta: &[Meta]) -> Result<Option<Batch>, StoreError> {
        if self.in_flight.is_some() {
            return Ok(None);
        }
        self.engine.seal(&mut self.scratch);
        self.take_effects()?;
        if self.staged.batch.changes.is_empty() && self.staged.held.is_empty() && meta.is_empty() {
            return Ok(None);
        }
        self.rewriting.remember(meta);
        self.rewrite()?;
        let mut stage = std::mem::take(&mut self.staged);
        stage.revision = self.engine.revision();
        let mut batch = std::mem::take(&mut stage.batch);
        batch.number = self.next_batch;
        self.next_batch = self.next_batch.saturating_add(1);
        let own = [Meta::Batch(batch.number), Meta::Uptime(self.engine.uptime())];
        for meta in own.iter().chain(meta) {
            batch.changes.push(codec::encode_meta(meta)?);
        }
        batch.keep_last_of_each_key();
        self.in_flight = Some(stage);
        Ok(Some(batch))
    }

    /// Puts what is there again, as much as the store's log needs of a batch of this length.
    fn rewrite(&mut self) -> Result<(), StoreError> {
        let Some(share) = self.rewriting.share(self.staged.batch.bytes() as u64) else { return Ok(()) };
        for meta in self.rewriting.begin(self.next_batch) {
            self.staged.batch.changes.push(codec::encode_meta(meta)?);
        }
        let mut put = 0;
        loop {
            let before = self.staged.batch.changes.len();
            let now = Now { uptime: self.engine.uptime(), ..Now::default() };
            self.engine.step(now, Input::Sweep(Sweep::Rewrite), &mut self.scratch);
            let goes_on = self.scratch.contains(&Effect::SweepAgain(Sweep::Rewrite));
            self.scratch.clear();
            self.engine.seal(&mut self.scratch);
            self.take_effects()?;
            let changes = self.staged.batch.changes.iter().skip(before);
            let bytes: usize = changes.map(Change::bytes).sum();
            self.rewriting.put(bytes as u64);
            put += bytes as u64;
            if !goes_on {
                self.staged.batch.rewritten_since = self.rewriting.end();
                return Ok(());
            }
            if put >= share {
                return Ok(());
            }
        }
    }

    /// The batch in flight is durable: what it held back may be told, in order.
    pub fn synced(&mut self) {
        if let Some(stage) = self.in_flight.take() {
            self.synced = stage.revision;
            for effect in stage.held {
                self.release(effect);
            }
        }
    }

    /// What may be carried out now, in order.
    pub fn take_released(&mut self) -> Vec<Release> {
        std::mem::take(&mut self.released)
    }

    /// The sweeps that stopped at their bound and have to be run again, in a later step.
    pub fn take_again(&mut self) -> Vec<Sweep> {
        std::mem::take(&mut self.again)
    }

    /// The store failed: everybody who still waits, and what they are to be told. Nothing may be stepped afterwards.
    ///
    /// A call that decides and whose step is durable is still open only because participants have to acknowledge; its
    /// decision stands (PIP-255 `TransactionPreserverClosed`). Of all others nothing is known.
    pub fn fail(&mut self) -> Vec<(Ticket, Code)> {
        let held = |stage: &Stage| stage.held.iter().filter_map(reply_ticket).collect::<Vec<_>>();
        let unsynced: BTreeSet<Ticket> = self.in_flight.iter().chain([&self.staged]).flat_map(held).collect();
        let synced = self.synced;
        let code = |(ticket, waiting): (Ticket, Waiting)| {
            let stands = waiting.decides && waiting.stepped <= synced && !unsynced.contains(&ticket);
            (ticket, if stands { Code::TransactionPreserverClosed } else { Code::StorageUnavailable })
        };
        std::mem::take(&mut self.waiting).into_iter().map(code).collect()
    }

    /// Nothing more will be stepped: everybody who is parked, once nothing is staged or in flight.
    pub fn take_waiting(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.waiting).into_keys().collect()
    }

    /// Whether a batch is being synced.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// How many steps have joined the batch being gathered.
    pub fn staged_steps(&self) -> usize {
        self.staged.steps
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    // A batch call is the only request that changes more with every item; what else grows with data is paged by the engine.
    fn exceeds(&self, request: &Request, bytes: usize) -> Option<Problem> {
        let BatchLimits { changes: max_changes, bytes: max_bytes } = self.limits;
        let operations = if let Request::Batch { items, .. } = request { items.len() } else { 0 };
        let detail = if bytes > max_bytes {
            format!("body: the store takes at most {max_bytes} bytes at once, not {bytes}; send less in one call")
        } else if operations > max_changes {
            format!("operations: the store takes at most {max_changes} at once, not {operations}; send several batches")
        } else {
            return None;
        };
        Some(Problem::new(Code::TooLarge, detail))
    }

    fn take_effects(&mut self) -> Result<(), StoreError> {
        for effect in std::mem::take(&mut self.scratch) {
            match effect {
                Effect::Persist(write) => self.staged.batch.changes.push(codec::encode_write(&write)?),
                Effect::SweepAgain(sweep) => self.again.push(sweep),
                Effect::Reply { after, .. } | Effect::Ownership { after, .. } if after <= self.synced => {
                    self.release(effect);
                }
                Effect::Reply { after, .. } | Effect::Ownership { after, .. } => match &mut self.in_flight {
                    Some(stage) if after <= stage.revision => stage.held.push(effect),
                    _ => self.staged.held.push(effect),
                },
                Effect::Transition(_) | Effect::Audit(_) => self.staged.held.push(effect),
            }
        }
        Ok(())
    }

    fn release(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { ticket, answer, .. } => {
                self.waiting.remove(&ticket);
                self.released.push(Release::Reply(ticket, answer));
            }
            Effect::Transition(transition) => self.released.push(Release::Transition(transition)),
            Effect::Ownership { ownership, .. } => self.released.push(Release::Ownership(ownership)),
            Effect::Audit(audit) => self.released.push(Release::Audit(audit)),
            Effect::Persist(_) | Effect::SweepAgain(_) => {}
        }
    }
}

fn reply_ticket(effect: &Effect) -> Option<Ticket> {
    match effect {
        Effect::Reply { ticket, .. } => Some(*ticket),
        _ => None,
    }
}

fn decides(request: &Request) -> bool {
    let Request::Txn { call, .. } = request else {
        return false;
    };
    matches!(call, TxnCall::Commit(_) | TxnCall::Abort(_) | TxnCall::Resolve(_))
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
