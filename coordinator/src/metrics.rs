//! Numbers for operators, as Prometheus text. The recorder belongs to one coordinator: several may run in a process.

mod calls;
mod durations;
mod process;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use ratified_core::{Gauges, Stats};
use ratified_protocol::{EndReason, Outcome, TxnState};

pub(crate) use self::calls::OpenConnection;
use self::{calls::Calls, process::Process};
use crate::{http, log, store::StoreStatus};

const LIVE: [TxnState; 4] = [TxnState::Open, TxnState::Prepared, TxnState::Committing, TxnState::Aborting];
const SYNC_SECONDS: [f64; 12] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
const BATCH_REQUESTS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
const BATCH_BYTES: [f64; 7] = [256.0, 1024.0, 4096.0, 16384.0, 65536.0, 1048576.0, 8388608.0];

const SYNCS_PER_UPKEEP: u32 = 256;

/// A number that only grows, and where it is read.
type CounterRow = (Counter, fn(&Stats) -> u64);
/// A number that comes and goes, and where it is read.
type GaugeRow = (Gauge, fn(&Stats, &Gauges) -> f64);

/// The numbers of one coordinator.
pub(crate) struct Metrics {
    handle: PrometheusHandle,
    recorder: Arc<PrometheusRecorder>,
    process: Process,
    /// What came in over HTTP.
    pub(crate) calls: Calls,
    counters: Vec<CounterRow>,
    decided: Vec<(Counter, usize, usize)>,
    gauges: Vec<GaugeRow>,
    live: Vec<(Gauge, usize)>,
    preserved: Vec<(Gauge, usize)>,
    queue_length: Gauge,
    log_lines_dropped: Counter,
    store: OnceLock<Arc<StoreStatus>>,
    store_log_bytes: Gauge,
    store_short_of_room: Gauge,
    load_seconds: Gauge,
    sync_seconds: Histogram,
    batch_requests: Histogram,
    batch_bytes: Histogram,
    syncs: AtomicU32,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Every number at zero.
    pub(crate) fn new() -> Self {
        let mut builder = PrometheusBuilder::new();
        let buckets: [(&str, &[f64]); 3] = [
            ("ratified_sync_seconds", &SYNC_SECONDS),
            ("ratified_batch_requests", &BATCH_REQUESTS),
            ("ratified_batch_bytes", &BATCH_BYTES),
        ];
        for (name, bounds) in buckets {
            // Refused only for empty bounds; these are not.
            builder = match builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds) {
                Ok(builder) => builder,
                Err(_) => PrometheusBuilder::new(),
            };
        }
        let recorder = Arc::new(builder.build_recorder());
        metrics::with_local_recorder(&*recorder, || Self::register(&recorder))
    }

    fn register(recorder: &Arc<PrometheusRecorder>) -> Self {
        Self {
            handle: recorder.handle(),
            recorder: recorder.clone(),
            process: Process::new(),
            calls: Calls::new(http::paths()),
            counters: counters(),
            decided: decided(),
            gauges: gauges(),
            live: by_state("ratified_transactions", "Live transactions by state.", &LIVE),
            preserved: by_state(
                "ratified_preserver_entries",
                "Outcomes the preserver keeps, by outcome.",
                &Outcome::ALL.map(Outcome::terminal),
            ),
            queue_length: gauge("ratified_queue_length", "Requests waiting for the writer."),
            log_lines_dropped: counter(
                "ratified_log_lines_dropped_total",
                "Lines of this process' log that nobody took.",
            ),
            store: OnceLock::new(),
            store_log_bytes: gauge("ratified_store_log_bytes", "Bytes of batches in the store's log."),
            store_short_of_room: gauge(
                "ratified_store_short_of_room",
                "Whether the store has no room for its next segment, so that nothing new is begun.",
            ),
            load_seconds: gauge("ratified_load_seconds", "How long the load took."),
            sync_seconds: histogram("ratified_sync_seconds", Unit::Seconds, "One write and sync of a batch."),
            batch_requests: histogram("ratified_batch_requests", Unit::Count, "Steps that shared one durable write."),
            batch_bytes: histogram("ratified_batch_bytes", Unit::Bytes, "Keys and values of one durable write."),
            syncs: AtomicU32::new(1),
        }
    }

    /// A batch was handed over to be synced.
    #[expect(clippy::cast_precision_loss, reason = "shown, not counted with")]
    pub(crate) fn batch(&self, steps: usize, bytes: usize) {
        self.batch_requests.record(steps as f64);
        self.batch_bytes.record(bytes as f64);
    }

    /// A batch is durable.
    pub(crate) fn synced(&self, took: Duration) {
        self.sync_seconds.record(took.as_secs_f64());
        // What was recorded is kept one by one until it is folded: memory must stay bounded when nobody reads.
        if self.syncs.fetch_add(1, Ordering::Relaxed).is_multiple_of(SYNCS_PER_UPKEEP) {
            self.handle.run_upkeep();
        }
    }

    /// The store of this coordinator, which tells of itself.
    pub(crate) fn follow(&self, store: Arc<StoreStatus>) {
        let _ = self.store.set(store);
    }

    /// The load is done.
    pub(crate) fn loaded(&self, took: Duration) {
        self.load_seconds.set(took.as_secs_f64());
    }

    /// Takes over the engine's numbers.
    #[expect(clippy::cast_precision_loss, reason = "shown, not counted with")]
    pub(crate) fn observe(&self, stats: &Stats, now: &Gauges, queue_length: usize) {
        for (counter, read) in &self.counters {
            counter.absolute(read(stats));
        }
        for (counter, outcome, reason) in &self.decided {
            counter.absolute(stats.decided.get(*outcome).and_then(|row| row.get(*reason)).copied().unwrap_or_default());
        }
        for (gauge, read) in &self.gauges {
            gauge.set(read(stats, now));
        }
        for (gauge, at) in &self.live {
            gauge.set(now.live.get(*at).copied().unwrap_or_default() as f64);
        }
        for (gauge, at) in &self.preserved {
            gauge.set(now.preserved.get(*at).copied().unwrap_or_default() as f64);
        }
        self.queue_length.set(queue_length as f64);
    }

    /// Everything as Prometheus text.
    #[expect(clippy::cast_precision_loss, reason = "shown, not counted with")]
    pub(crate) fn render(&self) -> String {
        if let Some(store) = self.store.get() {
            self.store_log_bytes.set(store.log_bytes() as f64);
            self.store_short_of_room.set(f64::from(store.is_short()));
        }
        metrics::with_local_recorder(&*self.recorder, || self.calls.publish());
        self.process.observe();
        self.log_lines_dropped.absolute(log::dropped_lines());
        let mut text = self.handle.render();
        self.calls.render_durations(&mut text);
        text
    }
}

