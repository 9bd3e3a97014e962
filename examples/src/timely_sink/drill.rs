//! Kills the dataflow again and again, each time with another number of workers, and compares what is left.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratified::Point;
use thiserror::Error;

use super::{Checkpoints, FlowError, Observer, events_of, expected_rows, visible_rows};

/// What a child says when it stands still, to be killed.
const STANDS: &str = "stands";
const MAX_WORKERS: u32 = 4;
const POINTS: [&str; 6] = ["begun", "pre_committed", "prepared", "decided", "applied", "acked"];

/// Why a drill could not be carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DrillError {
    /// The input or the output cannot be read.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// The expected rows cannot be encoded.
    #[error(transparent)]
    Row(#[from] serde_json::Error),
    /// A child cannot be started or ended.
    #[error("the dataflow's process: {0}")]
    Process(#[from] io::Error),
    /// A child ended by itself with an error.
    #[error("the dataflow failed; the end of its log:\n{0}")]
    Failed(String),
}

/// A drill.
#[derive(Debug, Clone)]
pub struct Drill {
    /// How many kills.
    pub kills: u32,
    /// Repeats a drill's plan.
    pub seed: u64,
    /// The catalogue of events.
    pub input: PathBuf,
    /// How many events make an epoch.
    pub epoch_events: usize,
    /// An empty directory.
    pub dir: PathBuf,
    /// The coordinator's URL; it is not killed.
    pub coordinator: String,
}

/// What a drill found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrillReport {
    /// Kills at a chosen point of a transaction's life.
    pub at_points: u32,
    /// Kills at a random moment.
    pub at_random: u32,
    /// Epochs.
    pub epochs: u64,
    /// Rows that are visible.
    pub rows: usize,
    /// Whether these are, byte for byte, the rows of a computation without sink and workers.
    pub is_equal: bool,
}

impl Drill {
    /// Carries it out.
    ///
    /// # Errors
    /// See [`DrillError`]; a wrong output is none, but told in the report.
    pub fn run(&self) -> Result<DrillReport, DrillError> {
        let mut rng = StdRng::seed_from_u64(self.seed);
        // Long enough that the last kill still meets work: a life gets a few epochs far.
        let one_pass = events_of(&self.input, 1, self.epoch_events).map_err(FlowError::from)?;
        let epochs_per_pass = one_pass.last().map_or(1, |event| event.epoch);
        let passes = 1 + u64::from(self.kills) * 8 / epochs_per_pass;
        let events = events_of(&self.input, passes, self.epoch_events).map_err(FlowError::from)?;
        let mut report = DrillReport { epochs: events.last().map_or(0, |event| event.epoch), ..Default::default() };
        while report.at_points + report.at_random < self.kills {
            let chooses_point = rng.random_bool(0.7);
            let point = POINTS.get(rng.random_range(0..POINTS.len())).copied().unwrap_or("decided");
            let stand = chooses_point.then(|| format!("{point}:{}", rng.random_range(0..6)));
            let mut child = self.start(rng.random_range(1..=MAX_WORKERS), passes, stand.as_deref())?;
            let was_killed =
                if chooses_point { until_standing(&mut child)? } else { self.until_further(&mut child, &mut rng)? };
            child.kill()?;
            child.wait()?;
            match (was_killed, chooses_point) {
                (false, _) => break,
                (true, true) => report.at_points += 1,
                (true, false) => report.at_random += 1,
            }
        }
        let status = self.start(2, passes, None)?.wait()?;
        if !status.success() {
            return Err(DrillError::Failed(self.log()));
        }
        let visible = visible_rows(&self.dir)?;
        report.rows = visible.iter().filter(|byte| **byte == b'\n').count();
        report.is_equal = visible == expected_rows(&events)?;
        Ok(report)
    }

    fn start(&self, workers: u32, passes: u64, stand: Option<&str>) -> Result<Child, DrillError> {
        let log = fs::File::options().create(true).append(true).open(self.dir.join("log"))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--input").arg(&self.input).arg("--dir").arg(&self.dir);
        command.args(["--coordinator", &self.coordinator, "--workers", &workers.to_string()]);
        command.args(["--passes", &passes.to_string(), "--epoch-events", &self.epoch_events.to_string()]);
        if let Some(stand) = stand {
            command.args(["--stand-still-at", stand]);
        }
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?)
    }

    /// Until some epochs further on, and a moment of chance behind it; false if it has ended.
    fn until_further(&self, child: &mut Child, rng: &mut StdRng) -> Result<bool, DrillError> {
        let checkpoints = Checkpoints::open(&self.dir.join("checkpoints"))?;
        let goal = checkpoints.completed_epoch()? + rng.random_range(0..5);
        while checkpoints.completed_epoch()? < goal {
            if let Some(status) = child.try_wait()? {
                return if status.success() { Ok(false) } else { Err(DrillError::Failed(self.log())) };
            }
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(rng.random_range(0..20_000)));
        Ok(child.try_wait()?.is_none())
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Until the child says that it stands at its point; false if it has ended.
fn until_standing(child: &mut Child) -> Result<bool, DrillError> {
    let Some(stdout) = child.stdout.take() else { return Ok(false) };
    let mut lines = BufReader::<ChildStdout>::new(stdout).lines();
    Ok(lines.next().transpose()?.is_some_and(|line| line == STANDS))
}

/// Stands still for ever when a point is passed for the n-th time: `POINT:N`, counted from 0. `None` if that is none.
pub fn stand_still_at(place: &str) -> Option<Observer> {
    let (point, nth) = place.split_once(':')?;
    let (point, nth) = (point.to_owned(), nth.parse::<u32>().ok()?);
    let passed = AtomicU32::new(0);
    Some(std::sync::Arc::new(move |at| {
        if word(at) == point && passed.fetch_add(1, Ordering::SeqCst) == nth {
            let mut out = io::stdout().lock();
            let _ = writeln!(out, "{STANDS}").and_then(|()| out.flush());
            loop {
                thread::park();
            }
        }
    }))
}

fn word(point: Point) -> &'static str {
    match point {
        Point::Begun => "begun",
        Point::PreCommitted => "pre_committed",
        Point::Prepared => "prepared",
        Point::Decided => "decided",
        Point::Applied => "applied",
        Point::Acked => "acked",
        _ => "another point",
    }
}
