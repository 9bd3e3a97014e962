//! The kill drill: a job is killed again and again, and its output must be that of a job that never was.
//!
//! A parent process runs the job as a child, in alternation with the coordinator as a process of its own and embedded in
//! the job. It kills with SIGKILL, at random moments and at the points that the [`Subject`] names, restarts what it
//! killed, and lets the subject compare. What is drilled knows nothing of it: it is decorated from outside, its sink by
//! [`DrilledSink`], its points by a [`Control`].

mod child;
pub mod cli;
mod control;
mod error;
mod message;
mod near;
mod pass;
mod plan;
mod point;
mod process;
mod progress;
mod sabotage;
mod survived;

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub use self::{
    child::serve,
    control::Control,
    error::{DrillError, of_subject},
    near::{CoordinatorError, NearCoordinator},
    plan::{Draw, Victim},
    point::KillPoint,
    sabotage::{DrilledCommitter, DrilledSink, DrilledWriter, Sabotage},
    survived::Survived,
};
use self::{
    pass::{Home, Pass, Reached},
    plan::{Choices, Order, plan},
    progress::Progress,
};

/// Kills per pass, about: few enough that the commits of one pass are enough for them.
const KILLS_PER_PASS: usize = 25;

/// What is drilled: a job of this executable, and what it writes to.
pub trait Subject {
    /// Where the job is killed, besides at random moments.
    fn points(&self) -> &'static [KillPoint];

    /// Whom a kill hits, each as often as it stands there.
    fn victims(&self) -> &'static [Victim];

    /// The servers that are killed, too, for the columns of the table.
    fn servers(&self) -> &'static [&'static str] {
        &[]
    }

    /// The latest random moment: about as long as a life of the job takes up to its first commits.
    fn longest_random(&self) -> Duration;

    /// The flag that says how much a commit holds.
    fn checkpoint_flag(&self) -> &'static str;

    /// The arguments with which this executable runs the job in the directory of a pass, asked for at each start; those
    /// that name a coordinator are added.
    ///
    /// # Errors
    /// Any ends the drill.
    fn job_args(&mut self, dir: &Path) -> Result<Vec<String>, DrillError>;

    /// Kills a server with SIGKILL and starts it again, by its place in the list.
    ///
    /// # Errors
    /// Any ends the drill.
    fn crash_server(&mut self, _server: usize) -> Result<(), DrillError> {
        Ok(())
    }

    /// A pass is through, and this is what the job said of it: compares.
    ///
    /// # Errors
    /// Any ends the drill; what is lost or doubled is no error but for the report.
    fn passed(&mut self, dir: &Path, words: &str) -> Result<(), DrillError>;
}

/// How a subject is drilled.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where everything of the drill lies; each pass has a directory of its own there.
    pub dir: PathBuf,
    /// How many kills in all.
    pub kills: usize,
    /// What the plan of the kills is drawn from.
    pub seed: u64,
}

impl Plan {
    /// Kills as planned.
    ///
    /// # Errors
    /// See [`DrillError`].
    pub fn run(&self, subject: &mut impl Subject) -> Result<Survived, DrillError> {
        let begun = Instant::now();
        let mut survived = Survived::new(subject.points(), subject.servers());
        let choices =
            Choices { points: subject.points(), victims: subject.victims(), longest: subject.longest_random() };
        let mut orders: VecDeque<Order> = plan(self.seed, self.kills, choices).into();
        let passes = self.kills.div_ceil(KILLS_PER_PASS).max(2);
        let progress = Progress::new(self.kills);
        let mut number = 0;
        while number < passes || !orders.is_empty() {
            if number >= passes * 4 {
                let (left, flag) = (orders.len(), subject.checkpoint_flag());
                return Err(DrillError::TooShort { left, passes: number, flag });
            }
            let left = passes.saturating_sub(number).max(1);
            let share = orders.len().div_ceil(left);
            number += 1;
            let home = if number % 2 == 1 { Home::Own } else { Home::Embedded };
            progress.pass(number, home);
            let dir = self.dir.join(format!("pass-{number}"));
            let words = run_pass(subject, &dir, home, &mut orders, share, &mut survived, &progress)?;
            subject.passed(&dir, &words)?;
        }
        progress.finish();
        survived.took = begun.elapsed();
        Ok(survived)
    }
}

/// Runs the job once, never killed, in this directory: what all others are measured by. Its last words.
///
/// # Errors
/// See [`DrillError`].
pub fn run_uninterrupted(subject: &mut impl Subject, dir: &Path) -> Result<String, DrillError> {
    Ok(Pass::start(subject, dir, Home::Embedded)?.finish(None, subject)?.0)
}

/// Empties the directory of an earlier drill, or makes one. `mark` is what every drill puts there first: a directory that
/// has something else but not this is left alone.
///
/// # Errors
/// [`DrillError::NotADrill`], or what the system says.
pub fn fresh_dir(dir: &Path, mark: &str) -> Result<(), DrillError> {
    let failed = |source| DrillError::Io { path: dir.to_owned(), source };
    if dir.exists() {
        if !dir.join(mark).exists() {
            return Err(DrillError::NotADrill { path: dir.to_owned() });
        }
        fs::remove_dir_all(dir).map_err(failed)?;
    }
    fs::create_dir_all(dir).map_err(failed)
}

/// Kills as ordered until its share is done or the job is at its end; what is left is for the next pass.
fn run_pass(
    subject: &mut impl Subject,
    dir: &Path,
    home: Home,
    orders: &mut VecDeque<Order>,
    share: usize,
    survived: &mut Survived,
    progress: &Progress,
) -> Result<String, DrillError> {
    let mut pass = Pass::start(subject, dir, home)?;
    let mut ended = None;
    let mut struck = 0;
    while struck < share
        && let Some(order) = orders.front().copied()
    {
        match pass.reach(order.moment, subject)? {
            Reached::End(words) => {
                ended = Some(words);
                break;
            }
            Reached::Moment if pass.strike(&order, subject)? => {
                orders.pop_front();
                struck += 1;
                survived.struck(&order, home);
                progress.struck();
            }
            Reached::Moment => {}
        }
    }
    let (words, replayed) = pass.finish(ended, subject)?;
    survived.passed(replayed);
    Ok(words)
}
