//! Parquet: records gathered into batches of columns, batches into row groups.

use std::{fmt, mem, sync::Arc};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::{
    arrow::ArrowWriter,
    basic::Compression,
    file::properties::{WriterProperties, WriterVersion},
};

use super::format::{Encoder, Format};
use ratified::Cause;

/// The crates whose types [`Parquet`] takes, in the versions that it takes.
pub mod arrow {
    pub use ::parquet;
    pub use arrow_array as array;
    pub use arrow_schema as schema;
}

/// Records of a batch, unless set otherwise.
pub const DEFAULT_BATCH_ROWS: usize = 8192;
/// Greatest batch.
pub const MAX_BATCH_ROWS: usize = 1024 * 1024;
/// Encoded bytes of a row group, unless set otherwise: 32 MiB. A writer holds up to one per open target.
pub const DEFAULT_ROW_GROUP_BYTES: usize = 32 * 1024 * 1024;
/// Greatest row group: 1 GiB.
pub const MAX_ROW_GROUP_BYTES: usize = 1024 * 1024 * 1024;

type ToBatch<R> = Arc<dyn Fn(&[R]) -> Result<RecordBatch, Cause> + Send + Sync>;

/// Parquet in `.parquet` objects, compressed with Snappy unless set otherwise. Every file holds whole row groups.
///
/// ```
/// # use std::sync::Arc;
/// # use ratified::Cause;
/// # use ratified_object_store::{Parquet, arrow};
/// use arrow::{array::{ArrayRef, RecordBatch, UInt64Array}, schema::{DataType, Field, Schema}};
///
/// # struct Order { id: u64 }
/// let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::UInt64, false)]));
/// let of_schema = schema.clone();
/// let format = Parquet::new(schema, move |orders: &[Order]| {
///     let ids: ArrayRef = Arc::new(orders.iter().map(|order| Some(order.id)).collect::<UInt64Array>());
///     RecordBatch::try_new(of_schema.clone(), vec![ids]).map_err(Cause::new)
/// });
/// # let _ = format;
/// ```
pub struct Parquet<R> {
    schema: SchemaRef,
    to_batch: ToBatch<R>,
    properties: WriterProperties,
    batch_rows: usize,
    row_group_bytes: usize,
}

impl<R> fmt::Debug for Parquet<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parquet").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl<R> Parquet<R> {
    /// Files of this schema. The function makes a batch of it from records, one row for each, in their order.
    pub fn new(
        schema: SchemaRef,
        to_batch: impl Fn(&[R]) -> Result<RecordBatch, Cause> + Send + Sync + 'static,
    ) -> Self {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        Self {
            schema,
            to_batch: Arc::new(to_batch),
            properties: properties.set_writer_version(WriterVersion::PARQUET_1_0).build(),
            batch_rows: DEFAULT_BATCH_ROWS,
            row_group_bytes: DEFAULT_ROW_GROUP_BYTES,
        }
    }

    /// Everything that the writer of the `parquet` crate can be told: compression, statistics, dictionaries.
    #[must_use]
    pub fn properties(mut self, properties: WriterProperties) -> Self {
        self.properties = properties;
        self
    }

    /// How many records are gathered before they become columns, 1..=[`MAX_BATCH_ROWS`].
    #[must_use]
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows;
        self
    }

    /// With about how many encoded bytes a row group is ended, 1..=[`MAX_ROW_GROUP_BYTES`]. It may exceed them by a batch.
    #[must_use]
    pub fn row_group_bytes(mut self, bytes: usize) -> Self {
        self.row_group_bytes = bytes;
        self
    }
}

impl<R: Send + 'static> Format<R> for Parquet<R> {
    fn extension(&self) -> &'static str {
        "parquet"
    }

    fn content_type(&self) -> &'static str {
        "application/vnd.apache.parquet"
    }

    fn encoder(&self) -> Result<Box<dyn Encoder<R>>, Cause> {
        for (key, value, max) in [
            ("batch_rows", self.batch_rows, MAX_BATCH_ROWS),
            ("row_group_bytes", self.row_group_bytes, MAX_ROW_GROUP_BYTES),
        ] {
            if !(1..=max).contains(&value) {
                return Err(Cause::new(format!("{key} must be 1..={max}")));
            }
        }
        let writer = ArrowWriter::try_new(Vec::new(), self.schema.clone(), Some(self.properties.clone()));
        Ok(Box::new(ParquetEncoder {
            writer: writer.map_err(Cause::new)?,
            to_batch: self.to_batch.clone(),
            rows: Vec::new(),
            batch_rows: self.batch_rows,
            row_group_bytes: self.row_group_bytes,
        }))
    }
}

struct ParquetEncoder<R> {
    writer: ArrowWriter<Vec<u8>>,
    to_batch: ToBatch<R>,
    rows: Vec<R>,
    batch_rows: usize,
    row_group_bytes: usize,
}

impl<R> ParquetEncoder<R> {
    fn gather(&mut self) -> Result<(), Cause> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let batch = (self.to_batch)(&self.rows)?;
        let (rows, made) = (self.rows.len(), batch.num_rows());
        if rows != made {
            return Err(Cause::new(format!("{rows} records were made a batch of {made} rows")));
        }
        self.rows.clear();
        self.writer.write(&batch).map_err(Cause::new)
    }
}

