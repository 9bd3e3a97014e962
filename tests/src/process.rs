//! The real coordinator as a process of its own, in a directory of its own, on a port of its own.

use std::{
    fs::{self, File},
    net::SocketAddr,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{around::Around, binary, config::Config, poll, raw::Raw, tally};

/// Where a coordinator can be reached at the moment; shared by all who want to follow it over restarts.
#[derive(Debug, Clone, Default)]
pub struct Address(Arc<Mutex<Option<SocketAddr>>>);

impl Address {
    /// An address that does not change.
    pub fn fixed(address: SocketAddr) -> Self {
        Self(Arc::new(Mutex::new(Some(address))))
    }

    /// The current address; `None` while nothing runs.
    pub fn current(&self) -> Option<SocketAddr> {
        *self.0.lock().unwrap()
    }

    fn set(&self, address: Option<SocketAddr>) {
        *self.0.lock().unwrap() = address;
    }
}

/// A coordinator that can be killed and started again on the same data. It is killed when dropped; what it wrote to
/// stderr is printed if the test fails.
#[derive(Debug)]
pub struct Ratifyd {
    dir: TempDir,
    address: Address,
    around: Around,
    child: Option<Child>,
}

impl Ratifyd {
    /// Starts one with an empty store, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn start(config: Config) -> Self {
        let mut ratifyd = Self::stopped(&config);
        ratifyd.start_again().await;
        ratifyd
    }

    /// One that has a directory and a configuration, and does not run yet.
    ///
    /// # Panics
    /// When the directory cannot be made.
    pub fn stopped(config: &Config) -> Self {
        let dir = tempfile::Builder::new().prefix("ratified-").tempdir().unwrap();
        let ratifyd = Self { dir, address: Address::default(), around: Around::nothing(), child: None };
        ratifyd.configure(config);
        ratifyd
    }

    /// Writes another configuration, for the next start.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn configure(&self, config: &Config) {
        fs::write(self.config_file(), config.to_toml()).unwrap();
    }

    /// What the next start puts around the process.
    pub fn run_inside(&mut self, around: Around) {
        self.around = around;
    }

    /// Starts it on the data it has, and waits until it is ready.
    ///
    /// # Panics
    /// When it runs already, ends, or does not become ready.
    pub async fn start_again(&mut self) {
        self.spawn();
        self.until_listening().await;
        self.until_ready().await;
    }

    /// Waits until a spawned process listens.
    ///
    /// # Panics
    /// When it ends, or does not come to it.
    pub async fn until_listening(&mut self) {
        let port_file = self.dir.path().join("port");
        let address = poll::until_some("the port file of ratifyd", || {
            self.assert_runs();
            read_port_file(&port_file)
        })
        .await;
        self.address.set(Some(address));
    }

    /// Waits until a listening process has loaded its store.
    ///
    /// # Panics
    /// When it ends, or does not come to it.
    pub async fn until_ready(&mut self) {
        if let Some(status) = self.until_ready_or_ended().await {
            panic!("ratifyd ended instead of becoming ready: {status}");
        }
    }

    /// Starts the process and waits for nothing.
    ///
    /// # Panics
    /// When it runs already or cannot be started.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let _ = fs::remove_file(self.dir.path().join("port"));
        self.child = Some(self.command().spawn().unwrap());
    }

    /// The command that runs a coordinator on this directory.
    ///
    /// # Panics
    /// When the log cannot be opened.
    pub fn command(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.log_file()).unwrap();
        let mut command = self.around.command(binary::ratifyd());
        command
            .args(["serve", "--config"])
            .arg(self.config_file())
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(["--listen", "127.0.0.1:0"])
            .arg("--port-file")
            .arg(self.dir.path().join("port"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command
    }

    /// A client that follows this coordinator over restarts.
    pub fn raw(&self) -> Raw {
        Raw::new(self.address.clone())
    }

    /// Where it can be reached.
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// Its URL.
    ///
    /// # Panics
    /// When it does not run.
    pub fn url(&self) -> String {
        format!("http://{}", self.address.current().expect("ratifyd runs"))
    }

    /// Puts a copy of another store in the place of its own, as restoring a backup does.
    ///
    /// # Panics
    /// When it runs, or the disk fails.
    pub fn restore(&self, backup: &Path) {
        assert!(self.child.is_none(), "it runs");
        let _ = fs::remove_dir_all(self.data_dir());
        copy_dir(backup, &self.data_dir());
    }

    /// Where its store lies.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Where else something about it may be kept, as long as it is there.
    pub fn side_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("ratifyd runs").id()
    }

    /// Kills it as a power cut does to a process: SIGKILL.
    ///
    /// # Panics
    /// When it does not run, or has ended by itself.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("ratifyd runs");
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "it had ended before it was killed: {status}");
        tally::fault("SIGKILL coordinator");
        self.address.set(None);
    }

    /// Kills it and starts it again.
    pub async fn crash(&mut self) {
        self.kill();
        self.start_again().await;
    }

    /// Waits until a spawned process is ready, or has ended; how, in that case.
    ///
    /// # Panics
    /// When it comes to neither.
    pub async fn until_ready_or_ended(&mut self) -> Option<ExitStatus> {
        let port_file = self.dir.path().join("port");
        let end = Instant::now() + poll::PATIENCE;
        loop {
            assert!(Instant::now() < end, "ratifyd neither becomes ready nor ends");
            let child = self.child.as_mut().expect("ratifyd runs");
            if let Some(status) = child.try_wait().unwrap() {
                self.child = None;
                self.address.set(None);
                return Some(status);
            }
            self.address.set(read_port_file(&port_file));
            if self.raw().try_call("GET", "/readyz", None).await.is_ok_and(|reply| reply.status == 200) {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_for_exit().await
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("ratifyd runs");
        let status = poll::until_some("ratifyd to end", || child.try_wait().unwrap()).await;
        self.child = None;
        self.address.set(None);
        status
    }

    /// Sends a signal: `STOP` and `CONT` suspend and wake it.
    ///
    /// # Panics
    /// When it does not run.
    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("ratifyd runs");
        kill_process(Pid::from_child(child), signal).unwrap();
        if signal == Signal::STOP {
            tally::fault("SIGSTOP coordinator");
        }
    }

    /// What it wrote to stderr so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Waits until this stands in its log: an answer may be there before the line about it.
    ///
    /// # Panics
    /// When it does not come.
    pub async fn until_logged(&self, text: &str) {
        poll::until_some(&format!("the log of ratifyd to say {text:?}"), || self.log().contains(text).then_some(()))
            .await;
    }

    fn assert_runs(&mut self) {
        if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().unwrap()) {
            self.child = None;
            panic!("ratifyd ended while it was waited for: {status}\n{}", self.log());
        }
    }

    fn config_file(&self) -> PathBuf {
        self.dir.path().join("ratifyd.toml")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("ratifyd.log")
    }
}

