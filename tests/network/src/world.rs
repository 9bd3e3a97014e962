//! What the hosts of one run share: time, dice, the trace, what is durable, and what went wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use ratified::{ClientOptions, CoordinatorClient, RetryDelays, TxnId};

use crate::{
    answers::Answers, disk::Platter, engine_job::EngineState, entropy::Dice, ledger::LedgerState, mistake::Mistake,
    net::SimTransport, pending::PendingDisks, sink::SinkState, split_job::SplitState,
};

/// A host by its name.
pub type Host = &'static str;

/// The host of the coordinator.
pub const COORDINATOR: Host = "coordinator";
/// All other hosts.
pub const OTHERS: [Host; 7] = ["split-a", "split-b", "engine-a", "engine-b", "ledger", "p-0", "p-1"];
/// How many records each job's source has.
pub const RECORDS: u64 = 24;

/// The state that belongs to no part alone.
#[derive(Debug)]
struct Core {
    dice: Dice,
    now_ms: u64,
    hash: u64,
    lines: u64,
    verbose: bool,
    ids: BTreeMap<TxnId, usize>,
    counts: BTreeMap<&'static str, u64>,
    violation: Option<String>,
    kills: BTreeSet<Host>,
    placement: BTreeMap<&'static str, Host>,
    is_healed: bool,
}

/// The world; see [`World`].
#[derive(Debug)]
pub struct Shared {
    /// What is done wrong on purpose.
    pub mistake: Mistake,
    core: Mutex<Core>,
    platter: Mutex<Platter>,
    answers: Mutex<Answers>,
    sink: Mutex<SinkState>,
    pending: Mutex<PendingDisks>,
    split: Mutex<SplitState>,
    engine: Mutex<EngineState>,
    ledger: Mutex<LedgerState>,
}

/// Shared by all hosts of a run and the harness around them; all of them are on one thread.
pub type World = Arc<Shared>;

impl Shared {
    /// A world before its first moment.
    pub fn new(dice: Dice, mistake: Mistake, verbose: bool) -> World {
        let placement = BTreeMap::from([("split", "split-a"), ("engine", "engine-a")]);
        Arc::new(Self {
            mistake,
            core: Mutex::new(Core {
                dice,
                now_ms: 0,
                hash: 0xcbf2_9ce4_8422_2325,
                lines: 0,
                verbose,
                ids: BTreeMap::new(),
                counts: BTreeMap::new(),
                violation: None,
                kills: BTreeSet::new(),
                placement,
                is_healed: false,
            }),
            platter: Mutex::default(),
            answers: Mutex::default(),
            sink: Mutex::default(),
            pending: Mutex::default(),
            split: Mutex::default(),
            engine: Mutex::default(),
            ledger: Mutex::default(),
        })
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no panic")
    }

    /// The coordinator's disk.
    pub fn platter(&self) -> MutexGuard<'_, Platter> {
        self.platter.lock().expect("no panic")
    }

    /// Everything the coordinator has told.
    pub fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().expect("no panic")
    }

    /// The sink.
    pub fn sink(&self) -> MutexGuard<'_, SinkState> {
        self.sink.lock().expect("no panic")
    }

    /// The jobs' own disks.
    pub fn pending(&self) -> MutexGuard<'_, PendingDisks> {
        self.pending.lock().expect("no panic")
    }

    /// The job that checkpoints itself.
    pub fn split(&self) -> MutexGuard<'_, SplitState> {
        self.split.lock().expect("no panic")
    }

    /// The job on an engine.
    pub fn engine(&self) -> MutexGuard<'_, EngineState> {
        self.engine.lock().expect("no panic")
    }

    /// Transactions with pulling participants.
    pub fn ledger(&self) -> MutexGuard<'_, LedgerState> {
        self.ledger.lock().expect("no panic")
    }

    /// Milliseconds since the beginning of the run, to the tick.
    pub fn now_ms(&self) -> u64 {
        self.core().now_ms
    }

    /// Time goes on.
    pub fn set_now_ms(&self, now_ms: u64) {
        self.core().now_ms = now_ms;
    }

    /// Whether no more faults come.
    pub fn is_healed(&self) -> bool {
        self.core().is_healed
    }

    /// No more faults come.
    pub fn heal(&self) {
        self.core().is_healed = true;
    }

    /// A number below `sides`.
    pub fn roll(&self, sides: u64) -> u64 {
        self.core().dice.roll(sides)
    }

    /// True once in so many, and never after the healing: for faults.
    pub fn mischief(&self, sides: u64) -> bool {
        let mut core = self.core();
        !core.is_healed && core.dice.one_in(sides)
    }

    /// Lets simulated time pass, at most this long.
    pub async fn linger(&self, max_ms: u64) {
        let pause = self.roll(max_ms);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    /// A line of the trace; only what is the same in every run of a seed may be in it.
    pub fn note(&self, line: impl AsRef<str>) {
        let mut core = self.core();
        let line = format!("{:>6} {}", core.now_ms, line.as_ref());
        for byte in line.bytes() {
            core.hash = (core.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        core.lines += 1;
        if core.verbose {
            println!("{line}");
        }
    }

    /// The hash of the trace, and how many lines it has.
    pub fn trace(&self) -> (u64, u64) {
        let core = self.core();
        (core.hash, core.lines)
    }

    /// An id as the trace may show it: the how-manieth of the run it is.
    pub fn name(&self, id: TxnId) -> String {
        let mut core = self.core();
        let next = core.ids.len();
        format!("t{}", core.ids.entry(id).or_insert(next))
    }

    /// Counts something that happened.
    pub fn count(&self, what: &'static str) {
        *self.core().counts.entry(what).or_default() += 1;
    }

    /// What happened how often.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.core().counts.clone()
    }

    /// Something that must never happen did; the first stays.
    pub fn violate(&self, what: impl Into<String>) {
        let what = what.into();
        self.note(format!("VIOLATION {what}"));
        self.core().violation.get_or_insert(what);
    }

    /// What must never have happened.
    pub fn violation(&self) -> Option<String> {
        self.core().violation.clone()
    }

    /// Asks the harness to crash a host after this moment.
    pub fn ask_kill(&self, host: Host) {
        self.core().kills.insert(host);
    }

    /// Who is to be crashed.
    pub fn take_kills(&self) -> BTreeSet<Host> {
        std::mem::take(&mut self.core().kills)
    }

    /// Where a job is to run.
    pub fn placement(&self, job: &str) -> Host {
        self.core().placement[job]
    }

    /// A job is to run elsewhere; nobody tells the host it has run on.
    pub fn place(&self, job: &'static str, host: Host) {
        self.core().placement.insert(job, host);
    }
}

/// The coordinator as seen from a host.
pub fn client(world: &World, host: Host) -> CoordinatorClient {
    let delays = RetryDelays { first: Duration::from_millis(20), longest: Duration::from_millis(300) };
    let options = ClientOptions::default()
        .request_timeout(Duration::from_millis(400))
        .call_deadline(Duration::from_secs(3))
        .delays(delays);
    let transport = Arc::new(SimTransport::new(world.clone(), host));
    CoordinatorClient::with_transport("http://coordinator:7117", options, transport).expect("a URL")
}