impl<R: Send> Encoder<R> for ParquetEncoder<R> {
    fn write(&mut self, record: R, out: &mut Vec<u8>) -> Result<(), Cause> {
        self.rows.push(record);
        if self.rows.len() < self.batch_rows {
            return Ok(());
        }
        self.gather()?;
        if self.writer.in_progress_size() >= self.row_group_bytes {
            self.writer.flush().map_err(Cause::new)?;
        }
        // Its offsets count what was written, not what is still there.
        out.append(&mut mem::take(self.writer.inner_mut()));
        Ok(())
    }

    fn held_bytes(&self) -> usize {
        self.writer.in_progress_size()
    }

    fn finish(mut self: Box<Self>, out: &mut Vec<u8>) -> Result<(), Cause> {
        self.gather()?;
        out.append(&mut self.writer.into_inner().map_err(Cause::new)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, UInt64Array, cast::AsArray, types::UInt64Type};
    use arrow_schema::{DataType, Field, Schema};
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    fn numbers() -> Parquet<u64> {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::UInt64, false)]));
        let of_schema = schema.clone();
        Parquet::new(schema, move |numbers| {
            let column: ArrayRef = Arc::new(UInt64Array::from(numbers.to_vec()));
            RecordBatch::try_new(of_schema.clone(), vec![column]).map_err(Cause::new)
        })
    }

    /// Encodes numbers, the bytes taken away after each as a sink does.
    fn encode(format: &Parquet<u64>, numbers: impl IntoIterator<Item = u64>) -> Result<(Vec<usize>, Vec<u8>), Cause> {
        let mut encoder = format.encoder()?;
        let (mut whole, mut lengths) = (Vec::new(), Vec::new());
        for number in numbers {
            let mut out = Vec::new();
            encoder.write(number, &mut out)?;
            lengths.extend((!out.is_empty()).then_some(out.len()));
            whole.append(&mut out);
        }
        encoder.finish(&mut whole)?;
        Ok((lengths, whole))
    }

    fn decode(file: Vec<u8>) -> (usize, Vec<u64>) {
        let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file)).unwrap();
        let groups = reader.metadata().num_row_groups();
        let batches = reader.build().unwrap().map(Result::unwrap);
        (groups, batches.flat_map(|batch| batch.column(0).as_primitive::<UInt64Type>().values().to_vec()).collect())
    }

    #[test]
    fn a_file_holds_its_records_in_order_in_one_row_group_unless_it_is_large() {
        let (lengths, file) = encode(&numbers(), 0..20_000).unwrap();
        assert!(lengths.iter().sum::<usize>() <= 4, "only the head of the file before its end: {lengths:?}");
        assert_eq!(decode(file), (1, (0..20_000).collect()));
        let small = numbers().batch_rows(5000).row_group_bytes(1);
        let (lengths, file) = encode(&small, 0..12_000).unwrap();
        assert_eq!(lengths.len(), 2, "two row groups left before the end");
        assert_eq!(decode(file), (3, (0..12_000).collect()));
    }

    #[test]
    fn an_empty_file_is_a_file() {
        assert_eq!(decode(encode(&numbers(), []).unwrap().1), (0, vec![]));
    }

    #[test]
    fn a_batch_of_other_rows_or_columns_is_an_error() {
        let told = |change: fn(&[u64]) -> Vec<u64>| {
            let right = numbers().batch_rows(2);
            let to_batch = right.to_batch.clone();
            let wrong = Parquet { to_batch: Arc::new(move |rows: &[u64]| to_batch(&change(rows))), ..right };
            encode(&wrong, 0..2).unwrap_err().to_string()
        };
        assert_eq!(told(|rows| [rows, rows].concat()), "2 records were made a batch of 4 rows");
        assert_eq!(told(|rows| rows[1..].to_vec()), "2 records were made a batch of 1 rows");
        let schema = Arc::new(Schema::new(vec![Field::new("other", DataType::Utf8, false)]));
        let wrong = Parquet { schema, ..numbers().batch_rows(1) };
        assert!(encode(&wrong, 0..1).is_err());
    }

    #[test]
    fn settings_are_taken_up_to_their_bounds() {
        let rows = |rows| numbers().batch_rows(rows).encoder().err().map(|e| e.to_string());
        let bytes = |bytes| numbers().row_group_bytes(bytes).encoder().err().map(|e| e.to_string());
        for (refused, taken, max) in [
            ([rows(0), rows(MAX_BATCH_ROWS + 1)], [rows(1), rows(MAX_BATCH_ROWS)], "batch_rows must be 1..=1048576"),
            (
                [bytes(0), bytes(MAX_ROW_GROUP_BYTES + 1)],
                [bytes(1), bytes(MAX_ROW_GROUP_BYTES)],
                "row_group_bytes must be 1..=1073741824",
            ),
        ] {
            assert_eq!(refused, [Some(max.to_owned()), Some(max.to_owned())]);
            assert_eq!(taken, [None, None]);
        }
    }
}
