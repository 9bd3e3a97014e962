//! What goes wrong: drawn from the seed, step by step, until the healing.

use std::time::Duration;

use ratified::Point;
use turmoil::Sim;

use crate::{
    disk, engine_job,
    entropy::Dice,
    pending, split_job,
    world::{COORDINATOR, Host, OTHERS, World},
};

/// Latency of a link that has recovered.
const USUAL_MS: u64 = 15;

/// How long a fault lasts.
enum Repair {
    Bounce(Host),
    Link(Host),
}

/// The faults of one run.
pub struct Chaos {
    world: World,
    dice: Dice,
    heal_at_ms: u64,
    pause_ms: u64,
    next_ms: u64,
    repairs: Vec<(u64, Repair)>,
    down: Vec<Host>,
}

/// The hook that lets a host die at a point of the runtime, after the runtime has passed it and before any answer can
/// reach it.
pub fn kill_at_points(world: &World, host: Host) -> impl Fn(Point) + Send + Sync + 'static {
    let world = world.clone();
    move |point| {
        if world.mischief(40) {
            world.count(match point {
                Point::Begun => "killed at begun",
                Point::PreCommitted => "killed at pre-committed",
                Point::Prepared => "killed at prepared",
                Point::Decided => "killed at decided",
                Point::Applied => "killed at applied",
                _ => "killed at acked",
            });
            world.note(format!("{host} dies at {point:?}"));
            world.ask_kill(host);
        }
    }
}

impl Chaos {
    /// Faults from the beginning to the healing.
    pub fn new(world: World, mut dice: Dice) -> Self {
        let heal_at_ms = dice.between(3000, 8000);
        let pause_ms = dice.pick(&[150, 300, 600, 1200]);
        Self { world, dice, heal_at_ms, pause_ms, next_ms: 0, repairs: Vec::new(), down: Vec::new() }
    }

    /// When everything is healed.
    pub fn heal_at_ms(&self) -> u64 {
        self.heal_at_ms
    }

    /// Does what is due at this moment.
    pub fn step(&mut self, sim: &mut Sim<'_>) {
        let now = self.world.now_ms();
        for host in self.world.take_kills() {
            self.crash(sim, host);
        }
        if now >= self.heal_at_ms && !self.world.is_healed() {
            self.heal(sim);
        }
        let (due, later) = std::mem::take(&mut self.repairs).into_iter().partition(|(at, _)| *at <= now);
        self.repairs = later;
        let due: Vec<(u64, Repair)> = due;
        for (_, repair) in due {
            self.repair(sim, repair);
        }
        if now >= self.next_ms && !self.world.is_healed() {
            self.next_ms = now + self.dice.between(self.pause_ms / 2, self.pause_ms * 2);
            self.fault(sim);
        }
    }

    fn fault(&mut self, sim: &mut Sim<'_>) {
        let host = self.dice.pick(&OTHERS);
        let what = match self.dice.roll(11) {
            0 | 1 => {
                self.crash(sim, COORDINATOR);
                return;
            }
            2 => {
                self.crash(sim, host);
                return;
            }
            3 => {
                // The power goes: the other side is not told that its connections are gone.
                sim.partition(host, COORDINATOR);
                let victim = if self.dice.one_in(2) { host } else { COORDINATOR };
                self.crash(sim, victim);
                "power losses"
            }
            4 => {
                sim.partition(host, COORDINATOR);
                "partitions"
            }
            5 => {
                sim.partition_oneway(host, COORDINATOR);
                "requests silenced"
            }
            6 => {
                sim.partition_oneway(COORDINATOR, host);
                "answers silenced"
            }
            7 => {
                sim.hold(host, COORDINATOR);
                "links held"
            }
            8 => {
                sim.set_link_latency(host, COORDINATOR, Duration::from_millis(self.dice.between(150, 900)));
                "latency spikes"
            }
            9 => {
                let (job, homes) = self
                    .dice
                    .pick(&[(split_job::JOB, ["split-a", "split-b"]), (engine_job::JOB, ["engine-a", "engine-b"])]);
                let home = homes[usize::from(self.world.placement(job) == homes[0])];
                self.world.note(format!("{job} is placed on {home}"));
                self.world.place(job, home);
                self.world.count("failovers");
                return;
            }
            _ => {
                self.world.platter().fails_after = Some(self.dice.roll(6));
                self.world.count("disk failures");
                return;
            }
        };
        self.world.count(what);
        self.world.note(format!("{what}: {host}"));
        let lasts_ms = self.dice.pick(&[100, 400, 900, 2500]);
        self.repairs.push((self.world.now_ms() + lasts_ms, Repair::Link(host)));
    }

    fn crash(&mut self, sim: &mut Sim<'_>, host: Host) {
        if self.down.contains(&host) {
            return;
        }
        self.world.count(if host == COORDINATOR { "coordinator crashes" } else { "other crashes" });
        sim.crash(host);
        if host == COORDINATOR {
            let (lost, kept) = self.world.platter().crash(&mut self.dice);
            self.world.note(format!("{host} crashes, {lost} batches lost, {kept} kept by chance"));
            (0..lost).for_each(|_| self.world.count("unsynced batches lost"));
            (0..kept).for_each(|_| self.world.count("unsynced batches kept"));
        } else {
            self.world.note(format!("{host} crashes"));
            pending::crash(&self.world, host);
            engine_job::crash(&self.world, host);
        }
        self.down.push(host);
        let lasts_ms = self.dice.pick(&[20, 100, 400, 1500]);
        self.repairs.push((self.world.now_ms() + lasts_ms, Repair::Bounce(host)));
    }

    fn repair(&mut self, sim: &mut Sim<'_>, repair: Repair) {
        match repair {
            Repair::Bounce(host) => {
                self.world.note(format!("{host} comes back"));
                self.down.retain(|down| *down != host);
                sim.bounce(host);
            }
            Repair::Link(host) => {
                self.world.note(format!("{host} is reached again"));
                sim.release(host, COORDINATOR);
                sim.repair(host, COORDINATOR);
                sim.set_link_latency(host, COORDINATOR, Duration::from_millis(USUAL_MS));
            }
        }
    }

    fn heal(&mut self, sim: &mut Sim<'_>) {
        self.world.note("everything heals");
        self.world.heal();
        for host in OTHERS {
            self.repair(sim, Repair::Link(host));
        }
        self.repairs.retain(|(_, repair)| matches!(repair, Repair::Bounce(_)));
        // A disk that has failed once in this process stays failed: the process has to go.
        if self.world.platter().fails_after.take().is_some() {
            self.crash(sim, COORDINATOR);
        }
    }
}

/// What is left of live transactions on the coordinator's disk.
pub fn unfinished(world: &World) -> Vec<String> {
    let platter: &disk::Platter = &world.platter();
    platter.live()
}
