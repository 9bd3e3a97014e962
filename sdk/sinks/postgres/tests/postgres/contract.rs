//! The sink keeps the contract of a two-phase sink, however it stages.

use std::sync::Arc;

use async_trait::async_trait;
use ratified::testkit::{BEHAVIOURS, HarnessError, Medium, SinkHarness, run_all};
use ratified_postgres::{PostgresSink, Staging};
use ratified_servers::Postgres;

use crate::site::{Number, Place};

struct Setup {
    server: Arc<Postgres>,
    staging: Staging,
    /// Send each row at once, every second number to another table.
    scattered: bool,
}

#[async_trait]
impl SinkHarness for Setup {
    type Sink = PostgresSink<Number>;
    type Location = Place;

    async fn fresh(&self) -> Result<Place, HarnessError> {
        Ok(Place::in_server(self.server.clone()))
    }

    async fn instance(&self, at: &Place) -> Result<PostgresSink<Number>, HarnessError> {
        let builder = at.builder(self.staging);
        Ok(if self.scattered { builder.buffer_bytes(1) } else { builder }.build()?)
    }

    fn record(&self, number: u64) -> Number {
        Number { n: number, table: usize::from(self.scattered && number >= 1000) }
    }

    async fn visible(&self, at: &Place) -> Result<Vec<u64>, HarnessError> {
        Ok(at.visible())
    }

    async fn break_medium(&self, at: &Place) -> Result<Medium, HarnessError> {
        at.server
            .sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'ratified:%'");
        Ok(Medium::Broken)
    }

    fn large_records(&self) -> u64 {
        if self.scattered { 2000 } else { 60_000 }
    }
}

async fn check(staging: Staging, scattered: bool) {
    let setup = Setup { server: Arc::new(Postgres::start()), staging, scattered };
    println!("{}", setup.server.version());
    let report = run_all(&setup).await;
    report.assert();
    assert_eq!(report.held, BEHAVIOURS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sink_that_prepares_passes_the_testkit() {
    check(Staging::Prepared, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sink_that_prepares_without_a_buffer_and_in_two_tables_passes_the_testkit() {
    check(Staging::Prepared, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sink_with_a_ledger_passes_the_testkit() {
    check(Staging::Ledger, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sink_with_a_ledger_without_a_buffer_and_in_two_tables_passes_the_testkit() {
    check(Staging::Ledger, true).await;
}
