//! A process that may have few files open, and one in it that has used them up.

use std::{
    env,
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use ratified::{Certainty, Committed, Epoch, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink, TxnContext};

use super::crash::client;

const DIR: &str = "SINK_SCARCE_DIR";

/// The n-th transaction of the client.
fn txn(n: usize) -> TxnContext {
    TxnContext::new(client(), format!("0190f2c4-7a61-7c3e-9d0a-0d0f{n:08x}").parse().unwrap(), Epoch::FIRST)
}

/// Opens whatever may still be opened, but so many.
pub(crate) fn take_all_but(left: usize) -> Vec<File> {
    let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    taken.truncate(taken.len() - left);
    taken
}

/// Where the process with few files works.
pub(crate) fn dir_of_child() -> PathBuf {
    PathBuf::from(env::var_os(DIR).unwrap())
}

/// Runs a test of this binary in a process of its own that may have 64 files open.
pub(crate) fn run_with_few_files(test: &str, dir: &Path) {
    let mut shell = Command::new("bash");
    shell.args(["-c", "ulimit -n 64; exec \"$@\"", "bash"]);
    run_around(shell, test, dir);
}

/// Runs a test of this binary in a process of its own, through a program that starts it.
pub(crate) fn run_around(mut around: Command, test: &str, dir: &Path) {
    let output = around.arg(env::current_exe().unwrap()).args([test, "--exact", "--ignored"]).env(DIR, dir).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Commits and aborts with 0, 1, 2, ... files left to open, until there are enough. How many were too few for a commit.
pub(crate) async fn outcomes_with_few_files<S: TwoPhaseSink<Record = u64>>(sink: &S) -> usize {
    let committer = sink.committer().await.unwrap();
    for left in 0..8 {
        let [committed, aborted] = [txn(2 * left + 1), txn(2 * left + 2)];
        let mut handles = Vec::new();
        for txn in [&committed, &aborted] {
            let mut writer = sink.writer().await.unwrap();
            let mut handle = writer.begin(txn).await.unwrap();
            writer.write(txn, &mut handle, vec![left as u64]).await.unwrap();
            writer.pre_commit(txn, &mut handle).await.unwrap();
            handles.push(handle);
        }
        let taken = take_all_but(left);
        let scarce = committer.commit(&committed, &handles[0]).await;
        let _ = committer.abort(&aborted, Some(&handles[1])).await;
        drop(taken);
        committer.abort(&aborted, Some(&handles[1])).await.unwrap();
        let known = committer.commit(&committed, &handles[0]).await;
        match scarce {
            Ok(found) => {
                assert_eq!((found, known.unwrap()), (Committed::Now, Committed::Already));
                return left;
            }
            Err(SinkError::Retry { cause, certainty, .. }) => {
                let told = cause.to_string();
                let remedy =
                    "(this process has as many files open as it may: raise its limit, by ulimit -n or LimitNOFILE=)";
                assert!(told.contains(remedy) && told.contains("Too many open files"), "{left}: {told}");
                assert!(certainty == Certainty::Indeterminate || known.is_ok(), "{left}");
                let _ = known.unwrap();
            }
            Err(error) => panic!("{left}: {error}"),
        }
    }
    panic!("8 files are too few");
}
