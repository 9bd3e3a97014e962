//! What the runtime counts, through the `metrics` facade. No label carries a client's name: there may be thousands.
//!
//! | name | kind | what |
//! |---|---|---|
//! | `ratified_sdk_records_total` | counter | records handed to a sink |
//! | `ratified_sdk_bytes_total` | counter | bytes staged, where the sink tells |
//! | `ratified_sdk_send_errors_total` | counter | failures of begin, write and pre_commit |
//! | `ratified_sdk_pending` | gauge | transactions prepared or decided and not finished to the end |
//! | `ratified_sdk_oldest_pending_age_seconds` | gauge | age of the oldest of them |
//! | `ratified_sdk_committed_total` | counter | commits that made data visible |
//! | `ratified_sdk_already_committed_total` | counter | commits that found it visible |
//! | `ratified_sdk_aborted_total` | counter | aborts applied to a sink |
//! | `ratified_sdk_retries_total` | counter | repeated calls, by `call` |
//! | `ratified_sdk_gathered_calls_total` | counter | calls that shared a request with others |
//! | `ratified_sdk_failed_total` | counter | errors that stopped a runtime |
//! | `ratified_sdk_dropped_total` | counter | pending ids given up because they never began or are no longer known |
//! | `ratified_sdk_skipped_total` | counter | lost transactions given up by policy |
//! | `ratified_sdk_rejected_total` | counter | records that a sink rejected, and for which a job's recourse stood in |
//! | `ratified_sdk_commit_seconds` | histogram | from prepared or decided to finished |

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::time::Instant;

use crate::sink::Committed;

static NEXT: AtomicU64 = AtomicU64::new(0);
/// The pending transactions of all runtimes of the process, oldest first: one gauge must speak for all of them.
static PENDING: Mutex<BTreeSet<(Instant, u64)>> = Mutex::new(BTreeSet::new());

/// Counts a transaction as pending as long as it lives.
#[derive(Debug)]
pub(crate) struct PendingTimer {
    since: Instant,
    number: u64,
}

impl PendingTimer {
    pub(crate) fn start() -> Self {
        let timer = Self { since: Instant::now(), number: NEXT.fetch_add(1, Ordering::Relaxed) };
        update(|pending| {
            pending.insert((timer.since, timer.number));
        });
        timer
    }

    /// Notes that the transaction is finished to the end.
    pub(crate) fn finished(&self) {
        metrics::histogram!("ratified_sdk_commit_seconds").record(self.since.elapsed().as_secs_f64());
    }
}

impl Drop for PendingTimer {
    fn drop(&mut self) {
        update(|pending| {
            pending.remove(&(self.since, self.number));
        });
    }
}

fn update(change: impl FnOnce(&mut BTreeSet<(Instant, u64)>)) {
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut pending);
    let oldest = pending.first().map_or(0.0, |(since, _)| since.elapsed().as_secs_f64());
    metrics::gauge!("ratified_sdk_pending").set(pending.len() as f64);
    metrics::gauge!("ratified_sdk_oldest_pending_age_seconds").set(oldest);
}

/// Refreshes the ages, which grow while nothing happens.
pub(crate) fn refresh() {
    update(|_| {});
}

pub(crate) fn written(records: u64, bytes: u64) {
    metrics::counter!("ratified_sdk_records_total").increment(records);
    metrics::counter!("ratified_sdk_bytes_total").increment(bytes);
}

pub(crate) fn send_error() {
    metrics::counter!("ratified_sdk_send_errors_total").increment(1);
}

pub(crate) fn committed(how: Committed) {
    let name = match how {
        Committed::Now => "ratified_sdk_committed_total",
        Committed::Already => "ratified_sdk_already_committed_total",
    };
    metrics::counter!(name).increment(1);
}

pub(crate) fn aborted() {
    metrics::counter!("ratified_sdk_aborted_total").increment(1);
}

pub(crate) fn failed() {
    metrics::counter!("ratified_sdk_failed_total").increment(1);
}

pub(crate) fn dropped() {
    metrics::counter!("ratified_sdk_dropped_total").increment(1);
}

pub(crate) fn rejected() {
    metrics::counter!("ratified_sdk_rejected_total").increment(1);
}

pub(crate) fn skipped() {
    metrics::counter!("ratified_sdk_skipped_total").increment(1);
}
