//! A process dies before the n-th step that changes a local directory, for every n; the next process ends the transaction
//! as it was decided, and finds no more and no less than its records.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use ratified::{
    Committed, Epoch, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink, TxnContext, sinks::file::TargetName,
};

use ratified_object_store::{
    JsonLines, ObjectHandle, ObjectStoreSink, committed_objects,
    store::{ObjectStoreExt, local::LocalFileSystem},
};
use ratified_servers::SmallDisk;
use support::{
    crash::{Site, client, die_before_every_step, live, txn},
    descriptors::{dir_of_child, outcomes_with_few_files, run_around, run_with_few_files},
};
use tempfile::TempDir;

struct Objects;

impl Site for Objects {
    type Sink = ObjectStoreSink<u64>;

    fn sink(dir: &Path, step: impl Fn() + Send + Sync + 'static) -> ObjectStoreSink<u64> {
        let (odd, even): (TargetName, TargetName) = ("odd".parse().unwrap(), "even".parse().unwrap());
        ObjectStoreSink::local(dir, odd.clone(), JsonLines::new())
            .prefix("out")
            .file_bytes(4)
            .route(move |number| if number % 2 == 0 { even.clone() } else { odd.clone() })
            .on_step(move |_| {
                step();
                Ok(())
            })
            .build()
            .unwrap()
    }

    async fn visible(dir: &Path) -> String {
        let store = LocalFileSystem::new_with_prefix(dir).unwrap();
        let mut content = Vec::new();
        for name in ["odd", "even"] {
            for object in committed_objects(&store, "out", &name.parse().unwrap()).await.unwrap() {
                content.extend(store.get(&object.location).await.unwrap().bytes().await.unwrap());
            }
        }
        String::from_utf8(content).unwrap()
    }

    fn check_aborted(dir: &Path) {
        assert!(!dir.join("out/_ratified/shop.sink.0").join(txn().txn_id.to_string()).exists());
    }
}

#[tokio::test]
#[ignore = "run as a process of its own by the other test"]
async fn child() {
    live::<Objects>().await;
}

#[tokio::test]
async fn a_crash_before_any_step_is_recovered_from() {
    // Four files are made, filled and sealed; each is renamed; the rest is removed; and the end.
    assert_eq!(die_before_every_step::<Objects>().await, [12, 4, 2]);
}

const FULL_DIR: &str = "OBJECT_SINK_FULL_DIR";

/// Stages 8 MiB where a file may have 4: the kernel takes a part of a write and refuses the rest.
#[tokio::test]
#[ignore = "run as a process of its own, with a limit on its files, by the other test"]
async fn child_with_little_room() {
    let dir = PathBuf::from(env::var_os(FULL_DIR).unwrap());
    let sink = ObjectStoreSink::local(&dir, "texts".parse().unwrap(), JsonLines::new().max_record_bytes(9 << 20));
    let sink = sink.prefix("out").build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn()).await.unwrap();
    let _ = writer.write(&txn(), &mut handle, vec!["x".repeat(8 << 20)]).await;
    for _ in 0..2 {
        let error = writer.pre_commit(&txn(), &mut handle).await.unwrap_err().to_string();
        assert!(error.contains("cannot write out/_ratified/shop.sink.0/"), "{error}");
        assert!(error.contains("File too large"), "{error}");
    }
    assert_eq!(handle, ObjectHandle::default());
}

