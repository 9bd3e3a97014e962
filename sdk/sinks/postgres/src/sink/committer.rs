//! Makes staged rows visible, or removes them, whichever way they were staged.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use ratified::{ClientName, Committed, Epoch, SinkCommitter, SinkError, TxnContext, TxnId};
use tokio::sync::Mutex;

use super::{
    commit,
    config::{PostgresStep, Settings},
    connect::{COMMITTER, Connected, connect},
    control, fence,
    handle::{PostgresHandle, Staging},
    ledger, markers,
};

/// After how many commits old markers are looked for.
const PRUNE_EVERY: u32 = 256;

/// Applies outcomes to rows, one at a time, on a connection that is made again when it is lost.
#[derive(Clone)]
pub struct PostgresCommitter {
    settings: Arc<Settings>,
    connected: Arc<Mutex<Option<Connected>>>,
    commits: Arc<AtomicU32>,
}

impl fmt::Debug for PostgresCommitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresCommitter").field("database", &self.settings.database).finish_non_exhaustive()
    }
}

impl PostgresCommitter {
    pub(super) async fn open(settings: Arc<Settings>) -> Result<Self, SinkError> {
        let mut connected = connect(&settings, COMMITTER).await?;
        control::ensure(&mut connected.session, &settings).await?;
        Ok(Self { settings, connected: Arc::new(Mutex::new(Some(connected))), commits: Arc::default() })
    }

    /// The connection, for one call. It is given back only if the call succeeds: after anything else nobody knows what the
    /// server still does on it.
    async fn take(&self, place: &mut Option<Connected>) -> Result<Connected, SinkError> {
        match place.take().filter(|connected| connected.session.is_open()) {
            Some(connected) => Ok(connected),
            None => connect(&self.settings, COMMITTER).await,
        }
    }

    async fn prune_sometimes(&self, connected: &Connected, client: &ClientName) {
        if !self.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(PRUNE_EVERY) {
            return;
        }
        if let Err(error) = markers::prune(&connected.session, &self.settings, client.as_str()).await {
            // A commit has succeeded, and the next one tries again.
            tracing::warn!(%client, %error, "old markers could not be removed");
        }
    }
}

#[async_trait]
impl SinkCommitter for PostgresCommitter {
    type Handle = PostgresHandle;

    /// [`Committed::Already`] only if the marker row was found.
    ///
    /// # Errors
    /// [`SinkError::Rejected`] if the rows are neither staged nor marked, or violate a constraint of their table.
    async fn commit(&self, txn: &TxnContext, handle: &PostgresHandle) -> Result<Committed, SinkError> {
        let settings = &self.settings;
        if handle.sink != settings.sink.as_str() {
            let (theirs, ours) = (&handle.sink, settings.sink.as_str());
            return Err(SinkError::rejected(format!("{} was staged by the sink {theirs}, not {ours}", txn.txn_id)));
        }
        let mut place = self.connected.lock().await;
        let connected = self.take(&mut place).await?;
        let committed = match handle.staging {
            Staging::Prepared => commit::commit(&connected, settings, txn).await?,
            Staging::Ledger => ledger::commit(&connected.session, settings, txn).await?,
        };
        if committed == Committed::Now {
            self.prune_sometimes(&connected, &txn.client).await;
        }
        *place = Some(connected);
        Ok(committed)
    }

    /// # Errors
    /// [`SinkError::Rejected`] if the marker says that somebody else has committed it.
    async fn abort(&self, txn: &TxnContext, _: Option<&PostgresHandle>) -> Result<(), SinkError> {
        let settings = &self.settings;
        let mut place = self.connected.lock().await;
        let connected = self.take(&mut place).await?;
        settings.step(PostgresStep::Abort);
        commit::abort(&connected, settings, txn).await?;
        ledger::abort(&connected.session, settings, txn).await?;
        if markers::is_there(&connected.session, settings, txn).await? {
            let marker = settings.own("marker");
            return Err(SinkError::rejected(format!(
                "{} of {} was decided to be aborted, but its marker in {marker} says that it is committed: by hand, for \
                 example. Its rows are visible, and the job is about to write them again",
                txn.txn_id, txn.client
            )));
        }
        settings.step(PostgresStep::Aborted);
        *place = Some(connected);
        Ok(())
    }

    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError> {
        let mut place = self.connected.lock().await;
        let connected = self.take(&mut place).await?;
        let mut ids: BTreeSet<_> = commit::list(&connected, &self.settings, client).await?.into_iter().collect();
        ids.extend(ledger::list(&connected.session, &self.settings, client).await?);
        *place = Some(connected);
        Ok(ids.into_iter().collect())
    }

    /// Those whose marker is there: the newest [are kept](crate::PostgresSinkBuilder::keep_markers).
    async fn list_visible(&self, client: &ClientName) -> Result<Option<Vec<TxnId>>, SinkError> {
        let mut place = self.connected.lock().await;
        let connected = self.take(&mut place).await?;
        let ids = markers::list(&connected.session, &self.settings, client).await?;
        *place = Some(connected);
        Ok(Some(ids))
    }

    /// # Errors
    /// [`SinkError::Rejected`] if a newer owner has fenced this one.
    async fn fence(&self, client: &ClientName, epoch: Epoch) -> Result<(), SinkError> {
        let mut place = self.connected.lock().await;
        let connected = self.take(&mut place).await?;
        self.settings.step(PostgresStep::Fence);
        fence::fence(&connected.session, &self.settings, client, epoch).await?;
        *place = Some(connected);
        Ok(())
    }
}
