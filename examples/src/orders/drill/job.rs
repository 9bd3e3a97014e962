//! The job as a process of a drill.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use ratified::{Point, postgres::Database, sinks::postgres::PostgresStep};

use crate::{
    drill::{Control, DrilledSink, KillPoint, Sabotage},
    orders::{CLIENT, Lake, Orders, OrdersError, Place, SchemaName, Tables, Watch},
};

/// One member has staged, the other has not.
pub(super) const HALF_STAGED: KillPoint = KillPoint::new("half-staged", "prepared in PostgreSQL, not in the store");
/// One member is visible, the other is not.
pub(super) const HALF_VISIBLE: KillPoint = KillPoint::new("half-visible", "visible in PostgreSQL, not in the store");

/// How the job is run inside a drill.
#[derive(Debug, Clone, Args)]
pub struct OrdersJobArgs {
    /// The file of transactions.
    #[arg(long)]
    pub input: PathBuf,
    /// The database.
    #[arg(long)]
    pub postgres: String,
    /// The schema of its tables.
    #[arg(long)]
    pub schema: SchemaName,
    /// Where items go.
    #[arg(long)]
    pub store: Place,
    /// Where the pending store is kept, and the store of an embedded coordinator.
    #[arg(long)]
    pub data_dir: PathBuf,
    /// A checkpoint is taken after so many baskets.
    #[arg(long)]
    pub checkpoint_baskets: u64,
    /// The coordinator's URL; without one, a coordinator in the job's process.
    #[arg(long)]
    pub coordinator: Option<String>,
    /// How the sink is broken.
    #[arg(long, value_enum)]
    pub sabotage: Option<Sabotage>,
}

impl OrdersJobArgs {
    /// The command line of this executable that runs the job so.
    pub(super) fn to_args(&self) -> Vec<String> {
        let mut args = vec!["job".to_owned()];
        let mut flag = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        flag("input", self.input.display().to_string());
        flag("postgres", self.postgres.clone());
        flag("schema", self.schema.to_string());
        flag("store", self.store.to_string());
        flag("data-dir", self.data_dir.display().to_string());
        flag("checkpoint-baskets", self.checkpoint_baskets.to_string());
        if let Some(sabotage) = self.sabotage {
            flag("sabotage", sabotage.word().to_owned());
        }
        args
    }

    /// Runs the job under the drill's control.
    ///
    /// # Errors
    /// See [`OrdersError`].
    pub async fn run(&self) -> Result<(), OrdersError> {
        let control = Control::start().map_err(|source| OrdersError::Io { path: "stdin".to_owned(), source })?;
        let orders = Orders {
            input: self.input.clone(),
            tables: Tables::new(Database::new(&self.postgres)?, self.schema.clone()),
            lake: Lake::new(self.store.clone())?,
            data_dir: self.data_dir.clone(),
            coordinator: self.coordinator.clone(),
            client: CLIENT.parse().map_err(OrdersError::Name)?,
            checkpoint_baskets: self.checkpoint_baskets,
            observer: Arc::new(|_| {}),
        };
        let (drilled, sabotage) = (control.clone(), self.sabotage);
        let watch = Arc::new(Drilled(control.clone()));
        let report = orders.run_with(|sink| DrilledSink::new(sink, drilled, sabotage), watch).await?;
        control.done(&report.position.tally.rows.to_string());
        Ok(())
    }
}

/// Stands still where the drill wants it to.
struct Drilled(Arc<Control>);

impl Watch for Drilled {
    fn point(&self, point: Point) {
        self.0.point(point);
    }

    fn postgres(&self, step: PostgresStep) {
        match step {
            PostgresStep::Prepared => self.0.pass(HALF_STAGED),
            PostgresStep::Committed => self.0.pass(HALF_VISIBLE),
            _ => {}
        }
    }
}
