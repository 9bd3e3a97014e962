//! A catalogue of earthquakes, checked and enriched, into files, exactly once.

use std::{
    error::Error,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use earthquakes::{COLUMNS, MIN_MAGNITUDE, REJECT_COLUMNS, Tally, Written, job::Run};
use ratified::ClientName;
use tracing_subscriber::filter::LevelFilter;

/// How many refused lines are shown.
const SHOWN_REJECTS: usize = 10;
/// The exit code if anything could not be done.
const EXIT_FAILED: u8 = 3;

/// Reads a catalogue of earthquakes, enriches it and writes it to files, exactly once. Run again, it goes on where it
/// was.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Cli {
    /// The catalogue; by default the one that comes with the examples.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/earthquakes.csv"))]
    input: PathBuf,
    /// Where the result goes.
    #[arg(long, value_name = "DIR", default_value = "target/earthquakes/output")]
    output: PathBuf,
    /// Where the job remembers what it began, and the embedded coordinator what it decided.
    #[arg(long, value_name = "DIR", default_value = "target/earthquakes/data")]
    data_dir: PathBuf,
    /// The URL of a running coordinator; by default one is embedded.
    #[arg(long, value_name = "URL")]
    coordinator: Option<String>,
    /// The job's name at the coordinator.
    #[arg(long, value_name = "NAME", default_value = "earthquakes")]
    client: ClientName,
    /// The job has never run before. Without it, a coordinator that does not know the job is an error: it may have lost
    /// what it knew.
    #[arg(long)]
    first_start: bool,
    /// A checkpoint after so many lines.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    checkpoint_records: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(io::stderr).init();
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

async fn run(cli: Cli) -> Result<(), Box<dyn Error>> {
    say(&format!("{} -> {}", cli.input.display(), cli.output.display()));
    let Cli { input, output, data_dir, coordinator, client, first_start, checkpoint_records } = cli;
    let run = Run { input, output, data_dir, coordinator, client, first_start, checkpoint_records };
    let report = run.run().await?;
    match report.resumed_from {
        Some(from) => say(&format!("resumed behind line {}", from.tally.lines + 1)),
        None => say("started at the beginning"),
    }
    say(&format!("committed {} transactions, finished {} of earlier runs", report.commits, report.opened.committed));
    let written = Written::read(&run.output)?;
    written.check(&run.output, &report.position.tally)?;
    show(&run.output, &report.position.tally, &written.rejects);
    Ok(())
}

fn show(output: &Path, tally: &Tally, rejects: &[u8]) {
    // The shell sorts the files of a target into the order of the catalogue.
    let files = |target: &str| format!("{}/{target}-*.csv", output.display());
    say("");
    say(&format!("records in {:>8}", tally.lines));
    say(&format!("out        {:>8}   {}", tally.kept, files("events")));
    say(&format!("filtered   {:>8}   magnitude below {MIN_MAGNITUDE}", tally.filtered));
    say(&format!("rejected   {:>8}   {}", tally.rejected, files("rejects")));
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

/// Prints a line. A reader that has seen enough, as `head` has, is no reason to fail.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
