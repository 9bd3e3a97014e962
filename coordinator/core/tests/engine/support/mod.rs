//! The test driver: an engine, its clock, and the disk behind it. After every step every invariant is checked, and
//! after every seal the engine's records are compared with what was written.

pub(crate) mod requests;
pub(crate) mod told;

use std::collections::{BTreeMap, VecDeque};

use ratified_core::{
    Answer, Effect, Engine, Input, Key, Limits, Now, Record, Recovery, RecoveryError, Request, Revision, Sweep, Ticket,
    Uptime, Write, check_all,
};
use ratified_protocol::WallTime;

pub(crate) use requests::*;
pub(crate) use told::{Told, replies, reply};

/// What a store holds.
pub(crate) type Disk = BTreeMap<Key, Record>;

/// One atomic batch on its way to the disk.
#[derive(Debug, Clone)]
struct Batch {
    writes: Vec<Write>,
    upto: Revision,
    uptime_ms: u64,
}

/// An engine with a disk that can lose what was not synced.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    pub(crate) engine: Engine,
    pub(crate) limits: Limits,
    pub(crate) loads: u64,
    pub(crate) now_ms: u64,
    /// What survives any crash.
    pub(crate) synced: Disk,
    synced_upto: Revision,
    synced_uptime_ms: u64,
    unsynced: VecDeque<Batch>,
    sealed_upto: Revision,
    held: Vec<(Ticket, Revision, Answer)>,
    /// In the order they left.
    released: Vec<(Ticket, Answer)>,
    next_ticket: u64,
}

impl Driver {
    pub(crate) fn new(limits: Limits) -> Self {
        let (engine, effects) = Recovery::new(limits, 1).finish(now(0)).unwrap();
        assert_eq!(effects, [], "an empty store needs no writes");
        Self {
            engine,
            limits,
            loads: 1,
            now_ms: 0,
            synced: Disk::new(),
            synced_upto: Revision::default(),
            synced_uptime_ms: 0,
            unsynced: VecDeque::new(),
            sealed_upto: Revision::default(),
            held: Vec::new(),
            released: Vec::new(),
            next_ticket: 1,
        }
    }

    /// With the default limits and client `c`, opened by incarnation 1 for epoch 1.
    pub(crate) fn opened() -> Self {
        Self::opened_with(Limits::default())
    }

    pub(crate) fn opened_with(limits: Limits) -> Self {
        let mut driver = Self::new(limits);
        assert_eq!(driver.call(open("c", 1)).status, 200);
        driver
    }

    pub(crate) fn now(&self) -> Now {
        now(self.now_ms)
    }

