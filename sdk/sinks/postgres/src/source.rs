//! A query of a PostgreSQL database as a source.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use crate::database::{Database, Failure, PostgresError, Session, checked_name, identifier};
use ratified::{
    Cause,
    job::{Read, Source},
};

const APPLICATION: &str = "ratified-source";
/// A position is kept as text and must read the same in whatever session reads it.
const SPELLING: &str = "SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; \
     SET extra_float_digits = 1; SET bytea_output = 'hex'; SET default_transaction_read_only = on";

type Decode<R> = Arc<dyn Fn(&Row) -> Result<R, Cause> + Send + Sync>;

/// A place in the rows of a query: behind the row with this position. The text is the column's own, so nothing is lost of
/// it, whatever its type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostgresPosition {
    /// The position of the last row that was read; none before the first one.
    pub after: Option<String>,
}

/// The rows of a query in the order of a position column, read again from any position:
/// `SELECT ... WHERE position > $1 ORDER BY position LIMIT n`.
///
/// The column may have any type that is ordered. An index on it keeps each read cheap. What it must be:
/// * **unique and not NULL**: both are checked, and told as an error, never skipped. For rows that share a value take
///   several columns together, `lpad(a::text, 10, '0') || b` for example, or a row number that is stored.
/// * **ascending in the order in which rows become visible**. A row that becomes visible with a smaller position than one
///   that has been read is never read, and nobody can tell. A sequence does that when transactions of several writers
///   overlap: let one writer fill the table, or let the query leave out what may still be overtaken,
///   `WHERE created_at < now() - interval '5 minutes'` for transactions that are shorter than that.
///
/// Rows are read as they are now: one that is changed or removed after it was read is not read again, unless the job goes
/// back behind it.
///
/// ```no_run
/// # use ratified::Cause;
/// # use ratified_postgres::{Database, PostgresError, PostgresSource};
/// # fn main() -> Result<(), PostgresError> {
/// let database = Database::new("postgresql://reader@db.example/shop")?;
/// let source = PostgresSource::new(database, "SELECT id, sum_cents FROM orders", "id", |row| {
///     Ok::<(i64, i64), Cause>((row.try_get(0).map_err(Cause::new)?, row.try_get("sum_cents").map_err(Cause::new)?))
/// })?;
/// # let _ = source; Ok(()) }
/// ```
pub struct PostgresSource<R> {
    database: Database,
    query: String,
    column: String,
    decode: Decode<R>,
    follows: bool,
    position: PostgresPosition,
    open: Option<Open>,
}

struct Open {
    session: Session,
    /// The type of the position column, as SQL spells it.
    kind: String,
}

impl<R> fmt::Debug for PostgresSource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { database, column, position, .. } = self;
        f.debug_struct("PostgresSource")
            .field("database", database)
            .field("column", column)
            .field("position", position)
            .finish_non_exhaustive()
    }
}

impl<R> PostgresSource<R> {
    /// The rows of a `SELECT` without ORDER BY and LIMIT, by one of its columns, decoded one by one. The decoded row has
    /// two columns behind those of the query.
    ///
    /// # Errors
    /// The caller must mend the name of the column.
    pub fn new(
        database: Database,
        query: impl Into<String>,
        position_column: &str,
        decode: impl Fn(&Row) -> Result<R, Cause> + Send + Sync + 'static,
    ) -> Result<Self, PostgresError> {
        Ok(Self {
            database,
            query: query.into(),
            column: identifier(&checked_name("position column", position_column)?),
            decode: Arc::new(decode),
            follows: false,
            position: PostgresPosition::default(),
            open: None,
        })
    }

    /// Whether rows that come later are waited for; by default the source ends behind the last row there is.
    #[must_use]
    pub fn follow(mut self, follows: bool) -> Self {
        self.follows = follows;
        self
    }

    async fn open(&self) -> Result<Open, Failure> {
        let session = Session::connect(&self.database, APPLICATION).await?;
        let doing = format!("look at column {} of the source's query", self.column);
        session
            .run("set up the session", &format!("{SPELLING}; SET statement_timeout = {}", session.timeout_ms()))
            .await?;
        let columns = format!("SELECT q.{} FROM ({}) AS q", self.column, self.query);
        let statement = session.within(&doing, session.client().prepare(&columns)).await?;
        let oid = statement.columns().first().map(|column| column.type_().oid());
        let kind = session.query_one(&doing, "SELECT format_type($1, NULL)", &[&oid]).await?;
        let kind = kind.try_get(0).map_err(|error| Failure::new(&doing, error))?;
        Ok(Open { session, kind })
    }

