//! The tables as the database has them: found once by each writer, before anything is written.

use tokio_postgres::Row;

use super::{config::Settings, control::DDL_LOCK, fitness, handle::Staging, names::hash, table::Table};
use crate::database::{Failure, Session, identifier, literal, qualified};
use ratified::SinkError;
use tokio_postgres::error::SqlState;

/// How many digits of a hash name a table for staged rows.
const STAGE_HASH_CHARS: usize = 16;

/// Where the rows of a table are sent.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// The table, quoted and with its schema.
    pub(super) table: String,
    /// The columns that a record fills, quoted.
    pub(super) columns: String,
    /// How many they are.
    pub(super) width: usize,
    /// The table that rows are staged in, its bare name; only for [`Staging::Ledger`].
    pub(super) stage: Option<String>,
}

impl Target {
    /// The statement that takes rows.
    pub(super) fn copy(&self, settings: &Settings) -> String {
        match &self.stage {
            Some(stage) => {
                format!("COPY {} (ratified_id, ratified_seq, {}) FROM STDIN", settings.own(stage), self.columns)
            }
            None => format!("COPY {} ({}) FROM STDIN", self.table, self.columns),
        }
    }
}

/// Finds every table, and makes what [`Staging::Ledger`] stages in.
pub(super) async fn find_all(session: &mut Session, settings: &Settings) -> Result<Vec<Target>, SinkError> {
    let mut targets = Vec::with_capacity(settings.tables.len());
    for table in &settings.tables {
        let found = find(session, table).await?;
        fitness::check(session, table, settings.staging).await?;
        let stage = match settings.staging {
            Staging::Prepared => None,
            Staging::Ledger => Some(ensure_stage(session, settings, &found).await?),
        };
        let columns = table.column_list();
        targets.push(Target { table: found.table, columns, width: table.columns().len(), stage });
    }
    Ok(targets)
}

struct Found {
    /// Quoted, with its schema.
    table: String,
    /// What the columns that are filled are like, and the checks on them.
    likeness: String,
    /// The other columns, quoted.
    others: Vec<String>,
}

async fn find(session: &Session, table: &Table) -> Result<Found, SinkError> {
    let name = table.quoted();
    let doing = format!("look at table {name}");
    let query = "SELECT nspname::text, relname::text, relpersistence::text, \
         has_any_column_privilege(pg_class.oid, 'INSERT'), \
         coalesce((SELECT string_agg(pg_get_constraintdef(c.oid), '; ' ORDER BY conname) FROM pg_constraint c \
                   WHERE conrelid = pg_class.oid AND contype = 'c'), '') \
         FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE pg_class.oid = to_regclass($1)";
    let read = |error| SinkError::from(Failure::new(&doing, error));
    let found = session.query_opt(&doing, query, &[&name]).await;
    let Some(row) = found.map_err(Failure::into_determinate)? else {
        return Err(SinkError::rejected(format!("table {name} does not exist, or the role may not see it")));
    };
    if row.try_get::<_, String>(2).map_err(read)? != "p" {
        let why = "a crash of the server empties it, while its commits would be remembered";
        return Err(SinkError::rejected(format!("table {name} is unlogged or temporary: {why}")));
    }
    if !row.try_get::<_, bool>(3).map_err(read)? {
        return Err(SinkError::rejected(format!("the role has no INSERT privilege on table {name}")));
    }
    let schema: String = row.try_get(0).map_err(read)?;
    let relation: String = row.try_get(1).map_err(read)?;
    let checks: String = row.try_get(4).map_err(read)?;
    let columns = "SELECT attname::text, format_type(atttypid, atttypmod) || ' ' || attcollation || ' ' || attnotnull \
         FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    let rows = session.query(&doing, columns, &[&name]).await;
    let columns = rows.map_err(Failure::into_determinate)?.iter().map(column).collect::<Result<Vec<_>, _>>();
    let columns = columns.map_err(read)?;
    if let Some(missing) = table.columns().iter().find(|name| !columns.iter().any(|(has, _)| has == *name)) {
        return Err(SinkError::rejected(format!("table {name} has no column {missing:?}")));
    }
    let (filled, others): (Vec<_>, Vec<_>) = columns.into_iter().partition(|(name, _)| table.columns().contains(name));
    let filled: Vec<_> = filled.iter().map(|(name, kind)| format!("{} {kind}", identifier(name))).collect();
    Ok(Found {
        table: qualified(Some(&schema), &relation),
        likeness: format!("{}; {checks}", filled.join(", ")),
        others: others.iter().map(|(name, _)| identifier(name)).collect(),
    })
}

