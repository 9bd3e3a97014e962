//! A timely dataflow of several workers into one exactly-once sink, and a drill that kills it while it works.

use std::{error::Error, path::PathBuf, process::ExitCode, sync::Arc};

use clap::Parser;
use ratified_coordinator::{Config, Coordinator};
use ratified_examples::timely_sink::{Drill, Flow, Observer, stand_still_at, visible_rows};
use tracing_subscriber::EnvFilter;

/// Counts the events of a catalogue by network, in epochs. Run again, it goes on where it was, with any number of
/// workers.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Cli {
    /// The catalogue; by default the one that comes with the example.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/earthquakes.csv"))]
    input: PathBuf,
    /// Where output and checkpoints go. A drill takes place in a new directory inside of it.
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
    /// Kills the dataflow so many times, and compares the output byte for byte with that of an uninterrupted run.
    #[arg(long, value_name = "KILLS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    drill: Option<u32>,
    /// Repeats the plan of a drill.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, hide = true)]
    stand_still_at: Option<String>,
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("timely_sink: {error}");
            ExitCode::from(3)
        }
    }
}

fn run(cli: &Cli) -> Result<bool, Box<dyn Error>> {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let dir = match cli.drill {
        None => cli.dir.clone(),
        Some(_) => {
            std::fs::create_dir_all(&cli.dir)?;
            tempfile::Builder::new().prefix("drill-").tempdir_in(&cli.dir)?.keep()
        }
    };
    let embedded = match cli.coordinator {
        Some(_) => None,
        None => Some(tokio.block_on(Coordinator::start(Config::local(dir.join("coordinator"))))?),
    };
    let url = embedded.as_ref().map(|coordinator| coordinator.base_url());
    let url = cli.coordinator.clone().or(url).unwrap_or_default();
    let epoch_events = usize::try_from(cli.epoch_events)?;
    let is_exact = match cli.drill {
        Some(kills) => {
            drill(&Drill { kills, seed: cli.seed, input: cli.input.clone(), epoch_events, dir, coordinator: url })?
        }
        None => {
            let nobody: Observer = Arc::new(|_| {});
            let observer = match &cli.stand_still_at {
                Some(place) => stand_still_at(place).ok_or("--stand-still-at takes POINT:N")?,
                None => nobody,
            };
            let (input, passes, workers) = (cli.input.clone(), cli.passes, cli.workers);
            let flow = Flow { input, passes, epoch_events, workers, dir: dir.clone(), coordinator: url, observer };
            flow.run(tokio.handle())?;
            let rows = visible_rows(&dir)?.iter().filter(|byte| **byte == b'\n').count();
            println!("{rows} rows are in {}", dir.join("out").display());
            true
        }
    };
    if let Some(coordinator) = embedded {
        tokio.block_on(coordinator.shutdown())?;
    }
    Ok(is_exact)
}

fn drill(drill: &Drill) -> Result<bool, Box<dyn Error>> {
    let report = drill.run()?;
    println!("kills at points of a transaction's life  {:>7}", report.at_points);
    println!("kills at a random moment                 {:>7}", report.at_random);
    println!("epochs                                   {:>7}", report.epochs);
    println!("rows                                     {:>7}", report.rows);
    let is_equal = if report.is_equal { "yes" } else { "NO" };
    println!("equal to an uninterrupted run            {is_equal:>7}");
    println!("seed {}, everything is in {}", drill.seed, drill.dir.display());
    Ok(report.is_equal && report.at_points + report.at_random == drill.kills)
}
