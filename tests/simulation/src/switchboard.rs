//! The proof that the rings are not blind: each seeded defect has to be found, within so many seeds.

use crate::{
    exhaustive::Space,
    fault::Faults,
    run::{Campaign, campaign},
};

/// What found a defect.
#[derive(Debug, Default)]
pub struct Finding {
    /// How many seeds the simulation needed, and what it saw.
    pub simulation: Option<(u64, String)>,
    /// Which property the search saw broken, and after how many steps.
    pub search: Option<(usize, String)>,
}

impl Finding {
    /// The rings that found it.
    pub fn rings(&self) -> String {
        match (&self.simulation, &self.search) {
            (Some(_), Some(_)) => "B, C".to_owned(),
            (Some(_), None) => "B".to_owned(),
            (None, Some(_)) => "C".to_owned(),
            (None, None) => "none".to_owned(),
        }
    }
}

/// Looks for a defect with at most so many seeds, and with the search if it is one of the engine.
pub fn find(fault: Faults, seeds: u64, threads: usize) -> Finding {
    Finding { simulation: simulate(fault, seeds, threads), search: search(fault, threads) }
}

/// Looks for a defect with at most so many seeds.
pub fn simulate(fault: Faults, seeds: u64, threads: usize) -> Option<(u64, String)> {
    let all: Campaign = campaign(0..seeds, fault, threads);
    all.failure.map(|(seed, what)| (seed + 1, what))
}

/// Looks for a defect of the engine in every order of everything, within small bounds.
pub fn search(fault: Faults, threads: usize) -> Option<(usize, String)> {
    if !matches!(fault, Faults::Engine(_)) {
        return None;
    }
    [Space::prepared(), Space::two()].into_iter().find_map(|space| {
        let (property, _, way) = space.with(fault).search(threads).broken?;
        Some((way.len(), property))
    })
}

/// What is on record about a defect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// Whether the search finds it, too.
    pub by_search: bool,
    /// The seeds within which the simulation finds it.
    pub seeds: u64,
}

/// The record, one defect a line.
///
/// # Panics
/// A line is not of the form `name rings seeds`.
pub fn recorded() -> Vec<Recorded> {
    let lines = include_str!("../faults.txt").lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let [name, rings, seeds] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            Recorded { name: name.to_owned(), by_search: rings.contains('C'), seeds: seeds.parse().unwrap() }
        })
        .collect()
}
