//! A process that has used up the files it may open: what it is told, and that nothing is lost by it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use ratified::{
    pending::{FileStore, PendingStore},
    sinks::file::{FileSink, read_target},
};
use support::{
    crash::client,
    descriptors::{dir_of_child, outcomes_with_few_files, run_with_few_files, take_all_but},
};
use tempfile::TempDir;

#[tokio::test]
#[ignore = "run as a process of its own, with few files, by the other test"]
async fn child_that_ends_transactions() {
    let sink = FileSink::<u64>::json_lines(dir_of_child(), "out".parse().unwrap()).build().unwrap();
    assert!(outcomes_with_few_files(&sink).await > 0, "none was too few");
}

#[tokio::test]
async fn an_outcome_of_the_file_sink_that_lacks_descriptors_is_tried_again_and_no_failed_sync() {
    let dir = TempDir::new().unwrap();
    run_with_few_files("child_that_ends_transactions", dir.path());
    assert!(read_target(dir.path(), &"out".parse().unwrap()).unwrap().starts_with(b"0\n1\n"));
}

#[tokio::test]
#[ignore = "run as a process of its own, with few files, by the other test"]
async fn child_that_opens_a_pending_store() {
    let store = FileStore::new(dir_of_child());
    let mut refused = Vec::new();
    for left in 0..8 {
        let taken = take_all_but(left);
        let opened = store.open(&client()).await.map(drop);
        drop(taken);
        match opened {
            Ok(()) => break,
            Err(error) => refused.push(error.to_string()),
        }
    }
    assert!((1..8).contains(&refused.len()), "{refused:?}");
    let dir = dir_of_child().canonicalize().unwrap();
    let told = "Too many open files (os error 24) (this process has as many files open as it may: raise its limit, by \
                ulimit -n or LimitNOFILE=)";
    assert_eq!(refused[0], format!("{}: {told}", dir.join("shop.sink.0.lock").display()));
    assert!(refused[1..].iter().all(|why| *why == format!("{}: {told}", dir.join("shop.sink.0.pending").display())));
    assert!(store.open(&client()).await.is_ok());
}

#[tokio::test]
async fn a_pending_store_that_cannot_be_opened_for_want_of_descriptors_says_which_file_and_what_to_do() {
    run_with_few_files("child_that_opens_a_pending_store", TempDir::new().unwrap().path());
}
