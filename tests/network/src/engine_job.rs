//! A rescaling job on an engine. The engine itself is taken to be sound: it stores a completed checkpoint once, and only
//! its newest attempt's, and it starts no attempt while an older one may still be opening. What it tells the sinks may be
//! lost or late, and attempts it has given up may live on.
//!
//! The last condition is needed: whoever opens last owns the sink, and an overtaken attempt that opens late aborts what
//! is prepared for a checkpoint it has not heard of. [`Mistake::OpensOvertaken`] shows it.

use std::time::Duration;

use futures_util::future::join_all;
use ratified::{
    Barrier, CheckpointId, EngineSink, EngineSinkBuilder, RuntimeError, SinkName, Snapshot, SnapshotElement, Worker,
};

use crate::{
    chaos,
    mistake::Mistake,
    pending::PendingDisk,
    sink::SimSink,
    split_job::{is_never, owner, runtime_kind, timeout},
    world::{Host, RECORDS, World, client},
};

/// The name of the job in the sink.
pub const JOB: &str = "engine";
/// A place that no source has: what is written there must never be seen.
const STALE: u64 = 1_000_000;

/// What the engine remembers.
#[derive(Debug, Default)]
pub struct EngineState {
    attempt: u64,
    newest_checkpoint: u64,
    completed: Completed,
    opening: Option<Host>,
    /// Whether all records are in a completed checkpoint that is committed to the end.
    pub is_done: bool,
}

#[derive(Debug, Clone, Default)]
struct Completed {
    id: u64,
    offset: u64,
    elements: Vec<Vec<u8>>,
}

/// A host dies, and with it the attempt that may have been opening there.
pub fn crash(world: &World, host: Host) {
    let mut engine = world.engine();
    engine.opening = engine.opening.filter(|opening| *opening != host);
}

struct Attempt {
    world: World,
    number: u64,
    offset: u64,
    workers: Vec<EngineSink<SimSink>>,
}