    /// Reads once; on a connection that turns out to be lost, once more on a new one.
    async fn rows(&mut self, limit: i64) -> Result<Vec<Row>, Failure> {
        let was_open = self.open.is_some();
        match self.rows_once(limit).await {
            Err(failure) if was_open && failure.certainty().is_some() => {
                tracing::warn!(%failure, "the source connects again");
                self.rows_once(limit).await
            }
            rows => rows,
        }
    }

    async fn rows_once(&mut self, limit: i64) -> Result<Vec<Row>, Failure> {
        let open = match self.open.take().filter(|open| open.session.is_open()) {
            Some(open) => open,
            None => self.open().await?,
        };
        let (column, query, kind) = (&self.column, &self.query, &open.kind);
        let behind = match self.position.after {
            Some(_) => format!("WHERE q.{column} > $1::text::{kind}"),
            None => "WHERE $1::text IS NULL".to_owned(),
        };
        // Whether two are the same is for the database to say: 1.0 and 1.00 are.
        let read = format!(
            "SELECT w.*, w.{column}::text AS ratified_position, \
             coalesce(w.{column} = lag(w.{column}) OVER (ORDER BY w.{column}), false) AS ratified_is_repeated \
             FROM (SELECT * FROM ({query}) AS q {behind} ORDER BY q.{column} LIMIT $2) AS w ORDER BY w.{column}"
        );
        let rows = open.session.query("read the source's query", &read, &[&self.position.after, &limit]).await?;
        self.open = Some(open);
        Ok(rows)
    }

    async fn refuse_nulls(&mut self) -> Result<(), Cause> {
        let open = self.open().await.map_err(told)?;
        let nulls = format!("SELECT EXISTS (SELECT FROM ({}) AS q WHERE q.{} IS NULL)", self.query, self.column);
        let row = open.session.query_one("look for rows without a position", &nulls, &[]).await.map_err(told)?;
        if row.try_get(0).map_err(Cause::new)? {
            return Err(Cause::new(format!(
                "a row of the source's query has NULL in its position column {}",
                self.column
            )));
        }
        self.open = Some(open);
        Ok(())
    }

    /// The position of a row; refuses one that the row before it has, too.
    fn place(&self, row: &Row) -> Result<String, Cause> {
        let end = row.len();
        let read = |error| Cause::new(format!("the position of a row cannot be read: {error}"));
        let position: Option<String> = row.try_get(end.saturating_sub(2)).map_err(read)?;
        let column = &self.column;
        let position = position.ok_or_else(|| Cause::new(format!("a row has NULL in its position column {column}")))?;
        if row.try_get(end.saturating_sub(1)).map_err(read)? {
            return Err(Cause::new(format!(
                "two rows have the position {position:?} in column {column}: it must be unique"
            )));
        }
        Ok(position)
    }
}

fn told(failure: Failure) -> Cause {
    Cause::new(failure.to_string())
}

#[async_trait]
impl<R: Send + 'static> Source for PostgresSource<R> {
    type Record = R;
    type Position = PostgresPosition;

    async fn seek(&mut self, position: Option<&PostgresPosition>) -> Result<(), Cause> {
        self.position = position.cloned().unwrap_or_default();
        self.refuse_nulls().await
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<R>, Cause> {
        // One more than asked for: whether the last one's position is its own is seen from the one behind it.
        let limit = i64::try_from(max_records).unwrap_or(i64::MAX).saturating_add(1);
        let rows = self.rows(limit).await.map_err(told)?;
        let mut records = Vec::with_capacity(rows.len().min(max_records));
        let mut last = None;
        for row in &rows {
            let position = self.place(row)?;
            if records.len() < max_records {
                records.push((self.decode)(row)?);
                last = Some(position);
            }
        }
        if last.is_some() {
            self.position.after = last;
            return Ok(Read::Records(records));
        }
        Ok(if self.follows { Read::Idle } else { Read::End })
    }

    fn position(&self) -> PostgresPosition {
        self.position.clone()
    }
}
