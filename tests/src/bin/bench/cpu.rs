//! How much processor time a process has used.

use std::fs;

/// What `/proc` counts in, per second; the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Fields of `/proc/PID/stat` behind the name of the program: user and system time.
const USER: usize = 11;
const SYSTEM: usize = 12;

/// A running process.
pub(crate) struct Cpu(u32);

impl Cpu {
    pub(crate) fn of(pid: u32) -> Self {
        Self(pid)
    }

    /// Seconds in user and system mode, all threads, since it began.
    pub(crate) fn used(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).expect("the process runs");
        let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
        let fields: Vec<_> = fields.split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<f64>().expect("a number of ticks");
        (ticks(USER) + ticks(SYSTEM)) / TICKS_PER_SECOND
    }
}
