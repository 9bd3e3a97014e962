//! What befalls processes and clocks, and the day it stops.

use std::{cell::RefCell, rc::Rc};

use super::{
    job::{self, Job, Status},
    operator,
    participant::{self, Resource},
    self_job::{self, SelfJob},
    stranger::{self, Gossip},
};
use crate::{
    kernel::{Event, ProcId},
    oracle::Verdict,
    world::World,
};

/// Everybody in a run.
#[derive(Debug, Default)]
pub struct Cast {
    jobs: Vec<Rc<Job>>,
    self_jobs: Vec<Rc<SelfJob>>,
    resources: Vec<Rc<Resource>>,
}

impl World {
    /// Puts everybody on the stage.
    pub fn populate(self: &Rc<Self>) {
        let jobs: Vec<_> = (0..self.mix.jobs).map(Job::new).collect();
        jobs.iter().for_each(|job| job::start(self, job));
        let self_jobs = (0..self.mix.self_jobs).map(|number| self_job::start(self, number)).collect();
        let resources: Vec<_> = (0..self.mix.participants).map(Resource::new).collect();
        for resource in self.lively(&resources) {
            participant::start(self, resource);
        }
        let gossip = Rc::new(Gossip::default());
        (0..self.mix.strangers).for_each(|number| stranger::start(self, number, &gossip));
        if self.mix.operator {
            operator::start(self);
        }
        *self.cast.borrow_mut() = Cast { jobs, self_jobs, resources };
        let mut kernel = self.kernel.borrow_mut();
        kernel.at(0, Event::Start);
        kernel.at(self.mix.heal_at, Event::Heal);
        if self.mix.chaos_every_ms > 0 {
            kernel.at(self.mix.chaos_every_ms, Event::Chaos);
        }
    }

    /// The second resource may be one that stays silent for ever.
    fn lively<'a>(&self, resources: &'a [Rc<Resource>]) -> impl Iterator<Item = &'a Rc<Resource>> {
        resources.iter().take(if self.mix.stuck_participant { 1 } else { 2 })
    }

    /// Chaos strikes once.
    pub fn chaos(self: &Rc<Self>) {
        if self.healed.get() {
            return;
        }
        let processes = self.mix.process_faults;
        match self.draw(|rng| rng.below(10)) {
            0 if self.mix.crash > 0 => self.end_node(false),
            1 => self.end_node(true),
            2 | 3 if self.mix.clock_jumps => self.jump_clock(),
            4 | 5 if processes => self.mortal().into_iter().for_each(|proc| self.kill(proc)),
            6 | 7 if processes => {
                let millis = self.draw(|rng| rng.between(20, 900));
                self.mortal().into_iter().for_each(|proc| self.kernel.borrow_mut().freeze(proc, millis));
            }
            8 if processes => {
                let cast = self.cast.borrow();
                self.lively(&cast.resources).for_each(|resource| participant::start(self, resource));
            }
            _ => {}
        }
        let pause = self.draw(|rng| rng.between(1, 2 * self.mix.chaos_every_ms));
        self.kernel.borrow_mut().after(pause, Event::Chaos);
    }

    fn mortal(&self) -> Option<ProcId> {
        let mut mortals = self.mortals.borrow_mut();
        mortals.retain(|proc, ()| self.kernel.borrow().is_alive(*proc));
        let index = self.draw(|rng| rng.below(mortals.len() as u64)) as usize;
        mortals.keys().nth(index).copied()
    }

    /// Faults stop: from here everything must converge.
    pub fn heal(self: &Rc<Self>) {
        self.note(|| "faults stop".to_owned());
        self.healed.set(true);
        {
            let mut platter = self.disk.platter();
            platter.failing = 0;
            platter.cut = None;
        }
        let cast = self.cast.borrow();
        for job in &cast.jobs {
            let zombies = std::mem::take(&mut job.state.borrow_mut().zombies);
            zombies.into_iter().for_each(|proc| self.kill(proc));
        }
        for job in &cast.self_jobs {
            job.zombies().into_iter().for_each(|proc| self.kill(proc));
        }
        self.lively(&cast.resources).for_each(|resource| participant::start(self, resource));
        self.kernel.borrow_mut().after(1, Event::Start);
        let gone: RefCell<Vec<String>> = RefCell::new(vec!["r0".to_owned(), "r1".to_owned()]);
        if !self.mix.stuck_participant {
            gone.borrow_mut().extend(["p1".to_owned(), "p2".to_owned(), "p3".to_owned()]);
        }
        if self.mix.participants == 0 {
            gone.borrow_mut().push("p0".to_owned());
        }
        operator::start_healer(self, gone.take());
    }

    /// Whether every job has ended.
    pub fn jobs_ended(&self) -> bool {
        let cast = self.cast.borrow();
        let jobs = cast.jobs.iter().all(|job| job.state.borrow().status != Status::Running);
        jobs && cast.self_jobs.iter().all(|job| job.has_ended())
    }

    /// Nothing is left by the jobs that are done.
    ///
    /// # Errors
    /// What is.
    pub fn left_overs(&self) -> Verdict {
        self.cast.borrow().jobs.iter().try_for_each(|job| job::left_overs(self, job))
    }

    /// Clients of jobs that have ended, whatever became of them: their sinks will not answer any more.
    pub fn ended_clients(&self) -> Vec<String> {
        let cast = self.cast.borrow();
        let jobs = cast.jobs.iter().flat_map(|job| (0..3).map(|slot| format!("{}.{slot}", job.sink)));
        jobs.chain(cast.self_jobs.iter().map(|job| job.name())).collect()
    }

    /// What must hold once everything had the time to converge.
    ///
    /// # Errors
    /// What does not.
    pub fn finale(&self) -> Verdict {
        let cast = self.cast.borrow();
        cast.jobs.iter().try_for_each(|job| job::finale(self, job))?;
        cast.self_jobs.iter().try_for_each(|job| self_job::finale(self, job))?;
        let node = self.node.borrow();
        let up = node.up.as_ref().ok_or("the coordinator is not up")?;
        if let Some(request) = up.forgotten_request(1000) {
            return Err(format!("queues drain: {request:?} was never answered"));
        }
        let stuck = self.mix.stuck_participant.then(|| super::participant("p1"));
        self.oracle.borrow().finale(up.uptime(), &self.mix.periods, stuck.as_ref())
    }
}