/// Runs attempts whenever the job is placed on this host, until it is done.
pub async fn run(world: World, host: Host) {
    loop {
        let is_busy = world.engine().opening.is_some() && world.mistake != Mistake::OpensOvertaken;
        if world.placement(JOB) != host || world.engine().is_done || is_busy {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        let (number, from) = {
            let mut engine = world.engine();
            engine.attempt += 1;
            engine.opening = Some(host);
            (engine.attempt, engine.completed.clone())
        };
        world.note(format!("{host} attempt {number} from checkpoint {} at {}", from.id, from.offset));
        if let Err(error) = attempt(&world, host, number, from).await {
            world.note(format!("{host} attempt {number} fails: {}", runtime_kind(&error)));
            // An attempt that was overtaken may be told anything; the newest one must be able to go on.
            if is_never(&error) && world.engine().attempt == number {
                world.violate(format!("{host} attempt {number}: {error}"));
            }
        }
        world.linger(150).await;
    }
}

async fn attempt(world: &World, host: Host, number: u64, from: Completed) -> Result<(), RuntimeError> {
    world.count("engine attempts");
    let parallelism = 1 + world.roll(3) as u32;
    let mut dealt = vec![Vec::new(); parallelism as usize];
    for bytes in &from.elements {
        let element = SnapshotElement::from_bytes(bytes)?;
        dealt[world.roll(u64::from(parallelism)) as usize].push(element);
    }
    let opens = dealt.into_iter().zip(0..).map(|(elements, index)| {
        let snapshot = Snapshot::from_elements(elements);
        builder(world, host, from.id == 0, Worker::new(index, parallelism).expect("a worker")).open(
            name(),
            Some(CheckpointId::new(from.id)),
            [snapshot],
        )
    });
    let mut workers = Vec::new();
    let opened = join_all(opens).await;
    world.engine().opening = None;
    for opened in opened {
        workers.push(opened?);
    }
    let mut attempt = Attempt { world: world.clone(), number, offset: from.offset, workers };
    match attempt.work().await {
        Ok(()) => {
            for worker in attempt.workers {
                worker.close().await?;
            }
            Ok(())
        }
        Err(error) => {
            attempt.give_up();
            Err(error)
        }
    }
}

fn name() -> SinkName {
    JOB.parse().expect("a name")
}

fn builder(world: &World, host: Host, is_first: bool, worker: Worker) -> EngineSinkBuilder<SimSink> {
    EngineSinkBuilder::new(SimSink(world.clone()), client(world, host))
        .pending(PendingDisk { world: world.clone(), host })
        .owner(owner(host))
        .worker(worker)
        .transaction_timeout(timeout())
        .open_deadline(Duration::from_secs(3))
        .close_deadline(Duration::from_secs(1))
        .batch_records(2)
        .max_pending(2)
        .first_start(is_first)
        .on_point(chaos::kill_at_points(world, host))
}

impl Attempt {
    async fn work(&mut self) -> Result<(), RuntimeError> {
        while self.offset < RECORDS {
            for _ in 0..=self.world.roll(4).min(RECORDS - self.offset - 1) {
                let worker = self.world.roll(self.workers.len() as u64) as usize;
                self.workers[worker].write((JOB, self.offset)).await?;
                self.offset += 1;
            }
            self.world.linger(200).await;
            if !self.checkpoint(self.offset == RECORDS).await? {
                return Ok(());
            }
        }
        // Whatever was not told is told at the end; what an attempt before this one left was finished by `open`.
        let newest = self.world.engine().completed.id;
        for worker in &mut self.workers {
            worker.checkpoint_completed(CheckpointId::new(newest))?;
        }
        for worker in &self.workers {
            worker.flush_commits().await?;
        }
        let mut engine = self.world.engine();
        engine.is_done |= engine.attempt == self.number && engine.completed.offset == RECORDS;
        Ok(())
    }

    /// One checkpoint over all workers; `false`: this attempt was overtaken.
    async fn checkpoint(&mut self, is_last: bool) -> Result<bool, RuntimeError> {
        let number = {
            let mut engine = self.world.engine();
            engine.newest_checkpoint += 1;
            engine.newest_checkpoint
        };
        let id = CheckpointId::new(number);
        let is_savepoint = self.world.mischief(6);
        let barrier = if is_savepoint { Barrier::savepoint(id) } else { Barrier::checkpoint(id) };
        let drawn = join_all(self.workers.iter_mut().map(|worker| worker.pre_commit(barrier))).await;
        let mut elements = Vec::new();
        for snapshot in drawn {
            let snapshot = Snapshot::from_bytes(&snapshot?.to_bytes())?;
            elements.extend(snapshot.elements().iter().map(SnapshotElement::to_bytes));
        }
        if !is_last && self.world.mischief(5) {
            self.world.count("checkpoints declined");
            self.workers.iter_mut().try_for_each(|worker| worker.checkpoint_aborted(id))?;
            return Ok(true);
        }
        {
            let mut engine = self.world.engine();
            if engine.attempt != self.number {
                return Ok(false);
            }
            engine.completed = Completed { id: number, offset: self.offset, elements };
        }
        self.world.note(format!("checkpoint {number} completes at {}", self.offset));
        for worker in &mut self.workers {
            if is_savepoint || self.world.mischief(4) {
                self.world.count("notifications lost");
            } else {
                worker.checkpoint_completed(id)?;
            }
        }
        Ok(true)
    }

    /// The engine gives the attempt up; now and then its workers do not hear of it.
    fn give_up(&mut self) {
        if !self.world.mischief(2) {
            return;
        }
        for worker in std::mem::take(&mut self.workers) {
            self.world.count("zombie workers");
            tokio::spawn(live_on(self.world.clone(), worker));
        }
    }
}

async fn live_on(world: World, mut worker: EngineSink<SimSink>) {
    world.linger(1500).await;
    match world.roll(4) {
        0 => {
            let newest = CheckpointId::new(world.engine().completed.id);
            drop(worker.checkpoint_completed(newest));
            world.linger(1500).await;
        }
        1 => {
            drop(worker.write((JOB, STALE)).await);
            world.linger(500).await;
        }
        2 => {
            drop(worker.write((JOB, STALE)).await);
            drop(worker.pre_commit(Barrier::checkpoint(CheckpointId::new(STALE))).await);
        }
        _ => drop(worker.close().await),
    }
}
