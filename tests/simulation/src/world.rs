//! Everything in one run, and how it goes on from event to event.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use ratified_core::Request;

use crate::{
    actors::chaos::Cast,
    disk::Disk,
    kernel::{Envelope, Event, Kernel, ProcId, Reply, Token},
    mix::Mix,
    node::Node,
    oracle::Oracle,
    probes::{Probe, Probes},
    rng::Rng,
    sink::Sink,
};

/// One run.
#[derive(Debug)]
pub struct World {
    /// What the seed drew.
    pub mix: Mix,
    /// Time and tasks.
    pub kernel: RefCell<Kernel>,
    /// The coordinator.
    pub node: RefCell<Node>,
    /// Its disk.
    pub disk: Disk,
    /// What is known to be true.
    pub oracle: RefCell<Oracle>,
    /// The resource the jobs write to.
    pub sink: RefCell<Sink>,
    /// Paths taken.
    pub probes: RefCell<Probes>,
    /// Processes that chaos may kill or freeze, with what to do when one dies.
    pub mortals: RefCell<BTreeMap<ProcId, ()>>,
    /// Everybody in the run.
    pub cast: RefCell<Cast>,
    /// The greatest start of the store that anybody has seen.
    pub greatest_load: Cell<u64>,
    /// Whether faults have stopped.
    pub healed: Cell<bool>,
    violation: RefCell<Option<String>>,
    hash: Cell<u64>,
    verbose: bool,
}

impl World {
    /// An empty world with this mix.
    pub fn new(mix: Mix, rng: Rng, verbose: bool) -> Rc<Self> {
        let disk = Disk::new(mix.faults);
        Rc::new(Self {
            kernel: RefCell::new(Kernel::new(rng)),
            node: RefCell::new(Node::default()),
            oracle: RefCell::new(Oracle::new(mix.limits)),
            sink: RefCell::default(),
            probes: RefCell::default(),
            mortals: RefCell::default(),
            cast: RefCell::default(),
            greatest_load: Cell::new(0),
            healed: Cell::new(false),
            violation: RefCell::default(),
            hash: Cell::new(0xcbf2_9ce4_8422_2325),
            disk,
            mix,
            verbose,
        })
    }

    /// Milliseconds since the run began.
    pub fn now(&self) -> u64 {
        self.kernel.borrow().now()
    }

    /// Asks chance.
    pub fn draw<R>(&self, ask: impl FnOnce(&mut Rng) -> R) -> R {
        ask(&mut self.kernel.borrow_mut().rng)
    }

    /// Whether a fault of this chance strikes now; none does after the healing.
    pub fn strikes(&self, permille: u64) -> bool {
        !self.healed.get() && self.draw(|rng| rng.permille(permille))
    }

    /// A rare path was taken.
    pub fn hit(&self, probe: Probe) {
        self.probes.borrow_mut().hit(probe);
    }

    /// A line of the trace, when somebody reads it.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>7} {}", self.now(), line());
        }
    }

    /// Takes part in the hash of the trace.
    pub fn stamp(&self, value: u64) {
        let mixed = (self.hash.get() ^ value).wrapping_mul(0x0100_0000_01b3);
        self.hash.set(mixed ^ (mixed >> 29));
    }

    /// The hash of the trace so far.
    pub fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// An invariant does not hold; the first one counts.
    pub fn fail(&self, what: impl FnOnce() -> String) {
        let mut violation = self.violation.borrow_mut();
        if violation.is_none() {
            let what = format!("at {} ms: {}", self.now(), what());
            self.note(|| format!("VIOLATION {what}"));
            *violation = Some(what);
        }
    }

    /// As [`World::fail`], for a check.
    pub fn check(&self, verdict: Result<(), String>) {
        if let Err(what) = verdict {
            self.fail(|| what);
        }
    }

    /// What does not hold, if anything.
    pub fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    /// Sends a request to the coordinator, as the network will have it.
    pub fn send(&self, token: Token, request: &Request) {
        for delay in self.deliveries() {
            let envelope = Envelope { token, request: request.clone() };
            self.kernel.borrow_mut().after(delay, Event::Arrive(envelope));
        }
    }

    /// Sends an answer to a caller, as the network will have it.
    pub fn send_back(&self, token: Token, reply: &Reply) {
        for delay in self.deliveries() {
            self.kernel.borrow_mut().after(delay, Event::Reply(token, reply.clone()));
        }
    }

    /// The delays after which copies of a message arrive.
    fn deliveries(&self) -> impl Iterator<Item = u64> {
        let mut delays = [None; 2];
        if self.healed.get() {
            delays[0] = Some(1);
        } else if !self.strikes(self.mix.loss) {
            delays[0] = Some(self.delay());
            if self.strikes(self.mix.duplication) {
                delays[1] = Some(self.delay());
            }
        }
        delays.into_iter().flatten()
    }

    fn delay(&self) -> u64 {
        if self.strikes(self.mix.long_delay) {
            return self.draw(|rng| rng.between(300, 2000));
        }
        self.draw(|rng| rng.between(0, self.mix.delay_ms))
    }

    /// Carries out the next event. False when there is none.
    pub fn turn(self: &Rc<Self>) -> bool {
        let Some(event) = self.kernel.borrow_mut().pop() else { return false };
        self.stamp(self.now());
        match event {
            Event::Timer(task, number) => self.timer(task, number),
            Event::Wake(task) => self.poll(task),
            Event::Arrive(envelope) => self.arrive(envelope),
            Event::Reply(token, reply) => self.deliver(token, reply),
            Event::Turn(number) => self.node_turn(number),
            Event::SyncEnded(number) => self.sync_ended(number),
            Event::Start => self.start_node(),
            Event::Chaos => self.chaos(),
            Event::Heal => self.heal(),
        }
        true
    }
}

impl World {
    /// Whether everything has ended that can.
    pub fn has_converged(&self) -> bool {
        let stuck = self.mix.stuck_participant.then(|| crate::actors::participant("p1"));
        let node = self.node.borrow();
        let drained = node.up.as_ref().is_some_and(|up| up.forgotten_request(1000).is_none());
        drained && self.jobs_ended() && self.oracle.borrow().has_converged(stuck.as_ref())
    }
}
