//! The sink's own tables.

use super::config::Settings;
use crate::database::{Failure, Session, identifier};
use ratified::SinkError;
use tokio_postgres::error::SqlState;

const TABLES: [&str; 4] = ["marker", "owner", "staged", "staged_id"];
/// Names the lock under which tables are made, so that two who open at once do not meet: the ASCII codes of "ratified".
pub(super) const DDL_LOCK: i64 = 0x7261_7469_6669_6564;

/// The statements that make the sink's own tables in this schema: for databases in which the role of a job may not. They
/// change nothing if the tables are there.
///
/// * `marker`: what is committed, in the transaction of the database that holds the rows.
/// * `owner`: the newest epoch of each client.
/// * `staged`: what is staged by [`Staging::Ledger`](super::Staging::Ledger); its rows are in tables named `staged_...`.
pub fn control_tables(schema: &str) -> String {
    let schema = identifier(schema);
    let key = "sink text COLLATE \"C\" NOT NULL, client text COLLATE \"C\" NOT NULL";
    format!(
        "CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.marker ({key}, txn_id uuid NOT NULL, checkpoint numeric(20),
    written_at timestamptz NOT NULL DEFAULT now(), seen_at timestamptz, PRIMARY KEY (sink, client, txn_id));
CREATE INDEX IF NOT EXISTS marker_unseen ON {schema}.marker (sink, client) WHERE seen_at IS NULL;
CREATE TABLE IF NOT EXISTS {schema}.owner ({key}, epoch numeric(20) NOT NULL,
    since timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (sink, client));
CREATE SEQUENCE IF NOT EXISTS {schema}.staged_id;
CREATE TABLE IF NOT EXISTS {schema}.staged ({key}, txn_id uuid NOT NULL, id bigint NOT NULL, parts text NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (sink, client, txn_id));
"
    )
}

/// Makes the tables, unless they are there, when no privilege to make any is needed; then checks that they can be used.
pub(super) async fn ensure(session: &mut Session, settings: &Settings) -> Result<(), SinkError> {
    ensure_tables(session, settings).await.map_err(|failure| {
        if failure.is(&SqlState::INSUFFICIENT_PRIVILEGE) {
            let schema = &settings.schema;
            return SinkError::rejected(format!(
                "{failure}: have somebody who may run what ratified_postgres::control_tables({schema:?}) returns"
            ));
        }
        failure.into_determinate()
    })?;
    check(session, settings).await
}

async fn ensure_tables(session: &Session, settings: &Settings) -> Result<(), Failure> {
    let doing = format!("make the tables of schema {:?}", settings.schema);
    let count = "SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace \
         WHERE nspname = $1 AND relname = ANY($2)";
    let tables: Vec<&str> = TABLES.to_vec();
    let row = session.query_one(&doing, count, &[&settings.schema, &tables]).await?;
    let found: i64 = row.try_get(0).map_err(|error| Failure::new(&doing, error))?;
    if usize::try_from(found) == Ok(TABLES.len()) {
        return Ok(());
    }
    // One string of statements is one transaction; the lock ends with it.
    let statements = format!("SELECT pg_advisory_xact_lock({DDL_LOCK}); {}", control_tables(&settings.schema));
    session.run(&doing, &statements).await
}

/// What a table is asked for, and the columns that it was made with, in the order of their names.
struct Own {
    table: &'static str,
    privileges: &'static [&'static str],
    columns: &'static str,
}

const OWN: [Own; 3] = [
    Own {
        table: "marker",
        privileges: &["SELECT", "INSERT", "UPDATE", "DELETE"],
        columns: "checkpoint numeric(20,0), client text, seen_at timestamp with time zone, sink text, txn_id uuid, \
                  written_at timestamp with time zone",
    },
    Own {
        table: "owner",
        privileges: &["SELECT", "INSERT", "UPDATE"],
        columns: "client text, epoch numeric(20,0), since timestamp with time zone, sink text",
    },
    Own {
        table: "staged",
        privileges: &["SELECT", "INSERT", "DELETE"],
        columns: "client text, id bigint, parts text, sink text, staged_at timestamp with time zone, txn_id uuid",
    },
];

const OWN_TABLE: &str = "SELECT c.relkind = 'r' AND EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary), \
     c.relpersistence = 'p', row_security_active(c.oid), \
     (SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attname::text COLLATE \"C\") \
      FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), \
     (SELECT string_agg(p, ', ') FROM unnest($3::text[]) p WHERE NOT has_table_privilege(c.oid, p)) \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = $1 AND relname = $2";

/// Whether the role may do with the sink's own tables what will be done with them, and whether they are what they should
/// be: an outcome would meet it behind the decision.
async fn check(session: &Session, settings: &Settings) -> Result<(), SinkError> {
    let (doing, schema) = ("look at the sink's own tables", identifier(&settings.schema));
    let query = "SELECT has_schema_privilege($1, 'USAGE')";
    let row = session.query_one(doing, query, &[&settings.schema]).await.map_err(Failure::into_determinate)?;
    let read = |error| SinkError::from(Failure::new(doing, error));
    if !row.try_get::<_, bool>(0).map_err(read)? {
        return Err(SinkError::rejected(format!(
            "the role may not use schema {schema}: GRANT USAGE ON SCHEMA {schema} to it"
        )));
    }
    for own in &OWN {
        let Own { table, privileges, columns } = own;
        let row = session.query_one(doing, OWN_TABLE, &[&settings.schema, table, privileges]).await;
        let row = row.map_err(Failure::into_determinate)?;
        let (is_table, is_logged, is_secured) = (row.try_get(0), row.try_get(1), row.try_get(2));
        let (has, lacks): (Option<String>, Option<String>) =
            (row.try_get(3).map_err(read)?, row.try_get(4).map_err(read)?);
        let has = has.unwrap_or_default();
        let why = if !is_table.map_err(read)? || has != *columns {
            format!(
                "is not the table that this sink makes: it has {has}, not {columns}, or no primary key; give the sink \
                     another schema"
            )
        } else if !is_logged.map_err(read)? {
            "is unlogged: a crash of the server empties it, and with it the proof of commits: ALTER TABLE ... SET LOGGED".to_owned()
        } else if is_secured.map_err(read)? {
            "has row security for this role: ALTER TABLE ... DISABLE ROW LEVEL SECURITY".to_owned()
        } else if let Some(lacks) = lacks {
            format!("may not be used as it is needed: GRANT {lacks} on it to this role")
        } else {
            continue;
        };
        return Err(SinkError::rejected(format!("the sink's own table {} {why}", settings.own(table))));
    }
    Ok(())
}
