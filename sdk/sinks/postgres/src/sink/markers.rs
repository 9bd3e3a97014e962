//! Markers: the rows that prove a commit. See the [crate](crate).

use ratified::{ClientName, MAX_VISIBLE, SinkError, TxnContext, TxnId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::config::Settings;
use crate::database::{Failure, Session};

/// Most markers removed at once: a bound on how long that takes.
const MAX_REMOVED: i64 = 10_000;

/// Writes the marker of a transaction, as part of the transaction of the database that is open.
pub(super) async fn write(session: &Session, settings: &Settings, txn: &TxnContext) -> Result<(), Failure> {
    insert(session, settings, txn, "").await.map(drop)
}

/// As [`write`]; false if it was there. Waits for another transaction of the database that writes the same.
pub(super) async fn write_if_missing(
    session: &Session,
    settings: &Settings,
    txn: &TxnContext,
) -> Result<bool, Failure> {
    insert(session, settings, txn, " ON CONFLICT DO NOTHING").await.map(|written| written == 1)
}

async fn insert(session: &Session, settings: &Settings, txn: &TxnContext, conflict: &str) -> Result<u64, Failure> {
    let table = settings.own("marker");
    let insert = format!(
        "INSERT INTO {table} (sink, client, txn_id, checkpoint) VALUES ($1, $2, $3, $4::text::numeric){conflict}"
    );
    let checkpoint = txn.checkpoint.map(|checkpoint| checkpoint.to_string());
    let (sink, client, txn_id) = (settings.sink.as_str(), txn.client.as_str(), txn.txn_id.as_uuid());
    session.execute("write the marker", &insert, &[&sink, &client, &txn_id, &checkpoint]).await
}

/// Whether the transaction is committed, as far as this database knows.
pub(super) async fn is_there(session: &Session, settings: &Settings, txn: &TxnContext) -> Result<bool, Failure> {
    let query = format!("SELECT 1 FROM {} WHERE sink = $1 AND client = $2 AND txn_id = $3", settings.own("marker"));
    let (sink, client, txn_id) = (settings.sink.as_str(), txn.client.as_str(), txn.txn_id.as_uuid());
    Ok(session.query_opt("look for the marker", &query, &[&sink, &client, &txn_id]).await?.is_some())
}

/// The newest transactions of a client that are committed, in ascending order.
pub(super) async fn list(session: &Session, settings: &Settings, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
    let query = format!(
        "SELECT txn_id FROM {} WHERE sink = $1 AND client = $2 ORDER BY txn_id DESC LIMIT $3",
        settings.own("marker")
    );
    let (doing, sink) = ("list the markers", settings.sink.as_str());
    let most = i64::try_from(MAX_VISIBLE).unwrap_or(i64::MAX);
    let rows = session.query(doing, &query, &[&sink, &client.as_str(), &most]).await;
    let rows = rows.map_err(Failure::into_determinate)?;
    rows.iter().rev().map(|row| id_of(row, doing, &settings.own("marker"))).collect()
}

/// The id in the first column of a row of one of the sink's own tables.
pub(super) fn id_of(row: &Row, doing: &str, table: &str) -> Result<TxnId, SinkError> {
    let uuid: Uuid = row.try_get(0).map_err(|error| Failure::new(doing, error))?;
    TxnId::try_from(uuid).map_err(|error| SinkError::rejected(format!("{table} has {uuid}: {error}")))
}

/// Removes markers that nobody can ask for any longer. One that is seen for the first time is stamped: when it was written
/// says nothing about when it was committed. Tells how many were removed.
pub(super) async fn prune(session: &Session, settings: &Settings, client: &str) -> Result<u64, Failure> {
    let (table, doing, sink) = (settings.own("marker"), "remove old markers", settings.sink.as_str());
    let stamp = format!("UPDATE {table} SET seen_at = now() WHERE sink = $1 AND client = $2 AND seen_at IS NULL");
    session.execute(doing, &stamp, &[&sink, &client]).await?;
    let remove = format!(
        "DELETE FROM {table} WHERE sink = $1 AND client = $2 AND txn_id IN (SELECT txn_id FROM {table} \
         WHERE sink = $1 AND client = $2 AND seen_at <= now() - $3 * interval '1 second' \
         AND txn_id < (SELECT txn_id FROM {table} WHERE sink = $1 AND client = $2 \
                       ORDER BY txn_id DESC OFFSET $4 LIMIT 1) ORDER BY txn_id LIMIT $5)"
    );
    let (seconds, behind) = (settings.keep_markers_for.as_secs_f64(), i64::from(settings.keep_markers) - 1);
    session.execute(doing, &remove, &[&sink, &client, &seconds, &behind, &MAX_REMOVED]).await
}
