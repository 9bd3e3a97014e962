//! What all servers need: a port, patience, an unprivileged user, and a way to end a whole family of processes.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::{fs::chown, process::CommandExt},
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};

/// How long anything may take before the test gives up. Generous: it is never waited out on the good path.
pub const PATIENCE: Duration = Duration::from_secs(60);

const STEP: Duration = Duration::from_millis(5);

/// Looks again and again until there is an answer.
///
/// # Panics
/// When [`PATIENCE`] is over; `what` says what was waited for.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} in vain: {what}");
        thread::sleep(STEP);
    }
}

/// A port that nothing listens on. Somebody else may take it before the server does: whoever starts the server must be
/// ready to try another one.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// A port that nothing listens on and that the system gives to no outgoing connection: for servers that must come back on
/// it.
///
/// # Panics
/// When there is none.
pub fn lasting_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|low| low.parse().ok()).unwrap_or(32_768).max(FIRST + 1);
    // Test programs that run at once begin at different places.
    let begin = std::process::id().wrapping_mul(7919);
    let candidates =
        (0..end - FIRST).map(|_| FIRST + begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (end - FIRST));
    let mut ports = candidates.filter_map(|port| u16::try_from(port).ok());
    ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).expect("a port is free")
}

/// A user that is not root, for servers that refuse to run as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The first of these users that exists, if this process is root's; otherwise none is needed.
    ///
    /// # Panics
    /// When none exists.
    pub fn unprivileged(names: &[&str]) -> Option<Self> {
        if !geteuid().is_root() {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let find = |name: &&str| {
            let line = users.lines().find(|line| line.split(':').next() == Some(*name))?;
            let mut ids = line.split(':').skip(2).map(str::parse);
            Some(Self { uid: ids.next()?.ok()?, gid: ids.next()?.ok()? })
        };
        Some(names.iter().find_map(find).unwrap_or_else(|| panic!("none of the users {names:?} exists")))
    }

    /// Lets a command run as this user.
    pub fn run(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    /// Makes a directory this user's.
    ///
    /// # Panics
    /// When it cannot be given away.
    pub fn own(self, dir: &Path) {
        chown(dir, Some(self.uid), Some(self.gid)).unwrap();
    }
}

/// SIGKILL to a process and all its children, so that none of them does anything more: the parent is stopped first and
/// cannot start another child.
pub fn kill_family(parent: u32) {
    signal(parent, Signal::STOP);
    children_of(parent).into_iter().for_each(|child| signal(child, Signal::KILL));
    signal(parent, Signal::KILL);
}

/// The processes that this one has started and that have not ended.
pub fn children_of(parent: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

/// Whether a process is there and has not ended.
pub fn is_alive(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The state follows the name in parentheses.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn parent_of(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// A process that has just ended needs no signal.
fn signal(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