fn gauge(name: &'static str, about: &'static str) -> Gauge {
    metrics::describe_gauge!(name, about);
    metrics::gauge!(name)
}

fn counter(name: &'static str, about: &'static str) -> Counter {
    metrics::describe_counter!(name, about);
    metrics::counter!(name)
}

fn histogram(name: &'static str, unit: Unit, about: &'static str) -> Histogram {
    metrics::describe_histogram!(name, unit, about);
    metrics::histogram!(name)
}

fn by_state(name: &'static str, about: &'static str, states: &[TxnState]) -> Vec<(Gauge, usize)> {
    metrics::describe_gauge!(name, about);
    states.iter().enumerate().map(|(at, state)| (metrics::gauge!(name, "state" => state.as_str()), at)).collect()
}

fn decided() -> Vec<(Counter, usize, usize)> {
    let name = "ratified_transactions_decided_total";
    metrics::describe_counter!(name, "Transactions committed and aborted, by who or what decided.");
    let mut rows = Vec::new();
    for (o, outcome) in Outcome::ALL.iter().enumerate() {
        for (r, reason) in EndReason::ALL.iter().enumerate() {
            let counter = metrics::counter!(name, "outcome" => outcome.as_str(), "reason" => reason.as_str());
            rows.push((counter, o, r));
        }
    }
    rows
}

fn counters() -> Vec<CounterRow> {
    let lookup = "ratified_outcome_lookups_total";
    metrics::describe_counter!(
        lookup,
        "Callers told a decided outcome, that there is none, or that it is no longer kept."
    );
    let evicted = "ratified_outcomes_evicted_total";
    metrics::describe_counter!(evicted, "Outcomes dropped: by count, by max_outcomes_per_client, by age.");
    vec![
        (counter("ratified_transactions_begun_total", "Transactions begun."), |s| s.begun),
        (counter("ratified_replays_total", "Requests answered `replayed: true`."), |s| s.replays),
        (metrics::counter!(lookup, "result" => "hit"), |s| s.lookup_hits),
        (metrics::counter!(lookup, "result" => "missed"), |s| s.lookup_misses),
        (metrics::counter!(lookup, "result" => "expired"), |s| s.lookup_expired),
        (counter("ratified_fenced_calls_total", "Calls refused because a newer owner has opened the client."), |s| {
            s.fenced_calls
        }),
        (counter("ratified_preserver_appends_total", "Outcomes appended to the preserver."), |s| s.preserver_appends),
        (counter("ratified_preserver_flush_writes_total", "Flushes that wrote something."), |s| {
            s.preserver_flush_writes
        }),
        (metrics::counter!(evicted, "by" => "count"), |s| s.evicted_by_count),
        (metrics::counter!(evicted, "by" => "limit"), |s| s.evicted_by_limit),
        (metrics::counter!(evicted, "by" => "age"), |s| s.expired),
        (counter("ratified_stray_index_entries_total", "Index entries that named nothing; a defect."), |s| {
            s.stray_index_entries
        }),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "shown, not counted with")]
fn gauges() -> Vec<GaugeRow> {
    vec![
        (gauge("ratified_clients", "Clients, without tombstones."), |_, g| g.clients as f64),
        (gauge("ratified_tombstones", "Tombstones of forgotten clients."), |_, g| g.tombstones as f64),
        (gauge("ratified_pending_acks", "Acknowledgements that are missing."), |_, g| g.pending_acks as f64),
        (gauge("ratified_waiting_requests", "Requests parked by waitMs."), |_, g| g.waiting as f64),
        (gauge("ratified_payload_bytes", "Payload bytes held in memory."), |_, g| g.payload_bytes as f64),
        (gauge("ratified_oldest_open_age_seconds", "Age of the oldest OPEN transaction."), |_, g| {
            g.oldest_open_ms as f64 / 1000.0
        }),
        (gauge("ratified_oldest_prepared_age_seconds", "Age of the oldest PREPARED transaction."), |_, g| {
            g.oldest_prepared_ms as f64 / 1000.0
        }),
        (
            gauge(
                "ratified_oldest_ending_age_seconds",
                "How long the oldest decision has waited for acknowledgements, at most since the load.",
            ),
            |_, g| g.oldest_ending_ms as f64 / 1000.0,
        ),
        (gauge("ratified_preserver_coalescing_ratio", "Appended outcomes per flush that wrote something."), |s, _| {
            s.preserver_appends as f64 / s.preserver_flush_writes.max(1) as f64
        }),
    ]
}
