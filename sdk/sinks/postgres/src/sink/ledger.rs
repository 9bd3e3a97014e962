//! Staging without prepared transactions: rows wait in tables beside their targets, and one transaction of the database
//! moves them and writes the marker.

use ratified::{Cause, ClientName, Committed, SinkError, TxnContext, TxnId};
use serde::{Deserialize, Serialize};

use super::{
    config::{PostgresStep, Settings},
    markers,
    names::session_name,
    targets::Target,
};
use crate::database::{Failure, Session, literal};

/// The staged rows of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// The table they are in, its bare name.
    stage: String,
    /// The table they are for, quoted.
    target: String,
    /// The columns they fill, quoted.
    columns: String,
    rows: u64,
}

impl Part {
    pub(super) fn of(target: &Target, rows: u64) -> Option<Self> {
        let stage = target.stage.clone()?;
        Some(Self { stage, target: target.table.clone(), columns: target.columns.clone(), rows })
    }
}

/// A number for the rows of a transaction.
pub(super) async fn draw_id(session: &Session, settings: &Settings) -> Result<i64, Failure> {
    let doing = "draw a number";
    let sequence = settings.own("staged_id");
    let row = session.query_one(doing, "SELECT nextval($1::text::regclass)", &[&sequence]).await?;
    row.try_get(0).map_err(|error| Failure::new(doing, error))
}

/// Notes what is staged, as part of the transaction of the database that stages it.
pub(super) async fn note_staged(
    session: &Session,
    settings: &Settings,
    txn: &TxnContext,
    id: i64,
    parts: &[Part],
) -> Result<(), SinkError> {
    let insert =
        format!("INSERT INTO {} (sink, client, txn_id, id, parts) VALUES ($1, $2, $3, $4, $5)", settings.own("staged"));
    let parts = serde_json::to_string(parts).map_err(|error| SinkError::Rejected(Cause::new(error)))?;
    let (sink, client, txn_id) = (settings.sink.as_str(), txn.client.as_str(), txn.txn_id.as_uuid());
    session.execute("note what is staged", &insert, &[&sink, &client, &txn_id, &id, &parts]).await?;
    Ok(())
}

/// Whether something is staged under this id.
pub(super) async fn is_staged(session: &Session, settings: &Settings, txn: &TxnContext) -> Result<bool, Failure> {
    let query = format!("SELECT 1 FROM {} WHERE sink = $1 AND client = $2 AND txn_id = $3", settings.own("staged"));
    let (sink, client, txn_id) = (settings.sink.as_str(), txn.client.as_str(), txn.txn_id.as_uuid());
    Ok(session.query_opt("look for what is staged", &query, &[&sink, &client, &txn_id]).await?.is_some())
}

/// Moves the staged rows to their targets and notes that, all at one instant; or finds the note.
pub(super) async fn commit(session: &Session, settings: &Settings, txn: &TxnContext) -> Result<Committed, SinkError> {
    settings.step(PostgresStep::Commit);
    begin(session, settings, txn).await?;
    if !markers::write_if_missing(session, settings, txn).await? {
        session.run("end", "ROLLBACK").await?;
        return Ok(Committed::Already);
    }
    let Some((id, parts)) = take_note(session, settings, txn).await? else {
        session.run("end", "ROLLBACK").await?;
        let (staged, marker) = (settings.own("staged"), settings.own("marker"));
        return Err(SinkError::rejected(format!(
            "{} of {} is lost: it is not staged in {staged}, and no marker of it in {marker} says that it was committed. It \
             was removed by hand, or lost by a failover or a restore, after it was decided to commit it",
            txn.txn_id, txn.client
        )));
    };
    for part in &parts {
        move_rows(session, settings, id, part).await?;
    }
    settings.step(PostgresStep::Moved);
    session.run("commit", "COMMIT").await?;
    settings.step(PostgresStep::Committed);
    Ok(Committed::Now)
}

/// Removes what is staged, if it is.
pub(super) async fn abort(session: &Session, settings: &Settings, txn: &TxnContext) -> Result<(), SinkError> {
    begin(session, settings, txn).await?;
    if let Some((id, parts)) = take_note(session, settings, txn).await? {
        for part in &parts {
            let delete = format!("DELETE FROM {} WHERE ratified_id = $1", settings.own(&part.stage));
            session.execute("remove staged rows", &delete, &[&id]).await?;
        }
    }
    Ok(session.run("commit", "COMMIT").await?)
}

/// The ids of this sink and client that are staged.
pub(super) async fn list(session: &Session, settings: &Settings, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
    let query = format!("SELECT txn_id FROM {} WHERE sink = $1 AND client = $2", settings.own("staged"));
    let (doing, sink) = ("list what is staged", settings.sink.as_str());
    let rows = session.query(doing, &query, &[&sink, &client.as_str()]).await?;
    rows.iter().map(|row| markers::id_of(row, doing, &settings.own("staged"))).collect()
}

/// Begins a transaction of the database that ends an outcome. An owner that is suspended in the middle of it holds locks:
/// a newer one finds its session by its name, as those of writers, and if it comes too early the server ends it in time.
async fn begin(session: &Session, settings: &Settings, txn: &TxnContext) -> Result<(), Failure> {
    let name = literal(&session_name(&settings.sink, &txn.client, txn.epoch));
    let statements = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL application_name = {name}; \
         SET LOCAL idle_in_transaction_session_timeout = {}",
        session.timeout_ms()
    );
    session.run("begin", &statements).await
}

/// Takes the note of what is staged away; nobody else can then move the same rows.
async fn take_note(
    session: &Session,
    settings: &Settings,
    txn: &TxnContext,
) -> Result<Option<(i64, Vec<Part>)>, SinkError> {
    let (table, doing) = (settings.own("staged"), "take what is staged");
    let delete = format!("DELETE FROM {table} WHERE sink = $1 AND client = $2 AND txn_id = $3 RETURNING id, parts");
    let (sink, client, txn_id) = (settings.sink.as_str(), txn.client.as_str(), txn.txn_id.as_uuid());
    let Some(row) = session.query_opt(doing, &delete, &[&sink, &client, &txn_id]).await? else { return Ok(None) };
    let read = |error| SinkError::from(Failure::new(doing, error));
    let parts: String = row.try_get(1).map_err(read)?;
    let unreadable = |error| SinkError::rejected(format!("{table} cannot be read by this version: {error}"));
    Ok(Some((row.try_get(0).map_err(read)?, serde_json::from_str(&parts).map_err(unreadable)?)))
}

async fn move_rows(session: &Session, settings: &Settings, id: i64, part: &Part) -> Result<(), SinkError> {
    let Part { stage, target, columns, rows } = part;
    let stage = settings.own(stage);
    // As COPY does, which fills an identity column with what it is given.
    let statement = format!(
        "WITH moved AS (DELETE FROM {stage} WHERE ratified_id = $1 RETURNING *), \
         put AS (INSERT INTO {target} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM moved ORDER BY ratified_seq) \
         SELECT count(*) FROM moved"
    );
    let doing = format!("move staged rows to {target}");
    let row = session.query_one(&doing, &statement, &[&id]).await?;
    let moved: i64 = row.try_get(0).map_err(|error| Failure::new(&doing, error))?;
    if u64::try_from(moved) == Ok(*rows) {
        return Ok(());
    }
    Err(SinkError::rejected(format!(
        "{stage} holds {moved} rows of a transaction that staged {rows}: some were removed"
    )))
}
