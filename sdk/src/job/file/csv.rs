//! CSV with a header as the source of a job.

use std::{
    fmt::Write as _,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use csv::{ByteRecord, StringRecord};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::{
    FilePosition, FileSourceError, MAX_BAD_BYTES,
    input::Input,
    record::{self, Bounds, Framed},
    source::blocking,
};
use crate::{
    error::Cause,
    job::{Read, Source},
};

/// Longest record unless another bound is given, in bytes: 128 KiB, see
/// [`DEFAULT_MAX_LINE_BYTES`](super::DEFAULT_MAX_LINE_BYTES).
pub const DEFAULT_MAX_RECORD_BYTES: usize = 128 * 1024;
/// Most lines of a record unless another bound is given.
pub const DEFAULT_MAX_RECORD_LINES: u64 = 100;
/// Most characters of a header that an error tells.
const MAX_HEADER_CHARS: usize = 1000;

/// A row that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<T> {
    /// The number of its first line; the header begins in line 1.
    pub line: u64,
    /// What it says.
    pub value: T,
    /// Where it ends. A source that makes one record of several rows, and keeps back those it has begun, has its own
    /// position behind the last row that it has given away.
    pub end: FilePosition,
}

/// A row that could not be read. It is for the job to decide what becomes of it; best it is written to a sink, too.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the row in line {line}, of {length} bytes: {fault}")]
pub struct BadRow {
    /// The number of its first line; the header begins in line 1.
    pub line: u64,
    /// What is wrong.
    pub fault: RowFault,
    /// Its fields, with what is not UTF-8 replaced; no more of them than [`MAX_BAD_BYTES`]. Its first line if its fields
    /// are not known.
    pub fields: Vec<String>,
    /// How many bytes the whole row has, or its first line.
    pub length: u64,
    /// Where it ends, see [`Row::end`].
    pub end: FilePosition,
}

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RowFault {
    /// It has more or fewer fields than the header.
    #[error("it has {found} fields, the header has {expected}")]
    Fields {
        /// How many the header has.
        expected: usize,
        /// How many it has.
        found: usize,
    },
    /// A field is not UTF-8.
    #[error("field {field} is not UTF-8")]
    NotUtf8 {
        /// Which; the first is 0.
        field: usize,
    },
    /// It is not what is read: a number is none, a value is missing.
    #[error("{why}")]
    Invalid {
        /// What is wrong with it.
        why: String,
    },
    /// Its first line alone is longer than a record may be. Reading goes on at the next line.
    #[error("it is longer than {limit} bytes (max_record_bytes)")]
    TooLong {
        /// The greatest number of bytes.
        limit: usize,
    },
    /// A quote that opens in it does not close within the bounds of a record, or before the end of the file. Most often
    /// somebody wrote a single quote: reading goes on at the next line.
    #[error(
        "a quote in it is not closed within {lines} lines (max_record_lines) and {bytes} bytes (max_record_bytes), or before the file ends"
    )]
    OpenQuote {
        /// The greatest number of bytes.
        bytes: usize,
        /// The greatest number of lines.
        lines: u64,
    },
}

/// The rows of a CSV file with a header: each as a `T` by the header's names, or as a [`BadRow`]. Never drops one; empty
/// lines are none.
///
/// A field may be quoted and then hold line ends (RFC 4180). A quote that is never closed would make one record of all that
/// follows: so a record has bounds, and of one that exceeds them the first line is given as bad, and reading goes on at the
/// next line.
#[derive(Debug)]
pub struct CsvSource<T> {
    path: PathBuf,
    settings: Settings,
    reader: Option<RowReader>,
    position: FilePosition,
    row: PhantomData<fn() -> T>,
}

#[derive(Debug, Clone)]
struct Settings {
    delimiter: u8,
    bounds: Bounds,
    columns: Vec<String>,
}

