//! How records become the bytes of a file.

use std::marker::PhantomData;

use serde::Serialize;

use ratified::{Cause, author::json_line};

/// Longest encoded record of [`JsonLines`], unless set otherwise: 1 MiB.
pub const DEFAULT_MAX_RECORD_BYTES: usize = 1024 * 1024;

/// The format of the files of a sink: it gives each file an [`Encoder`] of its own.
pub trait Format<R>: Send + Sync + 'static {
    /// The extension of the objects, without the dot: 1..=16 letters and digits.
    fn extension(&self) -> &str;

    /// The media type that objects are stored with.
    fn content_type(&self) -> &str;

    /// An encoder for a new file.
    ///
    /// # Errors
    /// The caller must mend what the cause names; the transaction is given up.
    fn encoder(&self) -> Result<Box<dyn Encoder<R>>, Cause>;
}

/// Encodes the records of one file. Whatever it appends to `out` is sent on and not seen again.
pub trait Encoder<R>: Send {
    /// Takes a record. Its bytes may be appended to `out` now or later.
    ///
    /// # Errors
    /// The transaction is given up: the job reads its records again.
    fn write(&mut self, record: R, out: &mut Vec<u8>) -> Result<(), Cause>;

    /// About how many bytes it holds that are not in `out` yet; counted for the size of the file. Default: none.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Appends what is left, so that the file is whole.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn finish(self: Box<Self>, out: &mut Vec<u8>) -> Result<(), Cause>;
}

/// One line of JSON per record, in `.jsonl` objects. A record with a NaN or an infinity, which would become `null`, is rejected.
#[derive(Debug, Clone)]
pub struct JsonLines<R> {
    max_record_bytes: usize,
    record: PhantomData<fn(R)>,
}

impl<R> JsonLines<R> {
    /// Records of up to [`DEFAULT_MAX_RECORD_BYTES`].
    pub fn new() -> Self {
        Self { max_record_bytes: DEFAULT_MAX_RECORD_BYTES, record: PhantomData }
    }

    /// How many bytes an encoded record may have, its line end included. A longer one is an error.
    #[must_use]
    pub fn max_record_bytes(mut self, bytes: usize) -> Self {
        self.max_record_bytes = bytes;
        self
    }
}

impl<R> Default for JsonLines<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Serialize + Send + 'static> Format<R> for JsonLines<R> {
    fn extension(&self) -> &'static str {
        "jsonl"
    }

    fn content_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn encoder(&self) -> Result<Box<dyn Encoder<R>>, Cause> {
        Ok(Box::new(JsonEncoder { max_record_bytes: self.max_record_bytes }))
    }
}

struct JsonEncoder {
    max_record_bytes: usize,
}

impl<R: Serialize> Encoder<R> for JsonEncoder {
    fn write(&mut self, record: R, out: &mut Vec<u8>) -> Result<(), Cause> {
        let before = out.len();
        json_line(&record, out)?;
        let (added, limit) = (out.len().saturating_sub(before), self.max_record_bytes);
        if added > limit {
            return Err(Cause::new(format!("a record of {added} bytes is longer than {limit}")));
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut Vec<u8>) -> Result<(), Cause> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_line_up_to_its_longest() {
        let format = JsonLines::new().max_record_bytes(6);
        let mut encoder = format.encoder().unwrap();
        let mut out = Vec::new();
        encoder.write("abc", &mut out).unwrap();
        assert_eq!(out, b"\"abc\"\n");
        let error = encoder.write("abcd", &mut out).unwrap_err();
        assert_eq!(error.to_string(), "a record of 7 bytes is longer than 6");
    }

    #[test]
    fn a_record_that_json_would_change_is_refused() {
        let mut encoder = JsonLines::new().encoder().unwrap();
        let error = encoder.write(f64::NAN, &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(error, "NaN has no word in JSON: write it as a text, or as null of your own");
    }
}
