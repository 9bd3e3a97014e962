//! A job without an engine: its position travels with the commit, straight from OPEN.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use ratified_core::{Answer, Request, TxnCall};
use ratified_protocol::{
    CheckpointId, ClientName, Code, CommitRequest, Epoch, OpenAnswer, OpenRequest, Outcome, Payload, TxnId, TxnState,
};

use super::{ack_own, begin, call, client, worker::LIMIT_MS};
use crate::{
    fault::Fault,
    kernel::ProcId,
    oracle::TxnKey,
    probes::Probe,
    sink::{Committed, Row},
    world::World,
};

/// A job that keeps its position in the coordinator.
#[derive(Debug)]
pub struct SelfJob {
    number: u64,
    client: ClientName,
    /// Why it has stopped for good; `Some(None)` = it is done.
    ended: RefCell<Option<Option<String>>>,
    has_opened: Cell<bool>,
    zombies: RefCell<Vec<ProcId>>,
}

/// Why an instance stopped.
#[derive(Debug)]
enum Stop {
    /// A new instance may go on.
    Restart,
    /// Nobody may.
    Halt(String),
}

/// Starts the job and whoever restarts it.
pub fn start(world: &Rc<World>, number: u64) -> Rc<SelfJob> {
    let job = Rc::new(SelfJob {
        number,
        client: client(&format!("s{number}.0")),
        ended: RefCell::default(),
        has_opened: Cell::new(false),
        zombies: RefCell::default(),
    });
    let proc = world.kernel.borrow_mut().process();
    let (w, j) = (world.clone(), job.clone());
    world.spawn(proc, async move { supervise(&w, &j).await });
    job
}

async fn supervise(world: &Rc<World>, job: &Rc<SelfJob>) {
    while job.ended.borrow().is_none() {
        let proc = world.kernel.borrow_mut().process();
        world.mortals.borrow_mut().insert(proc, ());
        let stopped = Rc::new(Cell::new(false));
        let (w, j, s) = (world.clone(), job.clone(), stopped.clone());
        let supervisor = world.current_task();
        world.spawn(proc, async move {
            match run(&w, &j).await {
                Ok(()) => *j.ended.borrow_mut() = Some(None),
                Err(Stop::Halt(why)) => *j.ended.borrow_mut() = Some(Some(why)),
                Err(Stop::Restart) => {}
            }
            s.set(true);
            w.wake(supervisor);
        });
        let patience = world.now() + world.draw(|rng| rng.between(400, 3000));
        while !stopped.get() && world.kernel.borrow().is_alive(proc) {
            world.park(world.now() + 60).await;
            // Taken for dead although it lives: two instances at once.
            if world.now() > patience && world.mix.process_faults && !world.healed.get() {
                job.zombies.borrow_mut().push(proc);
                break;
            }
        }
        world.sleep(5).await;
    }
}

async fn run(world: &Rc<World>, job: &SelfJob) -> Result<(), Stop> {
    let opened = open(world, job).await?;
    let epoch = opened.epoch;
    let mut newest = opened.newest_txn_id.max(opened.evicted_through);
    for txn in &opened.unfinished {
        let key = (job.client.clone(), txn.txn_id);
        match txn.state.known() {
            Some(TxnState::Committing) if world.mix.faults.has(Fault::OpenSkipsCommitting) => {}
            Some(TxnState::Committing) => apply(world, job, &key).await?,
            Some(TxnState::Aborting) => {
                let aborted = world.sink.borrow_mut().abort(&key);
                world.check(aborted);
                acknowledge(world, &key, Outcome::Aborted).await?;
            }
            _ => {}
        }
    }
    let mut position = opened.last_committed.and_then(|last| last.payload).map_or(0, |p| position_of(&p));
    if position > 0 {
        world.hit(Probe::SelfResumed);
    }
    while position < world.mix.records {
        let id = world.draw_id([newest]);
        newest = Some(id);
        let to = interval(world, job, epoch, id, position).await?;
        let key = (job.client.clone(), id);
        if !decide(world, &key, epoch, to).await? {
            position = to;
            continue;
        }
        apply(world, job, &key).await?;
        position = to;
    }
    Ok(())
}

fn position_of(payload: &Payload) -> u64 {
    payload.as_bytes().try_into().map_or(0, u64::from_be_bytes)
}

async fn open(world: &Rc<World>, job: &SelfJob) -> Result<OpenAnswer, Stop> {
    let request = Request::Open {
        client: job.client.clone(),
        body: OpenRequest {
            incarnation: world.incarnation(),
            owner: None,
            create: !job.has_opened.get(),
            generation: None,
        },
    };
    match world.insist(&request, Some(LIMIT_MS)).await {
        Ok(Answer::Open(answer)) => {
            job.has_opened.set(true);
            Ok(*answer)
        }
        Ok(_) => Err(Stop::Restart),
        Err(refused) if refused.code() == Some(Code::ClientNotFound) => {
            let forgotten = world.oracle.borrow().was_forgotten(&job.client);
            if !forgotten {
                world.fail(|| format!("{} halts only for a reason: unknown", job.client));
            }
            Err(Stop::Halt("its client was forgotten".to_owned()))
        }
        Err(_) => Err(Stop::Restart),
    }
}

