//! A process dies before the n-th step that changes a local directory, for every n; the next process ends the transaction
//! as it was decided, and finds no more and no less than its records.
#![cfg(feature = "object_store")]
#![allow(clippy::unwrap_used, reason = "helpers of a test are tests")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use ratified::{
    ClientName, Committed, Epoch, SinkCommitter, SinkWriter, TwoPhaseSink, TxnContext,
    sinks::{
        file::TargetName,
        object_store::{
            JsonLines, ObjectHandle, ObjectStoreSink, ObjectStoreSinkBuilder, committed_objects,
            store::{ObjectStoreExt, local::LocalFileSystem},
        },
    },
};
use tempfile::TempDir;

const DIR: &str = "OBJECT_SINK_CRASH_DIR";
const STEP: &str = "OBJECT_SINK_CRASH_STEP";
const MAX_STEPS: usize = 100;

fn sink(dir: &Path) -> ObjectStoreSinkBuilder<u64> {
    let (odd, even): (TargetName, TargetName) = ("odd".parse().unwrap(), "even".parse().unwrap());
    ObjectStoreSink::local(dir, odd.clone(), JsonLines::new())
        .prefix("out")
        .file_bytes(4)
        .route(move |number| if number % 2 == 0 { even.clone() } else { odd.clone() })
}

fn client() -> ClientName {
    "shop.sink.0".parse().unwrap()
}

fn txn() -> TxnContext {
    TxnContext::new(client(), "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap(), Epoch::FIRST)
}

/// The one that dies. The file `decided` stands for the coordinator's decision.
#[tokio::test]
#[ignore = "run as a process of its own by the other test"]
async fn child() {
    let dir = PathBuf::from(env::var_os(DIR).unwrap());
    let crash: usize = env::var(STEP).unwrap().parse().unwrap();
    let step = AtomicUsize::new(0);
    let sink = sink(&dir).on_step(move |_| {
        if step.fetch_add(1, Ordering::SeqCst) == crash {
            std::process::abort();
        }
        Ok(())
    });
    let sink = sink.build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn()).await.unwrap();
    for number in 1..=6 {
        writer.write(&txn(), &mut handle, vec![number]).await.unwrap();
    }
    writer.pre_commit(&txn(), &mut handle).await.unwrap();
    fs::write(dir.join("decided"), serde_json::to_vec(&handle).unwrap()).unwrap();
    assert_eq!(sink.committer().await.unwrap().commit(&txn(), &handle).await.unwrap(), Committed::Now);
}

fn dies_at(step: usize, dir: &Path) -> bool {
    let status = Command::new(env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored"])
        .env(DIR, dir)
        .env(STEP, step.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    !status.unwrap().success()
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

/// The next process. Says whether the commit had been decided, and how the sink was found.
async fn recover(dir: &Path) -> Option<Committed> {
    let committer = sink(dir).build().unwrap().committer().await.unwrap();
    let Ok(decided) = fs::read(dir.join("decided")) else {
        assert_eq!(visible(dir).await, "");
        committer.abort(&txn(), None).await.unwrap();
        assert_eq!(committer.list_staged(&client()).await.unwrap(), []);
        assert!(!dir.join("out/_ratified/shop.sink.0").join(txn().txn_id.to_string()).exists());
        assert_eq!(visible(dir).await, "");
        return None;
    };
    let handle: ObjectHandle = serde_json::from_slice(&decided).unwrap();
    let committed = committer.commit(&txn(), &handle).await.unwrap();
    assert_eq!(visible(dir).await, "1\n3\n5\n2\n4\n6\n");
    assert_eq!(committer.commit(&txn(), &handle).await.unwrap(), Committed::Already);
    assert_eq!(committer.list_staged(&client()).await.unwrap(), []);
    Some(committed)
}

#[tokio::test]
async fn a_crash_before_any_step_is_recovered_from() {
    let (mut undecided, mut moved, mut found) = (0, 0, 0);
    for step in 0..MAX_STEPS {
        let dir = TempDir::new().unwrap();
        let died = dies_at(step, dir.path());
        match recover(dir.path()).await {
            None => undecided += 1,
            Some(Committed::Now) => moved += 1,
            Some(Committed::Already) => found += 1,
        }
        if !died {
            // Four files are made, filled and sealed; each is renamed; the rest is removed; and the end.
            assert_eq!((undecided, moved, found), (12, 4, 2));
            return;
        }
    }
    panic!("more than {MAX_STEPS} steps");
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
    let committer = sink(dir.path()).build().unwrap().committer().await.unwrap();
    assert_eq!(committer.list_staged(&client()).await.unwrap(), [txn().txn_id]);
    committer.abort(&txn(), None).await.unwrap();
    assert_eq!(committer.list_staged(&client()).await.unwrap(), []);
    assert_eq!(visible(dir.path()).await, "");
}
