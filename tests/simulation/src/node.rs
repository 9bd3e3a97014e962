//! The coordinator as a process: the real pipeline, load and timetable, on a disk and a clock that the world breaks.
//!
//! Between any two of its actions lies a crash point. What a thread of its own does in production (the sync) is an
//! event here, so that stepping goes on meanwhile, as it does there.

mod starts;

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

use ratified_coordinator::{
    Clock,
    store::{Claim, Store, codec::Meta},
    writer::{Pipeline, Release, Sweeps},
};
use ratified_core::{Answer, Input, Now, Request, Ticket, Uptime};
use ratified_protocol::{Code, Problem, WallTime};
use uuid::Uuid;

use crate::{
    fault::Fault,
    kernel::{Envelope, Event, Reply, Token},
    oracle::{Asked, Marks},
    probes::Probe,
    world::World,
};

/// The cluster id of every simulated store.
const CLUSTER: Uuid = Uuid::from_u128(0x5eed);

/// What every request is taken to weigh.
const REQUEST_BYTES: usize = 40;

/// A clock that the world moves.
#[derive(Debug, Default)]
pub struct SimClock {
    monotonic: AtomicU64,
    offset: AtomicU64,
    wall: AtomicU64,
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        let uptime = self.monotonic.load(Ordering::Relaxed) + self.offset.load(Ordering::Relaxed);
        let wall = WallTime::from_unix_millis(self.wall.load(Ordering::Relaxed));
        Now { uptime: Uptime::from_millis(uptime), wall }
    }

    fn resume(&self, from: Uptime) {
        self.offset.fetch_add(from.as_millis(), Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Arrival {
    now: Now,
    envelope: Envelope,
}

/// A coordinator that serves.
#[derive(Debug)]
pub struct Up {
    /// The rules of group commit, and the engine behind them.
    pub pipeline: Pipeline,
    sweeps: Sweeps,
    clock: SimClock,
    started_at: u64,
    /// How far this process's monotonic clock has run ahead of the others'.
    skew: u64,
    claim: Claim,
    inbox: VecDeque<Arrival>,
    asked: BTreeMap<Ticket, (Token, Asked)>,
    syncing: Option<u64>,
    staged: Marks,
    in_flight: Marks,
}

/// The coordinator's host.
#[derive(Debug, Default)]
pub struct Node {
    /// The process, while there is one.
    pub up: Option<Up>,
    number: u64,
    turn_at: Option<u64>,
    next_ticket: u64,
    wall_skew: i64,
}

/// Why a coordinator ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Down {
    /// The machine lost power.
    Crash,
    /// The store failed: everybody is told what is known, then the process exits.
    Storage,
}

impl Up {
    /// A request that has waited this long, although no wait is that long.
    pub fn forgotten_request(&self, millis: u64) -> Option<&Request> {
        let overdue = |asked: &&Asked| self.uptime().millis_since(asked.now.uptime) > millis;
        self.asked.values().map(|(_, asked)| asked).find(overdue).map(|asked| &asked.request)
    }

    /// The coordinator's own time.
    pub fn uptime(&self) -> Uptime {
        self.clock.now().uptime
    }
}

impl World {
    fn set_clock(&self, up: &Up, wall_skew: i64) {
        let elapsed = self.now() - up.started_at + up.skew;
        up.clock.monotonic.store(elapsed, Ordering::Relaxed);
        let wall = (1_700_000_000_000 + self.now() as i64 + wall_skew).max(0) as u64;
        up.clock.wall.store(wall, Ordering::Relaxed);
    }

    /// Runs the process for one action, and buries it if that ends it.
    fn with_node(self: &Rc<Self>, act: impl FnOnce(&mut Up) -> Result<(), Down>) {
        let mut node = self.node.borrow_mut();
        let Some(mut up) = node.up.take() else { return };
        self.set_clock(&up, node.wall_skew);
        drop(node);
        match act(&mut up) {
            Ok(()) => {
                self.plan_turn(&up);
                self.node.borrow_mut().up = Some(up);
            }
            Err(Down::Crash) => self.bury(&up),
            Err(Down::Storage) => {
                self.tell_failure(&mut up);
                self.bury(&up);
            }
        }
    }

    fn plan_turn(&self, up: &Up) {
        let has_room = up.pipeline.room_left().requests > 0;
        let wait = if has_room && !up.inbox.is_empty() {
            self.draw(|rng| rng.between(0, self.mix.gather_ms))
        } else if has_room {
            let wake_at = up.sweeps.wake_at(up.pipeline.engine().next_deadline());
            wake_at.millis_since(up.uptime()).max(1)
        } else {
            return;
        };
        let mut node = self.node.borrow_mut();
        let at = self.now() + wait;
        if node.turn_at.is_none_or(|planned| at < planned || planned < self.now()) {
            node.number += 1;
            node.turn_at = Some(at);
            let number = node.number;
            self.kernel.borrow_mut().at(at, Event::Turn(number));
        }
    }

    fn crash_point(&self) -> Result<(), Down> {
        if self.strikes(self.mix.crash) { Err(Down::Crash) } else { Ok(()) }
    }

    /// A request reaches the coordinator's host.
    pub fn arrive(self: &Rc<Self>, envelope: Envelope) {
        if self.node.borrow().up.is_none() {
            if self.draw(crate::rng::Rng::coin) {
                self.refuse(envelope.token, Code::CoordinatorLoading);
            }
            return;
        }
        self.with_node(|up| {
            up.inbox.push_back(Arrival { now: up.clock.now(), envelope });
            Ok(())
        });
    }

    fn refuse(&self, token: Token, code: Code) {
        let answer = Answer::Problem(Box::new(Problem::new(code, "")));
        self.send_back(token, &Reply { loads: 0, answer });
    }

    /// The writer takes a turn.
    pub fn node_turn(self: &Rc<Self>, number: u64) {
        if self.node.borrow().number != number {
            return;
        }
        self.node.borrow_mut().turn_at = None;
        self.with_node(|up| {
            self.crash_point()?;
            self.sweep(up)?;
            self.step_arrivals(up)?;
            self.release(up)?;
            self.hand_over(up, &[])
        });
    }

    fn sweep(&self, up: &mut Up) -> Result<(), Down> {
        if up.pipeline.room_left().requests == 0 {
            return Ok(());
        }
        let now = up.inbox.front().map_or_else(|| up.clock.now(), |oldest| oldest.now);
        let deadline = up.pipeline.engine().next_deadline();
        for sweep in up.sweeps.take_due(now.uptime, deadline) {
            if now.uptime < up.uptime() {
                self.hit(Probe::SweepJudgedAtArrival);
            }
            self.step(up, now, Input::Sweep(sweep))?;
        }
        Ok(())
    }

    fn step_arrivals(&self, up: &mut Up) -> Result<(), Down> {
        while !up.inbox.is_empty() {
            if up.pipeline.room_left().requests == 0 {
                self.hit(Probe::BatchFull);
                break;
            }
            let Some(Arrival { now, envelope }) = up.inbox.pop_front() else { break };
            let ticket = {
                let mut node = self.node.borrow_mut();
                node.next_ticket += 1;
                Ticket(node.next_ticket)
            };
            let Envelope { token, request } = envelope;
            up.asked.insert(ticket, (token, Asked { request: request.clone(), now, changed: false }));
            self.step(up, now, Input::Request { ticket, request })?;
        }
        Ok(())
    }

    fn step(&self, up: &mut Up, now: Now, input: Input) -> Result<(), Down> {
        self.crash_point()?;
        if up.pipeline.is_in_flight() {
            self.hit(Probe::SteppedWhileSyncing);
        }
        if self.oracle.borrow().outran_deadline(now.uptime, up.uptime(), &input) {
            self.hit(Probe::ArrivedBeforeDeadline);
        }
        let before = up.pipeline.engine().revision();
        let stats = *up.pipeline.engine().stats();
        self.note(|| format!("step at {} {}", now.uptime.as_millis(), brief(&input)));
        if up.pipeline.step(now, input.clone(), REQUEST_BYTES).is_err() {
            self.fail(|| "a record could not be written down".to_owned());
        }
        let engine = up.pipeline.engine();
        self.stamp(engine.revision().0);
        if engine.revision() != before {
            if let Input::Request { ticket, .. } = &input
                && let Some((_, asked)) = up.asked.get_mut(ticket)
            {
                asked.changed = true;
            }
            self.check(ratified_core::check_all(engine));
        }
        let mut probes = self.probes.borrow_mut();
        let stepped = self.oracle.borrow_mut().stepped(now, &input, engine, &mut probes);
        crate::paths::of_step(&mut probes, &stats, engine.stats());
        drop(probes);
        match stepped {
            Ok(marks) => up.staged.add(marks),
            Err(what) => self.fail(|| what),
        }
        for sweep in up.pipeline.take_again() {
            up.sweeps.again(sweep);
        }
        Ok(())
    }

    /// Closes the batch and writes it; the sync ends later.
    fn hand_over(&self, up: &mut Up, meta: &[Meta]) -> Result<(), Down> {
        if up.staged.steps > 0 {
            self.crash_point()?;
        }
        let Ok(batch) = up.pipeline.seal_with(meta) else {
            self.fail(|| "a batch could not be written down".to_owned());
            return Ok(());
        };
        let Some(batch) = batch else { return Ok(()) };
        self.note(|| format!("batch {} with {} changes", batch.number, batch.changes.len()));
        let verdict = self.oracle.borrow_mut().sealed(&batch, up.pipeline.engine());
        self.check(verdict);
        up.in_flight = std::mem::take(&mut up.staged);
        self.probes.borrow_mut().add(Probe::BatchShared, u64::from(up.in_flight.steps > 1));
        self.probes.borrow_mut().add(Probe::FlushCoalesced, u64::from(up.in_flight.most_flushed() > 1));
        self.probes.borrow_mut().add(Probe::RoundRewritten, u64::from(batch.rewritten_since.is_some()));
        self.crash_point()?;
        self.plan_storage_error();
        if self.disk.clone().write(up.claim, batch).is_err() {
            self.hit(Probe::C18WriteFailed);
            return Err(Down::Storage);
        }
        self.crash_point()?;
        if self.mix.faults.has(Fault::ReleasedBeforeSync) {
            up.pipeline.synced();
        }
        let number = self.kernel.borrow_mut().unique();
        up.syncing = Some(number);
        let sync_ms = self.draw(|rng| rng.between(1, self.mix.sync_ms));
        self.kernel.borrow_mut().after(sync_ms, Event::SyncEnded(number));
        Ok(())
    }

    fn plan_storage_error(&self) {
        if self.strikes(self.mix.storage_error) {
            let (skip, failing) = self.draw(|rng| (rng.below(2), rng.between(1, 3)));
            let mut platter = self.disk.platter();
            platter.failing_after = skip;
            platter.failing = failing;
        }
    }

    /// The sync ends.
    pub fn sync_ended(self: &Rc<Self>, number: u64) {
        self.with_node(|up| {
            if up.syncing != Some(number) {
                return Ok(());
            }
            self.finish_sync(up)?;
            self.release(up)?;
            self.hand_over(up, &[])
        });
    }

    fn finish_sync(&self, up: &mut Up) -> Result<(), Down> {
        up.syncing = None;
        if self.disk.clone().sync().is_err() && !self.mix.faults.has(Fault::FailedSyncIgnored) {
            self.hit(Probe::C18SyncFailed);
            return Err(Down::Storage);
        }
        self.oracle.borrow_mut().synced();
        if self.strikes(self.mix.crash) {
            self.probes.borrow_mut().add(Probe::C02SyncedNotNoted, up.in_flight.decisions);
            up.in_flight = Marks::default();
            return Err(Down::Crash);
        }
        up.in_flight = Marks::default();
        up.pipeline.synced();
        Ok(())
    }

    /// Lets go what may be told.
    fn release(&self, up: &mut Up) -> Result<(), Down> {
        let released = up.pipeline.take_released();
        let mut told = 0;
        for one in released {
            let Release::Reply(ticket, answer) = one else { continue };
            let Some((token, asked)) = up.asked.remove(&ticket) else {
                self.fail(|| format!("{ticket:?} was answered twice"));
                continue;
            };
            if told > 0 && self.strikes(self.mix.crash) {
                self.hit(Probe::C13RepliesLost);
                return Err(Down::Crash);
            }
            told += 1;
            if up.pipeline.is_in_flight() {
                self.hit(Probe::AnsweredWhileSyncing);
            }
            self.note(|| format!("tell {ticket:?} {}", brief_answer(&answer)));
            let mut probes = self.probes.borrow_mut();
            let verdict = self.oracle.borrow_mut().told(&asked, &answer, &mut probes);
            drop(probes);
            self.check(verdict);
            self.stamp(ticket.0);
            self.send_back(token, &Reply { loads: up.claim.loads, answer });
        }
        Ok(())
    }

    fn tell_failure(&self, up: &mut Up) {
        let closed = up.pipeline.fail();
        for (ticket, code) in closed {
            let Some((token, asked)) = up.asked.remove(&ticket) else { continue };
            if code == Code::TransactionPreserverClosed {
                self.hit(Probe::PreserverClosedTold);
                let verdict = self.oracle.borrow().preserver_closed(&asked);
                self.check(verdict);
            }
            self.refuse(token, code);
        }
        for arrival in std::mem::take(&mut up.inbox) {
            self.refuse(arrival.envelope.token, Code::StorageUnavailable);
        }
    }
}

fn brief(input: &Input) -> String {
    match input {
        Input::Sweep(sweep) => format!("{sweep:?}"),
        Input::Request { ticket, request } => match request {
            Request::Txn { client, txn_id, call, .. } => format!("{ticket:?} {client} {txn_id} {call:?}"),
            request => format!("{ticket:?} {request:?}"),
        },
    }
}

fn brief_answer(answer: &Answer) -> String {
    match answer {
        Answer::Txn(success, txn) => {
            format!("{success:?} {} {} replayed {} {:?}", txn.txn_id, txn.state, txn.replayed, txn.end_reason)
        }
        Answer::Problem(problem) => format!("{} {}", problem.code, problem.detail),
        answer => format!("{answer:?}"),
    }
}
