//! A job under an engine: attempts, checkpoints, notifications. The engine itself never fails; what it starts does.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use ratified_protocol::{ClientName, Code, TxnId};

use super::worker::{self, Failure};
use crate::{
    kernel::{ProcId, TaskId},
    oracle::TxnKey,
    probes::Probe,
    sink::Row,
    world::World,
};

/// Partitions of a job's source.
pub const PARTITIONS: u64 = 2;
/// Checkpoints an engine keeps.
const RETAINED: usize = 3;

/// A prepared transaction, as a snapshot lists it; each is valid alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Whose: the slot is carried, never derived again.
    pub client: ClientName,
    /// Which one.
    pub txn_id: TxnId,
    /// The checkpoint it was prepared for.
    pub checkpoint: u64,
}

/// A completed checkpoint.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Its number.
    pub id: u64,
    /// Where each partition stood.
    pub positions: BTreeMap<u64, u64>,
    /// What was not finished.
    pub elements: Vec<Element>,
}

/// What the engine tells a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Take part in a checkpoint.
    Barrier(u64),
    /// A checkpoint has completed.
    Completed(u64),
    /// A checkpoint has failed.
    Aborted(u64),
    /// Stop.
    Close,
}

/// What a worker tells the engine.
#[derive(Debug, Clone)]
pub enum Report {
    /// It is open.
    Opened,
    /// Its part of a checkpoint.
    Snapshot(u64, BTreeMap<u64, u64>, Vec<Element>),
    /// It has stopped.
    Failed(Failure),
    /// It has closed.
    Closed,
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// It runs.
    Running,
    /// Everything is committed.
    Done,
    /// It has stopped, loudly.
    Halted(String),
}

/// How the engine reaches a worker.
#[derive(Debug, Clone)]
pub struct Link {
    /// Its process.
    pub proc: ProcId,
    /// Its main task.
    pub task: TaskId,
    /// What it was told.
    pub inbox: Rc<RefCell<VecDeque<Command>>>,
}

/// A job.
#[derive(Debug)]
pub struct Job {
    /// Its number.
    pub number: u64,
    /// The name of its sink.
    pub sink: String,
    /// What the engine knows.
    pub state: RefCell<State>,
}

/// What the engine knows.
#[derive(Debug)]
pub struct State {
    /// Where it stands.
    pub status: Status,
    /// Completed checkpoints, oldest first.
    pub retained: Vec<Checkpoint>,
    /// The attempt that counts.
    pub attempt: u64,
    /// Workers of that attempt.
    pub links: Vec<Link>,
    /// Workers of earlier ones that may live on.
    pub zombies: Vec<ProcId>,
    /// Whether any attempt lived on after it was given up.
    pub had_zombies: bool,
    /// Whether it was ever restored from anything but the newest checkpoint.
    pub rewound: bool,
    reports: VecDeque<(u64, u64, Report)>,
    next_checkpoint: u64,
    parallelism: u64,
    has_completed: bool,
    accept_prepared: bool,
    master: Option<TaskId>,
}

impl Job {
    /// A job that has not started.
    pub fn new(number: u64) -> Rc<Self> {
        let state = State {
            status: Status::Running,
            retained: Vec::new(),
            attempt: 0,
            links: Vec::new(),
            zombies: Vec::new(),
            had_zombies: false,
            rewound: false,
            reports: VecDeque::new(),
            next_checkpoint: 1,
            parallelism: 0,
            has_completed: false,
            accept_prepared: false,
            master: None,
        };
        Rc::new(Self { number, sink: format!("j{number}"), state: RefCell::new(state) })
    }

    /// A worker reports.
    pub fn report(&self, world: &World, attempt: u64, index: u64, report: Report) {
        let mut state = self.state.borrow_mut();
        state.reports.push_back((attempt, index, report));
        if let Some(master) = state.master {
            world.wake(master);
        }
    }

    /// Whether this attempt, restored from this checkpoint, is the one that counts.
    pub fn is_current(&self, attempt: u64, restored: Option<u64>) -> bool {
        let state = self.state.borrow();
        state.attempt == attempt && state.retained.last().map(|c| c.id) == restored
    }

    fn halt(&self, why: String) {
        self.state.borrow_mut().status = Status::Halted(why);
    }
}

