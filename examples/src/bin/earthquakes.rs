//! A catalogue of earthquakes, checked and enriched, into files, exactly once; and a drill that kills it while it works.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use ratified_examples::{
    cli::{exit, log_to_stderr, say, verdict},
    drill::{Sabotage, serve},
    pipeline::{CLIENT, JobArgs, Output, Pipeline, PipelineError, QuakesDrill},
    quakes::{COLUMNS, MIN_MAGNITUDE, REJECT_COLUMNS, Tally},
};

/// How many refused lines are shown.
const SHOWN_REJECTS: usize = 10;

/// Reads a catalogue of earthquakes, enriches it and writes it to files, exactly once. Run again, it goes on where it
/// was.
#[derive(Debug, Parser)]
#[command(max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    child: Option<ChildCommand>,
    /// The catalogue; by default the one that comes with the example.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/earthquakes.csv"))]
    input: PathBuf,
    /// Where the result goes.
    #[arg(long, value_name = "DIR", default_value = "target/earthquakes/output")]
    output: PathBuf,
    /// Where the job remembers what it began, and the embedded coordinator what it decided. A drill takes place in its
    /// subdirectory `drill`, with outputs of its own.
    #[arg(long, value_name = "DIR", default_value = "target/earthquakes/data")]
    data_dir: PathBuf,
    /// The URL of a running coordinator; by default one is embedded.
    #[arg(long, value_name = "URL")]
    coordinator: Option<String>,
    /// The job's name at the coordinator.
    #[arg(long, value_name = "NAME", default_value = CLIENT)]
    client: String,
    /// A checkpoint after so many lines; by default 200, in a drill 20.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    checkpoint_records: Option<u64>,
    /// Kill job and coordinator so often while they work, and compare the result with that of an uninterrupted run.
    #[arg(long, value_name = "N", conflicts_with_all = ["coordinator", "output", "client"])]
    drill: Option<usize>,
    /// What the drill's plan is drawn from; by default at random, and told.
    #[arg(long, value_name = "SEED", requires = "drill")]
    seed: Option<u64>,
    /// For tests: break the sink on purpose, which the drill must find.
    #[arg(long, value_enum, hide = true, requires = "drill")]
    sabotage: Option<Sabotage>,
}

/// The processes that a drill starts.
#[derive(Debug, Subcommand)]
enum ChildCommand {
    /// The job, under the drill's control.
    #[command(hide = true)]
    Job(JobArgs),
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

#[tokio::main]
async fn main() -> ExitCode {
    log_to_stderr();
    let cli = Cli::parse();
    match &cli.child {
        Some(ChildCommand::Job(args)) => exit(args.run().await),
        Some(ChildCommand::Serve { data_dir, listen }) => exit(serve(data_dir, *listen).await),
        None => match cli.drill {
            Some(kills) => drill(&cli, kills).await,
            None => exit(run(&cli).await),
        },
    }
}

async fn run(cli: &Cli) -> Result<(), PipelineError> {
    let pipeline = Pipeline {
        input: cli.input.clone(),
        output: Output::new(&cli.output)?,
        data_dir: cli.data_dir.clone(),
        coordinator: cli.coordinator.clone(),
        client: cli.client.parse().map_err(PipelineError::Name)?,
        checkpoint_records: cli.checkpoint_records.unwrap_or(200),
    };
    say(&format!("{} -> {}", cli.input.display(), cli.output.display()));
    let report = pipeline.run().await?;
    match report.resumed_from {
        Some(from) => say(&format!("resumed behind line {}", from.tally.lines + 1)),
        None => say("started at the beginning"),
    }
    say(&format!("committed {} transactions, finished {} of earlier runs", report.commits, report.opened.committed));
    let written = pipeline.output.read()?;
    pipeline.output.check(&written, &report.position.tally)?;
    show(cli, &report.position.tally, &written.rejects);
    Ok(())
}

fn show(cli: &Cli, tally: &Tally, rejects: &[u8]) {
    say("");
    say(&format!("records in {:>8}", tally.lines));
    say(&format!("out        {:>8}   {}", tally.kept, pattern(&cli.output, "events")));
    say(&format!("filtered   {:>8}   magnitude below {MIN_MAGNITUDE}", tally.filtered));
    say(&format!("rejected   {:>8}   {}", tally.rejected, pattern(&cli.output, "rejects")));
    say("");
    say(&format!("columns of events:  {COLUMNS}"));
    say(&format!("columns of rejects: {REJECT_COLUMNS}"));
    for row in String::from_utf8_lossy(rejects).lines().take(SHOWN_REJECTS) {
        say(&format!("rejected: {row}"));
    }
    if tally.rejected > SHOWN_REJECTS as u64 {
        say(&format!("rejected: ... {} lines in all", tally.rejected));
    }
}

/// The files of a target; the shell sorts them into the order of the catalogue.
fn pattern(output: &Path, target: &str) -> String {
    format!("{}/{target}-*.csv", output.display())
}

async fn drill(cli: &Cli, kills: usize) -> ExitCode {
    let drill = QuakesDrill {
        input: cli.input.clone(),
        dir: cli.data_dir.join("drill"),
        checkpoint_records: cli.checkpoint_records.unwrap_or(20),
        kills,
        seed: cli.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
        sabotage: cli.sabotage,
    };
    say(&format!("drill: {kills} kills, seed {} (--seed {} repeats the plan)", drill.seed, drill.seed));
    match tokio::task::spawn_blocking(move || drill.run()).await {
        Ok(Ok(report)) => verdict(&report, report.is_exact()),
        Ok(Err(error)) => exit(Err(error)),
        Err(error) => exit(Err(error)),
    }
}
