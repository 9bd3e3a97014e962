//! A worker of a job: the SDK's runtime in engine mode, as a model of its rules (`docs` of the SDK, rules 1 to 12).

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use ratified_core::{Answer, TxnCall};
use ratified_protocol::{ClientName, Code, Epoch, EpochRequest, Incarnation, Outcome, TxnId, TxnState};

use super::{
    Refused, ack_own, begin, call, client, commit, handle,
    job::{Command, Element, Job, Link, Report},
    opening, participant, prepare,
};
use crate::{
    fault::Fault,
    kernel::TaskId,
    oracle::TxnKey,
    probes::Probe,
    sink::{Committed, Row},
    world::World,
};

/// How long open, begin and prepare keep asking.
pub const LIMIT_MS: u64 = 1500;

/// How a worker is started.
#[derive(Debug, Clone)]
pub struct Start {
    /// Of which attempt.
    pub attempt: u64,
    /// Which of the workers.
    pub index: u64,
    /// Of how many.
    pub parallelism: u64,
    /// The restored checkpoint.
    pub restored: Option<u64>,
    /// Whether unknown clients may be made.
    pub first_start: bool,
    /// Whether what is prepared may be aborted although nothing was restored.
    pub accept_prepared: bool,
    /// The handles of the restored checkpoint that this worker was given.
    pub elements: Vec<Element>,
    /// Where its partitions begin.
    pub positions: BTreeMap<u64, u64>,
}

/// Why a worker stopped.
#[derive(Debug, Clone)]
pub enum Failure {
    /// Another owner has opened its client.
    Fenced,
    /// Its OPEN transaction was ended by somebody else.
    Ended,
    /// No answer in time.
    Unavailable,
    /// The sink refused a write or a flush.
    Sink,
    /// A restored checkpoint is older than a commit, or nothing was restored although something is prepared.
    RewindRefused {
        /// Whether something is committed.
        committed: bool,
    },
    /// The coordinator does not know the client.
    ClientNotFound(ClientName),
    /// A checkpointed transaction cannot be committed.
    Outcome(Code, TxnKey),
    /// The sink has neither the data nor the marker of a committed transaction.
    LostBySink(TxnKey),
}

/// A transaction between its prepare and its end.
#[derive(Debug, Clone)]
pub struct Pending {
    /// As a snapshot lists it.
    pub element: Element,
    /// Whether its commit was decided.
    pub decided: bool,
}

/// What a worker's tasks share.
#[derive(Debug)]
pub struct State {
    /// The epoch of its own client.
    pub epoch: Epoch,
    /// What is prepared and not finished, oldest first.
    pub pending: Vec<Pending>,
    /// The newest completed checkpoint it heard of.
    pub completed: Option<u64>,
    /// The transaction being written.
    pub open: Option<TxnId>,
    /// Ids must be drawn above this.
    pub newest: Option<TxnId>,
    /// Why nothing goes on.
    pub fatal: Option<Failure>,
    committer: Option<TaskId>,
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    /// Everything.
    pub world: Rc<World>,
    /// Its job.
    pub job: Rc<Job>,
    /// How it was started.
    pub start: Start,
    /// Its own client.
    pub client: ClientName,
    /// Drawn for this open.
    pub incarnation: Incarnation,
    /// What its tasks share.
    pub state: RefCell<State>,
    inbox: Rc<RefCell<VecDeque<Command>>>,
}

/// Starts a worker in a process of its own.
pub fn spawn(world: &Rc<World>, job: &Rc<Job>, start: Start) -> Link {
    let proc = world.kernel.borrow_mut().process();
    let inbox = Rc::new(RefCell::new(VecDeque::new()));
    let incarnation = if world.mix.faults.has(Fault::IncarnationPerHost) {
        Incarnation::new(uuid::Uuid::from_u128(1 + u128::from(start.index)))
    } else {
        world.incarnation()
    };
    let worker = Rc::new(Worker {
        client: client(&format!("{}.{}", job.sink, start.index)),
        incarnation,
        state: RefCell::new(State {
            epoch: Epoch::new(0),
            pending: Vec::new(),
            completed: None,
            open: None,
            newest: None,
            fatal: None,
            committer: None,
        }),
        inbox: inbox.clone(),
        world: world.clone(),
        job: job.clone(),
        start,
    });
    let task = world.spawn(proc, async move {
        let failure = worker.run().await.err();
        let report = failure.map_or(Report::Closed, Report::Failed);
        worker.world.note(|| format!("worker {} of attempt {}: {report:?}", worker.client, worker.start.attempt));
        worker.report(report);
    });
    world.mortals.borrow_mut().insert(proc, ());
    Link { proc, task, inbox }
}

