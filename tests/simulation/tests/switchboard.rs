//! Every seeded defect is found, by the rings and within the seeds that are on record.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test harness: a failure here is a failed test")]

use ratified_simulation::{
    fault::Faults,
    switchboard::{recorded, search, simulate},
};

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

#[test]
fn every_defect_is_on_record() {
    let known: Vec<_> = Faults::all().map(Faults::name).collect();
    let on_record: Vec<_> = recorded().into_iter().map(|one| one.name).collect();
    assert_eq!(known, on_record);
}

#[test]
fn the_simulation_finds_every_defect_within_its_seeds() {
    // A defect may well run into an assertion of the engine; that is a finding, not news.
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<_> = Faults::all()
        .zip(recorded())
        .filter(|(fault, record)| simulate(*fault, record.seeds, threads()).is_none())
        .map(|(fault, _)| fault.name())
        .collect();
    let _ = std::panic::take_hook();
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn the_search_finds_the_defects_that_it_can_see() {
    let missed: Vec<_> = Faults::all()
        .zip(recorded())
        .filter(|(fault, record)| record.by_search && search(*fault, threads()).is_none())
        .map(|(fault, _)| fault.name())
        .collect();
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn without_a_defect_nothing_is_found() {
    assert_eq!(simulate(Faults::None, 100, threads()), None);
}
