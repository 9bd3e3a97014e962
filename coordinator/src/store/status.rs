//! What a store tells of itself while another thread uses it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Numbers of a store, kept up by it and read by the writer.
#[derive(Debug, Default)]
pub struct StoreStatus {
    is_short: AtomicBool,
    log_bytes: AtomicU64,
    old_bytes: AtomicU64,
    slack_bytes: AtomicU64,
}

impl StoreStatus {
    /// Whether it has no room to go on for long, a full disk for example: only what ends something should be written. A
    /// store that has no such notice says no.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Notes whether it is short of room; gives what was noted before.
    pub fn set_short(&self, is_short: bool) -> bool {
        self.is_short.swap(is_short, Ordering::Relaxed)
    }

    /// How many bytes lie in the log.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    /// How many bytes the log may have beyond four times what is there; 0 for a store that needs no rewriting.
    pub fn slack_bytes(&self) -> u64 {
        self.slack_bytes.load(Ordering::Relaxed)
    }

    /// Notes how many bytes the log may have beyond four times what is there.
    pub fn set_slack_bytes(&self, bytes: u64) {
        self.slack_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Of these, how many a round of rewriting that begins now would free.
    pub fn old_bytes(&self) -> u64 {
        self.old_bytes.load(Ordering::Relaxed)
    }

    /// Notes how many bytes lie in the log, and how many of them a round that begins now would free.
    pub fn set_log_bytes(&self, bytes: u64, old_bytes: u64) {
        self.log_bytes.store(bytes, Ordering::Relaxed);
        self.old_bytes.store(old_bytes, Ordering::Relaxed);
    }
}
