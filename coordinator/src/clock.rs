//! The two clocks: one that everything is decided by, one that is only shown.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Instant, SystemTime},
};

use ratified_core::{Now, Uptime};
use ratified_protocol::WallTime;

/// Tells the time. A simulation has its own.
pub trait Clock: Send + Sync {
    /// The time now. Its uptime must never go back.
    fn now(&self) -> Now;

    /// Sets the uptime to go on from: the greatest on disk. Called once, at the end of the load.
    fn resume(&self, from: Uptime);
}

/// Uptime = the greatest uptime on disk + what the monotonic clock has counted since the load. Jumps of the wall clock,
/// downtime and suspended machines change nothing.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    offset_ms: AtomicU64,
}

impl SystemClock {
    /// A clock at uptime 0.
    pub fn new() -> Self {
        Self { started: Instant::now(), offset_ms: AtomicU64::new(0) }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall = WallTime::from_unix_millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        let uptime = Uptime::from_millis(self.elapsed_ms()).plus_millis(self.offset_ms.load(Ordering::Acquire));
        Now { uptime, wall }
    }

    fn resume(&self, from: Uptime) {
        self.offset_ms.fetch_add(from.as_millis(), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_goes_on_from_the_greatest_on_disk() {
        let clock = SystemClock::new();
        clock.resume(Uptime::from_millis(1_000_000));
        let first = clock.now().uptime;
        assert!(first >= Uptime::from_millis(1_000_000));
        assert!(clock.now().uptime >= first);
    }
}
