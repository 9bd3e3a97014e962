//! One pass: a fresh output, the job, its coordinator, and kills until the catalogue is through.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process,
    time::Instant,
};

use ratified::Committed;

use super::{
    DrillError, JobArgs, Sabotage,
    message::{Command, Event},
    plan::{Moment, Order, Victim},
    process::{Heard, PATIENCE, Process},
};
use crate::quakes::Tally;

/// Where the coordinator lives during a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// In a process of its own.
    Own,
    /// In the job's process, and dies with it.
    Embedded,
}

/// What all passes have in common.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) input: PathBuf,
    pub(super) checkpoint_records: u64,
    pub(super) sabotage: Option<Sabotage>,
}

/// Commits that a restarted job carried out for an earlier life.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Replayed {
    /// How many.
    pub(super) all: u64,
    /// How many of them the sink had made visible before.
    pub(super) already: u64,
}

/// What a moment came to.
pub(super) enum Reached {
    /// It is now.
    Moment,
    /// The job reached its end before.
    End(Tally),
}

/// A pass under way.
pub(super) struct Pass {
    setup: Setup,
    dir: PathBuf,
    coordinator: Option<(Process, SocketAddr)>,
    job: Process,
    pub(super) replayed: Replayed,
}

impl Pass {
    /// Starts a pass in a directory of its own.
    pub(super) fn start(setup: &Setup, dir: &Path, home: Home) -> Result<Self, DrillError> {
        fs::create_dir_all(dir).map_err(|source| DrillError::Io { path: dir.to_owned(), source })?;
        let coordinator = match home {
            Home::Own => {
                let address = free_address()?;
                Some((serve(dir, address)?, address))
            }
            Home::Embedded => None,
        };
        let job = start_job(setup, dir, coordinator.as_ref().map(|(_, address)| *address))?;
        let (setup, dir) = (setup.clone(), dir.to_owned());
        Ok(Self { setup, dir, coordinator, job, replayed: Replayed::default() })
    }

    /// Waits for the moment of the next kill.
    pub(super) fn reach(&mut self, moment: Moment) -> Result<Reached, DrillError> {
        let (begun, within) = match moment {
            Moment::At { point, nth } => {
                self.job.say(Command::Arm(point, nth));
                (Instant::now(), PATIENCE)
            }
            Moment::After(delay) => (Instant::now(), delay),
        };
        loop {
            match self.job.hear(within.saturating_sub(begun.elapsed()))? {
                Heard::Said(Event::At(_)) => return Ok(Reached::Moment),
                Heard::Said(Event::Done(tally)) => return Ok(Reached::End(tally)),
                Heard::Said(event) => self.note(&event),
                Heard::Nothing if matches!(moment, Moment::After(_)) => return Ok(Reached::Moment),
                Heard::Nothing => return Err(self.job.silent("to pass a point or to end")),
                Heard::Ended => return Err(self.died()),
            }
        }
    }

    /// Kills whom the order names, and starts it again. False if the job had ended by itself just before.
    pub(super) fn strike(&mut self, order: &Order) -> Result<bool, DrillError> {
        let victim = if self.coordinator.is_some() { order.victim } else { Victim::Job };
        if matches!(victim, Victim::Coordinator | Victim::Both)
            && let Some((mut coordinator, address)) = self.coordinator.take()
        {
            let killed = coordinator.kill()?;
            let job_too = if victim == Victim::Both { self.kill_job()? } else { true };
            self.coordinator = Some((serve(&self.dir, address)?, address));
            if victim == Victim::Both {
                self.restart_job()?;
            } else if matches!(order.moment, Moment::At { .. }) {
                self.job.say(Command::Go);
            }
            return Ok(killed.is_some() && job_too);
        }
        let killed = self.kill_job()?;
        self.restart_job()?;
        Ok(killed)
    }

    /// Lets the job run to its end, unless it is there.
    pub(super) fn finish(mut self, ended: Option<Tally>) -> Result<(Tally, Replayed), DrillError> {
        let tally = match ended {
            Some(tally) => tally,
            None => loop {
                match self.job.hear(PATIENCE)? {
                    Heard::Said(Event::Done(tally)) => break tally,
                    Heard::Said(event) => self.note(&event),
                    Heard::Nothing => return Err(self.job.silent("to end")),
                    Heard::Ended => return Err(self.died()),
                }
            },
        };
        let Self { job, coordinator, replayed, .. } = self;
        job.finish()?;
        if let Some((mut coordinator, _)) = coordinator {
            coordinator.kill()?;
        }
        Ok((tally, replayed))
    }

    fn kill_job(&mut self) -> Result<bool, DrillError> {
        let killed = self.job.kill()?;
        for event in killed.iter().flatten() {
            self.note(event);
        }
        Ok(killed.is_some())
    }

    fn restart_job(&mut self) -> Result<(), DrillError> {
        self.job = start_job(&self.setup, &self.dir, self.coordinator.as_ref().map(|(_, address)| *address))?;
        Ok(())
    }

    fn note(&mut self, event: &Event) {
        if let Event::Replayed(how) = event {
            self.replayed.all += 1;
            self.replayed.already += u64::from(*how == Committed::Already);
        }
    }

    fn died(&mut self) -> DrillError {
        self.job.ended()
    }
}

fn start_job(setup: &Setup, dir: &Path, coordinator: Option<SocketAddr>) -> Result<Process, DrillError> {
    let args = JobArgs {
        input: setup.input.clone(),
        output: output_dir(dir),
        data_dir: dir.join("data"),
        checkpoint_records: setup.checkpoint_records,
        coordinator: coordinator.map(|address| format!("http://{address}")),
        sabotage: setup.sabotage,
    };
    Process::start("job", &args.to_args(), &dir.join("job.log"))
}

/// Where the visible files of a pass are.
pub(super) fn output_dir(pass: &Path) -> PathBuf {
    pass.join("output")
}

/// Starts a coordinator and waits until it serves.
fn serve(dir: &Path, address: SocketAddr) -> Result<Process, DrillError> {
    let data_dir = dir.join("coordinator").display().to_string();
    let args = ["serve", "--data-dir", &data_dir, "--listen", &address.to_string()].map(str::to_owned);
    let mut process = Process::start("coordinator", &args, &dir.join("coordinator.log"))?;
    match process.hear(PATIENCE)? {
        Heard::Said(_) => Ok(process),
        Heard::Nothing => Err(process.silent("to start")),
        Heard::Ended => Err(process.ended()),
    }
}

/// A port that stays free while its coordinator is dead: below the range from which the system takes the ports of
/// outgoing connections, so that no other connection, not even a job's own to the dead coordinator, can take it.
fn free_address() -> Result<SocketAddr, DrillError> {
    let first = 20_000 + u16::try_from(process::id() % 10_000).unwrap_or(0);
    let candidates = (first..30_000).chain(20_000..first);
    let mut free = candidates.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    free.find(|address| TcpListener::bind(address).is_ok()).ok_or(DrillError::NoPort)
}
