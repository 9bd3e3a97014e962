//! How a PostgreSQL sink is set up, and its bounds.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::{PostgresSink, handle::Staging, names::SinkId, row::PgRecord, table::Table};
use crate::database::{Database, PostgresError, checked_name, qualified};

/// Bytes of rows held in memory before they are sent, unless set otherwise: 256 KiB.
pub const DEFAULT_BUFFER_BYTES: usize = 256 * 1024;
/// Greatest buffer: 64 MiB.
pub const MAX_BUFFER_BYTES: usize = 64 * 1024 * 1024;
/// Longest row, unless set otherwise: 1 MiB.
pub const DEFAULT_MAX_ROW_BYTES: usize = 1024 * 1024;
/// Greatest bound on a row: 64 MiB.
pub const MAX_ROW_BYTES: usize = 64 * 1024 * 1024;
/// Most tables of one sink.
pub const MAX_TABLES: usize = 64;
/// Where the sink keeps its own tables, unless set otherwise.
pub const DEFAULT_SCHEMA: &str = "ratified";
/// How many of the newest markers of a client are kept whatever their age, unless set otherwise: as many outcomes as a
/// coordinator keeps of a client at most (`max_outcomes_per_client`).
pub const DEFAULT_KEEP_MARKERS: u32 = 10_000;
/// How long a marker is kept at least, unless set otherwise: seven days. A coordinator keeps an outcome for 72 hours unless
/// set otherwise (`transaction_meta_persist_time_in_hour`).
pub const DEFAULT_KEEP_MARKERS_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const MAX_KEEP_MARKERS_FOR: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// A statement that is about to be sent, or has been answered; for tests and drills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PostgresStep {
    /// A transaction of the database is about to be begun.
    Begin,
    /// Rows are about to be sent.
    Copy,
    /// What is staged is about to be made durable.
    Prepare,
    /// What is staged is durable.
    Prepared,
    /// A decided transaction is about to be made visible.
    Commit,
    /// In [`Staging::Ledger`], the rows have been moved, and this is about to be committed.
    Moved,
    /// It is visible.
    Committed,
    /// What is staged is about to be removed.
    Abort,
    /// It is removed.
    Aborted,
    /// Older owners are about to be ended.
    Fence,
}

type Watch = Arc<dyn Fn(PostgresStep) + Send + Sync>;

/// What the writers and committers of one sink share.
pub(super) struct Settings {
    pub(super) database: Database,
    pub(super) sink: SinkId,
    pub(super) staging: Staging,
    pub(super) tables: Vec<Table>,
    pub(super) schema: String,
    pub(super) buffer_bytes: usize,
    pub(super) max_row_bytes: usize,
    pub(super) keep_markers: u32,
    pub(super) keep_markers_for: Duration,
    watch: Option<Watch>,
}

impl Settings {
    pub(super) fn step(&self, step: PostgresStep) {
        if let Some(watch) = &self.watch {
            watch(step);
        }
    }

    /// One of the sink's own tables, quoted.
    pub(super) fn own(&self, table: &str) -> String {
        qualified(Some(&self.schema), table)
    }
}

/// Sets up a [`PostgresSink`]; begun by [`PostgresSink::builder`].
pub struct PostgresSinkBuilder<R> {
    settings: Settings,
    name: String,
    records: PhantomData<fn(R)>,
}

impl<R> fmt::Debug for PostgresSinkBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSinkBuilder").field("database", &self.settings.database).finish_non_exhaustive()
    }
}

impl<R: PgRecord> PostgresSink<R> {
    /// A sink of these tables of a database.
    pub fn builder(database: Database, tables: impl IntoIterator<Item = Table>) -> PostgresSinkBuilder<R> {
        let settings = Settings {
            database,
            sink: SinkId::main(),
            staging: Staging::Prepared,
            tables: tables.into_iter().collect(),
            schema: DEFAULT_SCHEMA.to_owned(),
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            max_row_bytes: DEFAULT_MAX_ROW_BYTES,
            keep_markers: DEFAULT_KEEP_MARKERS,
            keep_markers_for: DEFAULT_KEEP_MARKERS_FOR,
            watch: None,
        };
        let name = settings.sink.as_str().to_owned();
        PostgresSinkBuilder { settings, name, records: PhantomData }
    }
}

impl<R: PgRecord> PostgresSinkBuilder<R> {
    /// How it stages; by default [`Staging::Prepared`]. What was staged the other way is still finished.
    #[must_use]
    pub fn staging(mut self, staging: Staging) -> Self {
        self.settings.staging = staging;
        self
    }

    /// What tells this sink from another one of the same clients in the same database, for ever: 1..=24 characters of
    /// `A-Z a-z 0-9 _ -`; by default `main`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The schema of the sink's own tables, for ever; by default [`DEFAULT_SCHEMA`]. It is made at open if it is missing.
    #[must_use]
    pub fn schema(mut self, schema: &str) -> Self {
        schema.clone_into(&mut self.settings.schema);
        self
    }

