//! The bounds and periods the engine keeps to. The shell reads them from its configuration.

/// Bounds and periods; names and defaults follow the configuration keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `transaction_meta_persist_count` (PIP-255): newest outcomes kept per client and outcome.
    pub persist_count: usize,
    /// `transaction_meta_persist_time_in_hour` (PIP-255), in milliseconds.
    pub persist_time_ms: u64,
    /// `min_committed_per_client`: expiry by age leaves the newest so many committed outcomes of a client, since a
    /// checkpoint may list several.
    pub min_committed_per_client: usize,
    /// `gc_retention_seconds`, in milliseconds: no outcome younger than this is evicted by count.
    pub gc_retention_ms: u64,
    /// `max_outcomes_per_client`: per client and outcome, whatever their age; never less than `persist_count`.
    pub max_outcomes_per_client: usize,
    /// `client_retention_hours`, in milliseconds; `None` = for ever.
    pub client_retention_ms: Option<u64>,
    /// `max_clients`; tombstones do not count.
    pub max_clients: usize,
    /// `max_open_per_client`: OPEN transactions of one client.
    pub max_open_per_client: usize,
    /// `max_unfinished_per_client`: OPEN, PREPARED and decided transactions of one client, until every participant has
    /// acknowledged; never less than `max_open_per_client`.
    pub max_unfinished_per_client: usize,
    /// `max_waiting`: requests parked by `waitMs`, and calls that take several steps; beyond, the current state is answered
    /// at once, or 429.
    pub max_waiting: usize,
    /// Most entries that one step of a call that grows with data, or of rewriting, looks at; at least 1 counts.
    pub page: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            persist_count: 64,
            persist_time_ms: 72 * 3_600_000,
            min_committed_per_client: 8,
            gc_retention_ms: 900_000,
            max_outcomes_per_client: 10_000,
            client_retention_ms: None,
            max_clients: 1_000_000,
            max_open_per_client: 1000,
            max_unfinished_per_client: 10_000,
            max_waiting: 10_000,
            page: 256,
        }
    }
}
