//! The same pipeline into two tables of a PostgreSQL database.

use std::time::Duration;

use ratified::Cause;

use ratified_postgres::{CopyRow, Database, PgRecord, PostgresSink, PostgresStep, Staging, Table};
use ratified_servers::Postgres;

use super::{Plan, Row, engine::run_attempt, run_job};

/// Where rows go, and how they are staged.
#[derive(Debug, Clone)]
pub struct Rows {
    /// The database.
    pub url: String,
    /// How the sink stages.
    pub staging: Staging,
}

impl PgRecord for Row {
    fn table(&self) -> usize {
        usize::from(!self.n.is_multiple_of(2))
    }

    fn fill(&self, row: &mut CopyRow<'_>) -> Result<(), Cause> {
        row.value(self.n);
        Ok(())
    }
}

/// Runs the pipeline into the tables `even` and `odd` of a schema that is named as the client. The steps of the sink are
/// told with the prefix `pg_`.
///
/// # Errors
/// What the job says.
///
/// # Panics
/// When the plan is nonsense.
pub async fn run_postgres(plan: &Plan, rows: &Rows, driver: &str) -> Result<(), String> {
    let sink = sink(plan, rows);
    match driver {
        "split" => run_job(plan, plan.builder_of(sink)).await.map(drop).map_err(|e| e.to_string()),
        "engine" => run_attempt(plan, plan.builder_of(sink)).await.map_err(|e| e.to_string()),
        other => Err(format!("{other} is no mode")),
    }
}

fn sink(plan: &Plan, rows: &Rows) -> PostgresSink<Row> {
    let database = Database::new(&rows.url).unwrap().timeout(Duration::from_secs(20)).unwrap();
    let table = |name: &str| Table::new(name, ["n"]).unwrap().in_schema(&plan.name).unwrap();
    let watch = plan.places.clone();
    PostgresSink::builder(database, [table("even"), table("odd")])
        .staging(rows.staging)
        .buffer_bytes(8)
        .on_step(move |step| watch(name_of_step(step)))
        .build()
        .unwrap()
}

fn name_of_step(step: PostgresStep) -> &'static str {
    match step {
        PostgresStep::Begin => "pg_begin",
        PostgresStep::Copy => "pg_copy",
        PostgresStep::Prepare => "pg_prepare",
        PostgresStep::Prepared => "pg_prepared",
        PostgresStep::Commit => "pg_commit",
        PostgresStep::Moved => "pg_moved",
        PostgresStep::Committed => "pg_committed",
        PostgresStep::Abort => "pg_abort",
        PostgresStep::Aborted => "pg_aborted",
        PostgresStep::Fence => "pg_fence",
        _ => "pg_another_step",
    }
}

/// Makes the tables of a pipeline of this name.
///
/// # Panics
/// When they are there.
pub fn make_tables(server: &Postgres, name: &str) {
    let table = |table: &str| {
        format!("CREATE TABLE \"{name}\".{table} (seq bigint GENERATED ALWAYS AS IDENTITY, n bigint NOT NULL)")
    };
    server.sql(&format!("CREATE SCHEMA \"{name}\"; {}; {}", table("even"), table("odd")));
}

/// What is wrong with tables that should hold every number below `records` once, in order, and nothing staged.
///
/// # Errors
/// What is wrong.
///
/// # Panics
/// When the server does not run.
pub fn check_rows(server: &Postgres, name: &str, records: u64) -> Result<(), String> {
    for (parity, table) in [(0, "even"), (1, "odd")] {
        let found = server.sql(&format!("SELECT n FROM \"{name}\".{table} ORDER BY seq"));
        let expected: Vec<_> = (0..records).filter(|n| n % 2 == parity).map(|n| n.to_string()).collect();
        if found.lines().collect::<Vec<_>>() != expected {
            return Err(format!("{table} has {found:?}, not {expected:?}"));
        }
    }
    let ours = |column: &str| format!("{column} LIKE '%{name}' OR {column} LIKE '%{name}.%'");
    let staged = server.sql(&format!(
        "SELECT gid FROM pg_prepared_xacts WHERE {}; SELECT client, txn_id FROM ratified.staged WHERE {}",
        ours("gid"),
        ours("client")
    ));
    if staged.is_empty() { Ok(()) } else { Err(format!("still staged: {staged}")) }
}
