//! A process dies before the n-th step that changes the disk, for every n; the next process ends the transaction as it
//! was decided, and finds no more and no less than its records.
#![allow(clippy::unwrap_used, reason = "helpers of a test are tests")]

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use ratified::{
    ClientName, Committed, Epoch, SinkCommitter, SinkWriter, TwoPhaseSink, TxnContext,
    sinks::file::{FileHandle, FileSink, FileSinkBuilder, TargetName, read_target},
};
use tempfile::TempDir;

const DIR: &str = "FILE_SINK_CRASH_DIR";
const STEP: &str = "FILE_SINK_CRASH_STEP";
const MAX_STEPS: usize = 200;

fn sink(dir: &Path) -> FileSinkBuilder<u64> {
    let (odd, even): (TargetName, TargetName) = ("odd".parse().unwrap(), "even".parse().unwrap());
    FileSink::json_lines(dir.join("deep/out"), odd.clone())
        .buffer_bytes(4)
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

/// One line per death in the ledger of faults that `scripts/test` sums up, if there is one.
fn tally() {
    if let Some(path) = env::var_os("TEST_TALLY") {
        let mut file = fs::File::options().create(true).append(true).open(path).unwrap();
        file.write_all(b"fault SIGABRT sink\n").unwrap();
    }
}

fn visible(dir: &Path) -> String {
    let read = |name: &str| read_target(&dir.join("deep/out"), &name.parse().unwrap()).unwrap();
    String::from_utf8([read("odd"), read("even")].concat()).unwrap()
}

/// The next process. Says whether the commit had been decided, and how the sink was found.
async fn recover(dir: &Path) -> Option<Committed> {
    let committer = sink(dir).build().unwrap().committer().await.unwrap();
    let decided = fs::read(dir.join("decided")).ok();
    let Some(decided) = decided else {
        assert_eq!(visible(dir), "");
        committer.abort(&txn(), None).await.unwrap();
        assert_eq!(committer.list_staged(&client()).await.unwrap(), []);
        assert_eq!(visible(dir), "");
        return None;
    };
    let handle: FileHandle = serde_json::from_slice(&decided).unwrap();
    let committed = committer.commit(&txn(), &handle).await.unwrap();
    assert_eq!(visible(dir), "1\n3\n5\n2\n4\n6\n");
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
            // Directories, writes and syncs; before each of two renames; before the two syncs after them, and at the end.
            assert!(undecided >= 10, "{undecided}");
            assert_eq!((moved, found), (2, 3));
            return;
        }
        tally();
    }
    panic!("more than {MAX_STEPS} steps");
}
