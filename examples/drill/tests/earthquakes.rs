//! The drill of `earthquakes`: exact, and failing with sinks that are broken on purpose.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{fs, path::Path, process::Output};

use ratified_servers::{
    program::{note_kills, numbers, run, text},
    tally,
};

const DRILL: &str = env!("CARGO_BIN_EXE_drill-earthquakes");

#[test]
fn a_drill_of_twelve_kills_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(DRILL, dir.path(), &["--dir", "drill", "--kills", "12", "--seed", "7"]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("exactly once; seed 7"), "{told}");
    for name in ["lost", "doubled", "torn or foreign"] {
        assert_eq!(numbers(&told, name), [0], "{told}");
    }
    for name in ["records in", "out", "filtered", "rejected"] {
        let [one, all] = numbers(&told, name)[..] else { panic!("{told}") };
        assert!(one > 0 && all.is_multiple_of(one) && all > one, "{name}: {told}");
    }
    for point in [
        "after begin",
        "after pre_commit",
        "decided, before sink.commit",
        "between two renames of one commit",
        "visible, before the ack",
        "acked, before the pending entry is dropped",
        "at a random moment",
    ] {
        assert!(numbers(&told, point).last().is_some_and(|kills| *kills > 0), "{point}: {told}");
    }
    assert_eq!(numbers(&told, "all").last(), Some(&12), "{told}");
    tally::seed("drill", 7);
    note_kills(12);
}

#[test]
fn a_drill_finds_a_sink_that_shows_its_data_too_early() {
    let dir = tempfile::tempdir().unwrap();
    let output = drill_with(dir.path(), "eager");
    let told = text(&output);
    // The job's next start may meet it before the drill counts: then nothing is written twice, and the drill cannot go on.
    match output.status.code() {
        Some(1) => assert!(numbers(&told, "doubled")[0] > 0, "{told}"),
        code => {
            assert_eq!(code, Some(3), "{told}");
            assert!(told.contains("the sink is ahead of what is known of earthquakes"), "{told}");
        }
    }
}

#[test]
fn a_drill_finds_a_sink_that_takes_a_repeated_commit_for_done() {
    let told = failed_drill("forgetful");
    assert!(numbers(&told, "lost")[0] > 0, "{told}");
}

#[test]
fn a_drill_removes_nothing_but_an_earlier_drill() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("drill/precious");
    fs::create_dir_all(precious.parent().unwrap()).unwrap();
    fs::write(&precious, "x").unwrap();
    let output = run(DRILL, dir.path(), &["--dir", "drill", "--kills", "1"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("is not the directory of an earlier drill"), "{}", text(&output));
    assert_eq!(fs::read(&precious).unwrap(), b"x");
}

#[test]
fn a_drill_that_cannot_make_its_kills_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for (records, why) in [("1", "at least 2"), ("100000", "take a smaller --checkpoint-records")] {
        let args = ["--dir", "drill", "--kills", "6", "--seed", "7", "--checkpoint-records", records];
        let output = run(DRILL, dir.path(), &args);
        assert_eq!(output.status.code(), Some(3));
        assert!(text(&output).contains(why), "{}", text(&output));
    }
}

fn drill_with(dir: &Path, sabotage: &str) -> Output {
    run(DRILL, dir, &["--dir", "drill", "--kills", "12", "--seed", "7", "--sabotage", sabotage])
}

fn failed_drill(sabotage: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = drill_with(dir.path(), sabotage);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("NOT exactly once; seed 7"), "{told}");
    told
}
