//! The proof that the tests are not blind: each seeded defect has to be found, within so many seeds.

use crate::{
    fault::Faults,
    model_checking::Space,
    run::{Campaign, campaign},
};

/// What found a defect.
#[derive(Debug, Default)]
pub struct Finding {
    /// How many seeds the seeded simulation needed, and what it saw.
    pub simulation: Option<(u64, String)>,
    /// Which property model checking saw broken, and after how many steps.
    pub model_checking: Option<(usize, String)>,
}

impl Finding {
    /// Which tests found it.
    pub const fn by(&self) -> &'static str {
        match (&self.simulation, &self.model_checking) {
            (Some(_), Some(_)) => "simulation, model checking",
            (Some(_), None) => "simulation",
            (None, Some(_)) => "model checking",
            (None, None) => "none",
        }
    }
}

/// Looks for a defect with at most so many seeds, and by model checking if it is one of the engine.
pub fn find(fault: Faults, seeds: u64, threads: usize) -> Finding {
    Finding { simulation: simulate(fault, seeds, threads), model_checking: check(fault, threads) }
}

/// Looks for a defect with at most so many seeds.
pub fn simulate(fault: Faults, seeds: u64, threads: usize) -> Option<(u64, String)> {
    let all: Campaign = campaign(0..seeds, fault, threads);
    all.failure.map(|(seed, what)| (seed + 1, what))
}

/// Looks for a defect of the engine in every order of everything, within small bounds.
pub fn check(fault: Faults, threads: usize) -> Option<(usize, String)> {
    if !matches!(fault, Faults::Engine(_)) {
        return None;
    }
    [Space::prepared(), Space::two()].into_iter().find_map(|space| {
        let (property, _, way) = space.with(fault).search(threads).broken?;
        Some((way.len(), property))
    })
}

/// The seeds within which the seeded simulation finds each defect of the store double and of the client model, by name.
///
/// # Panics
/// A line of the record is not of the form `name seeds`.
pub fn recorded() -> Vec<(String, u64)> {
    let lines = include_str!("../faults.txt").lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, seeds) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            (name.to_owned(), seeds.parse().unwrap())
        })
        .collect()
}
