//! The sink: see the [crate](crate).

mod commit;
mod committer;
mod config;
mod connect;
mod control;
mod fence;
mod fitness;
mod handle;
mod ledger;
mod markers;
mod names;
mod row;
mod table;
mod targets;
mod writer;

use std::{fmt, marker::PhantomData, sync::Arc};

use async_trait::async_trait;

use self::config::Settings;
use ratified::{Place, SinkError, TwoPhaseSink};

pub use self::{
    committer::PostgresCommitter,
    config::{
        DEFAULT_BUFFER_BYTES, DEFAULT_KEEP_MARKERS, DEFAULT_KEEP_MARKERS_FOR, DEFAULT_MAX_ROW_BYTES, DEFAULT_SCHEMA,
        MAX_BUFFER_BYTES, MAX_ROW_BYTES, MAX_TABLES, PostgresSinkBuilder, PostgresStep,
    },
    control::control_tables,
    handle::{PostgresHandle, Staging},
    names::MAX_SINK_NAME_CHARS,
    row::{CopyRow, PgRecord},
    table::{MAX_COLUMNS, Table},
    writer::PostgresWriter,
};

/// Tables of a database that records are written to exactly once. See the [crate](crate).
pub struct PostgresSink<R> {
    settings: Arc<Settings>,
    records: PhantomData<fn(R)>,
}

impl<R> PostgresSink<R> {
    fn new(settings: Settings) -> Self {
        Self { settings: Arc::new(settings), records: PhantomData }
    }
}

impl<R> Clone for PostgresSink<R> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), records: PhantomData }
    }
}

impl<R> fmt::Debug for PostgresSink<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSink").field("database", &self.settings.database).finish_non_exhaustive()
    }
}

#[async_trait]
impl<R: PgRecord> TwoPhaseSink for PostgresSink<R> {
    type Record = R;
    type Handle = PostgresHandle;
    type Writer = PostgresWriter<R>;
    type Committer = PostgresCommitter;

    fn places(&self) -> Vec<Place> {
        vec![self.settings.database.place(self.settings.sink.as_str())]
    }

    /// # Errors
    /// [`SinkError::Rejected`] names the table that is missing, may not be written or lacks a column.
    async fn writer(&self) -> Result<PostgresWriter<R>, SinkError> {
        PostgresWriter::open(self.settings.clone()).await
    }

    /// # Errors
    /// [`SinkError::Rejected`] names the setting of the server, or the privilege, that is missing.
    async fn committer(&self) -> Result<PostgresCommitter, SinkError> {
        PostgresCommitter::open(self.settings.clone()).await
    }
}
