//! What the coordinator is told: a TOML file, `RATIFIED_*` environment variables and flags, the later winning.

mod keys;
mod names;
mod sources;

use std::{net::SocketAddr, path::PathBuf};

use ratified_core::Limits;

pub use names::{ServerName, ServerNameError};
pub use sources::{ConfigError, Sources};

/// The effective configuration. Every bound and period is a key of its own, with its unit in its name; the table in
/// [`Config::describe`] has them all.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// `listen`: where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// `insecure_allow_remote`: whether `listen` may be an address that other machines reach. There is no
    /// authentication.
    pub insecure_allow_remote: bool,
    /// `server_names`: the DNS names that clients reach it by; a request addressed to another one is refused, since a
    /// browser may have been led here by it.
    pub server_names: Vec<ServerName>,
    /// `data_dir`: where everything durable lies; one process at a time.
    pub data_dir: PathBuf,
    /// The bounds and periods that the engine keeps to.
    pub limits: Limits,
    /// How often the sweeps run.
    pub periods: Periods,
    /// `max_body_bytes`: largest body of a single call.
    pub max_body_bytes: usize,
    /// `max_batch_body_bytes`: largest body of a batch call.
    pub max_batch_body_bytes: usize,
    /// `max_connections`: connections served at once; more wait to be accepted. Fewer where the limit of open files has no
    /// room for them.
    pub max_connections: usize,
    /// `max_connections_per_address`: of one address; more are refused with 429 OVERLOADED. 0: half of `max_connections`.
    pub max_connections_per_address: usize,
    /// `max_head_bytes`: longest head of a request.
    pub max_head_bytes: usize,
    /// `idle_timeout_ms`: how long a connection may be silent between requests, the head of the next one included.
    pub idle_timeout_ms: u64,
    /// `read_timeout_ms`: how long the body of a request may take to arrive.
    pub read_timeout_ms: u64,
    /// `write_timeout_ms`: how long a connection may take nothing of what is said to it.
    pub write_timeout_ms: u64,
    /// `max_reading_bytes`: bytes of bodies being read at once; beyond, 429 OVERLOADED.
    pub max_reading_bytes: usize,
    /// `max_reading_bytes_per_address`: the same of one address. 0: half of `max_reading_bytes`, at least one batch.
    pub max_reading_bytes_per_address: usize,
    /// `max_discard_bytes`: how much of a refused request is read on, so that its sender gets to read why.
    pub max_discard_bytes: usize,
    /// `discard_timeout_ms`: for how long.
    pub discard_timeout_ms: u64,
    /// `max_queue`: requests waiting for the writer; beyond, 429 OVERLOADED.
    pub max_queue: usize,
    /// `max_queue_bytes`: bytes of their bodies; beyond, 429 OVERLOADED.
    pub max_queue_bytes: usize,
    /// `max_batch_requests`: requests that share one durable write.
    pub max_batch_requests: usize,
    /// `max_batch_bytes`: bytes of their bodies after which no further request joins.
    pub max_batch_bytes: usize,
    /// `storage_timeout_ms`: how long a write and its sync may take before the process gives up.
    pub storage_timeout_ms: u64,
    /// `shutdown_timeout_ms`: how long running requests are given to end at a shutdown.
    pub shutdown_timeout_ms: u64,
    /// `writer_timeout_ms`: how long `/readyz` and `/metrics` wait for the writer to say that it runs.
    pub writer_timeout_ms: u64,
    /// `max_log_queue_bytes`: lines that wait for a stderr that takes no more; beyond, they are dropped and counted.
    pub max_log_queue_bytes: usize,
    /// `mark_interval_ms`: at most how often the number of the last synced batch is noted beside the store.
    pub mark_interval_ms: u64,
    /// `log_segment_bytes`: the longest segment of the log; the next one is made ahead, so that a disk needs room for
    /// two.
    pub log_segment_bytes: u64,
}

/// How often the sweeps run, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periods {
    /// `timeout_sweep_interval_seconds`; the sweep also wakes at the next deadline.
    pub timeouts_ms: u64,
    /// `transaction_meta_expire_check_interval_in_second` (PIP-255).
    pub expiry_ms: u64,
    /// `gc_interval_seconds`; idle clients are looked for as often.
    pub gc_ms: u64,
}

impl Default for Periods {
    fn default() -> Self {
        Self { timeouts_ms: 60_000, expiry_ms: 300_000, gc_ms: 300_000 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7117)),
            insecure_allow_remote: false,
            server_names: Vec::new(),
            data_dir: PathBuf::from("ratified-data"),
            limits: Limits::default(),
            periods: Periods::default(),
            max_body_bytes: ratified_protocol::MAX_BODY_BYTES,
            max_batch_body_bytes: ratified_protocol::MAX_BATCH_BYTES,
            max_connections: 10_000,
            max_connections_per_address: 0,
            max_head_bytes: 64 * 1024,
            idle_timeout_ms: 120_000,
            read_timeout_ms: 30_000,
            write_timeout_ms: 30_000,
            max_reading_bytes: 256 * 1024 * 1024,
            max_reading_bytes_per_address: 0,
            max_discard_bytes: 16 * 1024 * 1024,
            discard_timeout_ms: 2_000,
            max_queue: 10_000,
            max_queue_bytes: 256 * 1024 * 1024,
            max_batch_requests: 1024,
            max_batch_bytes: 16 * 1024 * 1024,
            storage_timeout_ms: 60_000,
            shutdown_timeout_ms: 10_000,
            writer_timeout_ms: 5_000,
            max_log_queue_bytes: 8 * 1024 * 1024,
            mark_interval_ms: 100,
            log_segment_bytes: 64 * 1024 * 1024,
        }
    }
}

impl Config {
    /// The defaults, with this data directory and a free port on the loopback interface: for embedders and tests.
    pub fn local(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Self::default() }
    }

    /// Checks what no single key can: the caller must mend the keys named.
    ///
    /// # Errors
    /// Keys that contradict each other.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.listen.ip().is_loopback() && !self.insecure_allow_remote {
            let problem = format!(
                "{} can be reached from other machines, and there is neither authentication nor encryption; listen on \
                 127.0.0.1 or [::1], or say --insecure-allow-remote if the network keeps strangers out",
                self.listen
            );
            return Err(ConfigError::combination("listen", problem));
        }
        let whole = [
            ("max_batch_body_bytes", self.max_batch_body_bytes, "max_body_bytes", self.max_body_bytes),
            ("max_reading_bytes", self.max_reading_bytes, "max_batch_body_bytes", self.max_batch_body_bytes),
            (
                "max_reading_bytes_per_address",
                self.reading_bytes_per_address(),
                "max_batch_body_bytes",
                self.max_batch_body_bytes,
            ),
            ("max_queue_bytes", self.max_queue_bytes, "max_batch_body_bytes", self.max_batch_body_bytes),
        ];
        for (key, value, least_key, least) in whole {
            if value < least {
                let problem = format!("{value} is less than {least_key}, {least}: such a request could never be taken");
                return Err(ConfigError::combination(key, problem));
            }
        }
        Ok(())
    }

    /// `max_reading_bytes_per_address` as it is in effect.
    pub(crate) fn reading_bytes_per_address(&self) -> usize {
        match self.max_reading_bytes_per_address {
            0 => (self.max_reading_bytes / 2).max(self.max_batch_body_bytes),
            configured => configured,
        }
    }

    /// Every key with its value, what it takes and what it is for, as a TOML file.
    pub fn describe(&self) -> String {
        keys::KEYS.iter().map(|key| key.line(self)).collect()
    }
}
