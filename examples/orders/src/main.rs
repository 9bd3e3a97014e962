//! Grocery purchases into PostgreSQL and an object store, exactly once in both.

use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser;
use orders::{Place, Run, SchemaName};
use ratified::ClientName;
use tracing_subscriber::filter::LevelFilter;

/// The exit code if anything could not be done.
const EXIT_FAILED: u8 = 3;
const NO_DATABASE: &str = "where do the baskets go? Name a database, whose role may make a schema and whose server has \
    max_prepared_transactions > 0:\n\n    orders --postgres postgresql://USER:PASSWORD@HOST/DATABASE [--store DIR | \
    s3://BUCKET/PREFIX]\n\nNone at hand, but its programs are installed (Debian: apt-get install postgresql)? A drill starts \
    a PostgreSQL of its own, and kills everything while it works:\n\n    cargo run --release -p ratified-drill --features \
    orders --bin drill-orders";

/// Reads grocery purchases, and writes baskets to PostgreSQL and their items to Parquet files in an object store, exactly
/// once in both: one decision makes a batch visible in both of them, or in none. Run again, it goes on where it was.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Cli {
    /// The file of transactions; by default the extract that comes with the examples. scripts/fetch-completejourney
    /// fetches the whole one.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/transactions.csv"))]
    input: PathBuf,
    /// The database that baskets and refused rows go to, as postgresql://USER:PASSWORD@HOST/DATABASE. The server needs
    /// max_prepared_transactions > 0; schema and tables are made if they are missing.
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// The schema of the tables `basket` and `reject`.
    #[arg(long, value_name = "NAME", default_value = "orders")]
    schema: SchemaName,
    /// Where items go: a directory, or s3://BUCKET/PREFIX, with credentials and region from AWS_... in the environment;
    /// of another store than Amazon's, s3://BUCKET/PREFIX?endpoint=URL.
    #[arg(long, value_name = "PLACE", default_value = "target/orders/store")]
    store: Place,
    /// Where the job remembers what it began, and the embedded coordinator what it decided.
    #[arg(long, value_name = "DIR", default_value = "target/orders/data")]
    data_dir: PathBuf,
    /// The URL of a running coordinator; by default one is embedded.
    #[arg(long, value_name = "URL")]
    coordinator: Option<String>,
    /// The job's name at the coordinator.
    #[arg(long, value_name = "NAME", default_value = "orders")]
    client: ClientName,
    /// The job has never run before. Without it, a coordinator that does not know the job is an error: it may have lost
    /// what it knew.
    #[arg(long)]
    first_start: bool,
    /// A checkpoint is taken after so many baskets.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    checkpoint_baskets: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(io::stderr).init();
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

async fn run(cli: Cli) -> Result<(), Box<dyn Error>> {
    let run = Run {
        input: cli.input,
        postgres: cli.postgres.ok_or(NO_DATABASE)?,
        schema: cli.schema,
        store: cli.store,
        data_dir: cli.data_dir,
        coordinator: cli.coordinator,
        client: cli.client,
        first_start: cli.first_start,
        checkpoint_baskets: cli.checkpoint_baskets,
    };
    // A reader that has seen enough, as `head` has, is no reason to fail.
    let _ = writeln!(io::stdout(), "{}", run.run().await?);
    Ok(())
}