impl Drop for Ratifyd {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- stderr of ratifyd ---\n{}", tail(&self.log()));
        }
    }
}

/// Runs a command that is expected to end soon, and returns its status and stderr.
///
/// # Panics
/// When it does not end in time, or cannot be run.
pub fn run_to_end(command: &mut Command) -> (ExitStatus, String) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + poll::PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            panic!("it did not end within {:?}", poll::PATIENCE);
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text).unwrap();
    (status, text)
}

/// Copies a directory and everything in it.
///
/// # Panics
/// When the disk fails.
pub fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The log must hold one line of this program itself, and no panic: what it says.
///
/// # Panics
/// When it says more, or nothing.
#[track_caller]
pub fn one_line_of(log: &str) -> &str {
    assert!(!log.contains("panicked"), "{log}");
    let lines: Vec<_> = log.lines().filter_map(|line| line.strip_prefix("ratifyd: ")).collect();
    let [line] = lines[..] else { panic!("{} lines say why it ended:\n{}", lines.len(), tail(log)) };
    line
}

/// A port, or an address with a port, alone in a file.
fn read_port_file(path: &Path) -> Option<SocketAddr> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    text.parse().ok().or_else(|| Some(SocketAddr::from(([127, 0, 0, 1], text.parse().ok()?))))
}

fn tail(log: &str) -> String {
    const LINES: usize = 200;
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