/// Starts the engine of a job.
pub fn start(world: &Rc<World>, job: &Rc<Job>) {
    let proc = world.kernel.borrow_mut().process();
    let (w, j) = (world.clone(), job.clone());
    let task = world.spawn(proc, async move { run(&w, &j).await });
    job.state.borrow_mut().master = Some(task);
}

/// How an attempt ended.
enum End {
    Done,
    Failed(Option<Failure>),
}

async fn run(world: &Rc<World>, job: &Rc<Job>) {
    let mut older = false;
    loop {
        let restored = choose(world, job, older);
        let newest = job.state.borrow().retained.last().map(|c| c.id);
        let is_rewind = restored.as_ref().map(|c| c.id) != newest;
        job.state.borrow_mut().rewound |= is_rewind;
        launch(world, job, restored.as_ref());
        let process_faults = u64::from(world.mix.process_faults);
        if world.strikes(60 * process_faults) {
            // Two starts at once: the first one lives on.
            abandon(world, job, true);
            world.hit(Probe::ZombieAttempt);
            continue;
        }
        let end = attempt(world, job, is_rewind.then(|| restored.as_ref().map(|c| c.id))).await;
        match end {
            End::Done => {
                job.state.borrow_mut().status = Status::Done;
                abandon(world, job, false);
                return;
            }
            End::Failed(failure) => {
                older = is_rewind && !matches!(failure, Some(Failure::RewindRefused { .. }));
                accept_prepared(job, failure.as_ref());
                let zombie = world.strikes(300 * process_faults);
                world.probes.borrow_mut().add(Probe::ZombieAttempt, u64::from(zombie));
                abandon(world, job, zombie);
                if let Some(why) = failure.and_then(|f| judge(world, job, &f, is_rewind)) {
                    world.note(|| format!("job {} halts: {why}", job.sink));
                    world.hit(Probe::LoudFailure);
                    job.halt(why);
                    return;
                }
            }
        }
        world.hit(Probe::JobRestarted);
        let pause = world.draw(|rng| rng.between(1, 40));
        world.sleep(pause).await;
    }
}

/// A job that failed in its first checkpoint is refused, since the SDK cannot know that there never was a checkpoint;
/// its operator can, and says so.
fn accept_prepared(job: &Job, failure: Option<&Failure>) {
    let mut state = job.state.borrow_mut();
    let prepared = matches!(failure, Some(Failure::RewindRefused { committed: false }));
    state.accept_prepared = prepared && !state.has_completed;
}

/// The checkpoint to restore: the newest, or by an operator's order an older one, or none.
fn choose(world: &World, job: &Job, older: bool) -> Option<Checkpoint> {
    let state = job.state.borrow();
    let newest = state.retained.last().cloned();
    if older || (world.mix.rewinds && world.strikes(150)) {
        let among = state.retained.len() as u64 + 1;
        let index = world.draw(|rng| rng.below(among)) as usize;
        return state.retained.get(index).cloned();
    }
    newest
}

fn launch(world: &Rc<World>, job: &Rc<Job>, restored: Option<&Checkpoint>) {
    let parallelism = world.draw(|rng| rng.between(1, 3));
    let (attempt, first_start, accept_prepared) = {
        let mut state = job.state.borrow_mut();
        state.attempt += 1;
        state.reports.clear();
        if state.parallelism != 0 && state.parallelism != parallelism {
            world.hit(Probe::JobRescaled);
        }
        state.parallelism = parallelism;
        (state.attempt, !state.has_completed, state.accept_prepared)
    };
    let mut elements: Vec<Vec<Element>> = vec![Vec::new(); parallelism as usize];
    for element in restored.into_iter().flat_map(|c| &c.elements) {
        // An engine may give a handle to any worker.
        let index = world.draw(|rng| rng.below(parallelism)) as usize;
        elements[index].push(element.clone());
    }
    let mut links = Vec::new();
    for (index, elements) in (0..parallelism).zip(elements) {
        let positions = (0..PARTITIONS)
            .filter(|p| p % parallelism == index)
            .map(|p| (p, restored.and_then(|c| c.positions.get(&p)).copied().unwrap_or_default()));
        let start = worker::Start {
            attempt,
            index,
            parallelism,
            restored: restored.map(|c| c.id),
            first_start,
            accept_prepared,
            elements,
            positions: positions.collect(),
        };
        links.push(worker::spawn(world, job, start));
    }
    job.state.borrow_mut().links = links;
}

