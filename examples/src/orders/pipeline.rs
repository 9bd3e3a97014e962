//! The job: rows of a file into baskets, these into PostgreSQL and their items into an object store, under one decision.

use std::{path::PathBuf, sync::Arc};

use ratified::{
    Cause, ClientName, JobSinkBuilder, Point, TwoPhaseSink,
    job::{Job, JobError, JobReport},
    pending::FileStore,
    postgres::PostgresError,
    protocol::IdError,
    sinks::{
        composite::{Composite, CompositeError},
        object_store::ObjectStep,
        postgres::PostgresStep,
    },
};
use thiserror::Error;

use super::{
    basket::{Basket, Reject, Tally},
    cents::Amounts,
    items::{self, ItemRow},
    lake::{Lake, LakeError},
    source::{Observer, OrderPosition, OrderSource, Unit},
    tables::{TableRow, Tables},
};
use crate::coordinator::{CoordinatorError, NearCoordinator};

/// The client of the coordinator unless another is named.
pub const CLIENT: &str = "orders";
/// Most baskets that are read and written at a time.
const MAX_BATCH: u64 = 256;

/// Why the job did not reach its end. Nothing is lost by it: the caller must mend the cause and run the job again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OrdersError {
    /// There is no coordinator.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// PostgreSQL cannot be used as asked.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// PostgreSQL says no. The caller must mend what it says.
    #[error("PostgreSQL: {0}")]
    Tables(Cause),
    /// The store cannot be used.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// Never for the names of this example.
    #[error(transparent)]
    Composite(#[from] CompositeError),
    /// The job stopped.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The name of the client is none.
    #[error("the client's name: {0}")]
    Name(IdError),
    /// Something of this process's own.
    #[error("{path}: {source}")]
    Io {
        /// What.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is visible is not what was committed: somebody removed or added something.
    #[error(
        "{committed} {what} were committed, and {visible} are there; to start over, drop the schema and remove --store and \
         --data-dir"
    )]
    Tampered {
        /// Of what.
        what: &'static str,
        /// How many, or how much, were committed.
        committed: i64,
        /// How many are there.
        visible: i64,
    },
}

/// What the job writes: to PostgreSQL a basket's sums or a refused row, to the store a basket's items.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A basket.
    Basket(Basket),
    /// A refused row.
    Reject(Reject),
}

/// Looks on while the job runs; for the drill.
pub trait Watch: Send + Sync + 'static {
    /// A transaction passes a point.
    fn point(&self, _: Point) {}
    /// PostgreSQL is about to be asked, or has answered.
    fn postgres(&self, _: PostgresStep) {}
    /// The store is about to be changed.
    fn store(&self, _: &ObjectStep<'_>) {}
}

/// Nobody looks on.
pub struct Nobody;

impl Watch for Nobody {}

/// How a run of the job is set up.
pub struct Orders {
    /// The file of transactions.
    pub input: PathBuf,
    /// Where baskets and refused rows go.
    pub tables: Tables,
    /// Where items go.
    pub lake: Lake,
    /// Where the pending store is kept, and the store of an embedded coordinator.
    pub data_dir: PathBuf,
    /// The coordinator's URL; `None` runs one in this process.
    pub coordinator: Option<String>,
    /// The job's own name at the coordinator: it must stay the same for ever, and be nobody else's.
    pub client: ClientName,
    /// A checkpoint is taken after so many baskets.
    pub checkpoint_baskets: u64,
    /// Is told how far the job is.
    pub observer: Observer,
}

/// What is in both places.
#[derive(Debug, Clone, Copy, Default)]
pub struct Visible {
    /// Baskets in PostgreSQL.
    pub baskets: u64,
    /// Items, as the baskets in PostgreSQL have counted them.
    pub items: u64,
    /// Items in the store.
    pub stored_items: u64,
    /// Sums of the baskets in PostgreSQL.
    pub amounts: Amounts,
    /// Sums of the items in the store.
    pub stored_amounts: Amounts,
    /// Refused rows in PostgreSQL.
    pub rejects: u64,
}

impl Orders {
    /// Runs to the end of the file. Run again it goes on behind the last commit, and does nothing at the end.
    ///
    /// # Errors
    /// See [`OrdersError`]; running it again is always safe.
    pub async fn run(&self) -> Result<JobReport<OrderPosition>, OrdersError> {
        self.run_with(|sink| sink, Arc::new(Nobody)).await
    }

    /// As [`Self::run`], with a wrapper around the sink and somebody who looks on.
    ///
    /// # Errors
    /// See [`OrdersError`]; running it again is always safe.
    pub async fn run_with<S>(
        &self,
        wrap: impl FnOnce(Composite<Entry>) -> S,
        watch: Arc<dyn Watch>,
    ) -> Result<JobReport<OrderPosition>, OrdersError>
    where
        S: TwoPhaseSink<Record = Entry>,
    {
        self.tables.make().await.map_err(OrdersError::Tables)?;
        let coordinator =
            NearCoordinator::start(self.coordinator.as_deref(), &self.data_dir.join("coordinator")).await?;
        let report = self.run_at(&coordinator, wrap, watch).await;
        coordinator.stop().await?;
        report
    }

