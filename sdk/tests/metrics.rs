//! What the runtime counts, under which names.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use ratified::{Lost, LostPolicy, SinkError, Snapshot, protocol::Resolution};
use support::{World, checkpoint, client, completed, name};

type Values = Arc<Mutex<BTreeMap<String, f64>>>;

/// Keeps the sum of every counter and histogram and the last value of every gauge.
#[derive(Clone, Default)]
struct Book(Values);

struct Entry(Values, String);

impl Entry {
    fn of(book: &Book, key: &Key) -> Arc<Self> {
        for label in key.labels() {
            assert_eq!(label.key(), "call", "{key}");
        }
        assert!(!key.to_string().contains("job.sink"), "{key} names a client");
        Arc::new(Self(book.0.clone(), key.name().to_owned()))
    }

    fn change(&self, change: impl FnOnce(&mut f64)) {
        change(self.0.lock().unwrap().entry(self.1.clone()).or_default());
    }
}

impl CounterFn for Entry {
    fn increment(&self, value: u64) {
        self.change(|sum| *sum += value as f64);
    }
    fn absolute(&self, value: u64) {
        self.change(|sum| *sum = value as f64);
    }
}

impl GaugeFn for Entry {
    fn increment(&self, value: f64) {
        self.change(|now| *now += value);
    }
    fn decrement(&self, value: f64) {
        self.change(|now| *now -= value);
    }
    fn set(&self, value: f64) {
        self.change(|now| *now = value);
    }
}

impl HistogramFn for Entry {
    fn record(&self, _value: f64) {
        self.change(|count| *count += 1.0);
    }
}

impl Recorder for Book {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Entry::of(self, key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Entry::of(self, key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Entry::of(self, key))
    }
}

impl Book {
    fn value(&self, name: &str) -> f64 {
        self.0.lock().unwrap().get(&format!("ratified_sdk_{name}")).copied().unwrap_or(f64::NAN)
    }
}

#[tokio::test]
async fn a_life_is_counted_without_naming_a_client() {
    let book = Book::default();
    metrics::set_global_recorder(book.clone()).unwrap();
    let world = World::start().await;
    let mut runtime = world.first().await;
    for record in ["1", "2"] {
        runtime.write(record.into()).await.unwrap();
    }
    let first = runtime.pre_commit(checkpoint(1)).await.unwrap();
    assert_eq!(book.value("pending"), 1.0);
    world.sink.fail("commit", SinkError::indeterminate("busy"));
    runtime.checkpoint_completed(completed(1)).unwrap();
    runtime.flush_commits().await.unwrap();
    assert_eq!((book.value("records_total"), book.value("committed_total")), (2.0, 1.0));
    assert_eq!((book.value("retries_total"), book.value("commit_seconds")), (1.0, 1.0));

    runtime.write("3".into()).await.unwrap();
    let second = runtime.pre_commit(checkpoint(2)).await.unwrap();
    world.sink.fail("write", SinkError::indeterminate("disk full"));
    runtime.write("4".into()).await.unwrap_err();
    assert_eq!((book.value("send_errors_total"), book.value("failed_total")), (1.0, 1.0));
    drop(runtime);
    assert_eq!((book.value("pending"), book.value("oldest_pending_age_seconds")), (0.0, 0.0));

    drop(world.restore(1, first).await.unwrap());
    assert_eq!((book.value("already_committed_total"), book.value("aborted_total")), (1.0, 2.0));

    let reason = "test".to_owned().try_into().unwrap();
    let id = second.elements()[0].txn_id();
    world.client().resolve(&client(0), id, Resolution::Abort, reason, None).await.unwrap();
    let never_began = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
    support::log_of(&world.pending, &client(0)).await.begin(never_began).await.unwrap();
    let skipping = world.builder().on_lost(Lost::Aborted, LostPolicy::Skip);
    let snapshots: [Snapshot; 1] = [second];
    drop(skipping.open(name(), Some(completed(2)), snapshots).await.unwrap());
    assert_eq!((book.value("skipped_total"), book.value("dropped_total")), (1.0, 1.0));
}
