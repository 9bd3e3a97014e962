//! Runs seeds: many of them, each twice, or one with its trace.

use std::{
    collections::BTreeMap,
    process::{Command, ExitCode},
    time::Instant,
};

use clap::Parser;
use ratified_network::{
    mistake::Mistake,
    run::{Outcomes, run},
};

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
    /// Run this seed alone and print what came of it, for the process that compares.
    #[arg(long, hide = true)]
    only: Option<u64>,
}

/// What came of a seed, as its process has printed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Printed {
    violation: Option<String>,
    hash: String,
    lines: String,
    counts: BTreeMap<String, u64>,
}

/// Runs a seed in a process of its own. Tokio has counters for a whole process, of tasks and of the seeds of its random
/// numbers: a second run in the same process would not be the same.
fn run_apart(seed: u64) -> Printed {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args(["--only", &seed.to_string()]).output().expect("this program again");
    let mut printed = Printed::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.split_once(' ') {
            Some(("violation", what)) => printed.violation = Some(what.to_owned()),
            Some(("hash", hash)) => hash.clone_into(&mut printed.hash),
            Some(("lines", lines)) => lines.clone_into(&mut printed.lines),
            Some(("count", rest)) => {
                let (count, what) = rest.split_once(' ').expect("a count and what it is of");
                printed.counts.insert(what.to_owned(), count.parse().expect("a count"));
            }
            _ => {}
        }
    }
    if printed.hash.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        printed.violation = Some(format!("its process ended with {}: {said}", output.status));
    }
    printed
}

fn print(outcomes: &Outcomes) {
    if let Some(violation) = &outcomes.violation {
        println!("violation {}", violation.replace('\n', " "));
    }
    println!("hash {}\nlines {}", outcomes.hash, outcomes.lines);
    for (what, count) in &outcomes.counts {
        println!("count {count} {what}");
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(seed) = args.trace {
        let outcomes = run(seed, Mistake::None, true);
        println!("{outcomes:#?}");
        return if outcomes.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    if let Some(seed) = args.only {
        print(&run(seed, Mistake::None, false));
        return ExitCode::SUCCESS;
    }
    let began = Instant::now();
    let (mut runs, mut failed, mut counts) = (0_u64, 0_u64, BTreeMap::<String, u64>::new());
    for seed in (args.base..args.base + args.seeds).step_by(args.step.max(1) as usize) {
        let first = run_apart(seed);
        let again = if args.once { first.clone() } else { run_apart(seed) };
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