impl Worker {
    /// Tells the engine.
    pub fn report(&self, report: Report) {
        self.job.report(&self.world, self.start.attempt, self.start.index, report);
    }

    fn has(&self, fault: Fault) -> bool {
        self.world.mix.faults.has(fault)
    }

    async fn run(self: &Rc<Self>) -> Result<(), Failure> {
        // Some start late, perhaps after the attempt was given up.
        let late = self.world.strikes(50);
        let wait = self.world.draw(|rng| if late { rng.between(50, 900) } else { rng.below(5) });
        self.world.sleep(wait).await;
        opening::open(self).await?;
        self.report(Report::Opened);
        let committer = self.clone();
        let task = self.world.spawn(self.world.current_proc(), async move { committer.commit_in_background().await });
        self.state.borrow_mut().committer = Some(task);
        let keeper = self.clone();
        self.world.spawn(self.world.current_proc(), async move { keeper.keep_alive().await });
        self.work().await
    }

    async fn work(self: &Rc<Self>) -> Result<(), Failure> {
        let mut positions = self.start.positions.clone();
        loop {
            self.check()?;
            let command = self.inbox.borrow_mut().pop_front();
            match command {
                Some(Command::Barrier(checkpoint)) => self.pre_commit(checkpoint, &positions).await?,
                Some(Command::Completed(checkpoint)) => self.completed(checkpoint),
                Some(Command::Aborted(checkpoint)) => self.aborted(checkpoint).await?,
                Some(Command::Close) => return self.close().await,
                None => self.write_some(&mut positions).await?,
            }
        }
    }

