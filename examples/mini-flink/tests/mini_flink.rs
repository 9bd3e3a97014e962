//! The example, run as a user runs it: it checks itself.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use ratified_servers::program::{run, text};

#[test]
fn the_engine_loses_nothing_in_any_scene_and_doubles_only_what_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(env!("CARGO_BIN_EXE_mini-flink"), dir.path(), &[]);
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
