//! Grocery purchases: rows in, baskets into PostgreSQL and their items into an object store, exactly once in both.
//!
//! [`job`](mod@job) has source, transformation and sink together, [`Run`] runs them; the other modules say what a row
//! means, and where it goes.

mod basket;
mod cents;
mod items;
pub mod job;
mod lake;
mod run;
mod source;
#[cfg(test)]
mod source_tests;
mod tables;
mod visible;

pub use basket::{Basket, COLUMNS, Item, Line, MAX_REJECT_BYTES, Reject, Tally};
pub use cents::{AMOUNT_NAMES, Amounts, Cents, NoAmount};
pub use items::{ItemRow, StoredItem, rows_of};
pub use lake::{Lake, LakeError, NoPlace, Place};
pub use run::{Done, Run};
pub use source::{MAX_BASKET_ROWS, Observer, OrderPosition, OrderSource, Unit};
pub use tables::{BasketRow, NoSchemaName, SchemaName, Sums, TableRow, Tables};
pub use visible::{Visible, VisibleError};
