//! The examples that tell a story and check themselves.

use crate::common::{numbers, run, text};

#[test]
fn the_quickstart_is_told_the_same_outcome_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(env!("CARGO_BIN_EXE_quickstart"), dir.path(), &[]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    for line in [
        "  commit: Committed, replayed: false",
        "  commit, repeated as after a lost answer: Committed, replayed: true",
        "The coordinator was restarted.",
        "  commit, repeated after the restart: Committed, replayed: true, told by the preserver: true",
        "is Committed",
    ] {
        assert!(told.contains(line), "{line:?} is not in\n{told}");
    }
}

#[test]
fn the_engine_loses_nothing_in_any_scene_and_doubles_only_what_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(env!("CARGO_BIN_EXE_mini_flink"), dir.path(), &[]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    for line in [
        "worker 0 opened first, with an empty list; prepared transactions that it left alone: 1",
        "the one worker took over counting.sink.0, counting.sink.1, counting.sink.2",
        "refused: restoring checkpoint 8 would write twice what counting.sink.0 has committed with checkpoint 12",
        "visible: 1..=80 once, 81..=120 twice, as was asked for",
        "All scenes went as they had to",
    ] {
        assert!(told.contains(line), "{line:?} is not in\n{told}");
    }
}

#[test]
fn a_dataflow_killed_with_changing_numbers_of_workers_writes_what_an_uninterrupted_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--dir", "flow", "--drill", "12", "--epoch-events", "10", "--seed", "3"];
    let output = run(env!("CARGO_BIN_EXE_timely_sink"), dir.path(), &args);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    let kills = |name| numbers(&told, name)[0];
    assert_eq!(kills("kills at points of a transaction's life") + kills("kills at a random moment"), 12, "{told}");
    assert!(kills("kills at points of a transaction's life") > 0, "{told}");
    assert!(told.contains("equal to an uninterrupted run                yes"), "{told}");
}

#[test]
fn a_dataflow_that_is_finished_does_nothing_when_it_is_run_again() {
    let dir = tempfile::tempdir().unwrap();
    for workers in ["3", "1"] {
        let output = run(env!("CARGO_BIN_EXE_timely_sink"), dir.path(), &["--dir", "flow", "--workers", workers]);
        let told = text(&output);
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(told.starts_with("301 rows are in flow/out"), "{told}");
    }
}
