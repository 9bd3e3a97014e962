//! Connections as the sink needs them: with the server's settings that it relies on.

use tokio_postgres::types::Oid;

use super::{config::Settings, handle::Staging};
use crate::database::{Failure, Session};
use ratified::SinkError;

/// What committers are called in `pg_stat_activity`, except while they move rows; no newer owner ends them.
pub(super) const COMMITTER: &str = "ratified-committer";
/// What a writer is called before its first transaction.
pub(super) const WRITER: &str = "ratified-writer";

/// Settings of a role or a database that would end a session while a transaction waits for its next records, or would
/// lose what was told to be committed. Some are unknown to older servers.
const SAFE: &str = "SELECT set_config(name, '0', false) FROM pg_settings \
     WHERE name IN ('idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout'); \
     SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

const STATE: &str = "SELECT (SELECT oid FROM pg_database WHERE datname = current_database()), pg_is_in_recovery(), \
     current_setting('max_prepared_transactions')::int";

/// A session and the database it has reached.
pub(super) struct Connected {
    pub(super) session: Session,
    /// The oid of the database.
    pub(super) database: Oid,
}

/// Connects, and checks that the server can do what is asked of it.
pub(super) async fn connect(settings: &Settings, application: &str) -> Result<Connected, SinkError> {
    let (connected, is_standby, max_prepared) =
        reach(settings, application).await.map_err(Failure::into_determinate)?;
    if is_standby {
        return Err(SinkError::determinate("the server is a standby: only a primary takes writes"));
    }
    if max_prepared == 0 && settings.staging == Staging::Prepared {
        return Err(SinkError::rejected(
            "the server has max_prepared_transactions = 0 and so cannot prepare any: set it in postgresql.conf to more \
             than all its writers can have prepared at once (ALTER SYSTEM SET max_prepared_transactions = 64), restart \
             the server, and start again; or stage by Staging::Ledger, which does not need it",
        ));
    }
    Ok(connected)
}

async fn reach(settings: &Settings, application: &str) -> Result<(Connected, bool, i32), Failure> {
    let session = Session::connect(&settings.database, application).await?;
    let doing = "set up the session";
    // A writer's COPY lasts from one checkpoint to the next and has no limit; waiting for a lock has.
    let (lock, statement) =
        if application == WRITER { (session.timeout_ms(), 0) } else { (session.timeout_ms(), session.timeout_ms()) };
    let limits = format!(
        "SET lock_timeout = {lock}; SET statement_timeout = {statement}; SET client_min_messages = warning; \
         SET default_transaction_read_only = off"
    );
    session.run(doing, &limits).await?;
    session.run(doing, SAFE).await?;
    let row = session.query_one(doing, STATE, &[]).await?;
    let read = |error| Failure::new(doing, error);
    let database = row.try_get::<_, Oid>(0).map_err(read)?;
    let (is_standby, max_prepared) = (row.try_get(1).map_err(read)?, row.try_get(2).map_err(read)?);
    Ok((Connected { session, database }, is_standby, max_prepared))
}
