//! The job under the kill drill: damaged lines mixed in, and what is left compared byte for byte.

mod damage;
mod job;
mod report;
mod verdict;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use self::{damage::damage, job::BETWEEN_RENAMES};
pub use self::{job::JobArgs, report::DrillReport, verdict::Verdict};
use super::{Output, PipelineError, Written, written_without_sink};
use crate::{
    drill::{DrillError, KillPoint, Plan, Sabotage, Subject, Victim, fresh_dir, of_subject, run_uninterrupted},
    quakes::Tally,
};

/// The damaged copy of the catalogue. Made first: a directory that has it is one of a drill.
const INPUT: &str = "damaged.csv";
const POINTS: [KillPoint; 6] = [
    KillPoint::BEGUN,
    KillPoint::PRE_COMMITTED,
    KillPoint::DECIDED,
    BETWEEN_RENAMES,
    KillPoint::APPLIED,
    KillPoint::ACKED,
];
const VICTIMS: [Victim; 4] = [Victim::Coordinator, Victim::Both, Victim::Job, Victim::Job];

/// What to drill.
#[derive(Debug, Clone)]
pub struct QuakesDrill {
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

impl QuakesDrill {
    /// Kills as planned, and compares.
    ///
    /// # Errors
    /// See [`DrillError`]; lost and doubled rows are no error but in the report.
    pub fn run(&self) -> Result<DrillReport, DrillError> {
        if self.checkpoint_records < 2 {
            let why = "a drill needs --checkpoint-records of at least 2: a commit of one line has no two renames to kill between";
            return Err(of_subject(why));
        }
        fresh_dir(&self.dir, INPUT)?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DrillError::Io { path, source }
        };
        let input = self.dir.join(INPUT);
        let catalogue = fs::read(&self.input).map_err(failed(&self.input))?;
        fs::write(&input, damage(&catalogue, self.seed)).map_err(failed(&input))?;
        let (expected, tally) = written_without_sink(&input).map_err(of_subject)?;
        let mut quakes = Quakes { drill: self, input, expected, tally: Tally::default(), verdict: Verdict::default() };

        let uninterrupted = self.dir.join("uninterrupted");
        run_uninterrupted(&mut quakes, &uninterrupted)?;
        let uninterrupted = Verdict::of(&written(&uninterrupted)?, &quakes.expected);
        let plan = Plan { dir: self.dir.clone(), kills: self.kills, seed: self.seed };
        let survived = plan.run(&mut quakes)?;
        let (verdict, dir) = (quakes.verdict, self.dir.clone());
        let (seed, expected, tally) = (self.seed, tally, quakes.tally);
        Ok(DrillReport { seed, dir, expected, tally, verdict, uninterrupted, survived })
    }
}

/// The job while it is drilled, and what was found so far.
struct Quakes<'a> {
    drill: &'a QuakesDrill,
    input: PathBuf,
    expected: Written,
    tally: Tally,
    verdict: Verdict,
}

impl Subject for Quakes<'_> {
    fn points(&self) -> &'static [KillPoint] {
        &POINTS
    }

    fn victims(&self) -> &'static [Victim] {
        &VICTIMS
    }

    fn longest_random(&self) -> Duration {
        Duration::from_millis(150)
    }

    fn checkpoint_flag(&self) -> &'static str {
        "--checkpoint-records"
    }

    fn job_args(&mut self, dir: &Path) -> Result<Vec<String>, DrillError> {
        let args = JobArgs {
            input: self.input.clone(),
            output: output_dir(dir),
            data_dir: dir.join("data"),
            checkpoint_records: self.drill.checkpoint_records,
            coordinator: None,
            sabotage: self.drill.sabotage,
        };
        Ok(args.to_args())
    }

    fn passed(&mut self, dir: &Path, words: &str) -> Result<(), DrillError> {
        let tally =
            job::parse_tally(words).ok_or_else(|| DrillError::Garbled { name: "job", line: words.to_owned() })?;
        self.tally.lines += tally.lines;
        self.tally.filtered += tally.filtered;
        self.verdict = self.verdict.plus(Verdict::of(&written(dir)?, &self.expected));
        Ok(())
    }
}

fn written(pass: &Path) -> Result<Written, DrillError> {
    let failed = |error| DrillError::Io { path: pass.to_owned(), source: io::Error::other(error) };
    Output::new(output_dir(pass)).map_err(failed)?.read().map_err(|error: PipelineError| of_subject(error))
}

/// Where the visible files of a pass are.
fn output_dir(pass: &Path) -> PathBuf {
    pass.join("output")
}
