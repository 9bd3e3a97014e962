//! A process that dies before the n-th step of a sink, for every n; and the next process, which ends the transaction as it
//! was decided, and finds no more and no less than its records.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use ratified::{ClientName, Committed, Epoch, SinkCommitter, SinkWriter, TwoPhaseSink, TxnContext};
use ratified_servers::tally;
use tempfile::TempDir;

const DIR: &str = "SINK_CRASH_DIR";
const STEP: &str = "SINK_CRASH_STEP";
const MAX_STEPS: usize = 200;
/// The file that stands for the coordinator's decision.
const DECIDED: &str = "decided";

pub(crate) fn client() -> ClientName {
    "shop.sink.0".parse().unwrap()
}

pub(crate) fn txn() -> TxnContext {
    TxnContext::new(client(), "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap(), Epoch::FIRST)
}

/// A sink in a directory.
pub(crate) trait Site {
    type Sink: TwoPhaseSink<Record = u64>;

    /// One that calls this before each step.
    fn sink(dir: &Path, step: impl Fn() + Send + Sync + 'static) -> Self::Sink;

    /// The numbers that a reader sees, a line each: first the odd ones.
    async fn visible(dir: &Path) -> String;

    /// Looks for what an abort must not leave.
    fn check_aborted(_dir: &Path) {}
}

/// The test `child` of the process that dies.
pub(crate) async fn live<S: Site>() {
    let dir = PathBuf::from(env::var_os(DIR).unwrap());
    let crash: usize = env::var(STEP).unwrap().parse().unwrap();
    let step = AtomicUsize::new(0);
    let sink = S::sink(&dir, move || {
        if step.fetch_add(1, Ordering::SeqCst) == crash {
            std::process::abort();
        }
    });
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn()).await.unwrap();
    for number in 1..=6 {
        writer.write(&txn(), &mut handle, vec![number]).await.unwrap();
    }
    writer.pre_commit(&txn(), &mut handle).await.unwrap();
    fs::write(dir.join(DECIDED), serde_json::to_vec(&handle).unwrap()).unwrap();
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

/// The next process. Says whether the commit had been decided, and how the sink was found.
async fn recover<S: Site>(dir: &Path) -> Option<Committed> {
    let committer = S::sink(dir, || {}).committer().await.unwrap();
    let Ok(decided) = fs::read(dir.join(DECIDED)) else {
        assert_eq!(S::visible(dir).await, "");
        committer.abort(&txn(), None).await.unwrap();
        assert_eq!(committer.list_staged(&client()).await.unwrap(), []);
        S::check_aborted(dir);
        assert_eq!(S::visible(dir).await, "");
        return None;
    };
    let handle = serde_json::from_slice(&decided).unwrap();
    let committed = committer.commit(&txn(), &handle).await.unwrap();
    assert_eq!(S::visible(dir).await, "1\n3\n5\n2\n4\n6\n");
    assert_eq!(committer.commit(&txn(), &handle).await.unwrap(), Committed::Already);
    assert_eq!(committer.list_staged(&client()).await.unwrap(), []);
    Some(committed)
}

/// How often the next process found that nothing was decided, that something was still to be shown, and that all was done;
/// the life that reached its end is among them.
pub(crate) async fn die_before_every_step<S: Site>() -> [usize; 3] {
    let mut found = [0; 3];
    for step in 0..MAX_STEPS {
        let dir = TempDir::new().unwrap();
        let died = dies_at(step, dir.path());
        let what = match recover::<S>(dir.path()).await {
            None => 0,
            Some(Committed::Now) => 1,
            Some(Committed::Already) => 2,
        };
        found[what] += 1;
        if !died {
            return found;
        }
        tally::fault("SIGABRT sink");
    }
    panic!("more than {MAX_STEPS} steps");
}