    /// One step; its effects, before the seal.
    pub(crate) fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.engine.step(self.now(), input, &mut effects);
        self.check();
        for (ticket, after, answer) in replies(&effects) {
            assert!(after <= self.engine.revision(), "an answer depends on nothing that is still to come");
            self.held.push((ticket, after, answer.clone()));
        }
        self.release();
        effects
    }

    pub(crate) fn check(&self) {
        if let Err(broken) = check_all(&self.engine) {
            panic!("{broken}");
        }
    }

    /// Hands a request in; the answer is there once it is due and what it depends on is synced.
    pub(crate) fn submit(&mut self, request: Request) -> Ticket {
        let ticket = self.ticket();
        self.step(Input::Request { ticket, request });
        ticket
    }

    /// The ticket of the next request.
    pub(crate) fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket - 1)
    }

    /// Ends the batch: what is to be written, and the check that it is exactly what changed.
    pub(crate) fn seal(&mut self) -> Vec<Write> {
        let mut effects = Vec::new();
        self.engine.seal(&mut effects);
        self.check();
        let writes = writes_of(effects);
        self.sealed_upto = self.engine.revision();
        let uptime_ms = self.engine.uptime().as_millis();
        self.unsynced.push_back(Batch { writes: writes.clone(), upto: self.sealed_upto, uptime_ms });
        let written = self.written();
        assert_eq!(lifted(&written), lifted(&disk_of(self.engine.records())), "memory and batches agree");
        writes
    }

    /// Syncs the oldest batch; false when everything is synced.
    pub(crate) fn sync_one(&mut self) -> bool {
        let Some(batch) = self.unsynced.pop_front() else { return false };
        apply(&mut self.synced, &batch.writes);
        self.synced_upto = batch.upto;
        self.synced_uptime_ms = batch.uptime_ms;
        self.release();
        true
    }

    pub(crate) fn sync(&mut self) {
        while self.sync_one() {}
    }

    pub(crate) fn unsynced_batches(&self) -> usize {
        self.unsynced.len()
    }

    /// What the disk holds if every batch arrives.
    pub(crate) fn written(&self) -> Disk {
        let mut disk = self.synced.clone();
        self.unsynced.iter().for_each(|batch| apply(&mut disk, &batch.writes));
        disk
    }

    fn release(&mut self) {
        let upto = self.synced_upto;
        let (free, held) = std::mem::take(&mut self.held).into_iter().partition(|(_, after, _)| *after <= upto);
        self.held = held;
        let free: Vec<(Ticket, Revision, Answer)> = free;
        for (ticket, _, answer) in free {
            assert!(self.released.iter().all(|(other, _)| *other != ticket), "a request is answered once");
            self.released.push((ticket, answer));
        }
    }

    /// The answer that has left, if it has.
    pub(crate) fn answer(&mut self, ticket: Ticket) -> Option<Told> {
        let at = self.released.iter().position(|(other, _)| *other == ticket)?;
        Some(Told::of(&self.released.remove(at).1))
    }

    /// Answers that have left and were not asked for yet.
    pub(crate) fn take_released(&mut self) -> Vec<(Ticket, Answer)> {
        std::mem::take(&mut self.released)
    }

    /// A request, its batch, and its sync.
    pub(crate) fn call(&mut self, request: Request) -> Told {
        let ticket = self.submit(request);
        self.finish_calls();
        self.seal();
        self.sync();
        self.answer(ticket).unwrap()
    }

    /// The steps that calls on their way still take.
    pub(crate) fn finish_calls(&mut self) {
        while self.step(Input::Sweep(Sweep::Calls)).contains(&Effect::SweepAgain(Sweep::Calls)) {}
    }

    /// A call that must change nothing durable.
    pub(crate) fn read(&mut self, request: Request) -> Told {
        let before = (self.engine.revision(), self.engine.records());
        let ticket = self.submit(request);
        self.finish_calls();
        let answer = self.answer(ticket).unwrap();
        assert_eq!(self.seal(), [], "nothing to write");
        assert_eq!(before, (self.engine.revision(), self.engine.records()));
        self.sync();
        answer
    }

    /// All effects of a request, those of the seal included.
    pub(crate) fn effects(&mut self, request: Request) -> Vec<Effect> {
        let ticket = self.ticket();
        let mut effects = self.step(Input::Request { ticket, request });
        effects.extend(self.seal().into_iter().map(Effect::Persist));
        self.sync();
        effects
    }

    /// A whole sweep: all its steps, their batch, and its sync. Returns how many steps it took.
    pub(crate) fn sweep(&mut self, sweep: Sweep) -> usize {
        for steps in 1.. {
            let effects = self.step(Input::Sweep(sweep));
            if !effects.contains(&Effect::SweepAgain(sweep)) {
                self.seal();
                self.sync();
                return steps;
            }
        }
        unreachable!("a sweep ends")
    }

    /// The process dies; of what was written but not synced the oldest `kept` batches survive. Nothing that was held
    /// leaves. The engine is rebuilt, and what it wants written is synced before anything is served.
    pub(crate) fn crash(&mut self, kept: usize) {
        self.try_crash(kept).unwrap();
    }

    pub(crate) fn try_crash(&mut self, kept: usize) -> Result<(), RecoveryError> {
        self.unsynced.truncate(kept);
        let survived = self.written();
        let uptime_ms = self.unsynced.back().map_or(self.synced_uptime_ms, |batch| batch.uptime_ms);
        self.unsynced.clear();
        self.held.clear();
        self.loads += 1;
        self.now_ms = uptime_ms;
        let (engine, writes) = recover(self.limits, self.loads, uptime_ms, survived.values().cloned())?;
        self.engine = engine;
        self.synced = survived;
        apply(&mut self.synced, &writes);
        self.synced_upto = self.engine.revision();
        self.sealed_upto = self.synced_upto;
        self.synced_uptime_ms = uptime_ms;
        self.check();
        assert_eq!(lifted(&self.synced), lifted(&disk_of(self.engine.records())), "memory and disk agree");
        Ok(())
    }

    /// A clean stop and a start.
    pub(crate) fn restart(&mut self) {
        self.seal();
        self.sync();
        self.crash(0);
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
    }
}

/// An engine from records, and what it wants written before it serves.
pub(crate) fn recover(
    limits: Limits,
    loads: u64,
    uptime_ms: u64,
    records: impl IntoIterator<Item = Record>,
) -> Result<(Engine, Vec<Write>), RecoveryError> {
    let mut recovery = Recovery::new(limits, loads);
    for record in records {
        recovery.add(record)?;
    }
    let (engine, effects) = recovery.finish(now(uptime_ms))?;
    assert_eq!(replies(&effects), [], "nobody is answered while loading");
    let writes = effects.into_iter().filter_map(|effect| match effect {
        Effect::Persist(write) => Some(write),
        _ => None,
    });
    Ok((engine, writes.collect()))
}

/// Wall time runs with uptime here, from the Unix epoch on.
pub(crate) fn now(ms: u64) -> Now {
    Now { uptime: Uptime::from_millis(ms), wall: WallTime::from_unix_millis(ms) }
}

pub(crate) fn disk_of(records: impl IntoIterator<Item = Record>) -> Disk {
    records.into_iter().map(|record| (record.key(), record)).collect()
}

fn writes_of(effects: Vec<Effect>) -> Vec<Write> {
    let write = |effect| match effect {
        Effect::Persist(write) => write,
        other => panic!("a seal only writes, not {other:?}"),
    };
    effects.into_iter().map(write).collect()
}

fn apply(disk: &mut Disk, writes: &[Write]) {
    for write in writes {
        match write {
            Write::Put(record) => {
                let before = disk.insert(record.key(), record.clone());
                let is_other = matches!(record, Record::Payload(..)) && before.is_some_and(|before| before != *record);
                assert!(!is_other, "a payload is written once: {record:?}");
            }
            Write::Delete(key) => {
                assert!(disk.remove(key).is_some(), "nothing is deleted that was never written: {key:?}");
            }
        }
    }
}

/// The same records with each client's newest id as a load reads it: `begin` does not rewrite the client, since the
/// header itself tells the id.
pub(crate) fn lifted(disk: &Disk) -> Disk {
    let mut lifted = disk.clone();
    for key in disk.keys() {
        let (Key::Transaction(client, id) | Key::Outcome(client, id)) = key else { continue };
        if let Some(Record::Client(_, record)) = lifted.get_mut(&Key::Client(client.clone())) {
            record.newest_txn_id = record.newest_txn_id.max(Some(*id));
        }
    }
    lifted
}
