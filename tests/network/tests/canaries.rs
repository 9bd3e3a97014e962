//! Each seeded mistake is found: a harness that finds none of them would find nothing.

use ratified_network::{mistake::Mistake, run::run};

/// How many seeds may pass before a mistake is found.
const SEEDS: u64 = 60;

#[test]
fn every_seeded_mistake_is_found() {
    for mistake in Mistake::ALL {
        let found = (0..SEEDS).find_map(|seed| Some((seed, run(seed, mistake, false).violation?)));
        let (seed, what) = found.unwrap_or_else(|| panic!("{mistake:?} is not found by {SEEDS} seeds"));
        assert_eq!(run(seed, Mistake::None, false).violation, None, "seed {seed} fails without any mistake");
        println!("{mistake:?}: seed {seed}: {what}");
    }
}
