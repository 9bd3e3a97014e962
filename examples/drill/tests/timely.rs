//! The drill of the dataflow: exact, and failing with sinks that are broken on purpose.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use ratified_servers::{
    program::{note_kills, numbers, run, text},
    tally,
};

const DRILL: &str = env!("CARGO_BIN_EXE_drill-timely");

#[test]
fn a_dataflow_killed_with_changing_numbers_of_workers_writes_what_an_uninterrupted_one_does() {
    let told = drill(&["--kills", "12", "--seed", "3"], 0);
    assert!(told.contains("exactly once; seed 3"), "{told}");
    assert!(told.contains(" 2 of 2 passes\n"), "{told}");
    let [one, all] = numbers(&told, "rows")[..] else { panic!("{told}") };
    assert!(one > 0 && all == 2 * one, "{told}");
    for point in ["after begin", "prepared", "decided, before sink.commit", "visible, before the ack"] {
        assert!(numbers(&told, point).last().is_some_and(|kills| *kills > 0), "{point}: {told}");
    }
    assert_eq!(numbers(&told, "all").last(), Some(&12), "{told}");
    tally::seed("drill of timely", 3);
    note_kills(12);
}

#[test]
fn a_drill_finds_a_sink_that_takes_a_repeated_commit_for_done() {
    let told = drill(&["--kills", "12", "--seed", "3", "--sabotage", "forgetful"], 1);
    assert!(told.contains("NOT exactly once; seed 3"), "{told}");
    note_kills(12);
}

fn drill(args: &[&str], code: i32) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = run(DRILL, dir.path(), args);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(code), "{told}");
    told
}
