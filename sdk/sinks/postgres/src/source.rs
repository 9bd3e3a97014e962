//! A query of a PostgreSQL database as a source.

mod column;
mod origin;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use self::origin::{Origin, Relations, digest};
use crate::database::{Database, Failure, PostgresError, Session, checked_name, identifier};
use ratified::{
    Cause,
    job::{Read, Source},
};

const APPLICATION: &str = "ratified-source";
/// A position is kept as text and must read the same in whatever session reads it.
const SPELLING: &str = "SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; \
     SET extra_float_digits = 1; SET bytea_output = 'hex'; SET lc_monetary = 'C'; SET default_transaction_read_only = on";
/// No column of a query is called so: then it would stand for the column, and not for the whole row.
const ROWS: &str = "ratified_rows";
/// How many columns stand behind those of the query.
const ADDED_COLUMNS: usize = 4;

type Decode<R> = Arc<dyn Fn(&Row) -> Result<R, Cause> + Send + Sync>;

/// A place in the rows of a query: behind the row with this position. The text is the column's own, so nothing is lost of
/// it, whatever its type. It names the query, and what the query reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostgresPosition {
    /// The position of the last row that was read; none before the first one.
    pub after: Option<String>,
    /// A hash of that row as it was read.
    row: i64,
    origin: Origin,
}

/// The rows of a query in the order of a position column, read again from any position:
/// `SELECT ... WHERE position > $1 ORDER BY position LIMIT n`.
///
/// The column may have any type that is ordered and can be read again from its text: all of PostgreSQL's own that have an
/// order, their arrays and ranges, enums, domains, named composite types, and those of extensions. Any other is refused at
/// the start, and a value that its text does not give back is an error. The order is that of the column's collation. An
/// index on it keeps each read cheap. What it must be:
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
/// A position is one in a query and in the tables that the query reads. Another query, its text or its position column, is
/// refused. If a table was emptied (TRUNCATE), made anew or rewritten (VACUUM FULL, a restored dump), the row at the position
/// tells: if it is there and the same the source goes on, else that is refused, also while the source is running. What nobody
/// can tell is a table that was emptied by DELETE, and tables behind functions. To go on nevertheless there is
/// [`take_over`](Self::take_over).
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
    takes_over: bool,
    position: PostgresPosition,
    open: Option<Open>,
}

struct Open {
    session: Session,
    /// The type of the position column, as a cast has it.
    kind: String,
    relations: Relations,
}

/// Why rows cannot be read.
enum Trouble {
    Database(Failure),
    /// They can, and would not be the right ones.
    Refused(String),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Database(failure)
    }
}

