//! Orders from a CSV file into PostgreSQL, exactly once. Run again, it goes on where it was.

use std::{env, error::Error};

use ratified::{
    Cause, CoordinatorClient, JobSinkBuilder,
    job::{BadRow, CsvSource, Job, Row},
    pending::FileStore,
};
use ratified_postgres::{CopyRow, Database, PgRecord, PostgresSink, Table};
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    id: i64,
    customer: String,
    cents: i64,
}

/// A row of the table `orders`, or, for a row that cannot be read, one of the table `rejects`.
enum Output {
    Order(Order),
    Reject { line: u64, why: String },
}

impl PgRecord for Output {
    fn table(&self) -> usize {
        match self {
            Self::Order(_) => 0,
            Self::Reject { .. } => 1,
        }
    }

    fn fill(&self, row: &mut CopyRow<'_>) -> Result<(), Cause> {
        match self {
            Self::Order(order) => row.value(order.id).text(&order.customer).value(order.cents),
            Self::Reject { line, why } => row.value(*line).text(why),
        };
        Ok(())
    }
}

fn transform(row: Result<Row<Order>, BadRow>, out: &mut Vec<Output>) -> Result<(), Cause> {
    out.push(match row {
        Ok(row) => Output::Order(row.value),
        Err(bad) => Output::Reject { line: bad.line, why: bad.fault.to_string() },
    });
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let source = CsvSource::new("orders.csv");

    let tables = [Table::new("orders", ["id", "customer", "cents"])?, Table::new("rejects", ["line", "why"])?];
    let sink = PostgresSink::builder(Database::new(&env::var("DATABASE_URL")?)?, tables).build()?;

    let coordinator = CoordinatorClient::new(&env::var("RATIFYD_URL")?)?;
    let sink = JobSinkBuilder::new(sink, coordinator)
        .pending(FileStore::new("orders.pending"))
        // Said once, at the very first start. Later, a coordinator that does not know the job has lost what it knew.
        .first_start(env::args().any(|arg| arg == "--first-start"));

    let report = Job::new("orders-to-postgres".parse()?, source, transform, sink).run().await?;
    println!("{} rows read, {} transactions committed", report.records_in, report.commits);
    Ok(())
}
