//! How the coordinator starts and ends: loads that are cut short, power cuts, stops in good order, clocks that jump.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use ratified_coordinator::{
    Clock,
    store::codec::Meta,
    writer::{Drawn, Sweeps, load},
};
use ratified_protocol::{Code, LoadNonce};
use uuid::Uuid;

use super::{CLUSTER, Down, SimClock, Up};
use crate::{disk::LoadCut, kernel::Event, oracle::Marks, probes::Probe, world::World};

impl World {
    /// What is left of a process that ended: the disk.
    pub(super) fn bury(self: &Rc<Self>, up: &Up) {
        let mut kernel = self.kernel.borrow_mut();
        let (lost, survived) = self.disk.crash(&mut kernel.rng);
        let wait = if self.healed.get() { 1 } else { kernel.rng.between(1, 120) };
        kernel.after(wait, Event::Start);
        drop(kernel);
        self.note(|| format!("coordinator down, {lost} batches lost, {survived} survived unsynced"));
        let mut probes = self.probes.borrow_mut();
        probes.add(Probe::C00DecisionNotWritten, up.staged.decisions);
        let point = if survived > 0 { Probe::C01DecisionSurvived } else { Probe::C01DecisionLost };
        probes.add(point, up.in_flight.decisions);
        probes.add(Probe::C07OutcomesNotFlushed, up.in_flight.most_flushed());
        probes.add(Probe::C10TerminalUnsynced, up.in_flight.terminals);
        probes.add(Probe::C14EvictionUnsynced, up.in_flight.drops + up.staged.drops);
        self.oracle.borrow_mut().crashed(&mut probes);
    }

    /// Starts the coordinator: the real load, cut short at times.
    pub fn start_node(self: &Rc<Self>) {
        if self.node.borrow().up.is_some() {
            return;
        }
        let cut = self.strikes(self.mix.crash.saturating_mul(4)).then(|| {
            let cuts = [LoadCut::Reading, LoadCut::Rewritten, LoadCut::Written, LoadCut::Synced];
            self.draw(|rng| *rng.pick(&cuts))
        });
        self.disk.platter().cut = cut;
        let had_tail = self.disk.platter().has_unsynced();
        let clock = SimClock::default();
        let mut disk = self.disk.clone();
        let nonce = LoadNonce::new(Uuid::from_u128(self.kernel.borrow_mut().unique().into()));
        let drawn = Drawn { cluster_id: CLUSTER, nonce };
        let loaded = match load(&mut disk, self.mix.limits, self.mix.room, &clock, drawn) {
            Ok(loaded) => loaded,
            Err(error) => return self.load_failed(cut, had_tail, &error.to_string()),
        };
        self.probes.borrow_mut().add(Probe::LoadedUnsyncedTail, u64::from(had_tail));
        let mut probes = self.probes.borrow_mut();
        let mut oracle = self.oracle.borrow_mut();
        let verdict = oracle.recovered(loaded.pipeline.engine(), &self.disk, clock.now(), &mut probes);
        drop((probes, oracle));
        self.check(verdict);
        self.check(ratified_core::check_all(loaded.pipeline.engine()));
        self.note(|| format!("coordinator up, load {}", loaded.history.store_id().newest_loads()));
        let up = Up {
            sweeps: Sweeps::new(self.mix.periods, clock.now().uptime),
            pipeline: loaded.pipeline,
            clock,
            started_at: self.now(),
            skew: 0,
            claim: loaded.claim,
            inbox: VecDeque::new(),
            asked: BTreeMap::new(),
            syncing: None,
            staged: Marks::default(),
            in_flight: Marks::default(),
        };
        self.plan_turn(&up);
        self.node.borrow_mut().up = Some(up);
    }

    fn load_failed(&self, cut: Option<LoadCut>, had_tail: bool, error: &str) {
        let still_there = self.disk.platter().cut.is_some();
        match cut.filter(|_| !still_there) {
            Some(LoadCut::Reading) => self.hit(Probe::C17LoadRead),
            Some(LoadCut::Rewritten) => self.hit(Probe::C17LoadRewritten),
            Some(LoadCut::Written) => self.hit(Probe::C17LoadWritten),
            Some(LoadCut::Synced) => self.hit(Probe::C17LoadSynced),
            None if error.contains("input/output") => self.hit(Probe::C18LoadFailed),
            None => self.fail(|| format!("a load was refused: {error}")),
        }
        let mut kernel = self.kernel.borrow_mut();
        let (lost, _) = self.disk.crash(&mut kernel.rng);
        kernel.after(5, Event::Start);
        drop(kernel);
        self.probes.borrow_mut().add(Probe::UnsyncedTailVanished, u64::from(had_tail && lost > 0));
    }
}

impl World {
    /// Chaos for the coordinator: power off, or a stop in good order.
    pub fn end_node(self: &Rc<Self>, graceful: bool) {
        self.with_node(|up| {
            if graceful {
                self.hit(Probe::GracefulStop);
                self.settle(up)?;
                let uptime = Meta::Uptime(up.clock.now().uptime);
                self.hand_over(up, &[uptime])?;
                self.settle(up)?;
                let waiting = up.pipeline.take_waiting();
                let parked = waiting.into_iter().filter_map(|ticket| up.asked.remove(&ticket)).map(|(token, _)| token);
                let queued = std::mem::take(&mut up.inbox).into_iter().map(|arrival| arrival.envelope.token);
                parked.chain(queued).for_each(|token| self.refuse(token, Code::ShuttingDown));
            }
            Err(Down::Crash)
        });
    }

    fn settle(&self, up: &mut Up) -> Result<(), Down> {
        self.hand_over(up, &[])?;
        while up.pipeline.is_in_flight() {
            self.finish_sync(up)?;
            self.release(up)?;
            self.hand_over(up, &[])?;
        }
        Ok(())
    }

    /// Chaos for the clocks: the wall clock jumps both ways, a suspended machine's monotonic one only ahead.
    pub fn jump_clock(&self) {
        let (wall, ahead) = self.draw(|rng| (rng.between(0, 20_000_000) as i64 - 10_000_000, rng.between(0, 900)));
        let mut node = self.node.borrow_mut();
        node.wall_skew += wall;
        if let Some(up) = &mut node.up {
            up.skew += ahead;
        }
        self.hit(Probe::ClockJumped);
    }
}
