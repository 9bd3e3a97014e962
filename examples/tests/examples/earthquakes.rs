//! The main example: run, run again, resumed, refused, drilled, and drilled with sinks that are broken on purpose.

use std::fs;

use ratified_servers::tally;

use crate::common::{note_kills, numbers, run, text};

const EARTHQUAKES: &str = env!("CARGO_BIN_EXE_earthquakes");

#[test]
fn run_again_it_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--output", "out", "--data-dir", "data"];
    let first = run(EARTHQUAKES, dir.path(), &args);
    let told = text(&first);
    assert_eq!(first.status.code(), Some(0), "{told}");
    assert!(told.contains("started at the beginning"), "{told}");
    let counts = |told: &str| ["records in", "out", "filtered", "rejected"].map(|name| numbers(told, name)[0]);
    assert_eq!(counts(&told), [1707, 996, 711, 0]);

    let files = || {
        let mut files: Vec<_> = fs::read_dir(dir.path().join("out")).unwrap().map(|f| f.unwrap().path()).collect();
        files.sort();
        files
    };
    let before = files();
    assert!(before.len() > 3, "{before:?}");
    let second = run(EARTHQUAKES, dir.path(), &args);
    let told = text(&second);
    assert_eq!(second.status.code(), Some(0), "{told}");
    assert!(told.contains("resumed behind line 1708"), "{told}");
    assert_eq!(counts(&told), [1707, 996, 711, 0]);
    assert_eq!(files(), before);
}

#[test]
fn a_catalogue_that_grows_is_read_on_from_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--input", "in.csv", "--output", "out", "--data-dir", "data"];
    let header = "time_ms,id,mag,magType,lon,lat,depth_km,place,status,net,updated_ms\n";
    let line = |n: u32| format!("{n},id{n},2,ml,0,0,0,\"here, CA\",reviewed,us,1\n");
    fs::write(dir.path().join("in.csv"), format!("{header}{}{}", line(1), line(2))).unwrap();
    assert_eq!(run(EARTHQUAKES, dir.path(), &args).status.code(), Some(0));

    let grown = format!("{header}{}{}{}nonsense\n{}", line(1), line(2), line(3), line(2));
    fs::write(dir.path().join("in.csv"), grown).unwrap();
    let output = run(EARTHQUAKES, dir.path(), &args);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("resumed behind line 3"), "{told}");
    assert_eq!(["records in", "out", "filtered", "rejected"].map(|n| numbers(&told, n)[0]), [5, 3, 0, 2]);
    assert!(told.contains("rejected: 5,column-count,1 columns instead of 11,nonsense"), "{told}");
    assert!(told.contains("rejected: 6,duplicate-id,id2 was on line 3 already,"), "{told}");

    fs::write(dir.path().join("in.csv"), format!("{header}{}", line(7))).unwrap();
    let output = run(EARTHQUAKES, dir.path(), &args);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("the first 5 lines are not those that were committed"), "{}", text(&output));
}

#[test]
fn an_output_that_somebody_removed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--output", "out", "--data-dir", "data"];
    assert_eq!(run(EARTHQUAKES, dir.path(), &args).status.code(), Some(0));
    fs::remove_dir_all(dir.path().join("out")).unwrap();
    let output = run(EARTHQUAKES, dir.path(), &args);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("996 events rows were committed, 0 are there"), "{}", text(&output));
}

#[test]
fn a_coordinator_that_has_forgotten_the_job_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--output", "out", "--data-dir", "data"];
    assert_eq!(run(EARTHQUAKES, dir.path(), &args).status.code(), Some(0));
    fs::remove_dir_all(dir.path().join("data")).unwrap();
    let output = run(EARTHQUAKES, dir.path(), &args);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("the coordinator does not know earthquakes"), "{}", text(&output));
}

#[test]
fn a_drill_of_twelve_kills_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(EARTHQUAKES, dir.path(), &["--data-dir", "data", "--drill", "12", "--seed", "7"]);
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
    let told = failed_drill("eager");
    assert!(numbers(&told, "doubled")[0] > 0, "{told}");
}

#[test]
fn a_drill_finds_a_sink_that_takes_a_repeated_commit_for_done() {
    let told = failed_drill("forgetful");
    assert!(numbers(&told, "lost")[0] > 0, "{told}");
}

#[test]
fn a_drill_removes_nothing_but_an_earlier_drill() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("data/drill/precious");
    fs::create_dir_all(precious.parent().unwrap()).unwrap();
    fs::write(&precious, "x").unwrap();
    let output = run(EARTHQUAKES, dir.path(), &["--data-dir", "data", "--drill", "1"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("is not the directory of an earlier drill"), "{}", text(&output));
    assert_eq!(fs::read(&precious).unwrap(), b"x");
}

#[test]
fn a_drill_that_cannot_make_its_kills_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for (records, why) in [("1", "at least 2"), ("100000", "take a smaller --checkpoint-records")] {
        let args = ["--data-dir", "data", "--drill", "6", "--seed", "7", "--checkpoint-records", records];
        let output = run(EARTHQUAKES, dir.path(), &args);
        assert_eq!(output.status.code(), Some(3));
        assert!(text(&output).contains(why), "{}", text(&output));
    }
}

fn failed_drill(sabotage: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--data-dir", "data", "--drill", "12", "--seed", "7", "--sabotage", sabotage];
    let output = run(EARTHQUAKES, dir.path(), &args);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("NOT exactly once; seed 7"), "{told}");
    told
}
