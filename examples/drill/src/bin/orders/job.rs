//! The job as a process of a drill: decorated from outside, it knows nothing of it.

use std::{error::Error, path::PathBuf, sync::Arc};

use clap::Args;
use orders::{Lake, Place, SchemaName, Tables, job};
use ratified::{JobSinkBuilder, pending::FileStore};
use ratified_drill::{Control, DrilledSink, KillPoint, NearCoordinator, cli};
use ratified_postgres::{Database, PostgresStep};

/// The job's name at the coordinator.
const CLIENT: &str = "orders";
/// Baskets that are read and written at a time.
const BATCH_BASKETS: u64 = 256;

/// One member has staged, the other has not.
pub(crate) const HALF_STAGED: KillPoint = KillPoint::new("half-staged", "prepared in PostgreSQL, not in the store");
/// One member is visible, the other is not.
pub(crate) const HALF_VISIBLE: KillPoint = KillPoint::new("half-visible", "visible in PostgreSQL, not in the store");

/// How the job is run.
#[derive(Debug, Clone, Args)]
pub(crate) struct JobArgs {
    /// The file of transactions.
    #[arg(long)]
    input: PathBuf,
    /// The database.
    #[arg(long)]
    postgres: String,
    /// The schema of its tables.
    #[arg(long)]
    schema: SchemaName,
    /// Where items go.
    #[arg(long)]
    store: Place,
    /// A checkpoint is taken after so many baskets.
    #[arg(long)]
    checkpoint_baskets: u64,
    #[command(flatten)]
    common: cli::CommonArgs,
}

impl JobArgs {
    pub(crate) async fn run(self) -> Result<(), Box<dyn Error>> {
        let control = Control::start()?;
        let cli::CommonArgs { data_dir, coordinator, sabotage } = self.common;
        let tables = Tables::new(Database::new(&self.postgres)?, self.schema);
        let lake = Lake::new(self.store)?;
        tables.make().await.map_err(|error| format!("PostgreSQL: {error}"))?;
        let coordinator = NearCoordinator::start(coordinator.as_deref(), &data_dir.join("coordinator")).await?;
        let (points, steps) = (control.clone(), control.clone());
        let of_tables = tables.sink()?.on_step(move |step| match step {
            PostgresStep::Prepared => steps.pass(HALF_STAGED),
            PostgresStep::Committed => steps.pass(HALF_VISIBLE),
            _ => {}
        });
        let sink = job::sink(of_tables.build()?, lake.sink()?.build()?)?;
        let sink = JobSinkBuilder::new(DrilledSink::new(sink, control.clone(), sabotage), coordinator.client()?)
            .pending(FileStore::new(data_dir.join("pending")))
            // The drill keeps what the coordinator knows, but may kill the job before it is known.
            .first_start(true)
            .on_point(move |point| points.point(point));
        let batch = usize::try_from(self.checkpoint_baskets.min(BATCH_BASKETS))?;
        let job = job::job(CLIENT.parse()?, &self.input, Arc::new(|_| {}), sink)
            .checkpoint_records(self.checkpoint_baskets)
            .batch_records(batch);
        let report = job.run().await?;
        coordinator.stop().await?;
        control.done(&report.position.tally.rows.to_string());
        Ok(())
    }
}
