//! The dataflow, run as a user runs it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use ratified_servers::program::{run, text};

#[test]
fn a_dataflow_that_is_finished_does_nothing_when_it_is_run_again() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["--dir", "flow", "--workers", "3", "--first-start"][..], &["--dir", "flow", "--workers", "1"]] {
        let output = run(env!("CARGO_BIN_EXE_timely_sink"), dir.path(), args);
        let told = text(&output);
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(told.starts_with("301 rows are in flow/out"), "{told}");
    }
}
