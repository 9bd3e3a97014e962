//! The example, run as a user runs it: it checks itself.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use ratified_servers::program::{run, text};

#[test]
fn the_quickstart_is_told_the_same_outcome_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(env!("CARGO_BIN_EXE_quickstart"), dir.path(), &[]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    for line in [
        "  commit: COMMITTED, replayed: false",
        "  commit, repeated as after a lost answer: COMMITTED, replayed: true",
        "The coordinator was restarted.",
        "  commit, repeated after the restart: COMMITTED, replayed: true, told by the preserver: true",
        "is COMMITTED",
    ] {
        assert!(told.contains(line), "{line:?} is not in\n{told}");
    }
}
