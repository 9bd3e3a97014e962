//! The engine: the only way anything changes.

use crate::{
    effect::{Effect, Input, Now, Revision, Uptime},
    limits::Limits,
    record::Record,
    stats::{Gauges, Stats},
};

/// The state machine.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// Carries out one input and appends what the shell has to do.
    pub fn step(&mut self, _now: Now, _input: Input, _out: &mut Vec<Effect>) {}

    /// Ends a batch: flushes the preserver of every client that ended something since the last call (PIP-255: one
    /// write for all of a client's appends). The shell calls it after the last step of a batch and before writing it.
    pub fn seal(&mut self, _out: &mut Vec<Effect>) {}

    /// The newest step that changed something durable.
    pub fn revision(&self) -> Revision {
        Revision(0)
    }

    /// The greatest uptime a step was judged at; to be written with every batch.
    pub fn uptime(&self) -> Uptime {
        Uptime::from_millis(0)
    }

    /// When the next [`crate::Sweep::Timeouts`] has something to do.
    pub fn next_deadline(&self) -> Option<Uptime> {
        None
    }

    /// Counters since the start.
    pub fn stats(&self) -> &Stats {
        &Stats {
            begun: 0,
            decided: [[0; 5]; 2],
            replays: 0,
            lookup_hits: 0,
            lookup_misses: 0,
            lookup_expired: 0,
            fenced_calls: 0,
            preserver_appends: 0,
            preserver_flush_writes: 0,
            evicted_by_count: 0,
            evicted_by_limit: 0,
            expired: 0,
            stray_index_entries: 0,
        }
    }

    /// What is there now.
    pub fn gauges(&self, _now: Uptime) -> Gauges {
        Gauges::default()
    }
}

/// Rebuilds an engine from what is durable.
#[derive(Debug)]
pub struct Recovery {}

impl Recovery {
    /// Starts with nothing. `loads` names this start in cursors.
    pub fn new(_limits: Limits, _loads: u64) -> Self {
        Self {}
    }

    /// Takes one record; any order.
    ///
    /// # Errors
    /// The record contradicts what a coordinator writes; the caller must refuse to start, naming its key.
    pub fn add(&mut self, _record: Record) -> Result<(), RecoveryError> {
        Ok(())
    }

    /// The engine, and what has to be written before anything is served.
    ///
    /// # Errors
    /// The records contradict each other; the caller must refuse to start.
    pub fn finish(self, _now: Now) -> Result<(Engine, Vec<Effect>), RecoveryError> {
        Ok((Engine {}, Vec::new()))
    }
}

/// Why records cannot be what a coordinator wrote.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct RecoveryError {
    /// The record's key, for people.
    pub place: String,
    /// What is wrong with it.
    pub problem: String,
}
