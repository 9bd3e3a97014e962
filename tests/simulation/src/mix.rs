//! What a seed draws before its run begins: who takes part, under which limits, and which faults there are.
//!
//! Each seed has its own mix ("swarm"): a run with every fault at once seldom gets far enough to be wrong.

use ratified_coordinator::{Periods, writer::Room};
use ratified_core::Limits;

use crate::{fault::Faults, rng::Rng};

/// The mix of one run. Chances are per mille, times in milliseconds.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Seeded defects, for the tests of this harness.
    pub faults: Faults,
    /// The coordinator's bounds.
    pub limits: Limits,
    /// What a batch takes.
    pub room: Room,
    /// How often which sweep runs.
    pub periods: Periods,
    /// When faults stop.
    pub heal_at: u64,
    /// A message is lost.
    pub loss: u64,
    /// A message comes twice.
    pub duplication: u64,
    /// The longest ordinary delay of a message.
    pub delay_ms: u64,
    /// A message is delayed beyond every timeout.
    pub long_delay: u64,
    /// The coordinator crashes, at each of its crash points.
    pub crash: u64,
    /// A write or sync of the store fails.
    pub storage_error: u64,
    /// How long the coordinator gathers requests.
    pub gather_ms: u64,
    /// The longest sync.
    pub sync_ms: u64,
    /// How often chaos strikes at all; 0 = never.
    pub chaos_every_ms: u64,
    /// Chaos moves a clock.
    pub clock_jumps: bool,
    /// Chaos kills or freezes processes, or leaves them behind.
    pub process_faults: bool,
    /// Jobs that checkpoint through an engine.
    pub jobs: u64,
    /// Records of each partition of a job.
    pub records: u64,
    /// Jobs that keep their position in the coordinator.
    pub self_jobs: u64,
    /// Callers that keep to no rule.
    pub strangers: u64,
    /// Resources that pull decisions.
    pub participants: u64,
    /// A job's attempt is cancelled and started again, at each look of its engine.
    pub restarts: u64,
    /// The sink refuses a write or a flush.
    pub sink_failure: u64,
    /// Operators resolve, retire and forget.
    pub operator: bool,
    /// Jobs are restored from older checkpoints.
    pub rewinds: bool,
    /// Prepared transactions of jobs time out.
    pub prepared_timeouts: bool,
    /// A participant stays silent for ever and is never retired.
    pub stuck_participant: bool,
}

impl Mix {
    /// The mix of a seed.
    pub fn draw(rng: &mut Rng, faults: Faults) -> Self {
        let calm = rng.permille(60);
        let level = |rng: &mut Rng, levels: &[u64]| if calm { 0 } else { *rng.pick(levels) };
        let retention = *rng.pick(&[None, None, Some(400), Some(1500)]);
        Self {
            faults,
            limits: limits(rng, retention),
            room: Room { requests: *rng.pick(&[1, 2, 8, 64]), bytes: *rng.pick(&[64, 600, 1 << 20]) },
            periods: Periods {
                timeouts_ms: *rng.pick(&[40, 150, 600]),
                expiry_ms: *rng.pick(&[50, 300, 900]),
                gc_ms: *rng.pick(&[50, 300, 900]),
            },
            heal_at: *rng.pick(&[700, 1200, 2500]),
            loss: level(rng, &[0, 0, 20, 80, 250]),
            duplication: level(rng, &[0, 20, 80, 300]),
            delay_ms: *rng.pick(&[1, 3, 10, 60]),
            long_delay: level(rng, &[0, 0, 5, 30, 80]),
            crash: level(rng, &[0, 1, 3, 8, 25]),
            storage_error: level(rng, &[0, 0, 0, 5, 30]),
            gather_ms: *rng.pick(&[0, 1, 4, 12]),
            sync_ms: *rng.pick(&[1, 4, 15, 60]),
            chaos_every_ms: level(rng, &[0, 20, 60, 200]),
            clock_jumps: rng.coin(),
            process_faults: rng.coin(),
            jobs: *rng.pick(&[0, 1, 1, 2]),
            records: *rng.pick(&[6, 14, 30]),
            self_jobs: *rng.pick(&[0, 0, 1, 2]),
            strangers: *rng.pick(&[0, 0, 1, 2, 3]),
            participants: *rng.pick(&[0, 1, 2]),
            restarts: level(rng, &[0, 0, 5, 30]),
            sink_failure: level(rng, &[0, 4, 4, 30]),
            operator: rng.permille(400),
            rewinds: rng.permille(300),
            prepared_timeouts: rng.permille(100),
            stuck_participant: rng.permille(150),
        }
    }
}

fn limits(rng: &mut Rng, client_retention_ms: Option<u64>) -> Limits {
    let persist_count = *rng.pick(&[0, 1, 2, 3, 8]);
    Limits {
        persist_count,
        persist_time_ms: *rng.pick(&[60, 250, 1000, 1_000_000]),
        min_committed_per_client: persist_count / 2,
        gc_retention_ms: *rng.pick(&[0, 30, 200, 1_000_000]),
        max_outcomes_per_client: *rng.pick(&[1, 3, 5, 12, 1000]),
        client_retention_ms,
        max_clients: 1000,
        max_open_per_client: *rng.pick(&[3, 6, 1000]),
        max_unfinished_per_client: 10_000,
        max_waiting: *rng.pick(&[0, 1, 1000]),
        // Looked at, not drawn: seeds go on meaning what they meant.
        page: *rng.clone().pick(&[1, 2, 256, 256]),
    }
}
