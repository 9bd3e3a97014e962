//! The job: rows of a file into baskets, these into PostgreSQL and their items into an object store, under one decision.

use std::path::Path;

use ratified::{
    Cause, ClientName, JobSinkBuilder, TwoPhaseSink,
    job::{Job, Transform},
    sinks::composite::{Composite, CompositeError},
};

use ratified_object_store::ObjectStoreSink;

use ratified_postgres::PostgresSink;

use crate::{
    basket::{Basket, Reject},
    items::{self, ItemRow},
    source::{Observer, OrderSource, Unit},
    tables::TableRow,
};

/// What the job writes: to PostgreSQL a basket's sums or a refused row, to the store a basket's items.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A basket.
    Basket(Basket),
    /// A refused row.
    Reject(Reject),
}

/// The transformation: a basket, and what was refused between its rows.
///
/// # Errors
/// Never.
pub fn transform(unit: Unit, entries: &mut Vec<Entry>) -> Result<(), Cause> {
    entries.extend(unit.basket.map(Entry::Basket));
    entries.extend(unit.rejects.into_iter().map(Entry::Reject));
    Ok(())
}

/// The sink: both places as one. A batch is visible in both of them, or in none.
///
/// # Errors
/// Never for the names of this job.
pub fn sink(
    tables: PostgresSink<TableRow>,
    lake: ObjectStoreSink<ItemRow>,
) -> Result<Composite<Entry>, CompositeError> {
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
    Composite::builder().member("postgres", tables, to_tables).member("store", lake, to_lake).build()
}

/// Source, transformation and sink together. `observer` is told how far the source is.
pub fn job<S: TwoPhaseSink<Record = Entry>>(
    client: ClientName,
    input: &Path,
    observer: Observer,
    sink: JobSinkBuilder<S>,
) -> Job<OrderSource, impl Transform<Unit, Entry>, S> {
    Job::new(client, OrderSource::new(input, observer), transform, sink)
}