/// Leaves an attempt: its workers are killed, told to close, or live on as zombies.
fn abandon(world: &World, job: &Job, as_zombies: bool) {
    let links = std::mem::take(&mut job.state.borrow_mut().links);
    job.state.borrow_mut().had_zombies |= as_zombies;
    for link in links {
        let closes = world.strikes(500);
        if as_zombies || closes {
            job.state.borrow_mut().zombies.push(link.proc);
        } else {
            world.kill(link.proc);
        }
        if closes && !as_zombies {
            link.inbox.borrow_mut().push_back(Command::Close);
            world.wake(link.task);
        }
    }
}

/// Why a failure is the end of the job; `None` if another attempt may help. A job may only halt for a reason.
fn judge(world: &World, job: &Job, failure: &Failure, is_rewind: bool) -> Option<String> {
    let rewound = job.state.borrow().rewound;
    let oracle = world.oracle.borrow();
    let meddled = |key: &TxnKey| oracle.was_meddled(key) || rewound;
    let (why, legitimate) = match failure {
        Failure::RewindRefused { committed } if is_rewind || !committed => return None,
        Failure::RewindRefused { .. } => {
            ("the newest checkpoint is older than a commit".to_owned(), { rewound || oracle.any_meddled(&job.sink) })
        }
        Failure::Outcome(Code::OutcomeAborted, key) => {
            (format!("{key:?} was aborted"), { meddled(key) || world.mix.prepared_timeouts })
        }
        Failure::Outcome(code, key) => (format!("{key:?} is {code}"), oracle.was_evicted(key)),
        Failure::ClientNotFound(name) => (format!("{name} is unknown"), oracle.any_forgotten(&job.sink)),
        Failure::LostBySink(key) => (format!("{key:?} is lost by the sink"), false),
        Failure::Fenced | Failure::Ended | Failure::Unavailable | Failure::Sink => return None,
    };
    drop(oracle);
    if !legitimate {
        world.fail(|| format!("a job halts only for a reason: {} {why}", job.sink));
    }
    Some(why)
}

/// A checkpoint on its way.
struct Pending {
    id: u64,
    parts: BTreeMap<u64, (BTreeMap<u64, u64>, Vec<Element>)>,
    until: u64,
}

async fn attempt(world: &Rc<World>, job: &Rc<Job>, rewind_to: Option<Option<u64>>) -> End {
    let attempt = job.state.borrow().attempt;
    let workers = job.state.borrow().links.len();
    let interval = world.draw(|rng| rng.between(15, 70));
    let mut opened = 0;
    let mut closing = 0;
    let mut pending: Option<Pending> = None;
    let mut next_at = world.now() + interval;
    let give_up = world.now() + 3000;
    loop {
        while let Some((of, index, report)) = pop(job) {
            if of != attempt {
                continue;
            }
            match report {
                Report::Opened => opened += 1,
                Report::Closed => closing += 1,
                Report::Failed(failure) => return End::Failed(Some(failure)),
                Report::Snapshot(id, positions, elements) => {
                    if let Some(p) = pending.as_mut().filter(|p| p.id == id) {
                        p.parts.insert(index, (positions, elements));
                    }
                }
            }
            if opened == workers {
                // The history beyond a restored checkpoint is given up only now.
                if let Some(to) = rewind_to {
                    forget_beyond(world, job, to);
                }
            }
        }
        if closing == workers {
            return End::Done;
        }
        let dead = job.state.borrow().links.iter().any(|link| !world.kernel.borrow().is_alive(link.proc));
        if dead || (opened < workers && world.now() > give_up) || world.strikes(world.mix.restarts) {
            return End::Failed(None);
        }
        if pending.as_ref().is_some_and(|p| p.parts.len() == workers) {
            if let Some(p) = pending.take() {
                complete(world, job, p);
            }
            next_at = world.now() + interval;
        } else if pending.as_ref().is_some_and(|p| world.now() >= p.until) {
            let id = pending.take().map_or(0, |p| p.id);
            notify(world, job, Command::Aborted(id));
            next_at = world.now() + interval;
        } else if pending.is_none() && opened == workers && closing == 0 && world.now() >= next_at {
            pending = Some(trigger(world, job));
        }
        let wake_at = pending.as_ref().map_or(next_at.max(world.now() + 1), |p| p.until);
        world.park(wake_at.min(world.now() + 100)).await;
    }
}

