//! Simulated time and simulated processes.
//!
//! A process is a set of tasks, a task is a future; whatever it waits for is an event in one queue. Killing a process
//! drops its futures where they stand, so that every `await` of a client is a crash point.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use ratified_core::{Answer, Request};

use crate::{rng::Rng, world::World};

/// A process: what is killed, frozen, or left behind as a zombie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcId(pub u64);

/// A task of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(u64);

/// One attempt of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// A request on its way.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// Who is to be answered.
    pub token: Token,
    /// What is asked.
    pub request: Request,
}

/// What reaches a caller.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The start of the store that answered, as in the `Ratified-Store` header.
    pub loads: u64,
    /// The answer.
    pub answer: Answer,
}

/// Something that happens at its time.
#[derive(Debug)]
pub enum Event {
    /// A task's own timer.
    Timer(TaskId, u64),
    /// A task is to look again.
    Wake(TaskId),
    /// A request reaches the coordinator.
    Arrive(Envelope),
    /// An answer reaches its caller.
    Reply(Token, Reply),
    /// The coordinator's writer takes a turn.
    Turn(u64),
    /// The coordinator's sync ends.
    SyncEnded(u64),
    /// The coordinator is started.
    Start,
    /// Chaos strikes.
    Chaos,
    /// Faults stop.
    Heal,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    task: TaskId,
    proc: ProcId,
    reply: Option<Reply>,
}

#[derive(Debug, Clone, Copy)]
struct Process {
    frozen_until: u64,
}

/// The queue of events and everything that waits for them.
pub struct Kernel {
    now: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Event>,
    next_id: u64,
    procs: BTreeMap<ProcId, Process>,
    tasks: BTreeMap<TaskId, (ProcId, u64, Option<Task>)>,
    slots: BTreeMap<Token, Slot>,
    current: Option<(TaskId, ProcId)>,
    /// Chance.
    pub rng: Rng,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("now", &self.now).field("queued", &self.queue.len()).finish_non_exhaustive()
    }
}

impl Kernel {
    /// An empty world's kernel.
    pub fn new(rng: Rng) -> Self {
        Self {
            now: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            next_id: 1,
            procs: BTreeMap::new(),
            tasks: BTreeMap::new(),
            slots: BTreeMap::new(),
            current: None,
            rng,
        }
    }

    /// Milliseconds since the run began.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Queues an event.
    pub fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((time.max(self.now), self.sequence), event);
    }

    /// Queues an event this much later.
    pub fn after(&mut self, millis: u64, event: Event) {
        self.at(self.now + millis, event);
    }

    /// Takes the next event, and moves time to it.
    pub fn pop(&mut self) -> Option<Event> {
        let ((time, _), event) = self.queue.pop_first()?;
        self.now = time;
        Some(event)
    }

    /// A number never given out before in this run.
    pub fn unique(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// A new process.
    pub fn process(&mut self) -> ProcId {
        let id = ProcId(self.unique());
        self.procs.insert(id, Process { frozen_until: 0 });
        id
    }

    /// Whether the process was not killed.
    pub fn is_alive(&self, proc: ProcId) -> bool {
        self.procs.contains_key(&proc)
    }

    /// Ends a process where it stands.
    pub fn kill(&mut self, proc: ProcId) -> Vec<Task> {
        self.procs.remove(&proc);
        self.slots.retain(|_, slot| slot.proc != proc);
        let ids: Vec<_> = self.tasks.iter().filter(|(_, (p, ..))| *p == proc).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.tasks.remove(&id)?.2).collect()
    }

    /// Stops a process for a while (SIGSTOP); what would reach it waits.
    pub fn freeze(&mut self, proc: ProcId, millis: u64) {
        let until = self.now + millis;
        if let Some(process) = self.procs.get_mut(&proc) {
            process.frozen_until = process.frozen_until.max(until);
        }
    }

    fn frozen_until(&self, proc: ProcId) -> Option<u64> {
        self.procs.get(&proc).map(|p| p.frozen_until).filter(|until| *until > self.now)
    }
}

impl World {
    /// Starts a task in a process.
    pub fn spawn(self: &Rc<Self>, proc: ProcId, task: impl Future<Output = ()> + 'static) -> TaskId {
        let mut kernel = self.kernel.borrow_mut();
        let id = TaskId(kernel.unique());
        kernel.tasks.insert(id, (proc, 0, Some(Box::pin(task))));
        kernel.after(0, Event::Wake(id));
        id
    }

