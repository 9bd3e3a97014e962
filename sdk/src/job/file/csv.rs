//! CSV with a header as the source of a job.

use std::{
    fs::File,
    io,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use csv::{ByteRecord, StringRecord};
use serde::de::DeserializeOwned;

use super::{FilePosition, FileSourceError, failed, open_at, source::blocking};
use crate::{
    error::Cause,
    job::{Read, Source},
};

/// Longest record unless another bound is given, in bytes.
pub const DEFAULT_MAX_RECORD_BYTES: usize = 1024 * 1024;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The number of its first line; the header begins in line 1.
    pub line: u64,
    /// What is wrong.
    pub fault: RowFault,
    /// Its fields, with what is not UTF-8 replaced.
    pub fields: Vec<String>,
    /// Where it ends, see [`Row::end`].
    pub end: FilePosition,
}

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowFault {
    /// It has more or fewer fields than the header.
    Fields {
        /// How many the header has.
        expected: usize,
        /// How many it has.
        found: usize,
    },
    /// A field is not UTF-8.
    NotUtf8 {
        /// Which; the first is 0.
        field: usize,
    },
    /// It is not what is read: a number is none, a value is missing.
    Invalid {
        /// What is wrong with it.
        why: String,
    },
}

/// The rows of a CSV file with a header: each as a `T` by the header's names, or as a [`BadRow`]. Never drops one; empty
/// lines are none.
///
/// A field may be quoted and then hold line ends (RFC 4180). A record that is longer than the bound ends the job, since
/// nobody knows where the next one begins.
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
    max_record_bytes: usize,
    columns: Vec<String>,
}

impl<T> CsvSource<T> {
    /// The rows of this file. Touches nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let settings = Settings { delimiter: b',', max_record_bytes: DEFAULT_MAX_RECORD_BYTES, columns: Vec::new() };
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

    /// How many bytes a record may have, at least 1; by default [`DEFAULT_MAX_RECORD_BYTES`].
    #[must_use]
    pub fn max_record_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_record_bytes = bytes.max(1);
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
    path: PathBuf,
    max_record_bytes: usize,
    header: StringRecord,
    input: csv::Reader<Tracked>,
    record: ByteRecord,
}

impl RowReader {
    /// Reads the header, checks that the file is the one that was read, and goes to the position.
    fn open(path: PathBuf, settings: Settings, at: Option<FilePosition>) -> Result<Self, FileSourceError> {
        let mut reader = Self::at(path, &settings, FilePosition::default())?;
        let mut header = ByteRecord::new();
        reader.read(&mut header)?;
        reader.header = StringRecord::from_byte_record_lossy(header);
        if let Some(column) = settings.columns.iter().find(|column| !reader.header.iter().any(|name| name == *column)) {
            return Err(FileSourceError::Column { path: reader.path, column: column.clone() });
        }
        match at {
            None => Ok(reader),
            Some(at) => Ok(Self { header: reader.header, ..Self::at(reader.path, &settings, at)? }),
        }
    }

    fn at(path: PathBuf, settings: &Settings, from: FilePosition) -> Result<Self, FileSourceError> {
        let (file, hasher) = open_at(&path, &from, b"\r\n")?;
        let (ahead, limit) = (Vec::new(), settings.max_record_bytes);
        let tracked = Tracked { file, at: from, hasher, ahead, limit, is_over: false };
        let mut builder = csv::ReaderBuilder::new();
        // The header is read apart, and the number of fields is checked against it.
        let input = builder.has_headers(false).flexible(true).delimiter(settings.delimiter).from_reader(tracked);
        let (max_record_bytes, record) = (settings.max_record_bytes, ByteRecord::new());
        Ok(Self { path, max_record_bytes, header: StringRecord::new(), input, record })
    }

    fn position(&self) -> FilePosition {
        let Tracked { at, hasher, .. } = self.input.get_ref();
        FilePosition { crc32: hasher.clone().finalize(), ..*at }
    }

    /// Reads a record; gives the number of its first line, none at the end.
    fn read(&mut self, record: &mut ByteRecord) -> Result<Option<u64>, FileSourceError> {
        let before = self.input.position().byte();
        let read = self.input.read_byte_record(record);
        let passed = usize::try_from(self.input.position().byte().saturating_sub(before)).unwrap_or(usize::MAX);
        let line = self.input.get_ref().first_line();
        if self.input.get_ref().is_over || passed > self.max_record_bytes {
            return Err(FileSourceError::RecordTooLong { path: self.path.clone(), line, limit: self.max_record_bytes });
        }
        let is_there = read.map_err(|error| failed(&self.path)(io::Error::other(error)))?;
        self.input.get_mut().pass(passed);
        Ok(is_there.then_some(line))
    }

    fn next_row<T: DeserializeOwned>(&mut self) -> Result<Option<Result<Row<T>, BadRow>>, FileSourceError> {
        let mut record = std::mem::take(&mut self.record);
        let Some(line) = self.read(&mut record)? else { return Ok(None) };
        let row = self.judge(line, &record);
        self.record = record;
        Ok(Some(row))
    }

    fn judge<T: DeserializeOwned>(&self, line: u64, record: &ByteRecord) -> Result<Row<T>, BadRow> {
        let end = self.position();
        let bad = |fault| {
            let fields = record.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
            BadRow { line, fault, fields, end }
        };
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

/// A file that is read ahead of its records: knows where those end that were taken, and how long one is.
#[derive(Debug)]
struct Tracked {
    file: File,
    /// Behind the last record; between the two bytes of its line end if these are `\r\n`.
    at: FilePosition,
    hasher: crc32fast::Hasher,
    ahead: Vec<u8>,
    limit: usize,
    is_over: bool,
}

impl Tracked {
    /// The number of the first line of the record that lies ahead; what is left of a line end is none of it.
    fn first_line(&self) -> u64 {
        let ends = self.ahead.iter().take_while(|byte| b"\r\n".contains(byte));
        self.at.lines.saturating_add(1).saturating_add(ends.filter(|byte| **byte == b'\n').count() as u64)
    }

    /// A record and what lies before it were taken.
    fn pass(&mut self, bytes: usize) {
        let passed = self.ahead.drain(..bytes.min(self.ahead.len()));
        self.hasher.update(passed.as_slice());
        self.at.offset = self.at.offset.saturating_add(passed.len() as u64);
        let ends = passed.as_slice().iter().filter(|byte| **byte == b'\n').count();
        self.at.lines = self.at.lines.saturating_add(ends as u64);
    }
}

impl io::Read for Tracked {
    /// Asked when all that was read is part of one record.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ahead.len() > self.limit {
            self.is_over = true;
            return Err(io::Error::other("the record is too long"));
        }
        let read = self.file.read(buffer)?;
        self.ahead.extend_from_slice(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}
