//! Jobs as processes of their own: started, killed, suspended, waited for.

use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{around::Around, poll, raw::Raw, tally};

/// How a job is run; the program and the directory stay the same over its restarts.
#[derive(Debug, Clone)]
pub struct JobSpec {
    /// The `job` program.
    pub program: PathBuf,
    /// `split`, `engine` or `composite`.
    pub driver: &'static str,
    /// Where the coordinator, or a proxy before it, is.
    pub url: String,
    /// Where everything of the pipeline lies.
    pub dir: PathBuf,
    /// The client's or the sink's name.
    pub name: String,
    /// How many numbers there are.
    pub records: u64,
    /// How many of them make a transaction.
    pub per_txn: u64,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It has read everything, and all of it is visible.
    Finished,
    /// It gave up with an error.
    Failed,
    /// SIGKILL.
    Killed,
}

/// A running job. It is killed when dropped; its stderr is printed if the test fails.
#[derive(Debug)]
pub struct JobProcess {
    child: Child,
    log: PathBuf,
}

impl JobSpec {
    /// A job of this name with 60 records, 10 to a transaction, in a directory of its own below this one.
    pub fn new(program: &str, driver: &'static str, url: String, parent: &Path, name: &str) -> Self {
        let (program, dir) = (PathBuf::from(program), parent.join(name));
        Self { program, driver, url, dir, name: name.to_owned(), records: 60, per_txn: 10 }
    }

    /// Starts the job; the options are the program's own.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&self, options: &[(&str, &str)]) -> JobProcess {
        self.start_inside(&Around::nothing(), options)
    }

    /// Starts the job with something around it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_inside(&self, around: &Around, options: &[(&str, &str)]) -> JobProcess {
        fs::create_dir_all(&self.dir).unwrap();
        let log = self.dir.join("job.log");
        let stderr = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = around.command(&self.program);
        command.args([self.driver, &self.url]).arg(&self.dir).arg(&self.name);
        command.args([self.records.to_string(), self.per_txn.to_string()]);
        for (name, value) in options {
            command.args([&format!("--{name}"), *value]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        JobProcess { child, log }
    }

    /// Runs the job until it ends.
    pub async fn run(&self, options: &[(&str, &str)]) -> Ended {
        self.start(options).wait().await
    }

    /// Where the output is.
    pub fn out(&self) -> PathBuf {
        self.dir.join("out")
    }

    /// How many files a reader sees, those of the staging area as one.
    pub fn visible_files(&self) -> usize {
        fs::read_dir(self.out()).map_or(0, Iterator::count)
    }

    /// How many transactions of it the coordinator remembers as committed or aborted.
    ///
    /// # Panics
    /// When it does not tell.
    pub async fn decided(&self, coordinator: &Raw) -> usize {
        let worker = if self.driver.ends_with("engine") { ".0" } else { "" };
        let kept = coordinator.get(&format!("/v1/preserver/{}{worker}", self.name)).await;
        if kept.status == 404 { 0 } else { kept.ok(200)["outcomes"].as_array().map_or(0, Vec::len) }
    }

    /// The coordinator has nothing unfinished of it.
    ///
    /// # Panics
    /// When it has.
    pub async fn check_finished(&self, coordinator: &Raw, what: &str) {
        let live = coordinator.get(&format!("/v1/txns?clientPrefix={}", self.name)).await.ok(200);
        assert_eq!(live["items"], json!([]), "{what}: unfinished transactions");
    }
}

impl JobProcess {
    /// Waits until it has ended.
    ///
    /// # Panics
    /// When it does not end, or ends in a way that is none of [`Ended`].
    pub async fn wait(&mut self) -> Ended {
        let status = poll::until_some("the job to end", || self.child.try_wait().unwrap()).await;
        let ended = ended(status).unwrap_or_else(|| panic!("the job ended with {status}\n{}", self.log()));
        if ended == Ended::Killed {
            tally::fault("SIGKILL job");
        }
        ended
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// When that cannot be asked.
    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it has suspended itself.
    ///
    /// # Panics
    /// When it does not.
    pub async fn until_suspended(&mut self) {
        let stat = format!("/proc/{}/stat", self.child.id());
        poll::until_some("the job to suspend itself", || {
            assert!(!self.is_over(), "it ended instead\n{}", self.log());
            let text = fs::read_to_string(&stat).ok()?;
            // The state follows the name in parentheses.
            text.rsplit_once(") ")?.1.starts_with('T').then_some(())
        })
        .await;
        tally::fault("SIGSTOP job");
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it has been waited for already.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it wrote to stderr, earlier runs in the same directory included.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for JobProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- stderr of the job ---\n{}", self.log());
        }
    }
}

fn ended(status: ExitStatus) -> Option<Ended> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Some(Ended::Finished),
        (Some(1), _) => Some(Ended::Failed),
        (None, Some(9)) => Some(Ended::Killed),
        _ => None,
    }
}
