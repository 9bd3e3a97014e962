//! Random lives of a rescaling job on an engine, with crashes, lost and late notifications, declined checkpoints, old
//! attempts that live on, and a network that loses and garbles. Whatever the order, every record is visible once.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use ratified::{CheckpointId, EngineSink, SinkName, Snapshot, SnapshotElement};
use support::{
    World, checkpoint, client_at,
    proxy::{EVERY_MISCHIEF, Proxy},
    sink::TestSink,
    worker,
};

/// A small generator with a seed of its own: a failing life can be lived again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

/// What the engine's checkpoint store holds of the newest completed checkpoint.
#[derive(Clone, Default)]
struct Completed {
    id: u64,
    offset: u64,
    elements: Vec<SnapshotElement>,
}

/// How often each rare thing happened: a test that never got there proves nothing.
#[derive(Debug, Default)]
struct Reached {
    crashes: u64,
    declined: u64,
    lost: u64,
    late: u64,
    zombies: u64,
    rescaled: u64,
}

struct Engine<'a> {
    world: &'a World,
    proxy: &'a Proxy,
    name: SinkName,
    sink: TestSink,
    dice: Dice,
    workers: Vec<EngineSink<TestSink>>,
    zombies: Vec<EngineSink<TestSink>>,
    completed: Completed,
    newest: u64,
    offset: u64,
    reached: &'a mut Reached,
}

impl Engine<'_> {
    async fn start_attempt(&mut self) {
        let parallelism = u32::try_from(1 + self.dice.roll(4)).unwrap();
        self.reached.rescaled += u64::from(parallelism as usize != self.workers.len());
        let mut dealt = vec![Vec::new(); parallelism as usize];
        for element in self.completed.elements.clone() {
            dealt[self.dice.roll(u64::from(parallelism)) as usize].push(element);
        }
        self.workers.clear();
        for (index, elements) in dealt.into_iter().enumerate() {
            let builder = self.world.builder_at(client_at(self.proxy.addr)).first_start(true);
            let builder = builder.worker(worker(u32::try_from(index).unwrap(), parallelism)).max_pending(2);
            let restored = Some(CheckpointId::new(self.completed.id));
            let opened = builder.open(self.name.clone(), restored, [Snapshot::from_elements(elements)]).await;
            self.workers.push(opened.unwrap());
        }
        self.offset = self.completed.offset;
    }

    async fn write(&mut self) {
        for _ in 0..self.dice.roll(4) {
            let worker = self.dice.roll(self.workers.len() as u64) as usize;
            self.workers[worker].write(format!("{:05}", self.offset)).await.unwrap();
            self.offset += 1;
        }
    }

    async fn checkpoint(&mut self) {
        self.newest += 1;
        let mut elements = Vec::new();
        for worker in &mut self.workers {
            elements.extend(worker.pre_commit(checkpoint(self.newest)).await.unwrap().into_elements());
        }
        if self.dice.one_in(4) {
            self.reached.declined += 1;
            return;
        }
        self.completed = Completed { id: self.newest, offset: self.offset, elements };
        for worker in &mut self.workers {
            if self.dice.one_in(3) {
                self.reached.lost += 1;
            } else {
                worker.checkpoint_completed(CheckpointId::new(self.newest)).unwrap();
            }
        }
    }

    fn notify_late(&mut self) {
        let id = CheckpointId::new(self.completed.id - self.dice.roll(3).min(self.completed.id));
        for worker in &mut self.workers {
            worker.checkpoint_completed(id).unwrap();
            self.reached.late += 1;
        }
    }

    async fn crash(&mut self) {
        self.reached.crashes += 1;
        let survives = self.dice.one_in(2);
        if survives {
            self.zombies.append(&mut self.workers);
        }
        self.start_attempt().await;
    }

    /// An attempt that was given up does what it still can.
    async fn wake_a_zombie(&mut self) {
        let Some(mut zombie) = self.zombies.pop() else { return };
        self.reached.zombies += 1;
        match self.dice.roll(4) {
            // It is told, late, of a checkpoint that did complete.
            0 => drop(zombie.checkpoint_completed(CheckpointId::new(self.completed.id))),
            1 => drop(zombie.write("stale".to_owned()).await),
            2 => drop(zombie.pre_commit(checkpoint(1_000_000)).await),
            _ => drop(zombie.close().await),
        }
    }

    async fn live(mut self, steps: u32) {
        self.start_attempt().await;
        for _ in 0..steps {
            if self.dice.one_in(3) {
                let mischief = EVERY_MISCHIEF[self.dice.roll(EVERY_MISCHIEF.len() as u64) as usize];
                self.proxy.plan("/v1/", mischief, 1);
            }
            match self.dice.roll(12) {
                0..5 => self.write().await,
                5..8 => self.checkpoint().await,
                8 => self.notify_late(),
                9 => self.crash().await,
                _ => self.wake_a_zombie().await,
            }
            self.check();
        }
        self.finish().await;
    }

    /// Nothing is visible twice, and nothing but what a completed checkpoint covers.
    fn check(&self) {
        let visible = self.sink.visible_sorted();
        assert!(visible.windows(2).all(|pair| pair[0] < pair[1]), "{visible:?}");
        let covered = format!("{:05}", self.completed.offset);
        assert!(visible.iter().all(|record| *record < covered), "{visible:?} {covered}");
    }

    async fn finish(mut self) {
        self.newest += 1;
        let mut elements = Vec::new();
        for worker in &mut self.workers {
            elements.extend(worker.pre_commit(checkpoint(self.newest)).await.unwrap().into_elements());
        }
        self.completed = Completed { id: self.newest, offset: self.offset, elements };
        self.start_attempt().await;
        let expected: Vec<_> = (0..self.offset).map(|record| format!("{record:05}")).collect();
        assert_eq!(self.sink.visible_sorted(), expected);
        assert_eq!(self.sink.staged(), 0);
    }
}

/// How many lives are lived: a few in the gate, as many as one likes by hand.
fn seeds() -> u64 {
    std::env::var("RATIFIED_CHAOS_SEEDS").map_or(12, |count| count.parse().unwrap())
}

#[tokio::test]
async fn whatever_happens_in_whatever_order_every_record_is_visible_once() {
    let mut world = World::start().await;
    let proxy = Proxy::start(world.addr()).await;
    let mut reached = Reached::default();
    for seed in 0..seeds() {
        println!("seed {seed}");
        world.sink = TestSink::default();
        let engine = Engine {
            world: &world,
            proxy: &proxy,
            name: format!("job.{seed}").parse().unwrap(),
            sink: world.sink.clone(),
            dice: Dice(seed),
            workers: Vec::new(),
            zombies: Vec::new(),
            completed: Completed::default(),
            newest: 0,
            offset: 0,
            reached: &mut reached,
        };
        engine.live(30).await;
        let left = world.unfinished().await;
        assert_eq!(left, [], "seed {seed}");
    }
    let Reached { crashes, declined, lost, late, zombies, rescaled } = reached;
    assert!([crashes, declined, lost, late, zombies, rescaled].iter().all(|count| *count > 10), "{reached:?}");
}