fn pop(job: &Job) -> Option<(u64, u64, Report)> {
    job.state.borrow_mut().reports.pop_front()
}

fn forget_beyond(world: &World, job: &Job, restored: Option<u64>) {
    let mut state = job.state.borrow_mut();
    let before = state.retained.len();
    state.retained.retain(|c| Some(c.id) <= restored);
    if state.retained.len() < before {
        world.hit(Probe::RewindAccepted);
    }
}

fn trigger(world: &Rc<World>, job: &Rc<Job>) -> Pending {
    let id = {
        let mut state = job.state.borrow_mut();
        state.next_checkpoint += 1;
        state.next_checkpoint - 1
    };
    notify(world, job, Command::Barrier(id));
    Pending { id, parts: BTreeMap::new(), until: world.now() + 500 }
}

fn complete(world: &Rc<World>, job: &Rc<Job>, pending: Pending) {
    let mut checkpoint = Checkpoint { id: pending.id, positions: BTreeMap::new(), elements: Vec::new() };
    for (positions, elements) in pending.parts.into_values() {
        checkpoint.positions.extend(positions);
        checkpoint.elements.extend(elements);
    }
    let id = checkpoint.id;
    let at_end = checkpoint.positions.values().all(|p| *p == world.mix.records);
    let finished = at_end && checkpoint.elements.is_empty();
    world.note(|| format!("job {} checkpoint {id} complete: {checkpoint:?}", job.sink));
    let mut state = job.state.borrow_mut();
    state.retained.push(checkpoint);
    let surplus = state.retained.len().saturating_sub(RETAINED);
    state.retained.drain(..surplus);
    state.has_completed = true;
    drop(state);
    notify(world, job, Command::Completed(id));
    if finished {
        notify(world, job, Command::Close);
    }
}

/// Tells the workers of the attempt; notifications get lost, come late, twice and out of order, barriers and the
/// order to stop do not.
fn notify(world: &Rc<World>, job: &Rc<Job>, command: Command) {
    let links = job.state.borrow().links.clone();
    let reliable = matches!(command, Command::Barrier(_) | Command::Close);
    for link in links {
        if !reliable && world.strikes(world.mix.loss) {
            continue;
        }
        let copies = if !reliable && world.strikes(world.mix.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            let late = !reliable && world.strikes(100);
            let delay = if late { world.draw(|rng| rng.between(20, 300)) } else { 0 };
            let (w, to) = (world.clone(), link.clone());
            world.spawn(link.proc, async move {
                w.sleep(delay).await;
                to.inbox.borrow_mut().push_back(command);
                w.wake(to.task);
            });
        }
    }
}

/// Every left-over of a larger past has one owner: a job that is done leaves nothing that its sink has not applied.
///
/// # Errors
/// What it left.
pub fn left_overs(world: &World, job: &Job) -> Result<(), String> {
    let state = job.state.borrow();
    if state.status != Status::Done || state.had_zombies {
        return Ok(());
    }
    match world.oracle.borrow().unapplied(&job.sink) {
        Some((client, id)) => Err(format!("every left-over has an owner: {client}/{id}")),
        None => Ok(()),
    }
}

/// End to end: every source record of a finished job is visible exactly once.
///
/// # Errors
/// The job is not finished although it had the time, or a record is missing.
pub fn finale(world: &World, job: &Job) -> Result<(), String> {
    match &job.state.borrow().status {
        Status::Running => Err(format!("job {} is not finished", job.sink)),
        Status::Halted(_) => Ok(()),
        Status::Done => {
            for partition in 0..PARTITIONS {
                for index in 0..world.mix.records {
                    let row = Row { job: job.number, partition, index };
                    let times = world.sink.borrow().times(row);
                    if times != 1 {
                        return Err(format!("every record is visible exactly once: {row:?} is {times} times"));
                    }
                }
            }
            Ok(())
        }
    }
}
