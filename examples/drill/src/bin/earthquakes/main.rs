//! The job `earthquakes` under the kill drill: damaged lines mixed in, and what is left compared byte for byte.

mod damage;
mod job;
mod report;
mod verdict;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use earthquakes::{Tally, Written};
use ratified_drill::{
    DrillError, KillPoint, Plan, Subject, Victim,
    cli::{self, Child, DrillArgs, log_to_stderr},
    fresh_dir, of_subject, run_uninterrupted,
};

use self::{damage::damage, job::BETWEEN_RENAMES, report::DrillReport, verdict::Verdict};

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

/// Runs the job `earthquakes`, kills it and its coordinator while they work, and compares the result with that of an
/// uninterrupted run.
#[derive(Debug, Parser)]
#[command(max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    child: Option<Child<job::JobArgs>>,
    /// The catalogue, into a copy of which damaged lines are mixed; by default the one that comes with the examples.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/earthquakes.csv"))]
    input: PathBuf,
    /// Where everything of the drill lies. What an earlier drill left there is removed first.
    #[arg(long, value_name = "DIR", default_value = "target/drill/earthquakes")]
    dir: PathBuf,
    /// A checkpoint after so many lines.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    checkpoint_records: u64,
    #[command(flatten)]
    drill: DrillArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    log_to_stderr();
    let mut cli = Cli::parse();
    match cli.child.take() {
        Some(child) => child.run(async |job: job::JobArgs| job.run().await).await,
        None => {
            let (kills, seed) = (cli.drill.kills, cli.drill.seed());
            cli::drill(kills, seed, move || cli.run(seed)).await
        }
    }
}

impl Cli {
    /// Kills as planned, and compares.
    fn run(self, seed: u64) -> Result<DrillReport, DrillError> {
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
        fs::write(&input, damage(&catalogue, seed)).map_err(failed(&input))?;
        let (expected, of_one_pass) = Written::without_sink(&input).map_err(of_subject)?;
        let (dir, plan) = (self.dir.clone(), Plan { dir: self.dir.clone(), kills: self.drill.kills, seed });
        let mut quakes = Quakes { cli: self, input, expected, tally: Tally::default(), verdict: Verdict::default() };

        let uninterrupted = dir.join("uninterrupted");
        run_uninterrupted(&mut quakes, &uninterrupted)?;
        let uninterrupted = Verdict::of(&written(&uninterrupted)?, &quakes.expected);
        let survived = plan.run(&mut quakes)?;
        let (verdict, tally) = (quakes.verdict, quakes.tally);
        Ok(DrillReport { seed, dir, expected: of_one_pass, tally, verdict, uninterrupted, survived })
    }
}

/// The job while it is drilled, and what was found so far.
struct Quakes {
    cli: Cli,
    input: PathBuf,
    expected: Written,
    tally: Tally,
    verdict: Verdict,
}

impl Subject for Quakes {
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
        let mut args = cli::CommonArgs::to_args(dir.join("data"), self.cli.drill.sabotage);
        let mut flag = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        flag("input", self.input.display().to_string());
        flag("output", output_dir(dir).display().to_string());
        flag("checkpoint-records", self.cli.checkpoint_records.to_string());
        Ok(args)
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
    Written::read(&output_dir(pass)).map_err(of_subject)
}

/// Where the visible files of a pass are.
fn output_dir(pass: &Path) -> PathBuf {
    pass.join("output")
}
