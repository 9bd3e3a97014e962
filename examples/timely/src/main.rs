//! A timely dataflow of several workers into one exactly-once sink.

use std::{error::Error, io, path::PathBuf, process::ExitCode};

use clap::Parser;
use ratified::{CoordinatorClient, EngineSinkBuilder, pending::FileStore};
use ratified_coordinator::{Config, Coordinator};
use timely_sink::{Flow, sink, visible_rows};
use tracing_subscriber::filter::LevelFilter;

/// The exit code if anything could not be done.
const EXIT_FAILED: u8 = 3;

/// Counts the events of a catalogue by network, in epochs. Run again, it goes on where it was, with any number of
/// workers.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Cli {
    /// The catalogue; by default the one that comes with the examples.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/earthquakes.csv"))]
    input: PathBuf,
    /// Where output and checkpoints go.
    #[arg(long, default_value = "target/timely_sink")]
    dir: PathBuf,
    /// How many workers, each a thread.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// How often the catalogue is read, one time after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    passes: u64,
    /// How many events make an epoch.
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    epoch_events: u32,
    /// The URL of a running coordinator; by default one is embedded.
    #[arg(long, value_name = "URL")]
    coordinator: Option<String>,
    /// The dataflow has never run before. Without it, a coordinator that does not know its sink is an error: it may have
    /// lost what it knew.
    #[arg(long)]
    first_start: bool,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(io::stderr).init();
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn run(cli: Cli) -> Result<(), Box<dyn Error>> {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let embedded = match cli.coordinator {
        Some(_) => None,
        None => Some(tokio.block_on(Coordinator::start(Config::local(cli.dir.join("coordinator"))))?),
    };
    let url = embedded.as_ref().map(|coordinator| coordinator.base_url()).or(cli.coordinator).unwrap_or_default();
    let flow = Flow {
        input: cli.input,
        passes: cli.passes,
        epoch_events: usize::try_from(cli.epoch_events)?,
        workers: cli.workers,
        dir: cli.dir.clone(),
    };
    let (dir, first_start) = (cli.dir.clone(), cli.first_start);
    flow.run(tokio.handle(), move |worker| {
        Ok(EngineSinkBuilder::new(sink(&dir)?, CoordinatorClient::new(&url)?)
            .worker(worker)
            .pending(FileStore::new(dir.join("pending")))
            .first_start(first_start))
    })?;
    let rows = visible_rows(&cli.dir)?.iter().filter(|byte| **byte == b'\n').count();
    println!("{rows} rows are in {}", cli.dir.join("out").display());
    if let Some(coordinator) = embedded {
        tokio.block_on(coordinator.shutdown())?;
    }
    Ok(())
}