/// Begins, writes some rows and flushes. Returns where the source stands then.
async fn interval(world: &Rc<World>, job: &SelfJob, epoch: Epoch, id: TxnId, from: u64) -> Result<u64, Stop> {
    let absent = world.mix.faults.has(Fault::NotAParticipant);
    let participants = if absent { Vec::new() } else { vec![(&job.client).into()] };
    let request = call(&job.client, id, begin(epoch, 300, false, participants));
    match world.insist(&request, Some(LIMIT_MS)).await {
        Ok(Answer::Txn(_, txn)) if txn.state == TxnState::Open => {}
        _ => return Err(Stop::Restart),
    }
    let to = (from + world.draw(|rng| rng.between(1, 4))).min(world.mix.records);
    for index in from..to {
        let pause = world.draw(|rng| rng.between(0, 10));
        world.sleep(pause).await;
        if world.strikes(world.mix.sink_failure) {
            return Err(Stop::Restart);
        }
        let row = Row { job: 100 + job.number, partition: 0, index };
        world.sink.borrow_mut().write(&(job.client.clone(), id), &[row]);
    }
    Ok(to)
}

/// One durable write decides and stores the position. False: a seeded fault reads on without the answer.
async fn decide(world: &Rc<World>, key: &TxnKey, epoch: Epoch, position: u64) -> Result<bool, Stop> {
    let request = call(
        &key.0,
        key.1,
        TxnCall::Commit(CommitRequest {
            epoch: Some(epoch),
            checkpoint_id: Some(CheckpointId::new(position)),
            payload: Some(Payload::new(position.to_be_bytes().to_vec())),
        }),
    );
    if world.mix.faults.has(Fault::CommitNotAwaited) {
        return match world.ask(&request).await {
            Some(Answer::Txn(..)) => Ok(true),
            _ => Ok(false),
        };
    }
    match world.insist(&request, None).await {
        Ok(_) => Ok(true),
        Err(_) if world.mix.faults.has(Fault::RefusalIsSuccess) => Ok(false),
        Err(_) => Err(Stop::Restart),
    }
}

/// sink.commit, then ack.
async fn apply(world: &Rc<World>, job: &SelfJob, key: &TxnKey) -> Result<(), Stop> {
    if world.mix.faults.has(Fault::AckBeforeSinkCommit) {
        acknowledge(world, key, Outcome::Committed).await?;
    }
    let pause = world.draw(|rng| rng.below(8));
    world.sleep(pause).await;
    let committed = world.sink.borrow_mut().commit(key);
    let twice = world.sink.borrow().twice();
    if let Some(row) = twice {
        world.fail(|| format!("every record is visible exactly once: {row:?} is twice"));
    }
    match committed {
        Ok(Committed::Now) => {}
        Ok(Committed::Already) => world.hit(Probe::SinkAlready),
        Err(what) => {
            world.fail(|| format!("{}: what was decided is staged or visible: {what}", job.client));
            return Err(Stop::Halt(what));
        }
    }
    acknowledge(world, key, Outcome::Committed).await
}

async fn acknowledge(world: &Rc<World>, key: &TxnKey, outcome: Outcome) -> Result<(), Stop> {
    match world.insist(&call(&key.0, key.1, ack_own(&key.0, outcome)), None).await {
        Ok(_) => Ok(()),
        Err(refused) if refused.code() == Some(Code::OutcomeExpired) => Ok(()),
        Err(refused) => {
            world.fail(|| format!("an ack of the told outcome is taken: {key:?} {outcome} {refused:?}"));
            Err(Stop::Restart)
        }
    }
}

impl SelfJob {
    /// Whether it is done, or has stopped for good.
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// The name of its client.
    pub fn name(&self) -> String {
        self.client.to_string()
    }

    /// Instances that live on although others took their place.
    pub fn zombies(&self) -> Vec<ProcId> {
        self.zombies.borrow().clone()
    }
}

/// End to end: every source record of a finished job is visible exactly once.
///
/// # Errors
/// The job is not finished although it had the time, or a record is missing.
pub fn finale(world: &World, job: &SelfJob) -> Result<(), String> {
    match &*job.ended.borrow() {
        None => Err(format!("{} is not finished", job.client)),
        Some(Some(_)) => Ok(()),
        Some(None) => {
            for index in 0..world.mix.records {
                let row = Row { job: 100 + job.number, partition: 0, index };
                let times = world.sink.borrow().times(row);
                if times != 1 {
                    return Err(format!("every record is visible exactly once: {row:?} is {times} times"));
                }
            }
            Ok(())
        }
    }
}
