//! Every defect that is seeded in the state machine is found, within the seeds that are on record, where it is seeded:
//! in a copy of the workspace. `cargo run -p ratified-simulation --bin seeded` makes it.

use ratified_simulation::{
    defects::{Defect, listed},
    engine_defect::EngineDefect,
    fault::Faults,
    switchboard::{check, simulate},
};

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// The names of those of the defects that the search does not find.
fn missed(search: impl Fn(&Defect, Faults) -> bool) -> Vec<String> {
    assert_eq!(EngineDefect::all().count(), listed().len(), "nothing is seeded here: run this in the copy");
    // A defect may well run into an assertion of the engine; that is a finding, not news.
    std::panic::set_hook(Box::new(|_| {}));
    let seeded = listed().into_iter().zip(EngineDefect::all());
    let missed = seeded.filter(|(defect, seeded)| !search(defect, Faults::Engine(*seeded)));
    let missed = missed.map(|(defect, _)| defect.name).collect();
    let _ = std::panic::take_hook();
    missed
}

#[test]
fn the_simulation_finds_every_defect_within_its_seeds() {
    let missed = missed(|defect, fault| simulate(fault, defect.seeds, threads()).is_some());
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn model_checking_finds_the_defects_that_it_can_see() {
    let missed = missed(|defect, fault| !defect.model_checking || check(fault, threads()).is_some());
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn while_no_defect_is_on_nothing_is_found() {
    assert_eq!(simulate(Faults::None, 100, threads()), None);
}
