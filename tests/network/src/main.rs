//! Runs seeds: many of them, each twice, or one with its trace.

use std::{collections::BTreeMap, process::ExitCode, time::Instant};

use clap::Parser;
use ratified_network::{mistake::Mistake, run::run};

/// Tries to make the whole write a record twice, or not at all.
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    base: u64,
    /// Every how-manieth seed: for several processes side by side.
    #[arg(long, default_value_t = 1)]
    step: u64,
    /// Run each seed once only, and do not compare traces.
    #[arg(long)]
    once: bool,
    /// Run this seed alone and print its trace.
    #[arg(long)]
    trace: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(seed) = args.trace {
        let outcomes = run(seed, Mistake::None, true);
        println!("{outcomes:#?}");
        return if outcomes.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let began = Instant::now();
    let (mut runs, mut failed, mut counts) = (0_u64, 0_u64, BTreeMap::<_, u64>::new());
    for seed in (args.base..args.base + args.seeds).step_by(args.step.max(1) as usize) {
        let first = run(seed, Mistake::None, false);
        let again = if args.once { first.clone() } else { run(seed, Mistake::None, false) };
        runs += 1 + u64::from(!args.once);
        let problem = match &first.violation {
            Some(violation) => Some(violation.clone()),
            None if first.hash != again.hash => {
                Some(format!("two runs differ: {} and {} lines", first.lines, again.lines))
            }
            None => None,
        };
        if let Some(problem) = problem {
            failed += 1;
            println!("seed {seed}: {problem}");
            println!("  again: cargo run -p ratified-network -- --trace {seed}");
        }
        first.counts.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
    }
    counts.iter().for_each(|(what, count)| println!("count {count:>8} {what}"));
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{runs} runs in {seconds:.1} s, {:.0} a minute, {failed} seeds failed",
        runs as f64 * 60.0 / seconds.max(1e-9)
    );
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
