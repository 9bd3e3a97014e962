//! The job: run, run again, resumed, and refused.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{fs, path::Path, process::Output};

use ratified_servers::program::{numbers, run, text};

const EARTHQUAKES: &str = env!("CARGO_BIN_EXE_earthquakes");

/// The run that says that there was none before.
fn first_run(dir: &Path, args: &[&str]) -> Output {
    run(EARTHQUAKES, dir, &[args, &["--first-start"]].concat())
}

#[test]
fn run_again_it_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--output", "out", "--data-dir", "data"];
    let first = first_run(dir.path(), &args);
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
    assert_eq!(first_run(dir.path(), &args).status.code(), Some(0));

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
    assert_eq!(first_run(dir.path(), &args).status.code(), Some(0));
    fs::remove_dir_all(dir.path().join("out")).unwrap();
    let output = run(EARTHQUAKES, dir.path(), &args);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("996 events rows were committed, 0 are there"), "{}", text(&output));
}

#[test]
fn a_first_start_is_one_only_if_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(EARTHQUAKES, dir.path(), &["--output", "out", "--data-dir", "data"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("the coordinator does not know earthquakes"), "{}", text(&output));
    assert!(!dir.path().join("out").exists(), "nothing was written");
}

#[test]
fn a_coordinator_that_has_forgotten_the_job_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--output", "out", "--data-dir", "data"];
    assert_eq!(first_run(dir.path(), &args).status.code(), Some(0));
    fs::remove_dir_all(dir.path().join("data")).unwrap();
    let output = run(EARTHQUAKES, dir.path(), &args);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("the coordinator does not know earthquakes"), "{}", text(&output));
}
