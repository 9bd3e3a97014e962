//! Prints which tests find which seeded defect, as a table for the documentation. Those of the state machine are there
//! when it runs in the copy of the workspace in which they are seeded.

use std::process::ExitCode;

use clap::Parser;
use ratified_simulation::{fault::Faults, switchboard};

/// Seeds each defect in turn and looks which tests find it.
#[derive(Debug, Parser)]
struct Args {
    /// Give up after so many seeds.
    #[arg(long, default_value_t = 15_000)]
    seeds: u64,
    /// How many threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Only defects whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // A defect may well run into an assertion of the engine; that is a finding, not news.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = 0;
    println!("| defect | found by | seeds | steps | seen as |\n|---|---|---|---|---|");
    for fault in Faults::all().filter(|fault| fault.name().contains(&args.only)) {
        let found = switchboard::find(fault, args.seeds, args.threads);
        missed += u32::from(found.simulation.is_none() && found.model_checking.is_none());
        let seeds = found.simulation.as_ref().map_or_else(|| "-".to_owned(), |(seeds, _)| seeds.to_string());
        let steps = found.model_checking.as_ref().map_or_else(|| "-".to_owned(), |(steps, _)| steps.to_string());
        let seen = found.simulation.as_ref().or(None).map(|(_, what)| what.clone());
        let seen = seen.or(found.model_checking.as_ref().map(|(_, what)| what.clone())).unwrap_or_default();
        let seen: String = seen.split(": ").filter(|part| !part.starts_with("at ")).take(1).collect();
        println!("| {} | {} | {seeds} | {steps} | {seen} |", fault.name(), found.by());
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