#[tokio::test]
async fn a_disk_that_takes_no_more_is_told_at_pre_commit_and_what_it_took_is_removed() {
    let dir = TempDir::new().unwrap();
    let shell = "trap '' XFSZ; ulimit -f 4096; exec \"$0\" child_with_little_room --exact --ignored";
    let output = Command::new("bash")
        .args(["-c", shell])
        .arg(env::current_exe().unwrap())
        .env(FULL_DIR, dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let committer = Objects::sink(dir.path(), || {}).committer().await.unwrap();
    assert_eq!(committer.list_staged(&client()).await.unwrap(), [txn().txn_id]);
    committer.abort(&txn(), None).await.unwrap();
    assert_eq!(committer.list_staged(&client()).await.unwrap(), []);
    assert_eq!(Objects::visible(dir.path()).await, "");
}

#[tokio::test]
async fn a_full_disk_is_told_at_pre_commit_and_takes_the_next_transaction_once_the_first_one_is_aborted() {
    let disk = SmallDisk::mount(4 << 20);
    let sink = ObjectStoreSink::local(disk.path(), "odd".parse().unwrap(), JsonLines::new().max_record_bytes(9 << 20));
    let sink = sink.prefix("out").build().unwrap();
    let (committer, mut writer) = (sink.committer().await.unwrap(), sink.writer().await.unwrap());
    let mut handle = writer.begin(&txn()).await.unwrap();
    let _ = writer.write(&txn(), &mut handle, vec!["x".repeat(8 << 20)]).await;
    for _ in 0..2 {
        let error = writer.pre_commit(&txn(), &mut handle).await.unwrap_err().to_string();
        assert!(error.contains("cannot write out/_ratified/shop.sink.0/"), "{error}");
        assert!(error.contains("No space left on device"), "{error}");
    }
    assert_eq!(committer.list_staged(&client()).await.unwrap(), [txn().txn_id]);
    committer.abort(&txn(), None).await.unwrap();
    assert_eq!(committer.list_staged(&client()).await.unwrap(), []);
    let next = TxnContext::new(client(), "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e40".parse().unwrap(), Epoch::FIRST);
    let mut handle = writer.begin(&next).await.unwrap();
    writer.write(&next, &mut handle, vec!["y".repeat(3 << 20)]).await.unwrap();
    writer.pre_commit(&next, &mut handle).await.unwrap();
    assert_eq!(committer.commit(&next, &handle).await.unwrap(), Committed::Now);
    assert!(Objects::visible(&disk.path()).await == format!("\"{}\"\n", "y".repeat(3 << 20)));
}

#[tokio::test]
async fn a_target_on_another_file_system_is_told_before_anything_is_staged() {
    let (dir, disk) = (TempDir::new().unwrap(), SmallDisk::mount(1 << 20));
    fs::create_dir(dir.path().join("out")).unwrap();
    symlink(disk.path(), dir.path().join("out/odd")).unwrap();
    let sink = Objects::sink(dir.path(), || {});
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn()).await.unwrap();
    let told = match writer.write(&txn(), &mut handle, vec![1]).await {
        Ok(()) => writer.pre_commit(&txn(), &mut handle).await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    let place = dir.path().canonicalize().unwrap().join("out/odd/_ratified-probe-shop.sink.0");
    let expected = format!(
        "cannot move files from the staging directory to {} (what is staged and what is visible must be on one file \
         system): Invalid cross-device link",
        place.display()
    );
    assert!(told.contains(&expected), "{told}");
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
}

/// As on a file system that does not tell names apart by case: both names lead to one directory.
#[tokio::test]
async fn a_client_whose_directory_is_another_ones_is_refused_at_open_naming_both() {
    let dir = TempDir::new().unwrap();
    let sink = Objects::sink(dir.path(), || {});
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn()).await.unwrap();
    writer.write(&txn(), &mut handle, vec![1]).await.unwrap();
    writer.pre_commit(&txn(), &mut handle).await.unwrap();
    let staging = dir.path().canonicalize().unwrap().join("out/_ratified");
    symlink(staging.join("shop.sink.0"), staging.join("SHOP.sink.0")).unwrap();
    let committer = sink.committer().await.unwrap();
    let told = committer.list_staged(&"SHOP.sink.0".parse().unwrap()).await.unwrap_err().to_string();
    let expected = format!(
        "the sink refused: {} is the directory of the client shop.sink.0, not of SHOP.sink.0: this file system does not \
         tell the two names apart; rename one of them, or give them different prefixes",
        staging.join("SHOP.sink.0").display()
    );
    assert_eq!(told, expected);
    assert_eq!(committer.list_staged(&"sink.0".parse().unwrap()).await.unwrap(), []);
}

#[tokio::test]
#[ignore = "run as a process of its own, with few files, by the other test"]
async fn child_with_few_files() {
    let sink = Objects::sink(&dir_of_child(), || {});
    assert!(outcomes_with_few_files(&sink).await > 0, "none was too few");
}

#[tokio::test]
async fn an_outcome_that_lacks_descriptors_is_tried_again_and_no_failed_sync() {
    let dir = TempDir::new().unwrap();
    run_with_few_files("child_with_few_files", dir.path());
    assert_eq!(Objects::visible(dir.path()).await.lines().next(), Some("1"), "an odd one was committed");
}

#[tokio::test]
#[ignore = "run as a process of its own, under strace, by the other test"]
async fn child_that_commits_until_it_is_done() {
    let sink = Objects::sink(&dir_of_child(), || {});
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn()).await.unwrap();
    writer.write(&txn(), &mut handle, vec![1]).await.unwrap();
    writer.pre_commit(&txn(), &mut handle).await.unwrap();
    let committer = sink.committer().await.unwrap();
    let mut attempts = 1;
    while let Err(error) = committer.commit(&txn(), &handle).await {
        assert!(matches!(error, SinkError::Retry { .. }), "{error}");
        attempts += 1;
    }
    fs::write(dir_of_child().join("attempts"), attempts.to_string()).unwrap();
}

#[tokio::test]
async fn a_descriptor_that_is_missing_only_where_a_commit_syncs_is_no_failed_sync() {
    // The n-th time that a thread opens the directory.
    for nth in 1..4 {
        let dir = TempDir::new().unwrap();
        let synced = dir.path().join("out/odd");
        let inject = format!("inject=openat:error=EMFILE:when={nth}");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=openat", "-e", &inject, "-P"]).arg(synced);
        run_around(strace, "child_that_commits_until_it_is_done", dir.path());
        assert_eq!(Objects::visible(dir.path()).await, "1\n");
        let attempts: u32 = fs::read_to_string(dir.path().join("attempts")).unwrap().parse().unwrap();
        assert!(nth > 1 || attempts > 1, "nothing failed");
    }
}
