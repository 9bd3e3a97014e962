//! A child process: spoken to in lines, waited for with a bound, never left behind.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use super::{
    DrillError,
    message::{self, Event},
};

/// The longest wait for anything a child must do. Everything it does takes a fraction of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;
/// How much of a child's log an error shows.
const LOG_LINES: usize = 12;

/// What was heard of a child.
#[derive(Debug)]
pub(crate) enum Heard {
    /// It said something.
    Said(Event),
    /// Nothing, in the given time.
    Nothing,
    /// It has ended.
    Ended,
}

/// A running child of this executable. Dropping it kills it.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    stdin: ChildStdin,
    events: Receiver<Result<Event, String>>,
    log: PathBuf,
}

impl Process {
    /// Starts this executable with these arguments. What it writes to stderr is added to the log.
    pub(crate) fn start(name: &'static str, args: &[String], log: &Path) -> Result<Self, DrillError> {
        let failed = |source| DrillError::Process { name, source };
        let stderr = OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(failed)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(io::Error::other("it has no stdin or stdout")));
        };
        let (sender, events) = channel();
        thread::Builder::new()
            .name(format!("drill-{name}"))
            .spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line.parse().map_err(|_| line)).is_err() {
                        return;
                    }
                }
            })
            .map_err(failed)?;
        Ok(Self { name, child, stdin, events, log: log.to_owned() })
    }

    /// Says something to the child. A child that has just ended does not hear it, and is noticed by whoever listens.
    pub(crate) fn say(&mut self, command: &message::Command) {
        let _ = writeln!(self.stdin, "{command}").and_then(|()| self.stdin.flush());
    }

    /// What the child says next.
    pub(crate) fn hear(&self, within: Duration) -> Result<Heard, DrillError> {
        match self.events.recv_timeout(within) {
            Ok(Ok(event)) => Ok(Heard::Said(event)),
            Ok(Err(line)) => Err(DrillError::Garbled { name: self.name, line }),
            Err(RecvTimeoutError::Timeout) => Ok(Heard::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Heard::Ended),
        }
    }

    /// Kills the child; `None` if it had ended before. Tells what it had said and nobody had heard.
    pub(crate) fn kill(&mut self) -> Result<Option<Vec<Event>>, DrillError> {
        let status = self.end()?;
        let said = self.events.iter().filter_map(Result::ok).collect();
        Ok((status.signal() == Some(SIGKILL)).then_some(said))
    }

    /// How a child that has closed its output has ended.
    pub(crate) fn outcome(&mut self) -> Result<ExitStatus, DrillError> {
        self.child.wait().map_err(|source| DrillError::Process { name: self.name, source })
    }

    /// Waits until a child that has said its last word has ended well.
    pub(crate) fn finish(mut self) -> Result<(), DrillError> {
        loop {
            match self.hear(PATIENCE)? {
                Heard::Said(_) => {}
                Heard::Nothing => return Err(self.silent("to end")),
                Heard::Ended => break,
            }
        }
        // Its output is closed: it is gone, or about to be, and killing what is gone changes nothing.
        let status = self.outcome()?;
        if status.success() { Ok(()) } else { Err(self.died(status)) }
    }

    /// The error of a child that ended too early.
    pub(crate) fn ended(&mut self) -> DrillError {
        match self.end() {
            Ok(status) => self.died(status),
            Err(error) => error,
        }
    }

    /// The error of a child that did not do what it had to in time.
    pub(crate) fn silent(&self, what: &'static str) -> DrillError {
        DrillError::Silent { name: self.name, what, log: self.log_end() }
    }

    fn died(&self, status: ExitStatus) -> DrillError {
        DrillError::Died { name: self.name, status, log: self.log_end() }
    }

    /// Nothing outlives SIGKILL, so the wait is bounded by the kernel.
    fn end(&mut self) -> Result<ExitStatus, DrillError> {
        let failed = |source| DrillError::Process { name: self.name, source };
        self.child.kill().map_err(failed)?;
        self.child.wait().map_err(failed)
    }

    fn log_end(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