    fn check(&self) -> Result<(), Failure> {
        match &self.state.borrow().fatal {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    async fn write_some(&self, positions: &mut BTreeMap<u64, u64>) -> Result<(), Failure> {
        let end = self.world.mix.records;
        let next = positions.iter().find(|(_, position)| **position < end).map(|(p, position)| (*p, *position));
        let Some((partition, index)) = next else {
            self.world.park(self.world.now() + 50).await;
            return Ok(());
        };
        let id = self.begun().await?;
        if self.world.strikes(self.world.mix.sink_failure) {
            return Err(Failure::Sink);
        }
        let key = (self.client.clone(), id);
        let row = Row { job: self.job.number, partition, index };
        self.world.sink.borrow_mut().write(&key, &[row]);
        positions.insert(partition, index + 1);
        let pause = self.world.draw(|rng| rng.between(1, 12));
        self.world.park(self.world.now() + pause).await;
        Ok(())
    }

    /// The OPEN transaction; begun lazily, at the first record.
    async fn begun(&self) -> Result<TxnId, Failure> {
        if let Some(id) = self.state.borrow().open {
            return Ok(id);
        }
        let newest = self.state.borrow().newest;
        let id = if self.has(Fault::IdsRestart) {
            super::id_of(1 + newest.map_or(0, super::number_of))
        } else {
            self.world.draw_id([newest])
        };
        self.state.borrow_mut().newest = Some(id);
        let epoch = self.state.borrow().epoch;
        let mut participants = vec![(&self.client).into()];
        if self.job.number == 1 && self.world.mix.participants > 0 {
            participants.push(participant("p0"));
        }
        let timeout_ms = 250;
        let request = call(&self.client, id, begin(epoch, timeout_ms, true, participants));
        match self.world.insist(&request, Some(LIMIT_MS)).await {
            Ok(Answer::Txn(_, txn)) if txn.state == TxnState::Open => {}
            Ok(_) => return Err(Failure::Ended),
            // The resource that only pulls was declared gone: without it the job cannot go on as configured.
            Err(refused) => return Err(ended(&refused)),
        }
        self.state.borrow_mut().open = Some(id);
        Ok(id)
    }

    /// Flush, then prepare: rule 3. Any error is sticky.
    async fn pre_commit(&self, checkpoint: u64, positions: &BTreeMap<u64, u64>) -> Result<(), Failure> {
        let open = self.state.borrow().open;
        if let Some(id) = open {
            match self.prepare(checkpoint, id).await {
                Ok(()) => {}
                Err(_) if self.has(Fault::PreCommitErrorNotSticky) => {
                    self.state.borrow_mut().open = None;
                }
                Err(failure) => return Err(failure),
            }
        }
        self.check()?;
        let state = self.state.borrow();
        let skips_decided = self.has(Fault::SnapshotWithoutDecided);
        let listed = state.pending.iter().filter(|p| !(skips_decided && p.decided)).map(|p| p.element.clone());
        let mut elements: Vec<_> = listed.collect();
        if self.has(Fault::SnapshotNewestOnly) {
            elements.drain(..elements.len().saturating_sub(1));
        }
        drop(state);
        self.report(Report::Snapshot(checkpoint, positions.clone(), elements));
        Ok(())
    }

    async fn prepare(&self, checkpoint: u64, id: TxnId) -> Result<(), Failure> {
        if self.world.strikes(self.world.mix.sink_failure) {
            return Err(Failure::Sink);
        }
        let epoch = self.state.borrow().epoch;
        let timeout = self.world.mix.prepared_timeouts.then_some(400);
        let request = call(&self.client, id, prepare(epoch, checkpoint, handle(id), timeout));
        match self.world.insist(&request, Some(LIMIT_MS)).await {
            Ok(_) => {}
            Err(refused) => return Err(ended(&refused)),
        }
        let element = Element { client: self.client.clone(), txn_id: id, checkpoint };
        let mut state = self.state.borrow_mut();
        state.open = None;
        state.pending.push(Pending { element, decided: false });
        Ok(())
    }

    /// Late, repeated, skipped and reordered notifications are fine: rule 4.
    fn completed(&self, checkpoint: u64) {
        let mut state = self.state.borrow_mut();
        state.completed = state.completed.max(Some(checkpoint));
        let due = state.pending.iter().filter(|p| p.element.checkpoint <= checkpoint).count();
        self.world.probes.borrow_mut().add(Probe::CommittedSeveral, u64::from(due > 1));
        if let Some(committer) = state.committer {
            self.world.wake(committer);
        }
    }

    /// A failed checkpoint ends nothing.
    async fn aborted(&self, checkpoint: u64) -> Result<(), Failure> {
        if self.has(Fault::CheckpointAbortedAborts) {
            let gone: Vec<_> = {
                let state = self.state.borrow();
                state.pending.iter().filter(|p| p.element.checkpoint == checkpoint).cloned().collect()
            };
            for pending in gone {
                opening::abort_prepared(self, &pending.element.client, pending.element.txn_id).await?;
                self.state.borrow_mut().pending.retain(|p| p.element != pending.element);
            }
        }
        Ok(())
    }

    async fn close(&self) -> Result<(), Failure> {
        let open = self.state.borrow_mut().open.take();
        if self.has(Fault::CloseAbortsPrepared) {
            let pending = self.state.borrow().pending.clone();
            for Pending { element, .. } in pending {
                opening::abort_prepared(self, &element.client, element.txn_id).await?;
            }
        }
        if let Some(id) = open {
            let epoch = self.state.borrow().epoch;
            let _ = self.world.insist(&call(&self.client, id, super::abort(epoch)), Some(LIMIT_MS)).await;
        }
        Ok(())
    }

    async fn commit_in_background(self: Rc<Self>) {
        loop {
            if self.state.borrow().fatal.is_some() {
                return;
            }
            let above = self.has(Fault::CommitAboveCheckpoint);
            let next = {
                let state = self.state.borrow();
                let completed = state.completed;
                let is_due = |p: &&Pending| Some(p.element.checkpoint) <= completed || (above && completed.is_some());
                state.pending.iter().find(is_due).map(|p| p.element.clone())
            };
            let Some(element) = next else {
                self.world.park(self.world.now() + 10_000).await;
                continue;
            };
            let committed = self.finish_commit(&element).await;
            let mut state = self.state.borrow_mut();
            match committed {
                Ok(()) => state.pending.retain(|p| p.element != element),
                Err(failure) => state.fatal = Some(failure),
            }
        }
    }

    /// Decision, sink.commit, ack: each to the end before the next.
    pub async fn finish_commit(&self, element: &Element) -> Result<(), Failure> {
        let key = (element.client.clone(), element.txn_id);
        if self.has(Fault::SinkCommitBeforeDecision) {
            self.sink_commit(&key).await?;
        }
        let with_epoch = element.client == self.client && self.world.draw(crate::rng::Rng::coin);
        let mut epoch = with_epoch.then(|| self.state.borrow().epoch);
        if self.has(Fault::CommitWithOldEpoch) {
            epoch = Some(Epoch::FIRST);
        }
        let request = call(&key.0, key.1, commit(epoch));
        match self.world.insist(&request, None).await {
            Ok(_) => {}
            Err(refused) => match refused.code() {
                Some(Code::Fenced) => return Err(Failure::Fenced),
                Some(Code::OutcomeAborted) if self.has(Fault::SkipOnAborted) => return Ok(()),
                Some(Code::OutcomeExpired) if self.has(Fault::SkipOnExpired) => return Ok(()),
                Some(code) => return Err(Failure::Outcome(code, key)),
                None => return Err(Failure::Unavailable),
            },
        }
        if let Some(pending) = self.state.borrow_mut().pending.iter_mut().find(|p| p.element == *element) {
            pending.decided = true;
        }
        self.apply_commit(&key).await
    }

    /// sink.commit, then ack.
    pub async fn apply_commit(&self, key: &TxnKey) -> Result<(), Failure> {
        if self.has(Fault::AckBeforeSinkCommit) {
            self.acknowledge(key, Outcome::Committed).await?;
        }
        self.sink_commit(key).await?;
        self.acknowledge(key, Outcome::Committed).await
    }

    async fn sink_commit(&self, key: &TxnKey) -> Result<(), Failure> {
        loop {
            let pause = self.world.draw(|rng| rng.below(6));
            self.world.sleep(pause).await;
            // The answer of the sink may be lost: before or after it has happened.
            if self.world.strikes(40) {
                continue;
            }
            let committed = self.world.sink.borrow_mut().commit(key);
            if self.world.strikes(40) {
                continue;
            }
            let twice = self.world.sink.borrow().twice();
            if let Some(row) = twice {
                self.world.fail(|| format!("every record is visible exactly once: {row:?} is twice"));
            }
            return match committed {
                Ok(Committed::Now) => Ok(()),
                Ok(Committed::Already) => {
                    self.world.hit(Probe::SinkAlready);
                    Ok(())
                }
                Err(_) => Err(Failure::LostBySink(key.clone())),
            };
        }
    }

    /// Tells the coordinator that the sink has applied the outcome.
    pub async fn acknowledge(&self, key: &TxnKey, outcome: Outcome) -> Result<(), Failure> {
        let request = call(&key.0, key.1, ack_own(&key.0, outcome));
        match self.world.insist(&request, None).await {
            Ok(_) => Ok(()),
            // Long ended: there is nobody left to tell.
            Err(refused) if refused.code() == Some(Code::OutcomeExpired) => Ok(()),
            Err(refused) => {
                self.world.fail(|| format!("an ack of the told outcome is taken: {key:?} {outcome} {refused:?}"));
                Err(ended(&refused))
            }
        }
    }

    async fn keep_alive(self: Rc<Self>) {
        loop {
            self.world.sleep(80).await;
            let (open, epoch) = {
                let state = self.state.borrow();
                (state.open, state.epoch)
            };
            let Some(id) = open else { continue };
            let request = call(&self.client, id, TxnCall::KeepAlive(EpochRequest { epoch: Some(epoch) }));
            let Some(Answer::Problem(problem)) = self.world.ask(&request).await else { continue };
            let failure = ended(&Refused::Problem(problem.clone()));
            if !problem.retryable && self.state.borrow().open == Some(id) {
                self.state.borrow_mut().fatal.get_or_insert(failure);
            }
        }
    }
}

/// What a refusal of begin, prepare or keep-alive means.
pub fn ended(refused: &Refused) -> Failure {
    match refused.code() {
        Some(Code::Fenced) => Failure::Fenced,
        Some(_) => Failure::Ended,
        None => Failure::Unavailable,
    }
}