    /// The process of the task that runs now.
    ///
    /// # Panics
    /// No task runs.
    pub fn current_proc(&self) -> ProcId {
        self.kernel.borrow().current.unwrap().1
    }

    /// The task that runs now.
    ///
    /// # Panics
    /// No task runs.
    pub fn current_task(&self) -> TaskId {
        self.kernel.borrow().current.unwrap().0
    }

    /// Ends a process where it stands.
    pub fn kill(&self, proc: ProcId) {
        // Dropped outside the borrow: what a task holds may look at the world.
        let tasks = self.kernel.borrow_mut().kill(proc);
        drop(tasks);
    }

    /// Runs a task until it waits.
    pub fn poll(&self, id: TaskId) {
        let mut task = {
            let mut kernel = self.kernel.borrow_mut();
            let Some((proc, _, _)) = kernel.tasks.get(&id) else { return };
            let proc = *proc;
            if let Some(until) = kernel.frozen_until(proc) {
                kernel.at(until, Event::Wake(id));
                return;
            }
            let Some((_, timers, slot)) = kernel.tasks.get_mut(&id) else { return };
            *timers += 1;
            let Some(task) = slot.take() else { return };
            kernel.current = Some((id, proc));
            task
        };
        let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut kernel = self.kernel.borrow_mut();
        kernel.current = None;
        match polled {
            Poll::Pending => {
                if let Some((_, _, slot)) = kernel.tasks.get_mut(&id) {
                    *slot = Some(task);
                    return;
                }
            }
            Poll::Ready(()) => {
                kernel.tasks.remove(&id);
            }
        }
        drop(kernel);
        drop(task);
    }

    /// A task's timer has run out, unless the task was woken since it set it.
    pub fn timer(&self, id: TaskId, number: u64) {
        let is_current = self.kernel.borrow().tasks.get(&id).is_some_and(|(_, timers, _)| *timers == number);
        if is_current {
            self.poll(id);
        }
    }

    /// Waits until something wakes the task, at the latest until `deadline`. Callers look again what it was.
    pub fn park(self: &Rc<Self>, deadline: u64) -> Park {
        Park { world: self.clone(), deadline, armed: false }
    }

    /// Waits this long.
    pub async fn sleep(self: &Rc<Self>, millis: u64) {
        let until = self.now() + millis;
        while self.now() < until {
            self.park(until).await;
        }
    }

    /// Makes a task look again.
    pub fn wake(&self, task: TaskId) {
        self.kernel.borrow_mut().after(0, Event::Wake(task));
    }

    /// A place for the answer to a call of the task that runs now.
    pub fn expect_reply(&self) -> Token {
        let mut kernel = self.kernel.borrow_mut();
        let token = Token(kernel.unique());
        let (task, proc) = kernel.current.unwrap();
        kernel.slots.insert(token, Slot { task, proc, reply: None });
        token
    }

    /// The answer, if it has come.
    pub fn take_reply(&self, token: Token) -> Option<Reply> {
        let mut kernel = self.kernel.borrow_mut();
        let reply = kernel.slots.get_mut(&token)?.reply.take()?;
        kernel.slots.remove(&token);
        Some(reply)
    }

    /// Nobody waits for this answer any more.
    pub fn forget_reply(&self, token: Token) {
        self.kernel.borrow_mut().slots.remove(&token);
    }

    /// An answer has come.
    pub fn deliver(&self, token: Token, reply: Reply) {
        let mut kernel = self.kernel.borrow_mut();
        let Some(slot) = kernel.slots.get_mut(&token) else { return };
        slot.reply = Some(reply);
        let task = slot.task;
        drop(kernel);
        self.poll(task);
    }

    /// Drops every task, so that nothing refers to the world any more.
    pub fn clear(&self) {
        let tasks = std::mem::take(&mut self.kernel.borrow_mut().tasks);
        drop(tasks);
    }
}

/// See [`World::park`].
#[derive(Debug)]
pub struct Park {
    world: Rc<World>,
    deadline: u64,
    armed: bool,
}

impl Future for Park {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.armed {
            return Poll::Ready(());
        }
        self.armed = true;
        let mut kernel = self.world.kernel.borrow_mut();
        let Some((task, _)) = kernel.current else { return Poll::Ready(()) };
        let timer = kernel.tasks.get(&task).map_or(0, |(_, timers, _)| *timers);
        let deadline = self.deadline.max(kernel.now());
        kernel.at(deadline, Event::Timer(task, timer));
        Poll::Pending
    }
}
