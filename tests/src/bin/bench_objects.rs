//! Rows per second into an object store, exactly once next to at least once, interleaved in one run.
//!
//! `bench_objects [seconds per round] [rounds] [parquet]`; needs a release build to mean anything. The store is SeaweedFS on
//! this machine, in the directory for temporary files (`TMPDIR`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test program: a failure here ends the run")]

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use ratified::{
    Barrier, Cause, CheckpointId, CoordinatorClient, Mode, SinkBuilder,
    sinks::object_store::{
        JsonLines, ObjectStoreSink, Parquet,
        arrow::{
            array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array},
            schema::{DataType, Field, Schema},
        },
    },
};
use ratified_servers::SeaweedFs;
use ratified_tests::{
    config::Config,
    pipeline::{BUCKET, bucket},
    process::Ratifyd,
};
use serde::Serialize;

const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// How many rows are written between two looks at the clock.
const ROWS: u64 = 256;

/// A line of a shop's receipt.
#[derive(Debug, Clone, Serialize)]
struct Row {
    id: u64,
    basket: u64,
    store: String,
    product: String,
    amount: f64,
}

impl Row {
    fn new(id: u64) -> Self {
        let amount = f64::from(u32::try_from(id % 10_000).unwrap_or(0)) / 100.0;
        let (store, product) =
            (format!("store-{:03}", id % 400), format!("product-{:05}", id.wrapping_mul(2_654_435_761) % 30_000));
        Self { id, basket: id / 10, store, product, amount }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Files {
    JsonLines,
    Parquet,
}

struct Bench {
    ratifyd: Ratifyd,
    endpoint: String,
    files: Files,
    round: Duration,
}

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (round, rounds) = (Duration::from_secs(number(0, 10)), number(1, 5));
    let files = if arguments.iter().any(|word| word == "parquet") { Files::Parquet } else { Files::JsonLines };
    if cfg!(debug_assertions) {
        println!("not a release build: the numbers mean little");
    }
    let store = SeaweedFs::start();
    store.make_bucket(BUCKET);
    println!("SeaweedFS {}", SeaweedFs::version());
    let endpoint = format!("http://{}", store.address());
    let bench = Bench { ratifyd: Ratifyd::start(Config::new()).await, endpoint, files, round };
    bench.run(Mode::AtLeastOnce, 1_000_000).await;
    let (mut exactly, mut at_least) = (Vec::new(), Vec::new());
    for n in 0..rounds {
        // Whichever comes first finds the machine as the other one left it.
        for mode in
            if n % 2 == 0 { [Mode::ExactlyOnce, Mode::AtLeastOnce] } else { [Mode::AtLeastOnce, Mode::ExactlyOnce] }
        {
            let rate = bench.run(mode, n).await;
            println!("round {n}: {mode:?} {rate:>10.0} rows/s, {} KiB resident", resident_kib());
            if mode == Mode::ExactlyOnce { exactly.push(rate) } else { at_least.push(rate) }
        }
    }
    let (exactly, at_least) = (median(exactly), median(at_least));
    println!("medians of {rounds} rounds of {round:?}, checkpoints every {CHECKPOINT_INTERVAL:?}:");
    println!("  exactly once           {exactly:>10.0} rows/s");
    println!("  at least once          {at_least:>10.0} rows/s");
    println!("  ratio                  {:>10.3}", exactly / at_least);
}

impl Bench {
    /// Writes for as long as a round takes, and waits until all is visible. Rows per second of the whole.
    async fn run(&self, mode: Mode, round: u64) -> f64 {
        let name = format!("bench-{mode:?}-{round}").to_lowercase();
        let sink = self.sink(&name);
        let client = CoordinatorClient::new(&self.ratifyd.url()).unwrap();
        let sink = SinkBuilder::new(sink, client).mode(mode).first_start(true);
        let mut runtime = sink.open(name.parse().unwrap(), None, None).await.unwrap();
        let began = Instant::now();
        let (mut rows, mut checkpoint, mut next) = (0, 0, began + CHECKPOINT_INTERVAL);
        loop {
            for _ in 0..ROWS {
                runtime.write(Row::new(rows)).await.unwrap();
                rows += 1;
            }
            let now = Instant::now();
            if now < next {
                continue;
            }
            next = now + CHECKPOINT_INTERVAL;
            checkpoint += 1;
            let id = CheckpointId::new(checkpoint);
            let is_last = began.elapsed() >= self.round;
            let barrier = if is_last { Barrier::last(id) } else { Barrier::checkpoint(id) };
            let _ = runtime.pre_commit(barrier).await.unwrap();
            runtime.checkpoint_completed(id).unwrap();
            if is_last {
                break;
            }
        }
        runtime.flush_commits().await.unwrap();
        let rate = f64::from(u32::try_from(rows).unwrap()) / began.elapsed().as_secs_f64();
        runtime.close().await.unwrap();
        rate
    }

    fn sink(&self, prefix: &str) -> ObjectStoreSink<Row> {
        let (store, target) = (bucket(&self.endpoint), "rows".parse().unwrap());
        let builder = match self.files {
            Files::JsonLines => ObjectStoreSink::multipart(store, target, JsonLines::new()),
            Files::Parquet => ObjectStoreSink::multipart(store, target, parquet()),
        };
        builder.prefix(prefix).build().unwrap()
    }
}

fn parquet() -> Parquet<Row> {
    let field = |name: &str, kind| Field::new(name, kind, false);
    let schema = Arc::new(Schema::new(vec![
        field("id", DataType::UInt64),
        field("basket", DataType::UInt64),
        field("store", DataType::Utf8),
        field("product", DataType::Utf8),
        field("amount", DataType::Float64),
    ]));
    let of_schema = schema.clone();
    Parquet::new(schema, move |rows: &[Row]| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|row| Some(row.id)).collect::<UInt64Array>()),
            Arc::new(rows.iter().map(|row| Some(row.basket)).collect::<UInt64Array>()),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.store))),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.product))),
            Arc::new(rows.iter().map(|row| Some(row.amount)).collect::<Float64Array>()),
        ];
        RecordBatch::try_new(of_schema.clone(), columns).map_err(Cause::new)
    })
}

fn resident_kib() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").to_owned()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap()
}