    async fn run_at<S>(
        &self,
        coordinator: &NearCoordinator,
        wrap: impl FnOnce(Composite<Entry>) -> S,
        watch: Arc<dyn Watch>,
    ) -> Result<JobReport<OrderPosition>, OrdersError>
    where
        S: TwoPhaseSink<Record = Entry>,
    {
        let builder = JobSinkBuilder::new(wrap(self.sink(watch.clone())?), coordinator.client()?)
            .pending(FileStore::new(self.data_dir.join("pending")))
            // Only while nothing is visible yet may the coordinator not know the job.
            .first_start(self.is_empty().await?)
            .on_point(move |point| watch.point(point));
        let transform = |unit: Unit, entries: &mut Vec<Entry>| {
            entries.extend(unit.basket.map(Entry::Basket));
            entries.extend(unit.rejects.into_iter().map(Entry::Reject));
            Ok(())
        };
        let batch = usize::try_from(self.checkpoint_baskets.min(MAX_BATCH)).unwrap_or(1);
        let source = OrderSource::new(&self.input, self.observer.clone());
        let job = Job::new(self.client.clone(), source, transform, builder)
            .checkpoint_records(self.checkpoint_baskets)
            .batch_records(batch);
        Ok(job.run().await?)
    }

    /// Both places as one sink: a batch is visible in both of them, or in none.
    fn sink(&self, watch: Arc<dyn Watch>) -> Result<Composite<Entry>, OrdersError> {
        let (of_tables, of_lake) = (watch.clone(), watch);
        let tables = self.tables.sink(move |step| of_tables.postgres(step))?;
        let lake = self.lake.sink(move |step| of_lake.store(step))?;
        let to_tables = |entry: &Entry, rows: &mut Vec<TableRow>| {
            rows.push(match entry {
                Entry::Basket(basket) => TableRow::Basket(basket.into()),
                Entry::Reject(reject) => TableRow::Reject(reject.clone()),
            });
        };
        let to_lake = |entry: &Entry, rows: &mut Vec<ItemRow>| match entry {
            Entry::Basket(basket) => rows.extend(items::rows_of(basket)),
            Entry::Reject(_) => {}
        };
        Ok(Composite::builder().member("postgres", tables, to_tables).member("store", lake, to_lake).build()?)
    }

    async fn is_empty(&self) -> Result<bool, OrdersError> {
        let sums = self.tables.sums().await.map_err(OrdersError::Tables)?;
        Ok(sums.basket == 0 && self.lake.is_empty().await?)
    }

    /// Counts and sums up what is visible in both places.
    ///
    /// # Errors
    /// See [`OrdersError`].
    pub async fn visible(&self) -> Result<Visible, OrdersError> {
        let sums = self.tables.sums().await.map_err(OrdersError::Tables)?;
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        let mut visible = Visible {
            baskets: count(sums.basket),
            items: count(sums.items),
            amounts: sums.amounts,
            ..Visible::default()
        };
        self.tables.each_reject(|_| visible.rejects += 1).await.map_err(OrdersError::Tables)?;
        let mut total = Some(Amounts::default());
        self.lake
            .each_item(|item| {
                visible.stored_items += 1;
                total = total.and_then(|total| total.plus(&item.amounts));
            })
            .await?;
        visible.stored_amounts = total.unwrap_or_default();
        Ok(visible)
    }
}

impl Visible {
    /// Checks that it is what was committed, in both places, to the cent.
    ///
    /// # Errors
    /// [`OrdersError::Tampered`].
    pub fn check(&self, tally: &Tally) -> Result<(), OrdersError> {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let counts = [
            ("baskets", tally.baskets, self.baskets),
            ("items of the baskets in PostgreSQL", tally.items, self.items),
            ("items in the store", tally.items, self.stored_items),
            ("refused rows", tally.rejects, self.rejects),
        ];
        let counts = counts.map(|(what, committed, visible)| (what, signed(committed), signed(visible)));
        let [in_tables, in_store] =
            [("cents in PostgreSQL", self.amounts), ("cents in the store", self.stored_amounts)].map(
                |(what, visible)| {
                    let pairs = tally.amounts.to_cents().into_iter().zip(visible.to_cents());
                    pairs.map(move |(committed, visible)| (what, committed, visible))
                },
            );
        for (what, committed, visible) in counts.into_iter().chain(in_tables).chain(in_store) {
            if committed != visible {
                return Err(OrdersError::Tampered { what, committed, visible });
            }
        }
        Ok(())
    }
}
