//! Ending what older owners hold open. See the [crate](crate).

use std::time::Duration;

use ratified::{ClientName, Epoch, SinkError, TxnContext};
use tokio::time::{Instant, sleep};

use super::{config::Settings, names::session_prefix};
use crate::database::{Failure, Session};

/// How often it is looked whether an ended session has gone.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Refuses a writer that a newer owner has fenced. Part of its transaction of the database, and after it has told its
/// name: whoever raises the epoch later finds its session.
pub(super) async fn check_owner(session: &Session, settings: &Settings, txn: &TxnContext) -> Result<(), SinkError> {
    let query = format!("SELECT epoch::text FROM {} WHERE sink = $1 AND client = $2", settings.own("owner"));
    let (doing, sink, client) = ("read the owner's epoch", settings.sink.as_str(), txn.client.as_str());
    let found = session.query_opt(doing, &query, &[&sink, &client]).await;
    match found.map_err(Failure::into_determinate)? {
        None => Ok(()),
        Some(row) => {
            let epoch: String = row.try_get(0).map_err(|error| Failure::new(doing, error))?;
            refuse_older(settings, &txn.client, txn.epoch, &epoch)
        }
    }
}

/// Raises the client's epoch, and ends the writing sessions of older ones; when it returns none is left.
pub(super) async fn fence(
    session: &Session,
    settings: &Settings,
    client: &ClientName,
    epoch: Epoch,
) -> Result<(), SinkError> {
    let raise = format!(
        "INSERT INTO {} AS o (sink, client, epoch) VALUES ($1, $2, $3::text::numeric) ON CONFLICT (sink, client) \
         DO UPDATE SET epoch = greatest(o.epoch, excluded.epoch), \
         since = CASE WHEN excluded.epoch > o.epoch THEN now() ELSE o.since END RETURNING epoch::text",
        settings.own("owner")
    );
    let (doing, sink) = ("raise the owner's epoch", settings.sink.as_str());
    let row = session
        .query_one(doing, &raise, &[&sink, &client.as_str(), &epoch.to_string()])
        .await
        .map_err(Failure::into_determinate)?;
    let newest: String = row.try_get(0).map_err(|error| Failure::new(doing, error))?;
    refuse_older(settings, client, epoch, &newest)?;
    let end = Instant::now() + Duration::from_millis(u64::try_from(session.timeout_ms()).unwrap_or(u64::MAX));
    loop {
        match end_older(session, settings, client, epoch).await.map_err(Failure::into_determinate)? {
            0 => return Ok(()),
            left if Instant::now() > end => {
                return Err(SinkError::determinate(format!("{left} sessions of older owners of {client} do not end")));
            }
            _ => sleep(LOOK_AGAIN).await,
        }
    }
}

/// Asks the older sessions to end; how many there are.
async fn end_older(
    session: &Session,
    settings: &Settings,
    client: &ClientName,
    epoch: Epoch,
) -> Result<usize, Failure> {
    let (doing, prefix) = ("end the sessions of older owners", session_prefix(&settings.sink, client));
    let query = "SELECT pid, application_name FROM pg_stat_activity \
         WHERE datname = current_database() AND starts_with(application_name, $1)";
    // Only if the process still is that session; CASE, because the order of conditions is the planner's.
    let terminate = "SELECT CASE WHEN EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND application_name = $2) \
         THEN pg_terminate_backend($1) END";
    let read = |error| Failure::new(doing, error);
    let mut older = 0;
    for row in session.query(doing, query, &[&prefix]).await? {
        let (pid, name): (i32, String) = (row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
        if is_older(&name, &prefix, epoch) {
            session.query_one(doing, terminate, &[&pid, &name]).await?;
            older += 1;
        }
    }
    Ok(older)
}

fn is_older(session_name: &str, prefix: &str, epoch: Epoch) -> bool {
    let of_session = session_name.strip_prefix(prefix).and_then(|digits| digits.parse::<u64>().ok());
    of_session.is_some_and(|of_session| of_session < epoch.as_u64())
}

fn refuse_older(settings: &Settings, client: &ClientName, epoch: Epoch, newest: &str) -> Result<(), SinkError> {
    // Numerics compare as numbers only in the database; an epoch that is no u64 is newer than all.
    if newest.parse::<u64>().is_ok_and(|newest| newest <= epoch.as_u64()) {
        return Ok(());
    }
    let table = settings.own("owner");
    Err(SinkError::rejected(format!(
        "a newer owner of {client} writes to this database, of epoch {newest}, while this one has epoch {epoch}; if there is \
         none because the coordinator was replaced, remove the client's row from {table}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sessions_of_smaller_epochs_are_older() {
        for (name, older) in [
            ("p:9", true),
            ("p:10", false),
            ("p:11", false),
            ("p:", false),
            ("p:9x", false),
            ("p:-1", false),
            ("q:9", false),
        ] {
            assert_eq!(is_older(name, "p:", Epoch::new(10)), older, "{name}");
        }
    }
}
