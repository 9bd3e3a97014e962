//! Grocery purchases: rows in, baskets into PostgreSQL and their items into an object store, exactly once in both.

mod basket;
mod cents;
mod drill;
mod items;
mod lake;
mod pipeline;
mod run;
mod source;
#[cfg(test)]
mod source_tests;
mod tables;

pub use basket::{Basket, COLUMNS, Item, Line, MAX_REJECT_BYTES, Reject, Tally};
pub use cents::{AMOUNT_NAMES, Amounts, Cents, NoAmount};
pub use drill::{OrdersDrill, OrdersJobArgs, OrdersReport};
pub use items::{ItemRow, StoredItem, rows_of};
pub use lake::{Lake, LakeError, NoPlace, Place};
pub use pipeline::{CLIENT, Entry, Nobody, Orders, OrdersError, Visible, Watch};
pub use run::{Done, Run, RunError};
pub use source::{MAX_BASKET_ROWS, Observer, OrderPosition, OrderSource, Unit};
pub use tables::{BasketRow, NoSchemaName, SchemaName, Sums, TableRow, Tables};
