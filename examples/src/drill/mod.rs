//! The kill drill: a job is killed again and again, and its output must be that of a job that never was.
//!
//! A parent process runs the job as a child, in alternation with the coordinator as a process of its own and embedded in
//! the job. It kills with SIGKILL, at random moments and at the points of `point`, restarts what it killed, and compares.

mod child;
mod control;
mod damage;
mod error;
mod message;
mod pass;
mod plan;
mod point;
mod process;
mod progress;
mod report;
mod sabotage;
mod verdict;

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

pub use self::{
    child::{JobArgs, serve},
    error::DrillError,
    report::DrillReport,
    sabotage::Sabotage,
    verdict::Verdict,
};
use self::{
    damage::damage,
    pass::{Home, Pass, Reached, Setup, output_dir},
    plan::{Order, plan},
    progress::Progress,
};
use crate::{
    pipeline::{Output, Written, written_without_sink},
    quakes::Tally,
};

/// Kills per pass, about: few enough that the commits of one pass are enough for them.
const KILLS_PER_PASS: usize = 25;

/// The damaged copy of the catalogue. Made first: a directory that has it is one of a drill.
const INPUT: &str = "damaged.csv";

/// What to drill.
#[derive(Debug, Clone)]
pub struct Drill {
    /// The catalogue; damaged lines are mixed into a copy of it.
    pub input: PathBuf,
    /// Where everything of the drill lies. What an earlier drill left there is removed first.
    pub dir: PathBuf,
    /// A checkpoint is taken after so many lines.
    pub checkpoint_records: u64,
    /// How many kills in all.
    pub kills: usize,
    /// What the plan of the kills is drawn from.
    pub seed: u64,
    /// How the sink is broken on purpose, if it is.
    pub sabotage: Option<Sabotage>,
}

impl Drill {
    /// Kills as planned, and compares.
    ///
    /// # Errors
    /// See [`DrillError`]; lost and doubled rows are no error but in the report.
    pub fn run(&self) -> Result<DrillReport, DrillError> {
        let begun = Instant::now();
        let setup = self.prepare()?;
        let (expected, tally) = written_without_sink(&setup.input)?;
        let mut report = DrillReport::new(self, tally);
        self.run_uninterrupted(&setup, &expected, &mut report)?;

        let mut orders: VecDeque<Order> = plan(self.seed, self.kills).into();
        let passes = self.kills.div_ceil(KILLS_PER_PASS).max(2);
        let progress = Progress::new(self.kills);
        let mut number = 0;
        while number < passes || !orders.is_empty() {
            if number >= passes * 4 {
                return Err(DrillError::TooShort { left: orders.len(), passes: number });
            }
            let left = passes.saturating_sub(number).max(1);
            let share = orders.len().div_ceil(left);
            number += 1;
            let home = if number % 2 == 1 { Home::Own } else { Home::Embedded };
            let dir = self.dir.join(format!("pass-{number}"));
            progress.pass(number, home);
            let tally = run_pass(&setup, &dir, home, &mut orders, share, &mut report, &progress)?;
            report.passed(&tally, Verdict::of(&written(&dir)?, &expected));
        }
        progress.finish();
        report.took = begun.elapsed();
        Ok(report)
    }

    /// A fresh directory with a catalogue to drill on.
    fn prepare(&self) -> Result<Setup, DrillError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DrillError::Io { path, source }
        };
        if self.checkpoint_records < 2 {
            return Err(DrillError::OneLine);
        }
        let input = self.dir.join(INPUT);
        if self.dir.exists() {
            if !input.exists() {
                return Err(DrillError::NotADrill { path: self.dir.clone() });
            }
            fs::remove_dir_all(&self.dir).map_err(failed(&self.dir))?;
        }
        fs::create_dir_all(&self.dir).map_err(failed(&self.dir))?;
        let catalogue = fs::read(&self.input).map_err(failed(&self.input))?;
        fs::write(&input, damage(&catalogue, self.seed)).map_err(failed(&input))?;
        Ok(Setup { input, checkpoint_records: self.checkpoint_records, sabotage: self.sabotage })
    }

    /// The same job, never killed: what all others are measured by.
    fn run_uninterrupted(&self, setup: &Setup, expected: &Written, report: &mut DrillReport) -> Result<(), DrillError> {
        let dir = self.dir.join("uninterrupted");
        Pass::start(setup, &dir, Home::Embedded)?.finish(None)?;
        report.uninterrupted = Verdict::of(&written(&dir)?, expected);
        Ok(())
    }
}

fn written(pass: &Path) -> Result<Written, DrillError> {
    let failed = |source| DrillError::Io { path: pass.to_owned(), source };
    let output = Output::new(output_dir(pass)).map_err(|e| failed(std::io::Error::other(e)))?;
    Ok(output.read()?)
}

/// Kills as ordered until its share is done or the job is at its end; what is left is for the next pass.
fn run_pass(
    setup: &Setup,
    dir: &Path,
    home: Home,
    orders: &mut VecDeque<Order>,
    share: usize,
    report: &mut DrillReport,
    progress: &Progress,
) -> Result<Tally, DrillError> {
    let mut pass = Pass::start(setup, dir, home)?;
    let mut ended = None;
    let mut struck = 0;
    while struck < share
        && let Some(order) = orders.front().copied()
    {
        match pass.reach(order.moment)? {
            Reached::End(tally) => {
                ended = Some(tally);
                break;
            }
            Reached::Moment if pass.strike(&order)? => {
                orders.pop_front();
                struck += 1;
                report.struck(&order, home);
                progress.struck();
            }
            Reached::Moment => {}
        }
    }
    let (tally, replayed) = pass.finish(ended)?;
    report.replayed.all += replayed.all;
    report.replayed.already += replayed.already;
    Ok(tally)
}
