//! What exactly once costs a job that writes to PostgreSQL: rows per second against the same sink at least once, and
//! against a COPY without any of it, in turn, at a checkpoint per second.
//!
//! `postgres_rate [checkpoints per leg] [legs]`; needs a release build to mean anything.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "test program: a failure here ends the run"
)]

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use futures_util::SinkExt as _;
use ratified::{
    Barrier, Cause, CheckpointId, CoordinatorClient, Mode, SinkBuilder,
    postgres::{
        Database,
        tokio_postgres::{self, NoTls},
    },
    sinks::postgres::{CopyRow, PgRecord, PostgresSink, Staging, Table},
};
use ratified_servers::Postgres;
use ratified_tests::{config::Config, process::Ratifyd};
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(1);
const NOTE: &str = "a row of a usual size, some hundred bytes with its number, its text and what goes around";

struct Order(u64);

impl PgRecord for Order {
    fn fill(&self, row: &mut CopyRow<'_>) -> Result<(), Cause> {
        row.value(self.0).value(self.0 % 1000).text(NOTE);
        Ok(())
    }
}

/// Each leg in turn, so that what else the machine does befalls all of them.
#[derive(Clone, Copy)]
enum Leg {
    Plain,
    AtLeastOnce,
    ExactlyOnce,
    Ledger,
}

const LEGS: [(Leg, &str); 4] = [
    (Leg::AtLeastOnce, "at least once"),
    (Leg::ExactlyOnce, "exactly once, prepared"),
    (Leg::Ledger, "exactly once, ledger"),
    (Leg::Plain, "COPY and COMMIT alone"),
];

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (checkpoints, legs) = (number(0, 5), number(1, 5));
    if cfg!(debug_assertions) {
        println!("not a release build: the numbers mean little");
    }
    let (server, ratifyd) = (Postgres::start(), Ratifyd::start(Config::new()).await);
    println!("{}; {checkpoints} checkpoints of 1 s per leg, {legs} legs in turn", server.version());
    let mut rates: [Vec<f64>; LEGS.len()] = Default::default();
    for nth in 0..legs {
        for (index, (leg, _)) in LEGS.into_iter().enumerate() {
            server.sql(
                "DROP TABLE IF EXISTS orders; CREATE TABLE orders (id bigint, customer bigint, note text); CHECKPOINT",
            );
            let rows = match leg {
                Leg::Plain => plain(&server, checkpoints).await,
                Leg::AtLeastOnce => {
                    run(&server, &ratifyd, nth, Mode::AtLeastOnce, Staging::Prepared, checkpoints).await
                }
                Leg::ExactlyOnce => {
                    run(&server, &ratifyd, nth, Mode::ExactlyOnce, Staging::Prepared, checkpoints).await
                }
                Leg::Ledger => run(&server, &ratifyd, nth, Mode::ExactlyOnce, Staging::Ledger, checkpoints).await,
            };
            assert_eq!(server.sql("SELECT count(*) FROM orders"), rows.0.to_string());
            rates[index].push(rows.0 as f64 / rows.1.as_secs_f64());
        }
    }
    let base = median(&rates[0]);
    for ((_, name), rates) in LEGS.into_iter().zip(&rates) {
        let (low, high) = rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        let middle = median(rates);
        println!("{name:<24} {middle:>9.0} rows/s ({low:.0}..{high:.0})  ratio {:.3}", middle / base);
    }
}

/// Writes for so many seconds, with a checkpoint in each, until all of it is visible. How many rows in how much time.
async fn run(
    server: &Postgres,
    ratifyd: &Ratifyd,
    nth: u64,
    mode: Mode,
    staging: Staging,
    checkpoints: u64,
) -> (u64, Duration) {
    let table = Table::new("orders", ["id", "customer", "note"]).unwrap();
    let sink = PostgresSink::<Order>::builder(Database::new(&server.url()).unwrap(), [table]).staging(staging);
    let client = CoordinatorClient::new(&ratifyd.url()).unwrap();
    let builder = SinkBuilder::new(sink.build().unwrap(), client).mode(mode).first_start(true);
    let name = format!("rate-{staging:?}-{mode:?}-{nth}").parse().unwrap();
    let mut runtime = builder.open(name, Some(CheckpointId::new(0)), []).await.unwrap();
    let (start, mut rows) = (Instant::now(), 0);
    for id in 1..=checkpoints {
        let due = start + INTERVAL * u32::try_from(id).unwrap();
        while Instant::now() < due {
            for _ in 0..100 {
                runtime.write(Order(rows)).await.unwrap();
                rows += 1;
            }
        }
        let checkpoint = CheckpointId::new(id);
        let barrier = if id == checkpoints { Barrier::last(checkpoint) } else { Barrier::checkpoint(checkpoint) };
        runtime.pre_commit(barrier).await.unwrap();
        runtime.checkpoint_completed(checkpoint).unwrap();
    }
    runtime.flush_commits().await.unwrap();
    let took = start.elapsed();
    runtime.close().await.unwrap();
    (rows, took)
}

/// The same rows by the driver alone: what the server can take from one connection.
async fn plain(server: &Postgres, checkpoints: u64) -> (u64, Duration) {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let (start, mut rows) = (Instant::now(), 0_u64);
    for id in 1..=checkpoints {
        let due = start + INTERVAL * u32::try_from(id).unwrap();
        client.batch_execute("BEGIN").await.unwrap();
        let mut sink = pin!(client.copy_in::<_, Bytes>("COPY orders FROM STDIN").await.unwrap());
        let mut buffer = String::new();
        while Instant::now() < due {
            for _ in 0..100 {
                buffer.push_str(&format!("{rows}\t{}\t{NOTE}\n", rows % 1000));
                rows += 1;
            }
            if buffer.len() >= 256 * 1024 {
                sink.feed(Bytes::from(std::mem::take(&mut buffer))).await.unwrap();
            }
        }
        sink.feed(Bytes::from(buffer)).await.unwrap();
        sink.finish().await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
    }
    (rows, start.elapsed())
}

/// The middle of the values.
fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
