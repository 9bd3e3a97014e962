//! The sink's own tables.

use super::config::Settings;
use crate::database::{Failure, Session, identifier};
use ratified::SinkError;

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

/// Makes the tables, unless they are there: then no privilege to make any is needed.
pub(super) async fn ensure(session: &mut Session, settings: &Settings) -> Result<(), SinkError> {
    ensure_tables(session, settings).await.map_err(Failure::into_determinate)
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
