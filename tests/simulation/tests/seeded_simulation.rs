//! The seeded simulation: kept seeds, fresh seeds, rare paths, determinism.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test harness: a failure here is a failed test"
)]

use std::time::{SystemTime, UNIX_EPOCH};

use ratified_simulation::{
    fault::{Fault, Faults},
    run::{Campaign, campaign, run},
};

const KEPT: &str = include_str!("../seeds.txt");

fn kept_seeds() -> Vec<u64> {
    let lines = KEPT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.parse().unwrap()).collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

fn must_hold(all: &Campaign) {
    if let Some((seed, what)) = &all.failure {
        panic!(
            "seed {seed}: {what}\nTrace: cargo run -p ratified-simulation --bin simulate -- --trace {seed}\n\
             Add the seed to tests/simulation/seeds.txt."
        );
    }
}

#[test]
fn kept_seeds_hold() {
    must_hold(&campaign(kept_seeds().into_iter(), Faults::None, threads()));
}

#[test]
fn fresh_seeds_hold_and_take_every_rare_path() {
    let count = number("RATIFIED_SIM_SEEDS").unwrap_or(20_000);
    let base = number("RATIFIED_SIM_BASE").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_secs() << 20
    });
    println!("{count} seeds from {base} (RATIFIED_SIM_SEEDS, RATIFIED_SIM_BASE)");
    let all = campaign(base..base + count, Faults::None, threads());
    println!("{} runs, {} events, {:.0} runs a minute", all.runs, all.events, all.runs_per_minute());
    must_hold(&all);
    // Fewer seeds may miss the rarest by chance.
    if count >= 20_000 {
        assert_eq!(all.probes.cold(), [], "paths that no seed took");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..50 {
        let (first, second) = (run(seed, Faults::None, false), run(seed, Faults::None, false));
        assert_eq!((first.hash, first.events), (second.hash, second.events), "seed {seed}");
    }
    assert_ne!(run(1, Faults::None, false).hash, run(2, Faults::None, false).hash);
}

#[test]
fn the_canary_dies() {
    let all = campaign(0..500, Faults::Model(Fault::SyncSkipped), threads());
    let (_, what) = all.failure.expect("a store whose sync reaches nothing must be noticed");
    assert!(what.contains("survives"), "{what}");
}
