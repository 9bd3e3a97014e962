//! A catalogue of earthquakes: lines in, enriched rows and refused lines out, exactly once.
//!
//! [`job`](mod@job) is the whole job in one file. What a line of a catalogue means is in the other modules, which know
//! nothing of transactions: a catalogue is read from a [`Position`], and the same position always gives the same rows.

mod catalogue;
mod enrich;
mod event;
pub mod job;
mod order;
mod output;
mod reject;

pub use catalogue::{Catalogue, CatalogueError, Position, Row, Tally};
pub use enrich::{COLUMNS, DepthClass, EnrichedEvent, MIN_MAGNITUDE, MagnitudeClass};
pub use event::{Event, HEADER};
pub use order::Order;
pub use output::{OutputError, Written};
pub use reject::{Fault, REJECT_COLUMNS, Reject};

/// One CSV row, with the line end. Fields are quoted where they have to be.
fn csv_row<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let mut row = String::new();
    for (index, field) in fields.into_iter().enumerate() {
        if index > 0 {
            row.push(',');
        }
        if field.contains([',', '"', '\n', '\r']) {
            row.push('"');
            row.push_str(&field.replace('"', "\"\""));
            row.push('"');
        } else {
            row.push_str(field);
        }
    }
    row.push('\n');
    row
}
