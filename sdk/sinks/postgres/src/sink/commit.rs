//! Outcomes of prepared transactions.

use ratified::{ClientName, Committed, SinkError, TxnContext, TxnId};
use tokio_postgres::error::SqlState;

use super::{
    config::{PostgresStep, Settings},
    connect::Connected,
    markers,
    names::Gid,
};
use crate::database::{Failure, literal};

/// Commits a prepared transaction, or finds the proof that it was.
pub(super) async fn commit(
    connected: &Connected,
    settings: &Settings,
    txn: &TxnContext,
) -> Result<Committed, SinkError> {
    let Connected { session, database } = connected;
    let gid = Gid::new(&settings.sink, *database, &txn.client, txn.txn_id);
    settings.step(PostgresStep::Commit);
    match session.run("commit what is prepared", &format!("COMMIT PREPARED {}", literal(gid.as_str()))).await {
        Ok(()) => {
            settings.step(PostgresStep::Committed);
            Ok(Committed::Now)
        }
        // Committed, rolled back, lost, never there: the server says the same of all. The marker tells.
        Err(failure) if failure.is(&SqlState::UNDEFINED_OBJECT) => {
            if markers::is_there(session, settings, txn).await? {
                return Ok(Committed::Already);
            }
            let marker = settings.own("marker");
            Err(SinkError::rejected(format!(
                "{gid} is lost: it is not prepared, and no marker of it in {marker} says that it was committed. It was \
                 rolled back by hand, or lost by a failover or a restore, after it was decided to commit it"
            )))
        }
        Err(failure) => Err(failure.into()),
    }
}

/// Rolls back what is prepared, if it is.
pub(super) async fn abort(connected: &Connected, settings: &Settings, txn: &TxnContext) -> Result<(), SinkError> {
    let Connected { session, database } = connected;
    let gid = Gid::new(&settings.sink, *database, &txn.client, txn.txn_id);
    let query = "SELECT 1 FROM pg_prepared_xacts WHERE gid = $1 AND database = current_database()";
    let found = session.query_opt("look for what is prepared", query, &[&gid.as_str()]).await?;
    if found.is_none() {
        return Ok(());
    }
    match session.run("roll back what is prepared", &format!("ROLLBACK PREPARED {}", literal(gid.as_str()))).await {
        // Another committer was faster.
        Err(failure) if failure.is(&SqlState::UNDEFINED_OBJECT) => Ok(()),
        ended => Ok(ended?),
    }
}

/// The ids of this sink and client that are prepared. Refused if another role has prepared one: only that role, or a
/// superuser, may end it.
pub(super) async fn list(
    connected: &Connected,
    settings: &Settings,
    client: &ClientName,
) -> Result<Vec<TxnId>, SinkError> {
    let Connected { session, database } = connected;
    let doing = "list what is prepared";
    let query = "SELECT gid, owner::text, current_user::text, \
         owner = current_user OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) \
         FROM pg_prepared_xacts WHERE database = current_database()";
    let read = |error| SinkError::from(Failure::new(doing, error));
    let mut ids = Vec::new();
    for row in session.query(doing, query, &[]).await? {
        let gid: String = row.try_get(0).map_err(read)?;
        let Some(id) = Gid::parse(&gid, &settings.sink, *database, client) else { continue };
        if !row.try_get::<_, bool>(3).map_err(read)? {
            let (owner, this): (String, String) = (row.try_get(1).map_err(read)?, row.try_get(2).map_err(read)?);
            return Err(SinkError::rejected(format!(
                "{gid} was prepared by the role {owner:?}, and only that role may end it: connect as {owner:?}, not as {this:?}"
            )));
        }
        ids.push(id);
    }
    Ok(ids)
}
