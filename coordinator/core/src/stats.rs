//! Numbers for the metrics endpoint. Counters only ever grow; no label has unbounded values.

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions begun.
    pub begun: u64,
    /// Transactions decided, by outcome (`Outcome::ALL` order), then by reason (`EndReason::ALL` order).
    pub decided: [[u64; 5]; 2],
    /// Requests answered `replayed: true`.
    pub replays: u64,
    /// Outcomes found for a caller that asked about a decided transaction.
    pub lookup_hits: u64,
    /// Callers told that a transaction never began here.
    pub lookup_misses: u64,
    /// Callers told that an outcome is no longer kept.
    pub lookup_expired: u64,
    /// Calls refused because a newer owner has opened the client.
    pub fenced_calls: u64,
    /// Outcomes appended to the preserver (PIP-255).
    pub preserver_appends: u64,
    /// Flushes of a client's outcomes that wrote something (PIP-255: appends per write is the coalescing).
    pub preserver_flush_writes: u64,
    /// Outcomes dropped by count.
    pub evicted_by_count: u64,
    /// Outcomes dropped because `max_outcomes_per_client` was reached before their retention was over.
    pub evicted_by_limit: u64,
    /// Outcomes dropped by age.
    pub expired: u64,
    /// Index entries that named nothing; always 0 unless there is a defect.
    pub stray_index_entries: u64,
}

/// What is there now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Clients, without tombstones.
    pub clients: u64,
    /// Tombstones of forgotten clients.
    pub tombstones: u64,
    /// Live transactions: OPEN, PREPARED, COMMITTING, ABORTING.
    pub live: [u64; 4],
    /// Outcomes in the preserver: COMMITTED, ABORTED.
    pub preserved: [u64; 2],
    /// Acknowledgements that are missing.
    pub pending_acks: u64,
    /// Requests parked by `waitMs`.
    pub waiting: u64,
    /// Payload bytes held in memory.
    pub payload_bytes: u64,
    /// Age of the oldest OPEN transaction, in milliseconds; 0 without one.
    pub oldest_open_ms: u64,
    /// Age of the oldest PREPARED transaction, in milliseconds; 0 without one.
    pub oldest_prepared_ms: u64,
    /// How long the oldest decision has waited for acknowledgements, in milliseconds, at most since the load; 0 without one.
    pub oldest_ending_ms: u64,
}