fn column(row: &Row) -> Result<(String, String), tokio_postgres::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// The table that rows for this one are staged in. Its name tells the target's columns, types and checks apart, so that a
/// target that has changed gets a new one, and what is staged in the old one stays readable.
async fn ensure_stage(session: &Session, settings: &Settings, found: &Found) -> Result<String, SinkError> {
    let hashed = hash(&[&found.table, &found.likeness]);
    let stage = format!("staged_{}", hashed.get(..STAGE_HASH_CHARS).unwrap_or(&hashed));
    let (quoted, doing) = (settings.own(&stage), format!("make a table to stage rows for {}", found.table));
    if may_stage(session, settings, found, &stage).await? {
        return Ok(stage);
    }
    let drops: String = found.others.iter().map(|column| format!("DROP COLUMN {column} CASCADE, ")).collect();
    let comment = literal(&format!("rows that ratified has staged for {}", found.table));
    let statements = format!(
        "SELECT pg_advisory_xact_lock({DDL_LOCK}); CREATE TABLE {quoted} (LIKE {} INCLUDING CONSTRAINTS); \
         ALTER TABLE {quoted} {drops}ADD COLUMN ratified_id bigint NOT NULL, ADD COLUMN ratified_seq bigint NOT NULL, \
         ADD PRIMARY KEY (ratified_id, ratified_seq); COMMENT ON TABLE {quoted} IS {comment}",
        found.table
    );
    match session.run(&doing, &statements).await {
        // Another worker was faster.
        Err(failure) if failure.is(&SqlState::DUPLICATE_TABLE) => Ok(stage),
        made => made.map(|()| stage).map_err(Failure::into_determinate),
    }
}

const STAGE: &str = "SELECT s.oid IS NOT NULL, s.relpersistence IS DISTINCT FROM 'u', \
     (SELECT string_agg(p, ', ') FROM unnest(ARRAY['SELECT', 'INSERT', 'DELETE']) p WHERE NOT has_table_privilege(s.oid, p)), \
     has_schema_privilege($1, 'CREATE'), has_table_privilege($3::text::regclass, 'SELECT'), \
     has_sequence_privilege($4::text::regclass, 'USAGE, UPDATE'), \
     EXISTS (SELECT FROM pg_attribute WHERE attrelid = $3::text::regclass AND attname IN ('ratified_id', 'ratified_seq') \
             AND NOT attisdropped) \
     FROM (VALUES (1)) v LEFT JOIN pg_namespace n ON nspname = $1 \
     LEFT JOIN pg_class s ON s.relnamespace = n.oid AND s.relname = $2";

/// Whether there is a table to stage in, that may be used; if there is none, that it may be made.
async fn may_stage(session: &Session, settings: &Settings, found: &Found, stage: &str) -> Result<bool, SinkError> {
    let numbers = settings.own("staged_id");
    let (doing, target, quoted) = ("look for a table to stage in", &found.table, settings.own(stage));
    let row = session.query_one(doing, STAGE, &[&settings.schema, &stage, target, &numbers]).await;
    let row = row.map_err(Failure::into_determinate)?;
    let is =
        |column: usize| row.try_get::<_, bool>(column).map_err(|error| SinkError::from(Failure::new(doing, error)));
    let lacks: Option<String> = row.try_get(2).map_err(|error| Failure::new(doing, error))?;
    let why = match lacks {
        _ if !is(5)? => format!("it draws numbers from {numbers}: GRANT USAGE ON SEQUENCE {numbers} to this role"),
        _ if is(0)? && !is(1)? => {
            format!("{quoted} is unlogged: a crash of the server empties it; ALTER TABLE ... SET LOGGED")
        }
        Some(lacks) if is(0)? => format!("{quoted} was made by another role: GRANT {lacks} on it to this role"),
        _ if is(0)? => return Ok(true),
        _ if is(6)? => {
            format!("{target} has a column ratified_id or ratified_seq, which staged rows have, too: rename it")
        }
        _ if !is(3)? => {
            let schema = identifier(&settings.schema);
            format!("the role may make no table in {schema}: GRANT CREATE ON SCHEMA {schema} to it")
        }
        _ if !is(4)? => format!("a table like {target} has to be made: GRANT SELECT on {target} to this role"),
        _ => return Ok(false),
    };
    Err(SinkError::rejected(format!("Staging::Ledger stages rows for {target} in a table of its own: {why}")))
}