impl From<Trouble> for Cause {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Database(failure) => Self::new(failure.to_string()),
            Trouble::Refused(why) => Self::new(why),
        }
    }
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
    /// further columns behind those of the query.
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
            takes_over: false,
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

    /// Goes on behind a stored position although it is one in another query or in tables that were made anew; by default
    /// that is refused. For one start, by somebody who knows that what is to be read still lies behind it.
    #[must_use]
    pub fn take_over(mut self, takes_over: bool) -> Self {
        self.takes_over = takes_over;
        self
    }

    /// Connects, and checks that the position is one in what is read.
    async fn open(&mut self) -> Result<Open, Trouble> {
        let session = Session::connect(&self.database, APPLICATION).await?;
        session
            .run("set up the session", &format!("{SPELLING}; SET statement_timeout = {}", session.timeout_ms()))
            .await?;
        let kind = column::kind_of(&session, &self.query, &self.column).await?;
        let doing = format!("read the source's query in the order of {}, of type {kind}", self.column);
        session.within(&doing, session.client().prepare(&self.statement(&kind, true))).await?;
        let relations = Relations::of(&session, &self.query).await?;
        let open = Open { session, kind, relations };
        self.check_origin(&open).await?;
        Ok(open)
    }

    async fn check_origin(&mut self, open: &Open) -> Result<(), Trouble> {
        let query = digest(&[&self.query, &self.column]);
        let is_another = self.position.origin.query != query && self.position.after.is_some();
        if is_another && !self.takes_over {
            return Err(Trouble::Refused(
                "the stored position is one in another query or by another column; read this one in a job with a client \
                 name of its own or, if what is to be read lies behind that position here too, start once with take_over"
                    .to_owned(),
            ));
        }
        self.position.origin.query = query;
        self.check_files(open).await
    }

    /// Refuses tables that are not those of the position, unless the row there tells that they are.
    async fn check_files(&mut self, open: &Open) -> Result<(), Trouble> {
        let files = open.relations.files(&open.session).await?;
        if files != self.position.origin.files
            && let Some(after) = &self.position.after
            && !self.takes_over
            && !self.is_still_there(open, after).await?
        {
            return Err(Trouble::Refused(format!(
                "what the source's query reads was emptied, made anew or rewritten (as TRUNCATE does), and the row at the \
                 stored position {after:?} is gone or another one; restore it, or read from the beginning in a job with a \
                 client name of its own or, if what is to be read lies behind that position, start once with take_over"
            )));
        }
        self.position.origin.files = files;
        Ok(())
    }

    async fn is_still_there(&self, open: &Open, after: &str) -> Result<bool, Failure> {
        let (column, query, kind) = (&self.column, &self.query, &open.kind);
        let look = format!(
            "SELECT count(*) FROM ({query}) AS {ROWS} \
             WHERE {ROWS}.{column} = $1::text::{kind} AND pg_catalog.hashtextextended({ROWS}::text, 0) = $2"
        );
        let doing = "look for the row at the stored position";
        let row = open.session.query_one(doing, &look, &[&after, &self.position.row]).await?;
        row.try_get(0).map(|count: i64| count > 0).map_err(|error| Failure::new(doing, error))
    }

    /// Reads once; on a connection that turns out to be lost, once more on a new one.
    async fn rows(&mut self, limit: i64) -> Result<Vec<Row>, Trouble> {
        let was_open = self.open.is_some();
        match self.rows_once(limit).await {
            Err(Trouble::Database(failure)) if was_open && failure.certainty().is_some() => {
                tracing::warn!(%failure, "the source connects again");
                self.rows_once(limit).await
            }
            rows => rows,
        }
    }

    async fn rows_once(&mut self, limit: i64) -> Result<Vec<Row>, Trouble> {
        let open = match self.open.take().filter(|open| open.session.is_open()) {
            Some(open) => open,
            None => self.open().await?,
        };
        let read = self.statement(&open.kind, self.position.after.is_some());
        let rows = open.session.query("read the source's query", &read, &[&self.position.after, &limit]).await?;
        // Afterwards: whoever empties a table waits for those who read it.
        self.check_files(&open).await?;
        self.open = Some(open);
        Ok(rows)
    }

    /// Reads rows behind `$1`, or from the beginning, at most `$2`.
    fn statement(&self, kind: &str, is_behind: bool) -> String {
        let (column, query) = (&self.column, &self.query);
        let behind = match is_behind {
            true => format!("WHERE q.{column} > $1::text::{kind}"),
            false => "WHERE $1::text IS NULL".to_owned(),
        };
        // Whether two are the same is for the database to say: 1.0 and 1.00 are.
        format!(
            "SELECT {ROWS}.*, {ROWS}.{column}::text AS ratified_position, \
             coalesce({ROWS}.{column} = lag({ROWS}.{column}) OVER (ORDER BY {ROWS}.{column}), false) AS ratified_is_repeated, \
             coalesce({ROWS}.{column}::text::{kind} = {ROWS}.{column}, false) AS ratified_is_exact, \
             pg_catalog.hashtextextended({ROWS}::text, 0) AS ratified_hash \
             FROM (SELECT * FROM ({query}) AS q {behind} ORDER BY q.{column} LIMIT $2) AS {ROWS} \
             ORDER BY {ROWS}.{column}"
        )
    }

    async fn refuse_nulls(&mut self) -> Result<(), Trouble> {
        let open = self.open().await?;
        let nulls = format!("SELECT EXISTS (SELECT FROM ({}) AS q WHERE q.{} IS NULL)", self.query, self.column);
        let doing = "look for rows without a position";
        let row = open.session.query_one(doing, &nulls, &[]).await?;
        if row.try_get(0).map_err(|error| Failure::new(doing, error))? {
            return Err(Trouble::Refused(format!(
                "a row of the source's query has NULL in its position column {}",
                self.column
            )));
        }
        self.open = Some(open);
        Ok(())
    }

    /// The position of a row, and the hash of the row; refuses one that the row before it has, too.
    fn place(&self, row: &Row) -> Result<(String, i64), Cause> {
        let added = row.len().saturating_sub(ADDED_COLUMNS);
        let read = |error| Cause::new(format!("the position of a row cannot be read: {error}"));
        let position: Option<String> = row.try_get(added).map_err(read)?;
        let column = &self.column;
        let position = position.ok_or_else(|| Cause::new(format!("a row has NULL in its position column {column}")))?;
        if row.try_get(added + 1).map_err(read)? {
            return Err(Cause::new(format!(
                "two rows have the position {position:?} in column {column}: it must be unique"
            )));
        }
        let is_exact: bool = row.try_get(added + 2).map_err(read)?;
        if !is_exact {
            return Err(Cause::new(format!(
                "the position {position:?} in column {column} is another one when it is read again from that text; take a \
                 column of another type"
            )));
        }
        Ok((position, row.try_get(added + 3).map_err(read)?))
    }
}

#[async_trait]
impl<R: Send + 'static> Source for PostgresSource<R> {
    type Record = R;
    type Position = PostgresPosition;

    async fn seek(&mut self, position: Option<&PostgresPosition>) -> Result<(), Cause> {
        self.position = position.cloned().unwrap_or_default();
        Ok(self.refuse_nulls().await?)
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<R>, Cause> {
        // One more than asked for: whether the last one's position is its own is seen from the one behind it.
        let limit = i64::try_from(max_records).unwrap_or(i64::MAX).saturating_add(1);
        let rows = self.rows(limit).await?;
        let mut records = Vec::with_capacity(rows.len().min(max_records));
        let mut last = None;
        for row in &rows {
            let position = self.place(row)?;
            if records.len() < max_records {
                records.push((self.decode)(row)?);
                last = Some(position);
            }
        }
        if let Some((after, hash)) = last {
            (self.position.after, self.position.row) = (Some(after), hash);
            return Ok(Read::Records(records));
        }
        Ok(if self.follows { Read::Idle } else { Read::End })
    }

    fn position(&self) -> PostgresPosition {
        self.position.clone()
    }
}
