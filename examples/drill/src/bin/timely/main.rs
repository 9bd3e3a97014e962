//! The dataflow `timely_sink` under the kill drill, each life with another number of workers.

mod job;
mod report;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use ratified_drill::{
    Draw, DrillError, KillPoint, Plan, Subject, Victim,
    cli::{self, Child, DrillArgs, log_to_stderr},
    fresh_dir, of_subject,
};
use timely_sink::{events_of, expected_rows, visible_rows};

use self::report::FlowReport;

/// Made first: a directory that has it is one of a drill.
const MARK: &str = "drill-of-timely-sink";
const MAX_WORKERS: u64 = 4;
/// Epochs per kill: a life gets a few of them far, and the last kill must still meet work.
const EPOCHS_PER_KILL: u64 = 8;
/// Kills of a pass, about.
const KILLS_PER_PASS: u64 = 25;
const POINTS: [KillPoint; 6] = [
    KillPoint::BEGUN,
    KillPoint::PRE_COMMITTED,
    KillPoint::PREPARED,
    KillPoint::DECIDED,
    KillPoint::APPLIED,
    KillPoint::ACKED,
];
const VICTIMS: [Victim; 4] = [Victim::Coordinator, Victim::Both, Victim::Job, Victim::Job];

/// Runs the dataflow `timely_sink`, kills it and its coordinator while they work, each life with another number of
/// workers, and compares the result with what is computed without any.
#[derive(Debug, Parser)]
#[command(max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    child: Option<Child<job::JobArgs>>,
    /// The catalogue; by default the one that comes with the examples.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/earthquakes.csv"))]
    input: PathBuf,
    /// Where everything of the drill lies. What an earlier drill left there is removed first.
    #[arg(long, value_name = "DIR", default_value = "target/drill/timely")]
    dir: PathBuf,
    /// How many events make an epoch.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    epoch_events: u32,
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
    fn run(self, seed: u64) -> Result<FlowReport, DrillError> {
        fresh_dir(&self.dir, MARK)?;
        let mark = self.dir.join(MARK);
        fs::write(&mark, "").map_err(|source| DrillError::Io { path: mark, source })?;
        let epoch_events = usize::try_from(self.epoch_events).map_err(of_subject)?;
        let once = events_of(&self.input, 1, epoch_events).map_err(of_subject)?;
        let kills = KILLS_PER_PASS.min(self.drill.kills as u64);
        let passes = 1 + kills * EPOCHS_PER_KILL / once.last().map_or(1, |event| event.epoch);
        let events = events_of(&self.input, passes, epoch_events).map_err(of_subject)?;
        let expected = expected_rows(&events).map_err(of_subject)?;
        let plan = Plan { dir: self.dir.clone(), kills: self.drill.kills, seed };
        let mut subject = Dataflow { draw: Draw::new(seed), passes, expected, rows: 0, equal: 0, cli: self };
        let survived = plan.run(&mut subject)?;
        Ok(FlowReport {
            seed,
            dir: plan.dir,
            epochs: events.last().map_or(0, |event| event.epoch),
            expected: lines(&subject.expected),
            rows: subject.rows,
            equal: subject.equal,
            survived,
        })
    }
}

/// The dataflow while it is drilled, and what was found so far.
struct Dataflow {
    cli: Cli,
    draw: Draw,
    /// How often the catalogue is read.
    passes: u64,
    expected: Vec<u8>,
    rows: u64,
    equal: u64,
}

impl Subject for Dataflow {
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
        "--epoch-events"
    }

    fn job_args(&mut self, dir: &Path) -> Result<Vec<String>, DrillError> {
        let mut args = cli::CommonArgs::to_args(dir.join("data"), self.cli.drill.sabotage);
        let mut flag = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        flag("input", self.cli.input.display().to_string());
        flag("dir", dir.display().to_string());
        flag("passes", self.passes.to_string());
        flag("epoch-events", self.cli.epoch_events.to_string());
        flag("workers", (1 + self.draw.below(MAX_WORKERS)).to_string());
        Ok(args)
    }

    fn passed(&mut self, dir: &Path, _words: &str) -> Result<(), DrillError> {
        let visible = visible_rows(dir).map_err(of_subject)?;
        self.rows += lines(&visible);
        self.equal += u64::from(visible == self.expected);
        Ok(())
    }
}

fn lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}
