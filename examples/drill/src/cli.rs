//! The command lines of drills and of the processes that they start, and how they end.

use std::{
    fmt::Display,
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Subcommand, ValueEnum};
use tracing_subscriber::filter::LevelFilter;

use crate::{DrillError, Sabotage, serve};

/// Rows were looked at, and some are lost, doubled or wrong.
const EXIT_NOT_EXACT: u8 = 1;
/// Something could not be done; nothing is said about rows.
const EXIT_FAILED: u8 = 3;

/// What every drill is told.
#[derive(Debug, Clone, Args)]
pub struct DrillArgs {
    /// How often job, coordinator and servers are killed while they work.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub kills: usize,
    /// What the plan is drawn from; by default at random, and told.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// For tests: break the sink on purpose, which the drill must find.
    #[arg(long, value_enum, hide = true)]
    pub sabotage: Option<Sabotage>,
}

impl DrillArgs {
    /// The seed, drawn if none is given.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().hash_one(()) >> 32)
    }
}

/// The processes that a drill starts.
#[derive(Debug, Subcommand)]
pub enum Child<J: Args> {
    /// The job, under the drill's control.
    #[command(hide = true)]
    Job(J),
    /// A coordinator, until it is killed.
    #[command(hide = true)]
    Serve {
        /// Where its store is.
        #[arg(long)]
        data_dir: PathBuf,
        /// Where it listens.
        #[arg(long)]
        listen: SocketAddr,
    },
}

impl<J: Args> Child<J> {
    /// Runs the process; the job as given.
    pub async fn run<E: Display>(self, job: impl AsyncFnOnce(J) -> Result<(), E>) -> ExitCode {
        match self {
            Self::Job(args) => exit(job(args).await),
            Self::Serve { data_dir, listen } => exit(serve(&data_dir, listen).await),
        }
    }
}

/// How any job is run inside a drill.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Where the pending store is kept, and the store of an embedded coordinator.
    #[arg(long)]
    pub data_dir: PathBuf,
    /// The coordinator's URL; without one, a coordinator in the job's process.
    #[arg(long)]
    pub coordinator: Option<String>,
    /// How the sink is broken.
    #[arg(long, value_enum)]
    pub sabotage: Option<Sabotage>,
}

impl CommonArgs {
    /// The arguments that say so; the coordinator is named by the drill.
    pub fn to_args(data_dir: PathBuf, sabotage: Option<Sabotage>) -> Vec<String> {
        let mut args = vec!["--data-dir".to_owned(), data_dir.display().to_string()];
        if let Some(value) = sabotage.and_then(|sabotage| sabotage.to_possible_value()) {
            args.extend(["--sabotage".to_owned(), value.get_name().to_owned()]);
        }
        args
    }
}

/// What a drill has found, as a table.
pub trait Report: Display + Send + 'static {
    /// Whether nothing is lost, doubled or wrong.
    fn is_exact(&self) -> bool;
}

/// Logs warnings and worse to stderr.
pub fn log_to_stderr() {
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(io::stderr).init();
}

/// Carries out a drill, prints what it has found, and ends well only if that is exact.
pub async fn drill<R: Report>(
    kills: usize,
    seed: u64,
    drill: impl FnOnce() -> Result<R, DrillError> + Send + 'static,
) -> ExitCode {
    say(&format!("drill: {kills} kills, seed {seed} (--seed {seed} repeats the plan)"));
    match tokio::task::spawn_blocking(drill).await {
        Ok(Ok(report)) => {
            say(&report.to_string());
            if report.is_exact() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NOT_EXACT) }
        }
        Ok(Err(error)) => exit(Err(error)),
        Err(error) => exit(Err(error)),
    }
}

fn exit<E: Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Prints a line. A reader that has seen enough, as `head` has, is no reason to fail.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
