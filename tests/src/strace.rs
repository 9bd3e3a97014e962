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

/// How far a file that grows by positional writes was written, and how much of it certainly is on disk; in bytes from the
/// file's beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// The end of what was handed over to the operating system.
    pub written: u64,
    /// Of that, what a sync has returned for, or what lies before the first write. A sync behind one that failed proves
    /// nothing.
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

    /// What a process that has ended did to each file; `pwrite64` and `fdatasync` must be watched.
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
    let offset_of = |event: &str| -> u64 {
        let arguments = event.rsplit_once(')').map_or(event, |(arguments, _)| arguments);
        arguments.trim_end_matches(" <unfinished ...>").rsplit_once(", ").and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
    };
    for line in log.lines() {
        let Some((thread, event)) = line.split_once(' ') else { continue };
        let event = event.trim_start();
        let begun =
            event.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| PathBuf::from(path));
        if event.ends_with("<unfinished ...>") {
            unfinished.insert(thread, (begun, offset_of(event)));
            continue;
        }
        let resumed = event.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>"));
        let (call, (path, offset)) = match resumed {
            Some((call, _)) => (call, unfinished.remove(thread).unwrap_or_default()),
            None => {
                let event = event.rsplit_once(" = ").map_or(event, |(event, _)| event);
                (event.split('(').next().unwrap_or_default(), (begun, offset_of(event)))
            }
        };
        let (Some(path), Some((_, result))) = (path, event.rsplit_once(" = ")) else { continue };
        let result: i64 = result.split(' ').next().unwrap_or_default().parse().unwrap_or(-1);
        let begins_at = if call == "pwrite64" { offset } else { 0 };
        let file = files.entry(path).or_insert(Progress { written: begins_at, synced: begins_at, failed: false });
        match (call, u64::try_from(result)) {
            ("pwrite64", Ok(bytes)) => file.written = file.written.max(offset + bytes),
            ("fdatasync", Ok(_)) if !file.failed => file.synced = file.written,
            ("fdatasync", Err(_)) => file.failed = true,
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
7 pwrite64(14</d/1.seg>, \"\"..., 512, 4096) = 512
7 fdatasync(14</d/1.seg> <unfinished ...>
8 pwrite64(15</d/next>, \"\"..., 7, 0) = -1 ENOSPC (No space left on device) (INJECTED)
8 pwrite64(15</d/next>, \"\"..., 7, 0 <unfinished ...>
7 <... fdatasync resumed>)              = 0
8 <... pwrite64 resumed>) = 3
7 pwrite64(14</d/1.seg>, \"\"..., 1024, 4608) = 1024
7 fdatasync(14</d/1.seg>) = -1 EIO (Input/output error) (INJECTED)
7 pwrite64(14</d/1.seg>, \"\"..., 512, 5632) = 512
7 fdatasync(14</d/1.seg>) = 0
7 +++ exited with 3 +++
";
        let expected = [
            ("/d/1.seg", Progress { written: 6144, synced: 4608, failed: true }),
            ("/d/next", Progress { written: 3, synced: 0, failed: false }),
        ];
        assert_eq!(progress(log), expected.map(|(path, progress)| (PathBuf::from(path), progress)).into());
    }
}
