//! An exactly-once sink of PostgreSQL tables, and a source of them. Rows are sent by COPY, several tables per transaction.
//!
//! ```no_run
//! # use ratified::Cause;
//! # use ratified_postgres::{CopyRow, Database, PgRecord, PostgresError, PostgresSink, Table};
//! struct Order { id: u64, sum_cents: i64, note: Option<String> }
//!
//! impl PgRecord for Order {
//!     fn fill(&self, row: &mut CopyRow<'_>) -> Result<(), Cause> {
//!         row.value(self.id).value(self.sum_cents).optional(self.note.as_deref());
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), PostgresError> {
//! let database = Database::new("postgresql://writer@db.example/shop?sslmode=require")?;
//! let orders = Table::new("orders", ["id", "sum_cents", "note"])?.in_schema("public")?;
//! let sink = PostgresSink::<Order>::builder(database, [orders]).build()?;
//! # let _ = sink; Ok(()) }
//! ```
//!
//! # Two ways to stage
//!
//! | | [`Staging::Prepared`] (default) | [`Staging::Ledger`] |
//! |---|---|---|
//! | how | one transaction of the database per transaction of the job: `PREPARE TRANSACTION`, then `COMMIT PREPARED` | rows are committed to a table beside the target; one later transaction of the database moves them and notes that in a ledger |
//! | needs | `max_prepared_transactions` > 0, which many managed databases forbid | nothing |
//! | rows are written | once | twice, and deleted once: a fraction of the throughput |
//! | a constraint that a row violates is told | at `pre_commit`, deferred ones too: the job stops before anything is decided | types, NOT NULL and CHECK of what records fill at `pre_commit`; unique, foreign and exclusion keys, triggers, partitions and row security only **after the decision**: the job stops until what is in the way is removed by hand, as `docs/OPERATIONS.md` lists |
//! | while a transaction is undecided | its locks are held, also over restarts: a row with the same unique key waits, ALTER TABLE waits, and VACUUM cannot remove anything newer | nothing is held |
//! | readers see | all rows of all tables at one instant, none before | the same |
//!
//! Take `Prepared` where the server allows it. Take `Ledger` where it does not, or where a job may be away for days with a
//! transaction prepared. In both, a reader sees a transaction as a whole: a statement of READ COMMITTED and a transaction
//! of REPEATABLE READ have one snapshot, with all of its rows or none. Transactions of *different* clients become visible
//! in any order.
//!
//! # What it costs
//!
//! Against the same sink at least once, with a checkpoint per second: nothing to speak of with `Prepared`, most of the
//! throughput with `Ledger` (0.99 and 0.22 of it where that was measured; `docs/PERFORMANCE.md` of the repository).
//!
//! # The proof of a commit
//!
//! The server says the same of a prepared transaction that was committed, that was rolled back, that a failover lost, and
//! that never was: it "does not exist". So the transaction of the database that holds the rows also holds a marker row
//! (sink, client, id) in `ratified.marker`. A commit that finds nothing to commit is [`Already`](ratified::Committed::Already)
//! if the marker is there. If it is not, the rows are lost, and that is [`Rejected`](ratified::SinkError::Rejected): the job
//! stops. So it does when an administrator has resolved a prepared transaction against what was decided, either way.
//!
//! Markers are removed only behind what may be asked again. A commit is asked again only if the coordinator still answers
//! COMMITTED: because it was not acknowledged (the newest ones: commits of a client are finished in order), or because a
//! restored snapshot names it. A coordinator keeps so many outcomes per client, for so long, and the newest commit for
//! ever. So a marker goes only if its client has [`DEFAULT_KEEP_MARKERS`] newer ones *and* it was first seen committed
//! longer ago than [`DEFAULT_KEEP_MARKERS_FOR`]. The second counts from when it was seen, not from when it was written: a
//! transaction may stay prepared for weeks before it is committed. Both can be [set](PostgresSinkBuilder::keep_markers),
//! and must not be less than what the coordinator keeps.
//!
//! # Fencing
//!
//! A newer owner raises the client's epoch in `ratified.owner`, ends the sessions of older ones, which their application
//! name tells, and waits until they are gone. A writer reads the epoch in each transaction of the database, after it has
//! told its name: so an older owner either is ended or refuses itself, and nothing of it can be prepared later. A session
//! that is moving rows from the ledger is ended, too, since it may be suspended with locks held; the newer owner moves them
//! again.
//!
//! What must be set up, which privileges it needs and what to do about orphans: see `docs/OPERATIONS.md`.

mod database;
mod sink;
mod source;
mod tls;

pub use self::{
    database::{DEFAULT_TIMEOUT, Database, MAX_IDENTIFIER_BYTES, MAX_TIMEOUT, PostgresError, rustls, tokio_postgres},
    sink::*,
    source::{PostgresPosition, PostgresSource},
};
