//! Every defect that is seeded in the store double and in the client model is found by the seeded simulation, within
//! the seeds that are on record; and those of the state machine fit its sources, for the copy in which they are found.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test harness: a failure here is a failed test")]

use std::{collections::BTreeMap, fs, path::Path};

use ratified_simulation::{
    defects::{listed, seed},
    fault::{Fault, Faults},
    switchboard::{recorded, simulate},
};

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

#[test]
fn every_defect_is_on_record() {
    let known: Vec<_> = Fault::ALL.iter().map(|fault| Faults::Model(*fault).name()).collect();
    let on_record: Vec<_> = recorded().into_iter().map(|(name, _)| name).collect();
    assert_eq!(known, on_record);
}

#[test]
fn the_texts_of_the_state_machines_defects_are_in_its_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let defects = listed();
    let files = defects.iter().flat_map(|defect| &defect.changes).map(|change| change.file.clone());
    let mut sources: BTreeMap<_, _> =
        files.filter_map(|file| Some((file.clone(), fs::read_to_string(root.join(&file)).ok()?))).collect();
    if let Err(misfits) = seed(&defects, &mut sources) {
        let lines: Vec<_> = misfits.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"));
    }
}

#[test]
fn the_simulation_finds_every_defect_within_its_seeds() {
    // A defect may well run into an assertion of the engine; that is a finding, not news.
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<_> = Fault::ALL
        .iter()
        .zip(recorded())
        .filter(|(fault, (_, seeds))| simulate(Faults::Model(**fault), *seeds, threads()).is_none())
        .map(|(fault, _)| fault)
        .collect();
    let _ = std::panic::take_hook();
    assert_eq!(missed, Vec::<&Fault>::new());
}
