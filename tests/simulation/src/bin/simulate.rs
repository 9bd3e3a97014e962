//! Runs seeds: many of them, or one with its trace.
#![allow(clippy::unwrap_used, reason = "a test harness: a failure here is a failed test")]

use std::process::ExitCode;

use clap::Parser;
use ratified_simulation::{
    fault::Faults,
    probes::Probe,
    run::{campaign, run},
};

/// Tries to make the coordinator give a wrong answer.
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    base: u64,
    /// How many threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Run this seed alone and print its trace.
    #[arg(long)]
    trace: Option<u64>,
    /// Seed this defect.
    #[arg(long, default_value = "")]
    fault: String,
    /// Print every probe.
    #[arg(long)]
    probes: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let faults = Faults::all().find(|fault| fault.name() == args.fault).unwrap_or_default();
    if let Some(seed) = args.trace {
        let outcome = run(seed, faults, true);
        println!("{} events, {:?}", outcome.events, outcome.violation);
        return if outcome.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let all = campaign(args.base..args.base.saturating_add(args.seeds), faults, args.threads);
    println!("{} runs, {} events, {:.0} runs a minute", all.runs, all.events, all.runs_per_minute());
    if args.probes {
        Probe::ALL.iter().for_each(|probe| println!("{:>9} {probe:?}", all.probes.count(*probe)));
    }
    println!("cold: {:?}", all.probes.cold());
    match all.failure {
        Some((seed, what)) => {
            println!("seed {seed}: {what}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}