    /// How many bytes of rows a writer holds in memory before it sends them, 1..=[`MAX_BUFFER_BYTES`]; it may exceed them
    /// by one row.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.settings.buffer_bytes = bytes;
        self
    }

    /// How many bytes a row may have as COPY sends it, 1..=[`MAX_ROW_BYTES`]. A longer one is rejected.
    #[must_use]
    pub fn max_row_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_row_bytes = bytes;
        self
    }

    /// Markers of commits are removed once they are older than this **and** the client has so many newer ones: by default
    /// [`DEFAULT_KEEP_MARKERS_FOR`] and [`DEFAULT_KEEP_MARKERS`], at least 1. Keep them for at least as long as the
    /// coordinator keeps outcomes: a repeated commit whose marker is gone is told to be lost.
    #[must_use]
    pub fn keep_markers(mut self, newest: u32, at_least: Duration) -> Self {
        self.settings.keep_markers = newest;
        self.settings.keep_markers_for = at_least;
        self
    }

    /// For tests and drills: called at each [`PostgresStep`]. It may end the process there.
    #[must_use]
    pub fn on_step(mut self, watch: impl Fn(PostgresStep) + Send + Sync + 'static) -> Self {
        self.settings.watch = Some(Arc::new(watch));
        self
    }

    /// The sink. Connects to nothing.
    ///
    /// # Errors
    /// The caller must mend the setting that the error names.
    pub fn build(mut self) -> Result<PostgresSink<R>, PostgresError> {
        let settings = &mut self.settings;
        settings.sink = SinkId::parse(&self.name)?;
        settings.schema = checked_name("schema", std::mem::take(&mut settings.schema))?;
        let is_within = |value: usize, max: usize| (1..=max).contains(&value);
        let kept_for = settings.keep_markers_for;
        for (is_taken, key, bounds) in [
            (is_within(settings.tables.len(), MAX_TABLES), "the number of tables", "1..=64"),
            (is_within(settings.buffer_bytes, MAX_BUFFER_BYTES), "buffer_bytes", "1..=67108864"),
            (is_within(settings.max_row_bytes, MAX_ROW_BYTES), "max_row_bytes", "1..=67108864"),
            (settings.keep_markers > 0, "the number of kept markers", "at least 1"),
            (kept_for <= MAX_KEEP_MARKERS_FOR, "the time that markers are kept", "at most a hundred years"),
        ] {
            if !is_taken {
                return Err(PostgresError::OutOfBounds { key, bounds });
            }
        }
        Ok(PostgresSink::new(self.settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratified::{Cause, TwoPhaseSink as _};

    use crate::CopyRow;

    struct Nothing;
    impl PgRecord for Nothing {
        fn fill(&self, _: &mut CopyRow<'_>) -> Result<(), Cause> {
            Ok(())
        }
    }

    fn builder(tables: usize) -> PostgresSinkBuilder<Nothing> {
        let database = Database::new("host=nowhere").unwrap();
        PostgresSink::builder(database, (0..tables).map(|n| Table::new(format!("t{n}"), ["c"]).unwrap()))
    }

    fn refusal(builder: PostgresSinkBuilder<Nothing>) -> Option<String> {
        builder.build().err().map(|error| error.to_string())
    }

    #[test]
    fn settings_are_taken_up_to_their_bounds() {
        for (value, taken) in [(0, false), (1, true), (67_108_864, true), (67_108_865, false)] {
            for (key, built) in
                [("buffer_bytes", builder(1).buffer_bytes(value)), ("max_row_bytes", builder(1).max_row_bytes(value))]
            {
                let expected = (!taken).then(|| format!("{key} must be 1..=67108864"));
                assert_eq!(refusal(built), expected, "{value}");
            }
        }
        for (tables, taken) in [(0, false), (1, true), (64, true), (65, false)] {
            assert_eq!(refusal(builder(tables)).is_none(), taken, "{tables} tables");
        }
        let day = Duration::from_secs(86_400);
        assert_eq!(refusal(builder(1).keep_markers(1, Duration::ZERO)), None);
        assert_eq!(refusal(builder(1).keep_markers(0, day)).unwrap(), "the number of kept markers must be at least 1");
        assert!(refusal(builder(1).keep_markers(1, day * 40_000)).unwrap().contains("hundred years"));
        assert!(refusal(builder(1).name("a:b")).unwrap().starts_with("the name of a sink must be"));
        assert!(refusal(builder(1).schema("")).unwrap().starts_with("schema \"\" must be"));
    }

    #[test]
    fn sinks_of_one_name_in_one_database_are_in_one_place() {
        let place = |url: &str, name: &str| {
            let table = Table::new("t", ["a"]).unwrap();
            PostgresSink::<Nothing>::builder(Database::new(url).unwrap(), [table]).name(name).build().unwrap().places()
        };
        let (url, same) = ("postgresql://u@h:5432/d", "host=h port=5432 user=other dbname=d");
        assert_eq!(place(url, "main"), place(same, "main"));
        assert_ne!(place(url, "main"), place(url, "sums"));
        assert_ne!(place(url, "main"), place("postgresql://u@h:5432/e", "main"));
    }
}
