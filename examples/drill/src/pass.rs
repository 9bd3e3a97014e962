//! One pass: a fresh output, the job, its coordinator, and kills until the input is through.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process,
    time::Instant,
};

use ratified::Committed;

use super::{
    DrillError, Subject,
    message::{Command, Event},
    plan::{Moment, Order, Victim},
    process::{Heard, PATIENCE, Process},
    survived::Replayed,
};

/// Where the coordinator lives during a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// In a process of its own.
    Own,
    /// In the job's process, and dies with it.
    Embedded,
}

/// What a moment came to.
pub(crate) enum Reached {
    /// It is now.
    Moment,
    /// The job reached its end before, with these words.
    End(String),
}

/// A pass under way.
pub(crate) struct Pass {
    dir: PathBuf,
    coordinator: Option<(Process, SocketAddr)>,
    job: Process,
    /// A server was killed while the job ran: it may give up, and is then started again.
    may_give_up: bool,
    pub(crate) replayed: Replayed,
}

impl Pass {
    /// Starts a pass in a directory of its own.
    pub(crate) fn start(subject: &mut impl Subject, dir: &Path, home: Home) -> Result<Self, DrillError> {
        fs::create_dir_all(dir).map_err(|source| DrillError::Io { path: dir.to_owned(), source })?;
        let coordinator = match home {
            Home::Own => {
                let address = free_address()?;
                Some((serve(dir, address)?, address))
            }
            Home::Embedded => None,
        };
        let job = start_job(subject, dir, coordinator.as_ref().map(|(_, address)| *address))?;
        Ok(Self { dir: dir.to_owned(), coordinator, job, may_give_up: false, replayed: Replayed::default() })
    }

    /// Waits for the moment of the next kill.
    pub(crate) fn reach(&mut self, moment: Moment, subject: &mut impl Subject) -> Result<Reached, DrillError> {
        let within = match moment {
            Moment::At { .. } => PATIENCE,
            Moment::After(delay) => delay,
        };
        self.arm(moment);
        let begun = Instant::now();
        loop {
            match self.job.hear(within.saturating_sub(begun.elapsed()))? {
                Heard::Said(Event::At(_)) => return Ok(Reached::Moment),
                Heard::Said(Event::Done(words)) => return Ok(Reached::End(words)),
                Heard::Said(event) => self.note(&event),
                Heard::Nothing if matches!(moment, Moment::After(_)) => return Ok(Reached::Moment),
                Heard::Nothing => return Err(self.job.silent("to pass a point or to end")),
                Heard::Ended => {
                    self.start_again(subject)?;
                    self.arm(moment);
                }
            }
        }
    }

    fn arm(&mut self, moment: Moment) {
        if let Moment::At { point, nth } = moment {
            self.job.say(&Command::Arm(point.word.to_owned(), nth));
        }
    }

    /// Kills whom the order names, and starts it again. False if the job had ended by itself just before.
    pub(crate) fn strike(&mut self, order: &Order, subject: &mut impl Subject) -> Result<bool, DrillError> {
        let is_standing = matches!(order.moment, Moment::At { .. });
        if let Victim::Server(server) = order.victim {
            subject.crash_server(server)?;
            self.may_give_up = true;
            if is_standing {
                self.job.say(&Command::Go);
            }
            return Ok(true);
        }
        if matches!(order.victim, Victim::Coordinator | Victim::Both)
            && let Some((mut coordinator, address)) = self.coordinator.take()
        {
            let is_both = order.victim == Victim::Both;
            let killed = coordinator.kill()?;
            let job_too = if is_both { self.kill_job()? } else { true };
            self.coordinator = Some((serve(&self.dir, address)?, address));
            if is_both {
                self.restart_job(subject)?;
            } else if is_standing {
                self.job.say(&Command::Go);
            }
            return Ok(killed.is_some() && job_too);
        }
        let killed = self.kill_job()?;
        self.restart_job(subject)?;
        Ok(killed)
    }

    /// Lets the job run to its end, unless it is there.
    pub(crate) fn finish(
        mut self,
        ended: Option<String>,
        subject: &mut impl Subject,
    ) -> Result<(String, Replayed), DrillError> {
        let words = match ended {
            Some(words) => words,
            None => loop {
                match self.job.hear(PATIENCE)? {
                    Heard::Said(Event::Done(words)) => break words,
                    Heard::Said(event) => self.note(&event),
                    Heard::Nothing => return Err(self.job.silent("to end")),
                    Heard::Ended => self.start_again(subject)?,
                }
            },
        };
        let Self { job, coordinator, replayed, .. } = self;
        job.finish()?;
        if let Some((mut coordinator, _)) = coordinator {
            coordinator.kill()?;
        }
        Ok((words, replayed))
    }

    /// The job has ended before its end: it may if a server was killed under it.
    fn start_again(&mut self, subject: &mut impl Subject) -> Result<(), DrillError> {
        if !self.may_give_up || self.job.outcome()?.code().is_none() {
            return Err(self.job.ended());
        }
        self.replayed.gave_up += 1;
        self.restart_job(subject)
    }

    fn kill_job(&mut self) -> Result<bool, DrillError> {
        let killed = self.job.kill()?;
        for event in killed.iter().flatten() {
            self.note(event);
        }
        // Of a job that gives up while it is to be killed, the kill is made up for.
        Ok(killed.is_some())
    }

    fn restart_job(&mut self, subject: &mut impl Subject) -> Result<(), DrillError> {
        self.may_give_up = false;
        self.job = start_job(subject, &self.dir, self.coordinator.as_ref().map(|(_, address)| *address))?;
        Ok(())
    }

    fn note(&mut self, event: &Event) {
        if let Event::Replayed(how) = event {
            self.replayed.all += 1;
            self.replayed.already += u64::from(*how == Committed::Already);
        }
    }
}

fn start_job(subject: &mut impl Subject, dir: &Path, coordinator: Option<SocketAddr>) -> Result<Process, DrillError> {
    let mut args = vec!["job".to_owned()];
    args.extend(subject.job_args(dir)?);
    if let Some(address) = coordinator {
        args.extend(["--coordinator".to_owned(), format!("http://{address}")]);
    }
    Process::start("job", &args, &dir.join("job.log"))
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