impl<T> CsvSource<T> {
    /// The rows of this file. Touches nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let bounds = Bounds { bytes: DEFAULT_MAX_RECORD_BYTES, lines: DEFAULT_MAX_RECORD_LINES };
        let settings = Settings { delimiter: b',', bounds, columns: Vec::new() };
        Self { path: path.into(), settings, reader: None, position: FilePosition::default(), row: PhantomData }
    }

    /// What stands between two fields; by default a comma.
    #[must_use]
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.settings.delimiter = delimiter;
        self
    }

    /// Columns that the header must have, so that a wrong file is refused as a whole and not row by row.
    #[must_use]
    pub fn require_columns(mut self, columns: &[&str]) -> Self {
        self.settings.columns = columns.iter().map(|&column| column.to_owned()).collect();
        self
    }

    /// How many bytes a record may have, its last line end not counted, at least 1; by default
    /// [`DEFAULT_MAX_RECORD_BYTES`].
    #[must_use]
    pub fn max_record_bytes(mut self, bytes: usize) -> Self {
        self.settings.bounds.bytes = bytes.max(1);
        self
    }

    /// How many lines a record with quoted line ends may have, at least 1; by default [`DEFAULT_MAX_RECORD_LINES`].
    #[must_use]
    pub fn max_record_lines(mut self, lines: u64) -> Self {
        self.settings.bounds.lines = lines.max(1);
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[async_trait]
impl<T: DeserializeOwned + Send + 'static> Source for CsvSource<T> {
    type Record = Result<Row<T>, BadRow>;
    type Position = FilePosition;

    async fn seek(&mut self, position: Option<&FilePosition>) -> Result<(), Cause> {
        let (path, settings, from) = (self.path.clone(), self.settings.clone(), position.copied());
        let reader = blocking(move || RowReader::open(path, settings, from)).await?;
        self.position = reader.position();
        self.reader = Some(reader);
        Ok(())
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<Self::Record>, Cause> {
        let interrupted = FileSourceError::Interrupted { path: self.path.clone() };
        let mut reader = self.reader.take().ok_or_else(|| Cause::new(interrupted))?;
        let (reader, rows) = blocking(move || {
            let mut rows = Vec::with_capacity(max_records.min(1024));
            while rows.len() < max_records
                && let Some(row) = reader.next_row()?
            {
                rows.push(row);
            }
            Ok((reader, rows))
        })
        .await?;
        self.position = reader.position();
        self.reader = Some(reader);
        Ok(if rows.is_empty() { Read::End } else { Read::Records(rows) })
    }

    fn position(&self) -> FilePosition {
        self.position
    }
}

/// Reads rows; blocks.
#[derive(Debug)]
struct RowReader {
    settings: Settings,
    header: StringRecord,
    input: Input,
    record: ByteRecord,
}

impl RowReader {
    /// Reads the header, checks that the file is the one that was read, and goes to the position.
    fn open(path: PathBuf, settings: Settings, at: Option<FilePosition>) -> Result<Self, FileSourceError> {
        let input = Input::open(&path, &FilePosition::default())?;
        let mut reader = Self { settings, header: StringRecord::new(), input, record: ByteRecord::new() };
        reader.read_header()?;
        // A position before the first row is the beginning, too.
        if let Some(at) = at.filter(|at| at.offset > reader.input.position().offset) {
            reader.input = Input::open(&path, &at)?;
        }
        Ok(reader)
    }

    fn read_header(&mut self) -> Result<(), FileSourceError> {
        let mut header = ByteRecord::new();
        let path = || self.input.path().to_owned();
        let path = path();
        if let Some(Framed { line, fault: Some(fault), .. }) = self.read(&mut header)? {
            return Err(FileSourceError::Header { path, line, why: fault.to_string() });
        }
        self.header = StringRecord::from_byte_record_lossy(header);
        let is_missing = |column: &&String| !self.header.iter().any(|name| name == column.as_str());
        match self.settings.columns.iter().find(is_missing) {
            Some(column) => {
                Err(FileSourceError::Column { path, column: column.clone(), found: told_names(&self.header) })
            }
            None => Ok(()),
        }
    }

    fn position(&self) -> FilePosition {
        self.input.position()
    }

    fn read(&mut self, record: &mut ByteRecord) -> Result<Option<Framed>, FileSourceError> {
        record::next(&mut self.input, self.settings.delimiter, self.settings.bounds, record)
    }

    fn next_row<T: DeserializeOwned>(&mut self) -> Result<Option<Result<Row<T>, BadRow>>, FileSourceError> {
        let mut record = std::mem::take(&mut self.record);
        let Some(framed) = self.read(&mut record)? else { return Ok(None) };
        let row = self.judge(framed, &record);
        self.record = record;
        Ok(Some(row))
    }

    fn judge<T: DeserializeOwned>(&self, framed: Framed, record: &ByteRecord) -> Result<Row<T>, BadRow> {
        let end = self.position();
        let Framed { line, length, fault } = framed;
        let bad = |fault| BadRow { line, fault, fields: kept(record), length, end };
        if let Some(fault) = fault {
            return Err(bad(fault));
        }
        let (expected, found) = (self.header.len(), record.len());
        if expected != found {
            return Err(bad(RowFault::Fields { expected, found }));
        }
        let text = StringRecord::from_byte_record(record.clone());
        let text = text.map_err(|error| bad(RowFault::NotUtf8 { field: error.utf8_error().field() }))?;
        let value = text.deserialize(Some(&self.header));
        value.map(|value| Row { line, value, end }).map_err(|error| bad(RowFault::Invalid { why: reason(&error) }))
    }
}

/// The fields of a bad row, as many of them as are kept.
fn kept(record: &ByteRecord) -> Vec<String> {
    let mut left = MAX_BAD_BYTES;
    let mut fields = Vec::new();
    for field in record {
        let text = String::from_utf8_lossy(field);
        let cut = text.floor_char_boundary(left);
        fields.push(text.get(..cut).unwrap_or_default().to_owned());
        // A field costs something also if it is empty.
        left = left.saturating_sub(cut.saturating_add(4));
        if left == 0 {
            break;
        }
    }
    fields
}

/// The columns of a header, with what cannot be seen in them escaped.
fn told_names(header: &StringRecord) -> String {
    let mut told = String::new();
    for (index, name) in header.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let name = name.get(..name.floor_char_boundary(MAX_HEADER_CHARS)).unwrap_or_default();
        if write!(told, "{separator}{name:?}").is_err() || told.len() > MAX_HEADER_CHARS {
            told.truncate(told.floor_char_boundary(MAX_HEADER_CHARS));
            told.push_str("...");
            break;
        }
    }
    if told.is_empty() { "none".to_owned() } else { told }
}

/// What is wrong with a value, without the position, which is told apart.
fn reason(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => match err.field() {
            Some(field) => format!("field {field}: {}", err.kind()),
            None => err.kind().to_string(),
        },
        _ => error.to_string(),
    }
}
