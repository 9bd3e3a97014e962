//! One seed from beginning to end, and many of them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{fault::Faults, mix::Mix, probes::Probes, rng::Rng, world::World};

/// How long everything has to converge after the healing, in simulated milliseconds.
const CONVERGENCE_MS: u64 = 40_000;

/// What came of a seed.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The invariant that did not hold.
    pub violation: Option<String>,
    /// The hash of the trace.
    pub hash: u64,
    /// Paths taken.
    pub probes: Probes,
    /// Events carried out.
    pub events: u64,
}

/// Runs one seed.
pub fn run(seed: u64, faults: Faults, verbose: bool) -> Outcome {
    faults.seed();
    match catch_unwind(AssertUnwindSafe(|| run_seed(seed, faults, verbose))) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let what = panic.downcast_ref::<String>().cloned();
            let what = what.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            let violation = Some(format!("panic: {}", what.unwrap_or_default()));
            Outcome { violation, ..Outcome::default() }
        }
    }
}

fn run_seed(seed: u64, faults: Faults, verbose: bool) -> Outcome {
    let mut rng = Rng::new(seed);
    let mix = Mix::draw(&mut rng, faults);
    let world = World::new(mix, rng, verbose);
    world.note(|| format!("{:?}", world.mix));
    world.populate();
    let end = world.mix.heal_at + CONVERGENCE_MS;
    let mut look_at = world.mix.heal_at + 300;
    let mut events = 0;
    while world.violation().is_none() && world.now() < end && world.turn() {
        events += 1;
        if world.now() >= look_at {
            look_at = world.now() + 100;
            if world.has_converged() {
                break;
            }
        }
    }
    if world.violation().is_none() {
        world.check(world.finale());
    }
    world.clear();
    let probes = world.probes.borrow().clone();
    Outcome { violation: world.violation(), hash: world.hash(), probes, events }
}

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Campaign {
    /// How many were run.
    pub runs: u64,
    /// Events in all of them.
    pub events: u64,
    /// The smallest seed that failed, and why.
    pub failure: Option<(u64, String)>,
    /// Paths taken.
    pub probes: Probes,
    /// How long it took.
    pub took: Duration,
}

impl Campaign {
    /// Runs per minute.
    pub fn runs_per_minute(&self) -> f64 {
        self.runs as f64 * 60.0 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Runs these seeds on as many threads, until one fails. Seeds are handed out in order, so that the failure told is
/// the same however many threads there are.
pub fn campaign(seeds: impl Iterator<Item = u64> + Send, faults: Faults, threads: usize) -> Campaign {
    let began = Instant::now();
    let seeds = Mutex::new(seeds.enumerate());
    let stop = AtomicBool::new(false);
    let first_failed = AtomicU64::new(u64::MAX);
    let total = Mutex::new((Campaign::default(), u64::MAX));
    let next = || seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut own = Campaign::default();
                while !stop.load(Ordering::Relaxed) {
                    let Some((index, seed)) = next() else { break };
                    let outcome = run(seed, faults, false);
                    own.runs += 1;
                    own.events += outcome.events;
                    own.probes.merge(&outcome.probes);
                    if let Some(violation) = outcome.violation {
                        stop.store(true, Ordering::Relaxed);
                        first_failed.fetch_min(index as u64, Ordering::Relaxed);
                        let mut all = total.lock().unwrap_or_else(PoisonError::into_inner);
                        if (index as u64) < all.1 {
                            all.1 = index as u64;
                            all.0.failure = Some((seed, violation));
                        }
                    }
                }
                let mut all = total.lock().unwrap_or_else(PoisonError::into_inner);
                all.0.runs += own.runs;
                all.0.events += own.events;
                all.0.probes.merge(&own.probes);
            });
        }
    });
    let (mut all, _) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.took = began.elapsed();
    all
}
