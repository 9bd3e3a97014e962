//! Records as rows: the text format of COPY.

use std::fmt::{self, Write as _};

use ratified::Cause;

/// A record that becomes a row of one of the sink's tables.
pub trait PgRecord: Send + 'static {
    /// Which of the sink's tables it goes to, by its place in the list that the sink was built with. Default: the first.
    fn table(&self) -> usize {
        0
    }

    /// Fills the columns of that table, in their order, each exactly once.
    ///
    /// # Errors
    /// Any stops the job: a record that cannot be written must go to a table of its own instead.
    fn fill(&self, row: &mut CopyRow<'_>) -> Result<(), Cause>;
}

/// One row while it is filled, column by column. A value is given as its text; the server reads it as the column's type.
#[derive(Debug)]
pub struct CopyRow<'a> {
    out: &'a mut Vec<u8>,
    filled: usize,
    has_nul: bool,
}

impl<'a> CopyRow<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, filled: 0, has_nul: false }
    }

    /// A text, or any value by its text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.separate();
        self.escape(text.as_bytes());
        self
    }

    /// A value by its text: numbers, UUIDs, timestamps.
    pub fn value(&mut self, value: impl fmt::Display) -> &mut Self {
        self.separate();
        // An escaping writer never fails; a value that does leaves its beginning, and the server judges it.
        let _ = write!(Escaped(self), "{value}");
        self
    }

    /// Bytes, for a column of type `bytea`.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.separate();
        self.out.extend_from_slice(b"\\\\x");
        for byte in bytes {
            // Writing to a vector cannot fail.
            let _ = std::io::Write::write_fmt(self.out, format_args!("{byte:02x}"));
        }
        self
    }

    /// Nothing: SQL's NULL.
    pub fn null(&mut self) -> &mut Self {
        self.separate();
        self.out.extend_from_slice(b"\\N");
        self
    }

    /// A value by its text, or NULL.
    pub fn optional(&mut self, value: Option<impl fmt::Display>) -> &mut Self {
        match value {
            Some(value) => self.value(value),
            None => self.null(),
        }
    }

    /// Ends the row; says what is wrong with it.
    pub(super) fn end(self, columns: usize) -> Result<(), Cause> {
        self.out.push(b'\n');
        if self.has_nul {
            return Err(Cause::new("a text has a NUL character, which PostgreSQL cannot hold"));
        }
        if self.filled != columns {
            return Err(Cause::new(format!("a row fills {} columns, not {columns}", self.filled)));
        }
        Ok(())
    }

    fn separate(&mut self) {
        if self.filled > 0 {
            self.out.push(b'\t');
        }
        self.filled += 1;
    }

    fn escape(&mut self, text: &[u8]) {
        for run in text.split_inclusive(|byte| matches!(byte, b'\\' | b'\n' | b'\r' | b'\t' | 0)) {
            let Some((last, before)) = run.split_last() else { continue };
            let escaped: &[u8] = match last {
                b'\\' => b"\\\\",
                b'\n' => b"\\n",
                b'\r' => b"\\r",
                b'\t' => b"\\t",
                0 => {
                    self.has_nul = true;
                    b""
                }
                _ => {
                    self.out.extend_from_slice(run);
                    continue;
                }
            };
            self.out.extend_from_slice(before);
            self.out.extend_from_slice(escaped);
        }
    }
}

struct Escaped<'r, 'a>(&'r mut CopyRow<'a>);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.escape(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fill: impl FnOnce(&mut CopyRow<'_>), columns: usize) -> Result<String, String> {
        let mut out = Vec::new();
        let mut row = CopyRow::new(&mut out);
        fill(&mut row);
        row.end(columns).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn values_are_separated_and_escaped() {
        let fill = |row: &mut CopyRow<'_>| {
            row.text("a\tb\nc\r\\d")
                .value(-7)
                .null()
                .optional(Some(1.5))
                .optional(None::<u8>)
                .bytes(&[0, 255])
                .text("");
        };
        assert_eq!(row(fill, 7).unwrap(), "a\\tb\\nc\\r\\\\d\t-7\t\\N\t1.5\t\\N\t\\\\x00ff\t\n");
    }

    #[test]
    fn a_text_that_looks_like_a_mark_is_none() {
        let fill = |row: &mut CopyRow<'_>| {
            row.text("\\.").text("\\N");
        };
        assert_eq!(row(fill, 2).unwrap(), "\\\\.\t\\\\N\n");
    }

    #[test]
    fn a_row_with_too_few_or_too_many_values_or_a_nul_is_refused() {
        assert_eq!(
            row(
                |row| {
                    row.value(1);
                },
                2
            )
            .unwrap_err(),
            "a row fills 1 columns, not 2"
        );
        assert_eq!(
            row(
                |row| {
                    row.value(1).null();
                },
                1
            )
            .unwrap_err(),
            "a row fills 2 columns, not 1"
        );
        let error = row(
            |row| {
                row.text("a\0b");
            },
            1,
        )
        .unwrap_err();
        assert_eq!(error, "a text has a NUL character, which PostgreSQL cannot hold");
    }
}
