//! Errors of system calls at the n-th call, and what really reached a file: strace.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    around::{Around, needed},
    fiu::{Errno, Times},
    poll, tally,
};

/// Calls of a process that are watched, and one of them that fails.
#[derive(Debug, Clone)]
pub struct Strace {
    log: PathBuf,
    calls: String,
    paths: Vec<PathBuf>,
    fault: Option<Fault>,
}

/// A call that fails.
#[derive(Debug, Clone)]
struct Fault {
    call: String,
    errno: Errno,
    nth: u64,
    times: Times,
}

/// What was written to a file, and how much of it certainly is on disk; in bytes from the file's beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Handed over to the operating system.
    pub written: u64,
    /// Of that, what a sync has returned for. A sync behind one that failed proves nothing.
    pub synced: u64,
    failed: bool,
}

impl Strace {
    /// Watches these calls, separated by commas, as far as they concern one of these paths; all, if there are none. The
    /// log is written anew.
    pub fn watch(log: &Path, calls: &str, paths: Vec<PathBuf>) -> Self {
        let _ = fs::remove_file(log);
        Self { log: log.to_owned(), calls: calls.to_owned(), paths, fault: None }
    }

    /// Lets the n-th call that a thread makes fail, counted from 1; once, or from then on.
    #[must_use]
    pub fn failing(self, call: &str, errno: Errno, nth: u64, times: Times) -> Self {
        Self { fault: Some(Fault { call: call.to_owned(), errno, nth, times }), ..self }
    }

    /// Puts strace around a process. It traces as a grandchild, so that the process stays the child.
    ///
    /// # Panics
    /// When it is not installed.
    pub fn around(&self) -> Around {
        let program = needed("strace", &["/usr/bin/strace"]);
        let mut words: Vec<OsString> = vec![program.into()];
        words.extend(["-D", "-f", "-y", "-q", "--seccomp-bpf", "-s", "0", "-e", "signal=KILL"].map(Into::into));
        words.extend(["-o".into(), self.log.clone().into_os_string()]);
        words.extend(["-e".into(), format!("trace={}", self.calls).into()]);
        for path in &self.paths {
            words.extend(["-P".into(), path.clone().into_os_string()]);
        }
        if let Some(Fault { call, errno, nth, times }) = &self.fault {
            let on = if *times == Times::Always { "+" } else { "" };
            words.extend(["-e".into(), format!("inject={call}:error={}:when={nth}{on}", errno.name()).into()]);
        }
        Around::program(words)
    }

    /// How often the fault was injected into a process that has ended.
    ///
    /// # Panics
    /// When the tracer does not notice the end of the process.
    pub async fn injected(&self, process: u32) -> usize {
        let count = self.log_of(process).await.matches("(INJECTED)").count();
        if let (true, Some(Fault { call, errno, times, .. })) = (count > 0, &self.fault) {
            tally::fault(&format!("{} {call} {times:?}", errno.name()));
        }
        count
    }

    /// What a process that has ended did to each file that it wrote from the beginning; `write` and `fsync` must be
    /// watched.
    ///
    /// # Panics
    /// When the tracer does not notice the end of the process.
    pub async fn progress(&self, process: u32) -> BTreeMap<PathBuf, Progress> {
        progress(&self.log_of(process).await)
    }

    async fn log_of(&self, process: u32) -> String {
        let process = process.to_string();
        let is_end = |line: &str| {
            line.split_once(' ').is_some_and(|(of, event)| of == process && event.trim_start().starts_with("+++ "))
        };
        poll::until_some("the tracer to see the process end", || {
            let log = fs::read_to_string(&self.log).ok()?;
            log.lines().any(is_end).then_some(log)
        })
        .await
    }
}

fn progress(log: &str) -> BTreeMap<PathBuf, Progress> {
    let mut files = BTreeMap::<PathBuf, Progress>::new();
    let mut unfinished = BTreeMap::new();
    for line in log.lines() {
        let Some((thread, event)) = line.split_once(' ') else { continue };
        let event = event.trim_start();
        let begun =
            event.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| PathBuf::from(path));
        if event.ends_with("<unfinished ...>") {
            unfinished.insert(thread, begun);
            continue;
        }
        let resumed = event.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>"));
        let (call, path) = match resumed {
            Some((call, _)) => (call, unfinished.remove(thread).flatten()),
            None => (event.split('(').next().unwrap_or_default(), begun),
        };
        let (Some(path), Some((_, result))) = (path, event.rsplit_once(" = ")) else { continue };
        let result: i64 = result.split(' ').next().unwrap_or_default().parse().unwrap_or(-1);
        let file = files.entry(path).or_default();
        match (call, u64::try_from(result)) {
            ("write", Ok(bytes)) => file.written += bytes,
            ("fsync", Ok(_)) if !file.failed => file.synced = file.written,
            ("fsync", Err(_)) => file.failed = true,
            _ => {}
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sync_that_returned_and_follows_no_failed_one_counts() {
        let log = "\
7 fsync(14</d/0.jnl>) = 0
7 write(14</d/0.jnl>, \"\"..., 100) = 100
7 fsync(14</d/0.jnl> <unfinished ...>
8 write(15</d/1.jnl>, \"\"..., 7) = -1 ENOSPC (No space left on device) (INJECTED)
8 write(15</d/1.jnl>, \"\"..., 7) = 3
7 <... fsync resumed>)              = 0
7 write(14</d/0.jnl>, \"\"..., 20) = 20
7 fsync(14</d/0.jnl>) = -1 EIO (Input/output error) (INJECTED)
7 write(14</d/0.jnl>, \"\"..., 4) = 4
7 fsync(14</d/0.jnl>) = 0
7 +++ exited with 3 +++
";
        let expected = [
            ("/d/0.jnl", Progress { written: 124, synced: 100, failed: true }),
            ("/d/1.jnl", Progress { written: 3, synced: 0, failed: false }),
        ];
        assert_eq!(progress(log), expected.map(|(path, progress)| (PathBuf::from(path), progress)).into());
    }
}
