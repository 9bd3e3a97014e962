//! Lines that are no events: why, and how that is written down.

use thiserror::Error;

use super::csv_row;

/// The columns of a reject row.
pub const REJECT_COLUMNS: &str = "line,fault,detail,text";

/// Why a line is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The line is not UTF-8.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// The line is longer than a row can be.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// How many bytes are taken.
        limit: usize,
    },
    /// A quote is opened and never closed.
    #[error("a quote is not closed")]
    OpenQuote,
    /// Too few or too many columns.
    #[error("{found} columns instead of 11")]
    ColumnCount {
        /// How many there are.
        found: usize,
    },
    /// The id is empty.
    #[error("the id is empty")]
    NoId,
    /// A number cannot be read.
    #[error("{column} is no number: {text:?}")]
    NotANumber {
        /// In which column.
        column: &'static str,
        /// What stands there.
        text: String,
    },
    /// A number is outside of what its column can mean.
    #[error("{column} is out of range: {text}")]
    OutOfRange {
        /// In which column.
        column: &'static str,
        /// What stands there.
        text: String,
    },
    /// An earlier line has the same id.
    #[error("{id} was on line {first_line} already")]
    DuplicateId {
        /// The id.
        id: String,
        /// Where it was first.
        first_line: u64,
    },
    /// The line is not later than the one before.
    #[error("{time_ms} is not after {previous_ms}")]
    TimeGoesBack {
        /// Its time.
        time_ms: i64,
        /// The time before.
        previous_ms: i64,
    },
}

impl Fault {
    pub(super) fn not_a_number(column: &'static str, text: &str) -> Self {
        Self::NotANumber { column, text: text.to_owned() }
    }

    pub(super) fn out_of_range(column: &'static str, text: &str) -> Self {
        Self::OutOfRange { column, text: text.to_owned() }
    }

    /// A word for the kind of fault, for programs and tables.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotUtf8 => "not-utf8",
            Self::TooLong { .. } => "too-long",
            Self::OpenQuote => "open-quote",
            Self::ColumnCount { .. } => "column-count",
            Self::NoId => "no-id",
            Self::NotANumber { .. } => "not-a-number",
            Self::OutOfRange { .. } => "out-of-range",
            Self::DuplicateId { .. } => "duplicate-id",
            Self::TimeGoesBack { .. } => "time-goes-back",
        }
    }
}

/// A refused line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Its number in the catalogue; the header is line 1.
    pub line: u64,
    /// Why.
    pub fault: Fault,
    /// The line itself; what is not UTF-8 in it is replaced.
    pub text: String,
}

impl Reject {
    /// As a row of the rejects file, see [`REJECT_COLUMNS`].
    pub fn to_csv(&self) -> String {
        csv_row([self.line.to_string().as_str(), self.fault.kind(), &self.fault.to_string(), &self.text])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reject_names_its_line_its_fault_and_the_text_as_it_came() {
        let reject =
            Reject { line: 17, fault: Fault::not_a_number("mag", "strong"), text: r#"1,x,strong,"a, b""#.to_owned() };
        let row = "17,not-a-number,\"mag is no number: \"\"strong\"\"\",\"1,x,strong,\"\"a, b\"\"\"\n";
        assert_eq!(reject.to_csv(), row);
    }
}
