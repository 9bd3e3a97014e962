//! What is written: rows that cost little to make.

use std::sync::Arc;

use ratified::Cause;

use ratified_object_store::{
    Parquet,
    arrow::{
        array::{ArrayRef, RecordBatch, StringArray, UInt64Array},
        schema::{DataType, Field, Schema},
    },
};

use ratified_postgres::{CopyRow, PgRecord};
use serde::Serialize;

/// The text of every row.
pub(crate) const NOTE: &str =
    "a row of a usual size, some hundred bytes with its number, its text and what goes around";

/// A row.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Row {
    pub(crate) id: u64,
    customer: u64,
    note: &'static str,
}

impl Row {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, customer: id % 1000, note: NOTE }
    }
}

impl PgRecord for Row {
    fn fill(&self, row: &mut CopyRow<'_>) -> Result<(), Cause> {
        row.value(self.id).value(self.customer).text(self.note);
        Ok(())
    }
}

/// Rows as columns.
pub(crate) fn parquet() -> Parquet<Row> {
    let field = |name: &str, kind| Field::new(name, kind, false);
    let fields =
        vec![field("id", DataType::UInt64), field("customer", DataType::UInt64), field("note", DataType::Utf8)];
    let schema = Arc::new(Schema::new(fields));
    let of_schema = schema.clone();
    Parquet::new(schema, move |rows: &[Row]| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|row| Some(row.id)).collect::<UInt64Array>()),
            Arc::new(rows.iter().map(|row| Some(row.customer)).collect::<UInt64Array>()),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.note))),
        ];
        RecordBatch::try_new(of_schema.clone(), columns).map_err(Cause::new)
    })
}
