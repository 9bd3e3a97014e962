//! Where a CSV record ends, and what its fields are.

use csv::ByteRecord;
use memchr::memchr;

use super::{
    FileSourceError, MAX_BAD_BYTES, RowFault,
    input::{Input, Scan},
};

const QUOTE: u8 = b'"';

/// How far a record may reach.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) lines: u64,
}

/// A record that was taken.
#[derive(Debug)]
pub(super) struct Framed {
    /// The number of its first line.
    pub(super) line: u64,
    /// How many bytes it has, without its last line end.
    pub(super) length: u64,
    /// Whether it is one at all. If not, only its first line was taken, and is its one field.
    pub(super) fault: Option<RowFault>,
}

/// Reads the next record, which never depends on what was read before it; blank lines are none. `None` at the end.
pub(super) fn next(
    input: &mut Input,
    delimiter: u8,
    bounds: Bounds,
    record: &mut ByteRecord,
) -> Result<Option<Framed>, FileSourceError> {
    record.clear();
    loop {
        match input.scan_line(0, bounds.bytes)? {
            Scan::Line { end: 0, next } => input.take(next, 1),
            Scan::Last { end: 0 } => return Ok(None),
            _ => break,
        }
    }
    let line = input.lines().saturating_add(1);
    let fault = match whole(input, delimiter, bounds, record)? {
        Ok((end, next, lines)) => {
            input.take(next, lines);
            return Ok(Some(Framed { line, length: end as u64, fault: None }));
        }
        Err(fault) => fault,
    };
    record.clear();
    let taken = input.take_line(MAX_BAD_BYTES)?;
    let (text, length) = taken.map(|taken| (taken.text, taken.length)).unwrap_or_default();
    record.push_field(&text);
    Ok(Some(Framed { line, length, fault: Some(fault) }))
}

/// Looks ahead for the end of a record: where its text ends, where the next line begins, and how many lines it has.
fn whole(
    input: &mut Input,
    delimiter: u8,
    bounds: Bounds,
    record: &mut ByteRecord,
) -> Result<Result<(usize, usize, u64), RowFault>, FileSourceError> {
    let mut fields = Fields { delimiter, field: Vec::new(), at: At::Start };
    let (mut from, mut lines) = (0, 0);
    loop {
        lines += 1;
        let (end, next, is_last) = match input.scan_line(from, bounds.bytes.saturating_sub(from))? {
            Scan::Line { end, next } if end <= bounds.bytes => (end, next, false),
            Scan::Last { end } if end <= bounds.bytes => (end, end, true),
            _ if lines == 1 => return Ok(Err(RowFault::TooLong { limit: bounds.bytes })),
            _ => return Ok(Err(RowFault::OpenQuote { bytes: bounds.bytes, lines: bounds.lines })),
        };
        fields.feed(input.ahead().get(from..end).unwrap_or_default(), record);
        if !fields.is_in_quotes() {
            fields.end(record);
            return Ok(Ok((end, next, lines)));
        }
        if is_last || lines >= bounds.lines {
            return Ok(Err(RowFault::OpenQuote { bytes: bounds.bytes, lines: bounds.lines }));
        }
        fields.feed(input.ahead().get(end..next).unwrap_or_default(), record);
        from = next;
    }
}

/// Parts a record into its fields (RFC 4180). As other readers do, it takes a quote within a field that does not begin with
/// one for itself, and what follows a closing quote for more of the field.
struct Fields {
    delimiter: u8,
    field: Vec<u8>,
    at: At,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Start,
    Bare,
    Quoted,
    /// Behind a quote within quotes: the last one, or the first half of one.
    Closing,
}

impl Fields {
    fn is_in_quotes(&self) -> bool {
        self.at == At::Quoted
    }

    fn feed(&mut self, bytes: &[u8], record: &mut ByteRecord) {
        let mut rest = bytes;
        while let Some((&first, tail)) = rest.split_first() {
            rest = match self.at {
                At::Start if first == QUOTE => {
                    self.at = At::Quoted;
                    tail
                }
                At::Start | At::Bare => {
                    let (rest, is_ended) = self.keep_to(self.delimiter, rest);
                    self.at = At::Bare;
                    if is_ended {
                        self.end(record);
                    }
                    rest
                }
                At::Quoted => {
                    let (rest, is_ended) = self.keep_to(QUOTE, rest);
                    self.at = if is_ended { At::Closing } else { At::Quoted };
                    rest
                }
                At::Closing if first == QUOTE => {
                    self.field.push(QUOTE);
                    self.at = At::Quoted;
                    tail
                }
                At::Closing => {
                    self.at = At::Bare;
                    rest
                }
            };
        }
    }

    /// Keeps what lies before a byte; gives what lies behind it, and whether it was there.
    fn keep_to<'a>(&mut self, byte: u8, bytes: &'a [u8]) -> (&'a [u8], bool) {
        let found = memchr(byte, bytes);
        let (kept, rest) = bytes.split_at(found.unwrap_or(bytes.len()));
        self.field.extend_from_slice(kept);
        (rest.get(1..).unwrap_or_default(), found.is_some())
    }

    fn end(&mut self, record: &mut ByteRecord) {
        record.push_field(&self.field);
        self.field.clear();
        self.at = At::Start;
    }
}
